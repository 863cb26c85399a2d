//! The detectors of one LMAP: the current one, and a shadow that learns when the columns have changed.
//!
//! The columns of a detector never change. When the LMAP's columns change, removed columns are missing for the current
//! detector, and added columns are not watched. A second detector, the *shadow*, learns the new columns. It takes over
//! when it is armed and the current one is quiet. So a service that exports its first error label during a fault is
//! still watched.
//!
//! A detector that has hardly begun to learn is restarted instead. So is such a shadow when columns change again, but
//! only a few times: a service that adds series all the time has to be watched with the columns that it has. After
//! that, a new shadow follows when the shadow has taken over.

mod explanation;
mod looks;
mod shared_settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use lmap::{Detector, Episode, Job, Model, State};
use wire::control::DetectorSpec;
use wire::id::ReplicaId;
use wire::metric::fingerprint_of;
use wire::time::Interval;

use crate::columns::{ColumnInfo, ColumnKey};
use crate::detector_settings;
use crate::error::UnexpectedMessage;
use crate::jobs::{DetectorId, Jobs};
use shared_settings::SharedSettings;

/// Most restarts of detectors that have hardly begun to learn, since one was armed last.
const MAX_RESTARTS: u32 = 8;

/// Creates detectors, and gives each its id and its seed.
#[derive(Debug)]
pub(crate) struct DetectorFactory {
    /// The worker's settings.
    configured: lmap::Settings,
    /// The settings of the LMAP whose detectors are being created.
    settings: Arc<lmap::Settings>,
    shared: SharedSettings,
    /// Target number of alarms per day, by which γ is adjusted.
    alarms_per_day: Option<f64>,
    seed: u64,
    created: u64,
}

impl DetectorFactory {
    pub(crate) fn new(settings: lmap::Settings, seed: u64) -> Self {
        let (configured, settings) = (settings.clone(), Arc::new(settings));
        Self { configured, settings, shared: SharedSettings::default(), alarms_per_day: None, seed, created: 0 }
    }

    /// Sets the target number of alarms per day of all detectors.
    pub(crate) fn with_budget(self, alarms_per_day: Option<f64>) -> Self {
        Self { alarms_per_day, ..self }
    }

    /// Sets the interval between rows and the requested settings for the detectors created next.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage::Settings`] if the requested settings conflict with those of the worker. The worker's
    /// settings are used then.
    pub(crate) fn configure_for(
        &mut self,
        interval: Interval,
        requested: &DetectorSpec,
    ) -> Result<(), UnexpectedMessage> {
        let interval = interval.length().as_secs_f64();
        let settings = detector_settings::settings(&self.configured, requested, interval).checked();
        let refused = settings.as_ref().err().copied();
        let settings = settings.unwrap_or_else(|_| detector_settings::at_interval(self.configured.clone(), interval));
        let budget = detector_settings::budget(self.alarms_per_day, requested, interval);
        self.settings = self.shared.share(lmap::Settings { budget, ..settings });
        refused.map_or(Ok(()), |error| Err(UnexpectedMessage::Settings(error)))
    }

    fn create_slot(&mut self, infos: &[ColumnInfo], from: Start<'_>) -> Result<DetectorSlot, UnexpectedMessage> {
        let columns = infos.iter().map(|info| info.column).collect();
        let (settings, seed) = (Arc::clone(&self.settings), self.seed ^ self.created);
        let detector = match from {
            Start::Empty => Detector::new(columns, settings, seed)?,
            Start::Trained(model) => Detector::from_model(model, columns, settings, seed)?,
            Start::Warm(model, continues) => {
                let settle_rows = if continues { 0 } else { settings.settle_rows };
                let settings = self.shared.share(lmap::Settings { settle_rows, ..lmap::Settings::clone(&settings) });
                Detector::warm(model, columns, settings, seed)?
            }
        };
        // Detectors of a node are fitted together at its start. Without an offset they would decompose their sketches
        // in the same tick for ever.
        let detector = detector.staggered(self.created as usize);
        self.created += 1;
        let mut slot = DetectorSlot {
            id: DetectorId(self.created),
            detector,
            keys: infos.iter().map(|info| info.key).collect(),
            positions: Vec::new(),
            row: vec![f64::NAN; infos.len()],
            exact: true,
        };
        slot.locate_columns(infos);
        Ok(slot)
    }

    /// Detectors for these columns: armed if the model can be used, else learning.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage::Model`] if the model cannot be used; the detector learns then.
    /// [`UnexpectedMessage::Detector`] if there is no column to watch.
    pub(crate) fn create(
        &mut self,
        infos: &[ColumnInfo],
        model: &[u8],
    ) -> (Option<Detectors>, Result<(), UnexpectedMessage>) {
        let trained = (!model.is_empty()).then(|| {
            let model = Model::decode(model)?;
            self.create_slot(infos, Start::Trained(&model))
        });
        let (trained, refused) = match trained {
            None => (None, Ok(())),
            Some(Ok(slot)) => (Some(slot), Ok(())),
            Some(Err(error)) => (None, Err(error)),
        };
        let is_trained = trained.is_some();
        match trained.map_or_else(|| self.create_slot(infos, Start::Empty), Ok) {
            Ok(current) => {
                let (model, shadow, warm_model) = (fingerprint_of(model), None, None);
                let (restarts, continues) = (0, false);
                let new = Detectors { current, shadow, restarts, model, is_trained, warm_model, continues };
                (Some(new), refused)
            }
            Err(error) => (None, Err(error)),
        }
    }

    /// Detectors for a service that was watched before: armed by `warm_model`, or learning while none of the columns is
    /// in that model. `continues`: the service has been running since the model was learnt.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage::Detector`] if there is no column to watch.
    pub(crate) fn create_warm(
        &mut self,
        infos: &[ColumnInfo],
        warm_model: Arc<Model>,
        continues: bool,
    ) -> (Option<Detectors>, Result<(), UnexpectedMessage>) {
        let (mut detectors, refused) = self.create(infos, &[]);
        if let Some(detectors) = &mut detectors {
            if let Ok(current) = self.create_slot(infos, Start::Warm(&warm_model, continues)) {
                detectors.current = current;
            }
            detectors.warm_model = Some(warm_model);
            detectors.continues = continues;
        }
        (detectors, refused)
    }
}

/// The state in which a detector starts.
#[derive(Clone, Copy)]
enum Start<'a> {
    Empty,
    /// A trained model. The detector learns no other.
    Trained(&'a Model),
    /// The model that an earlier detector of the service learned.
    /// True: the service has been running since, so its first rows are judged, too.
    Warm(&'a Model, bool),
}

/// A detector, and the positions of its columns in the LMAP's row.
#[derive(Debug)]
struct DetectorSlot {
    id: DetectorId,
    detector: Detector,
    keys: Vec<ColumnKey>,
    positions: Vec<Option<usize>>,
    row: Vec<f64>,
    /// Whether its columns are the LMAP's, in the same order.
    exact: bool,
}

impl DetectorSlot {
    fn locate_columns(&mut self, infos: &[ColumnInfo]) {
        let positions: BTreeMap<ColumnKey, usize> = infos.iter().enumerate().map(|(at, info)| (info.key, at)).collect();
        self.positions = self.keys.iter().map(|key| positions.get(key).copied()).collect();
        let in_order = self.positions.iter().enumerate().all(|(at, position)| *position == Some(at));
        self.exact = in_order && self.keys.len() == infos.len();
    }

    /// Whether it watches exactly the LMAP's columns, in any order.
    fn covers(&self, columns: usize) -> bool {
        self.keys.len() == columns && self.positions.iter().all(Option::is_some)
    }

    /// Memory in bytes. `used`: without the place for rows that have not come yet.
    fn bytes(&self, used: bool) -> usize {
        let detector = if used { self.detector.used_bytes() } else { self.detector.memory_bytes() };
        let column = size_of::<ColumnKey>() + size_of::<Option<usize>>() + size_of::<f64>();
        size_of::<Self>() + detector + self.keys.len() * column
    }

    /// Whether it has learned so few rows that it can be restarted.
    fn is_young(&self) -> bool {
        match self.detector.state() {
            State::Learning { rows, needed } | State::Provisional { rows, needed } => rows * 4 < needed,
            State::Armed | State::Drifted { .. } => false,
        }
    }

    fn step(&mut self, row: &[f64], learn: bool, jobs: &mut Jobs) -> Option<lmap::Verdict> {
        let row = if self.exact {
            row
        } else {
            for (value, position) in self.row.iter_mut().zip(&self.positions) {
                *value = position.and_then(|at| row.get(at)).copied().unwrap_or(f64::NAN);
            }
            &self.row
        };
        // `score` fails only if the row has another length, which `locate_columns` rules out.
        let verdict = self.detector.score(row).ok()?;
        if learn && let Some(job) = self.detector.learn() {
            jobs.add(self.id, job);
        }
        Some(verdict)
    }
}

/// The detectors of one LMAP.
#[derive(Debug)]
pub(crate) struct Detectors {
    current: DetectorSlot,
    /// Hardly ever there, so not in the way: an LMAP without it is 2 kB smaller.
    shadow: Option<Box<DetectorSlot>>,
    /// Restarts since a detector was armed last.
    restarts: u32,
    /// Fingerprint of the bytes of the operator's model that they are there for.
    model: u64,
    is_trained: bool,
    /// The model from which the detectors started, until the current one has a fit of its own. It may contain columns
    /// that are added later.
    warm_model: Option<Arc<Model>>,
    /// The service has been running since that model was learnt.
    continues: bool,
}

/// A column that contributes to the score, by its position in the LMAP's row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reason {
    pub(crate) column: usize,
    pub(crate) share: f64,
    pub(crate) seen: f64,
    pub(crate) expected: f64,
    /// Rows since it first stood out; 0 if it did so with this row, or does not stand out by itself.
    pub(crate) since_rows: u32,
    /// The replica that stands out in it. A detector knows none: its LMAP does.
    pub(crate) replica: Option<ReplicaId>,
}

impl Detectors {
    /// Whether these detectors are there for this model.
    pub(crate) fn has_model(&self, model: &[u8]) -> bool {
        self.model == fingerprint_of(model)
    }

    /// Whether they judge by an operator's model, and learn no other.
    pub(crate) fn is_trained(&self) -> bool {
        self.is_trained
    }

    /// They go on in the place of those of `model`, which cannot be used.
    pub(crate) fn stand_in_for(&mut self, model: &[u8]) {
        self.model = fingerprint_of(model);
    }

    /// No operator's model is there for them any more: they go on from where they are, as others do after their fits.
    pub(crate) fn learn_on(&mut self) {
        (self.is_trained, self.model) = (false, fingerprint_of(&[]));
    }

    /// Adapts to new columns of the LMAP.
    pub(crate) fn columns_changed(&mut self, infos: &[ColumnInfo], model: &[u8], factory: &mut DetectorFactory) {
        self.current.locate_columns(infos);
        if let Some(shadow) = &mut self.shadow {
            shadow.locate_columns(infos);
        }
        if self.current.covers(infos.len()) {
            self.shadow = None;
            return;
        }
        if self.is_trained {
            // A trained model names its columns. If one of them was added, the detector is created anew; otherwise it
            // continues.
            let added = infos.len() > self.current.positions.iter().flatten().count();
            if added && let (Some(detectors), Ok(())) = factory.create(infos, model) {
                *self = detectors;
            }
            return;
        }
        if self.restart_warm(infos, factory) {
            return;
        }
        let restart = self.restarts < MAX_RESTARTS;
        if self.current.is_young() && restart {
            if let Ok(slot) = factory.create_slot(infos, Start::Empty) {
                (self.current, self.shadow) = (slot, None);
                self.restarts += 1;
            }
            return;
        }
        match &self.shadow {
            Some(shadow) if shadow.covers(infos.len()) || !(shadow.is_young() && restart) => {}
            before => {
                self.restarts += u32::from(before.is_some());
                self.shadow = factory.create_slot(infos, Start::Empty).ok().map(Box::new);
            }
        }
    }

    /// A service registers its series one by one when it starts. As long as its detector uses the warm model, it is
    /// created anew with all columns. Returns false if the detector does not use the warm model.
    fn restart_warm(&mut self, infos: &[ColumnInfo], factory: &mut DetectorFactory) -> bool {
        if self.current.detector.counts().fits > 0 {
            self.warm_model = None;
        }
        let Some(warm_model) = &self.warm_model else { return false };
        let Ok(current) = factory.create_slot(infos, Start::Warm(warm_model, self.continues)) else { return false };
        (self.current, self.shadow) = (current, None);
        true
    }

    /// Columns without a value in the next row have none from before either: their service is gone.
    pub(crate) fn forget_missing(&mut self, row: &[f64]) {
        for slot in core::iter::once(&mut self.current).chain(self.shadow.as_deref_mut()) {
            for (column, at) in slot.positions.iter().enumerate() {
                if at.and_then(|at| row.get(at)).is_none_or(|value| value.is_nan()) {
                    slot.detector.forget(column);
                }
            }
        }
    }

    /// Replicas have come or gone: these columns of the row are judged once they have come to rest.
    pub(crate) fn arrive(&mut self, is_meant: impl Fn(usize) -> bool) {
        for slot in core::iter::once(&mut self.current).chain(self.shadow.as_deref_mut()) {
            for (column, at) in slot.positions.iter().enumerate() {
                if at.is_some_and(&is_meant) {
                    slot.detector.arrive(column);
                }
            }
        }
    }

    /// Asks for the memory of the next row: see [`Detector::prefetch`].
    pub(crate) fn prefetch(&self) {
        self.current.detector.prefetch();
    }

    /// Scores a row, and learns it if `learn`. Returns the verdict, and whether the shadow took over after it.
    pub(crate) fn step(&mut self, row: &[f64], learn: bool, jobs: &mut Jobs) -> Option<(lmap::Verdict, bool)> {
        let shadow_ready = self.shadow.as_mut().is_some_and(|shadow| {
            let verdict = shadow.step(row, learn, jobs);
            verdict.is_some_and(|verdict| verdict.state == State::Armed && !verdict.over)
        });
        let verdict = self.current.step(row, learn, jobs)?;
        let quiet = verdict.episode == Episode::Quiet && !verdict.over;
        if !(shadow_ready && quiet) {
            return Some((verdict, false));
        }
        if let Some(shadow) = self.shadow.take() {
            (self.current, self.restarts) = (*shadow, 0);
        }
        Some((verdict, true))
    }

    /// Marks a gap in time or in the replicas.
    pub(crate) fn gap(&mut self) {
        self.current.detector.gap();
        if let Some(shadow) = &mut self.shadow {
            shadow.detector.gap();
        }
    }

    /// Learns the current behaviour as normal, as an operator requested.
    pub(crate) fn fit_again(&mut self, jobs: &mut Jobs) {
        if let Some(job) = self.current.detector.fit_again() {
            jobs.add(self.current.id, job);
        }
    }

    /// Memory in bytes that they take, or will once all rows to learn from have come.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes(false)
    }

    /// Memory in bytes that is in use: without the place for rows that have not come yet.
    pub(crate) fn used_bytes(&self) -> usize {
        self.bytes(true)
    }

    fn bytes(&self, used: bool) -> usize {
        let slots = self.current.bytes(used) + self.shadow.as_ref().map_or(0, |shadow| shadow.bytes(used));
        slots + self.warm_model.as_ref().map_or(0, |model| model.memory_bytes())
    }

    /// Whether one of these detectors is `owner`.
    pub(crate) fn has(&self, owner: DetectorId) -> bool {
        self.ids().any(|id| id == owner)
    }

    /// Installs what a job of `owner` computed. The detector counts the outcome.
    pub(crate) fn install(&mut self, owner: DetectorId, done: lmap::JobResult) {
        let all = [Some(&mut self.current), self.shadow.as_deref_mut()];
        if let Some(slot) = all.into_iter().flatten().find(|slot| slot.id == owner) {
            slot.detector.install(done);
        }
    }

    /// The fitted model, as a model file.
    #[cfg(test)]
    pub(crate) fn model(&self) -> Option<Vec<u8>> {
        self.current.detector.model().map(|model| model.encode())
    }

    /// The settings of the current detector.
    #[cfg(test)]
    pub(crate) fn settings(&self) -> &lmap::Settings {
        self.current.detector.settings()
    }

    /// The model for the next detectors of the service; `None` while learning, and with a trained model, which is a
    /// file already.
    pub(crate) fn learned_model(&self) -> Option<Arc<Model>> {
        let own = || self.current.detector.model().map(Arc::new);
        if self.is_trained { None } else { own().or_else(|| self.warm_model.clone()) }
    }

    /// The target number of alarms per day, with a row every `interval`, and the factor by which γ was adjusted; `None`
    /// without a target.
    pub(crate) fn budget(&self, interval: Interval) -> Option<(f64, f64)> {
        let detector = &self.current.detector;
        let rows_per_day = 86_400.0 / interval.length().as_secs_f64();
        detector.settings().budget.map(|budget| (rows_per_day / budget.rows_per_alarm, detector.gamma_factor()))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = DetectorId> {
        [Some(self.current.id), self.shadow.as_ref().map(|shadow| shadow.id)].into_iter().flatten()
    }

    pub(crate) fn state(&self) -> State {
        self.current.detector.state()
    }

    pub(crate) fn gamma(&self) -> Option<f64> {
        self.current.detector.gamma()
    }

    pub(crate) fn threshold_noise(&self) -> Option<f64> {
        self.current.detector.threshold_noise()
    }

    /// The number of the LMAP's `columns` that are not watched.
    pub(crate) fn unwatched(&self, columns: usize) -> usize {
        let positions = &self.current.positions;
        let unwatched =
            self.current.detector.unwatched().filter(|&at| positions.get(at).is_some_and(Option::is_some)).count();
        let watched = positions.iter().flatten().count().saturating_sub(unwatched);
        columns - watched.min(columns)
    }

    /// As [`Self::explain`], each column that is judged and has a value, in no order.
    pub(crate) fn explain_each(&self, scratch: &mut Vec<lmap::Reason>, out: &mut Vec<Reason>) {
        self.current.detector.explain_each(scratch);
        self.place(scratch, out);
    }

    /// Fills `out` with `reasons` by the LMAP's columns.
    fn place(&self, reasons: &[lmap::Reason], out: &mut Vec<Reason>) {
        out.clear();
        out.extend(reasons.iter().filter_map(|reason| {
            let column = self.current.positions.get(reason.column).copied().flatten()?;
            let lmap::Reason { share, seen, expected, since_rows, .. } = *reason;
            Some(Reason { column, share, seen, expected, since_rows, replica: None })
        }));
    }

    /// Fills `out` with α, one residual for each of the LMAP's `columns`: NaN where the detector has none. Empty while
    /// learning.
    pub(crate) fn residuals(&self, columns: usize, out: &mut Vec<f32>) {
        let mut own = Vec::new();
        self.current.detector.residuals(&mut own);
        out.clear();
        out.resize(if own.is_empty() { 0 } else { columns }, f32::NAN);
        for (residual, position) in own.into_iter().zip(&self.current.positions) {
            if let Some(place) = position.and_then(|at| out.get_mut(at)) {
                *place = residual;
            }
        }
    }
}

/// Checks at compile time that jobs can run on another thread.
const _: fn() = || {
    fn is_send<T: Send + 'static>() {}
    is_send::<Job>();
    is_send::<lmap::JobResult>();
};

//! The detectors of one LMAP: the one that judges, and beside it one that learns when the columns have changed.
//!
//! A detector's columns never change. When the LMAP's do, what was removed is missing for the detector from then on and what was added is
//! unwatched; a second detector, the *shadow*, learns the new columns and takes over as soon as it is armed and the first one is quiet.
//! So a service that shows its first error label during a fault does not lose its judge. A detector that has hardly begun to learn is
//! started again instead, and a shadow that has hardly begun is, too, when columns change again, a few times: a service that never stops
//! adding series has to be judged by what it has. Else the next shadow follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use lmap::{Detector, Episode, Job, Model, State};
use wire::control::{DetectorSpec, GroupShare};
use wire::metric::Group;
use wire::time::Interval;

use crate::asked;
use crate::columns::{ColumnInfo, ColumnKey, fingerprint_of};
use crate::error::ForeignMessage;
use crate::jobs::{DetectorId, Jobs};

/// How often a detector that has hardly begun to learn is started again.
const MOST_RESTARTS: u32 = 8;

/// Makes detectors: gives each its name and its seed.
#[derive(Debug)]
pub(crate) struct Maker {
    /// What the worker is configured with.
    configured: lmap::Settings,
    /// What the LMAP has whose detectors are made.
    settings: lmap::Settings,
    /// Alarms a day that γ is steered to.
    alarms_per_day: Option<f64>,
    seed: u64,
    made: u64,
}

impl Maker {
    pub(crate) fn new(settings: lmap::Settings, seed: u64) -> Self {
        Self { configured: settings.clone(), settings, alarms_per_day: None, seed, made: 0 }
    }

    /// All detectors that are made steer γ to so many alarms a day.
    pub(crate) fn with_budget(self, alarms_per_day: Option<f64>) -> Self {
        Self { alarms_per_day, ..self }
    }

    /// The detectors made from now on get a row every `interval` and judge as `asked` for.
    ///
    /// # Errors
    ///
    /// [`ForeignMessage::Settings`] if that does not go together with what the worker is configured with, whose settings count then.
    pub(crate) fn make_for(&mut self, interval: Interval, asked: &DetectorSpec) -> Result<(), ForeignMessage> {
        let interval = interval.length().as_secs_f64();
        let wanted = asked::settings(&self.configured, asked, interval).checked();
        let refused = wanted.as_ref().err().copied();
        self.settings = wanted.unwrap_or_else(|_| self.configured.clone().every(interval));
        self.settings.budget = asked::budget(self.alarms_per_day, asked, interval);
        refused.map_or(Ok(()), |error| Err(ForeignMessage::Settings(error)))
    }

    fn judge(&mut self, infos: &[ColumnInfo], from: Start<'_>) -> Result<Judge, ForeignMessage> {
        let columns = infos.iter().map(|info| info.column).collect();
        let (settings, seed) = (self.settings.clone(), self.seed ^ self.made);
        let detector = match from {
            Start::Nothing => Detector::new(columns, settings, seed)?,
            Start::Trained(model) => Detector::from_model(model, columns, settings, seed)?,
            Start::Known(model) => Detector::warm(model, columns, settings, seed)?,
        };
        // Detectors of a node that starts are fitted together, and would decompose together ever after.
        let detector = detector.taking_turns(self.made as usize);
        self.made += 1;
        let mut judge = Judge {
            id: DetectorId(self.made),
            detector,
            keys: infos.iter().map(|info| info.key).collect(),
            places: Vec::new(),
            row: vec![f64::NAN; infos.len()],
            exact: true,
        };
        judge.place(infos);
        Ok(judge)
    }

    /// Detectors for these columns: armed if there is a model that fits, else learning.
    ///
    /// # Errors
    ///
    /// [`ForeignMessage::Model`] if the model cannot be used; the detector learns then. [`ForeignMessage::Detector`] if there is nothing
    /// to watch.
    pub(crate) fn judges(
        &mut self,
        infos: &[ColumnInfo],
        model: &[u8],
    ) -> (Option<Judges>, Result<(), ForeignMessage>) {
        let trained = (!model.is_empty()).then(|| {
            let model = Model::decode(model)?;
            self.judge(infos, Start::Trained(&model))
        });
        let (trained, refused) = match trained {
            None => (None, Ok(())),
            Some(Ok(judge)) => (Some(judge), Ok(())),
            Some(Err(error)) => (None, Err(error)),
        };
        let is_trained = trained.is_some();
        match trained.map_or_else(|| self.judge(infos, Start::Nothing), Ok) {
            Ok(current) => {
                let model = fingerprint_of(model);
                (Some(Judges { current, shadow: None, restarts: 0, model, is_trained, known: None }), refused)
            }
            Err(error) => (None, Err(error)),
        }
    }

    /// Detectors for a service whose like was watched before: armed by what is `known` of it, or learning as long as none of its columns is
    /// known.
    ///
    /// # Errors
    ///
    /// [`ForeignMessage::Detector`] if there is nothing to watch.
    pub(crate) fn warm(
        &mut self,
        infos: &[ColumnInfo],
        known: Arc<Model>,
    ) -> (Option<Judges>, Result<(), ForeignMessage>) {
        let (mut judges, refused) = self.judges(infos, &[]);
        if let Some(judges) = &mut judges {
            if let Ok(current) = self.judge(infos, Start::Known(&known)) {
                judges.current = current;
            }
            judges.known = Some(known);
        }
        (judges, refused)
    }
}

/// What a detector begins with.
#[derive(Clone, Copy)]
enum Start<'a> {
    Nothing,
    /// A model that somebody trained for it: it learns no other.
    Trained(&'a Model),
    /// What one like it had learnt.
    Known(&'a Model),
}

/// A detector, and where its columns are in the LMAP's row.
#[derive(Debug)]
struct Judge {
    id: DetectorId,
    detector: Detector,
    keys: Vec<ColumnKey>,
    places: Vec<Option<usize>>,
    row: Vec<f64>,
    /// Its columns are the LMAP's, in the same order.
    exact: bool,
}

impl Judge {
    fn place(&mut self, infos: &[ColumnInfo]) {
        let places: BTreeMap<ColumnKey, usize> = infos.iter().enumerate().map(|(at, info)| (info.key, at)).collect();
        self.places = self.keys.iter().map(|key| places.get(key).copied()).collect();
        let in_order = self.places.iter().enumerate().all(|(at, place)| *place == Some(at));
        self.exact = in_order && self.keys.len() == infos.len();
    }

    /// Whether it watches these columns and no others, in whatever order.
    fn watches(&self, columns: usize) -> bool {
        self.keys.len() == columns && self.places.iter().all(Option::is_some)
    }

    /// Whether it has seen too little for its loss to matter.
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
            for (value, place) in self.row.iter_mut().zip(&self.places) {
                *value = place.and_then(|at| row.get(at)).copied().unwrap_or(f64::NAN);
            }
            &self.row
        };
        // The only refusal is a row of another length, and `place` has seen to that.
        let verdict = self.detector.score(row).ok()?;
        if learn && let Some(job) = self.detector.learn() {
            jobs.add(self.id, job);
        }
        Some(verdict)
    }
}

/// The detectors of one LMAP.
#[derive(Debug)]
pub(crate) struct Judges {
    current: Judge,
    shadow: Option<Judge>,
    /// How often one of them was started again since one was armed last.
    restarts: u32,
    /// Of the model's bytes that it was made with.
    model: u64,
    is_trained: bool,
    /// What it began with, until it has a fit of its own: columns that come later may be in it.
    known: Option<Arc<Model>>,
}

/// A column that speaks for the score, by its place in the LMAP's row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reason {
    pub(crate) column: usize,
    pub(crate) share: f64,
    pub(crate) seen: f64,
    pub(crate) expected: f64,
    /// Rows since it first stood out; 0: with this one, or not at all by itself.
    pub(crate) since_rows: u32,
}

impl Judges {
    /// Whether it can go on with a configuration that has this model.
    pub(crate) fn has_model(&self, model: &[u8]) -> bool {
        self.model == fingerprint_of(model)
    }

    /// The LMAP's columns are these now.
    pub(crate) fn columns_changed(&mut self, infos: &[ColumnInfo], model: &[u8], maker: &mut Maker) {
        self.current.place(infos);
        if let Some(shadow) = &mut self.shadow {
            shadow.place(infos);
        }
        if self.current.watches(infos.len()) {
            self.shadow = None;
            return;
        }
        if self.is_trained {
            // A trained model knows what to watch. If a column came that it knows, it is made anew, else it goes on as it is.
            let came = infos.len() > self.current.places.iter().flatten().count();
            if came && let (Some(judges), Ok(())) = maker.judges(infos, model) {
                *self = judges;
            }
            return;
        }
        if self.goes_on_warm(infos, maker) {
            return;
        }
        let restart = self.restarts < MOST_RESTARTS;
        if self.current.is_young() && restart {
            if let Ok(judge) = maker.judge(infos, Start::Nothing) {
                (self.current, self.shadow) = (judge, None);
                self.restarts += 1;
            }
            return;
        }
        match &self.shadow {
            Some(shadow) if shadow.watches(infos.len()) || !(shadow.is_young() && restart) => {}
            before => {
                self.restarts += u32::from(before.is_some());
                self.shadow = maker.judge(infos, Start::Nothing).ok();
            }
        }
    }

    /// A service that starts registers its series one by one: as long as its detector lives by what is known, it is made anew with all that
    /// are there. False if it does not.
    fn goes_on_warm(&mut self, infos: &[ColumnInfo], maker: &mut Maker) -> bool {
        if self.current.detector.counts().fits > 0 {
            self.known = None;
        }
        let Some(known) = &self.known else { return false };
        let Ok(current) = maker.judge(infos, Start::Known(known)) else { return false };
        (self.current, self.shadow) = (current, None);
        true
    }

    /// Judges a row, and learns it if it may. True beside the verdict if the shadow took over after it.
    pub(crate) fn step(&mut self, row: &[f64], learn: bool, jobs: &mut Jobs) -> Option<(lmap::Verdict, bool)> {
        let shadow_ready = self.shadow.as_mut().is_some_and(|shadow| {
            let judged = shadow.step(row, learn, jobs);
            judged.is_some_and(|verdict| verdict.state == State::Armed && !verdict.over)
        });
        let verdict = self.current.step(row, learn, jobs)?;
        let quiet = verdict.episode == Episode::Quiet && !verdict.over;
        if !(shadow_ready && quiet) {
            return Some((verdict, false));
        }
        if let Some(shadow) = self.shadow.take() {
            (self.current, self.restarts) = (shadow, 0);
        }
        Some((verdict, true))
    }

    /// A gap in time, or in who is there.
    pub(crate) fn gap(&mut self) {
        self.current.detector.gap();
        if let Some(shadow) = &mut self.shadow {
            shadow.detector.gap();
        }
    }

    /// What an operator calls normal is normal.
    pub(crate) fn fit_again(&mut self, jobs: &mut Jobs) {
        if let Some(job) = self.current.detector.fit_again() {
            jobs.add(self.current.id, job);
        }
    }

    /// Whether one of these detectors is `owner`.
    pub(crate) fn has(&self, owner: DetectorId) -> bool {
        self.ids().any(|id| id == owner)
    }

    /// Takes back what a job of `owner` computed. What became of it is counted by the detector.
    pub(crate) fn install(&mut self, owner: DetectorId, done: lmap::Done) {
        let all = [Some(&mut self.current), self.shadow.as_mut()];
        if let Some(judge) = all.into_iter().flatten().find(|judge| judge.id == owner) {
            judge.detector.install(done);
        }
    }

    /// The fitted detector as a model file.
    #[cfg(test)]
    pub(crate) fn model(&self) -> Option<Vec<u8>> {
        self.current.detector.model().map(|model| model.encode())
    }

    /// What is worth keeping for the next of its kind; `None` while learning, and for a trained one, whose model is a file.
    pub(crate) fn knowledge(&self) -> Option<Arc<Model>> {
        let own = || self.current.detector.model().map(Arc::new);
        if self.is_trained { None } else { own().or_else(|| self.known.clone()) }
    }

    /// Alarms a day that γ is steered to, with a row every `interval`, and what γ is multiplied by for that; `None` without a budget.
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

    /// How many of the LMAP's `columns` are not judged.
    pub(crate) fn unwatched(&self, columns: usize) -> usize {
        let places = &self.current.places;
        let blind = self.current.detector.unwatched().filter(|&at| places.get(at).is_some_and(Option::is_some)).count();
        let judged = places.iter().flatten().count().saturating_sub(blind);
        columns - judged.min(columns)
    }

    /// Fills `out` with the `top` columns of the row judged last; one that the LMAP has no more is left out.
    pub(crate) fn explain(&self, top: usize, scratch: &mut Vec<lmap::Reason>, out: &mut Vec<Reason>) {
        out.clear();
        self.current.detector.explain(top, scratch);
        out.extend(scratch.iter().filter_map(|reason| {
            let column = self.current.places.get(reason.column).copied().flatten()?;
            let lmap::Reason { share, seen, expected, since_rows, .. } = *reason;
            Some(Reason { column, share, seen, expected, since_rows })
        }));
    }

    /// Fills `out` with the share of each column of the LMAP in the square of the score of the row judged last, in no order.
    pub(crate) fn column_shares(&self, out: &mut Vec<(usize, f64)>) {
        self.current.detector.column_shares(out);
        let places = &self.current.places;
        out.retain_mut(|(column, _)| {
            let place = places.get(*column).copied().flatten();
            *column = place.unwrap_or(*column);
            place.is_some()
        });
    }

    /// What the score of the row judged last is made of, the largest share first; room for it is made once.
    pub(crate) fn group_shares(&self, scratch: &mut Vec<(u16, f64)>, out: &mut Vec<GroupShare>) {
        out.clear();
        self.current.detector.group_shares(scratch);
        scratch.sort_unstable_by(|(_, one), (_, other)| other.total_cmp(one));
        // A column has its group's number.
        out.extend(scratch.iter().filter(|(_, share)| *share > 0.0).filter_map(|&(number, share)| {
            let group = Group::ALL.into_iter().find(|group| *group as u16 == number)?;
            Some(GroupShare { group, share })
        }));
    }
}

/// Keeps the compiler's promise that jobs can be run on another thread.
const _: fn() = || {
    fn is_send<T: Send + 'static>() {}
    is_send::<Job>();
    is_send::<lmap::Done>();
};

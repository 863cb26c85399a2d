//! How the runtime of an LMAP begins: with nothing, with a model, or with what earlier detectors have learnt.

use std::sync::Arc;

use wire::control::LmapSpec;
use wire::id::{Epoch, Owner};
use wire::time::Interval;

use super::LmapRuntime;
use super::successor::{self, Shelf, Strides, Successor};
use crate::alarm::Alarm;
use crate::columns::Columns;
use crate::detector_slot::{DetectorFactory, Detectors};
use crate::digest::Digest;
use crate::error::UnexpectedMessage;
use crate::pace::Pace;
use crate::regions::Regions;
use crate::retained_lmap::RetainedLmap;
use crate::rows::History;
use crate::settings::WorkerSettings;

/// The detectors with which a runtime begins.
struct Beginning {
    detectors: Option<Detectors>,
    warm_model: Option<Arc<lmap::Model>>,
    refused: Result<(), UnexpectedMessage>,
}

impl LmapRuntime {
    /// Creates the runtime that `spec` describes. Its detectors learn, or are armed by a model. If armed detectors of
    /// another interval are retained, they go on judging while a successor learns.
    ///
    /// # Errors
    ///
    /// What of `spec` cannot be carried out. The runtime is returned in any case and does the rest.
    pub(crate) fn new(
        spec: &LmapSpec,
        epoch: Epoch,
        settings: &WorkerSettings,
        mut retained: Option<RetainedLmap>,
        factory: &mut DetectorFactory,
    ) -> (Self, Result<(), UnexpectedMessage>) {
        if let Some(retained) = &mut retained {
            retained.take_model_back(spec);
        }
        let regions = Regions::new(spec, settings.silent_heartbeats);
        let unknown = spec.metrics.iter().find(|metric| !Columns::can_compute(metric, &settings.aggregations));
        let unknown = unknown.map(|metric| UnexpectedMessage::Aggregation {
            lmap: spec.id,
            aggregation: metric.aggregation.to_string(),
        });
        let make = |spec: &LmapSpec| {
            Columns::new(spec, &regions.indices(), &settings.aggregations, settings.observations_held)
        };
        let former = retained.as_ref().filter(|retained| retained.judges_on_for(spec));
        let former = former.map(|retained| successor::at_interval(spec, retained.interval, &retained.strides));
        let retained_too = retained.as_mut().filter(|_| former.is_some());
        let successor = retained_too.and_then(|retained| begin_successor(spec, make(spec), retained, factory));
        let judged = former.as_ref().filter(|_| successor.is_some()).unwrap_or(spec);
        let columns = make(judged);
        let (samples, alarm) =
            retained.as_ref().map_or((0, Alarm::default()), |retained| (retained.samples, retained.alarm));
        let in_episode = retained.as_ref().is_some_and(|retained| retained.in_episode);
        let shelf = retained.as_mut().map(|retained| retained.take_shelf(spec, judged.interval)).unwrap_or_default();
        let (mut begun, mut successor) = (begin(judged, &columns, retained, &shelf, factory), successor);
        if in_episode && let Some(detectors) = &mut begun.detectors {
            // An alarm that is on goes on, also where a model has taken the place of another one.
            detectors.begin_episode();
        }
        if let Some((judging, learning)) = begun.detectors.as_mut().zip(successor.as_mut()) {
            // No LMAP has more than two detectors. New columns are learnt once the successor has taken over.
            judging.drop_shadow();
            learning.detectors.drop_shadow();
        }
        let runtime = Self {
            id: spec.id,
            service: spec.service.clone(),
            owner: spec.replicas.first().map_or(Owner::Agent, |replica| replica.owner),
            interval: judged.interval,
            fastest: spec.fastest,
            epoch,
            model: spec.model.clone(),
            detector: spec.detector,
            history: History::new(settings.row_history, columns.infos().len()),
            regions,
            columns,
            strides: successor::strides(judged),
            detectors: begun.detectors,
            successor,
            shelf,
            pace: Pace::default(),
            fast: None,
            last_row: None,
            in_episode,
            warm_model: begun.warm_model,
            model_given: None,
            alarm,
            gap: true,
            score: 0.0,
            reported_state: None,
            samples,
            digest: Digest::default(),
            subscription: None,
            gives: super::Gives::default(),
        };
        (runtime, unknown.map_or(begun.refused, Err))
    }
}

/// The detectors of `spec`: retained ones of its interval, or new ones, with what was learnt at it if that is known. If
/// its model cannot be used, those go on that have judged before.
fn begin(
    spec: &LmapSpec,
    columns: &Columns,
    retained: Option<RetainedLmap>,
    shelf: &Shelf,
    factory: &mut DetectorFactory,
) -> Beginning {
    let fits = |retained: &RetainedLmap| retained.interval == spec.interval && retained.detector == spec.detector;
    let unfit = factory.configure_for(spec.interval, &spec.detector);
    let alike = |retained: &&RetainedLmap| retained.detector == spec.detector && spec.model.is_empty();
    let same = retained.as_ref().filter(alike);
    let earlier = same.filter(|retained| retained.interval == spec.interval);
    let earlier = earlier.and_then(|retained| retained.warm_model.clone());
    let warm_model = earlier.or_else(|| same.and_then(|_| shelf.get(spec.interval)));
    let continues = retained.as_ref().is_some_and(|retained| retained.continues || retained.detectors.is_some());
    let (detectors, refused) = match retained.filter(fits).and_then(|retained| retained.detectors) {
        Some(mut detectors) if detectors.has_model(&spec.model) => {
            detectors.columns_changed(columns.infos(), &spec.model, factory);
            (Some(detectors), Ok(()))
        }
        _ if columns.infos().is_empty() => (None, Ok(())),
        former => {
            let (created, refused) = match &warm_model {
                Some(warm_model) => factory.create_warm(columns.infos(), Arc::clone(warm_model), continues),
                None => factory.create(columns.infos(), &spec.model),
            };
            // A model that cannot be used takes nothing away.
            let is_refused = matches!(refused, Err(UnexpectedMessage::Model(_)));
            let former = former.filter(|former| is_refused && former.state().judges());
            let former = former.map(|mut former| {
                former.columns_changed(columns.infos(), &spec.model, factory);
                former.stand_in_for(&spec.model);
                former
            });
            (former.or(created), unfit.and(refused))
        }
    };
    Beginning { detectors, warm_model, refused }
}

/// What learns the interval of `spec` beside the retained detectors of another one.
fn begin_successor(
    spec: &LmapSpec,
    columns: Columns,
    retained: &mut RetainedLmap,
    factory: &mut DetectorFactory,
) -> Option<Box<Successor>> {
    // The error is reported if it is the interval of the LMAP.
    let _ = factory.configure_for(spec.interval, &spec.detector);
    let strides: Strides = successor::strides(spec);
    if let Some(mut begun) = retained.learning.take_if(|learning| learning.interval == spec.interval) {
        begun.detectors.columns_changed(columns.infos(), &[], factory);
        return Some(Box::new(begun.with_columns(columns, strides)));
    }
    let known = retained.shelf.get(spec.interval);
    let is_warm = known.is_some();
    let (detectors, _) = match known {
        Some(model) => factory.create_warm(columns.infos(), model, true),
        None => factory.create(columns.infos(), &[]),
    };
    Some(Box::new(Successor::new(spec.interval, columns, detectors?, strides, is_warm)))
}

impl RetainedLmap {
    /// If `spec` has no model of an operator any more, what its detectors have of one is what they have learnt; unless
    /// what was learnt before that model came with the configuration, which is another one to begin with.
    fn take_model_back(&mut self, spec: &LmapSpec) {
        let knows_better = self.warm_model.is_some() && self.interval == spec.interval;
        if spec.model.is_empty()
            && !knows_better
            && let Some(detectors) = &mut self.detectors
        {
            detectors.learn_on();
        }
    }

    /// Whether its detectors go on judging for `spec`, which has another interval, until that is learnt.
    fn judges_on_for(&self, spec: &LmapSpec) -> bool {
        let is_known = |detectors: &Detectors| detectors.state().judges() && detectors.has_model(&[]);
        self.lmap == Some(spec.id)
            && self.interval != spec.interval
            && self.detector == spec.detector
            && spec.model.is_empty()
            && self.detectors.as_ref().is_some_and(is_known)
    }

    /// Takes the models of other intervals than the one that is `judged`, for detectors with the settings of `spec`.
    /// What was being learnt is not known yet, and is dropped.
    fn take_shelf(&mut self, spec: &LmapSpec, judged: Interval) -> Shelf {
        self.learning = None;
        let mut shelf = core::mem::take(&mut self.shelf);
        if self.detector != spec.detector || !spec.model.is_empty() {
            return Shelf::default();
        }
        if self.interval != judged {
            shelf.put(self.interval, self.learned_model());
        }
        shelf
    }
}

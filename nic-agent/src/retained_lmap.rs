//! What a worker retains of an LMAP without a configuration.

use std::sync::Arc;

use wire::control::{DetectorSpec, LmapSpec};
use wire::id::{LmapId, Owner};
use wire::proto::control as proto;
use wire::time::{Interval, Nanos};

use crate::alarm::Alarm;
use crate::detector_slot::Detectors;
use crate::error::UnexpectedMessage;
use crate::lmap_runtime::{Shelf, Strides, Successor};

/// What is retained of an LMAP without a configuration, for a host agent or a service that comes back.
#[derive(Debug)]
pub(crate) struct RetainedLmap {
    /// The LMAP, if it is of the present run of the host agent.
    pub(crate) lmap: Option<LmapId>,
    pub(crate) detectors: Option<Detectors>,
    /// What learns another interval meanwhile.
    pub(crate) learning: Option<Box<Successor>>,
    /// Models of other intervals.
    pub(crate) shelf: Shelf,
    /// How often each metric is read, in rows.
    pub(crate) strides: Strides,
    /// The model from which the next detectors start, if the detectors were dropped.
    pub(crate) warm_model: Option<Arc<lmap::Model>>,
    /// The service has been running since the model was learnt.
    pub(crate) continues: bool,
    pub(crate) interval: Interval,
    pub(crate) detector: DetectorSpec,
    pub(crate) samples: u64,
    /// Whether the host agent knows of an alarm that has not ended.
    pub(crate) alarm: Alarm,
    /// Whether an episode of its detectors is on.
    pub(crate) in_episode: bool,
    pub(crate) since: Nanos,
    /// Who pays for it.
    pub(crate) owner: Owner,
}

impl RetainedLmap {
    /// What the detectors of another worker have learnt, as the configuration `lmap` hands it over; `None` if it hands
    /// over nothing.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage::Model`] if it cannot be read. The LMAP learns from the beginning then.
    pub(crate) fn of_another(
        lmap: &proto::Lmap,
        spec: &LmapSpec,
        now: Nanos,
    ) -> (Option<Self>, Result<(), UnexpectedMessage>) {
        if lmap.learnt.is_empty() {
            return (None, Ok(()));
        }
        let model = match lmap::Model::decode(&lmap.learnt) {
            Ok(model) => Arc::new(model),
            Err(error) => return (None, Err(error.into())),
        };
        let (interval, detector) = (spec.interval, spec.detector);
        let (alarm, continues) = (Alarm::default(), lmap.continues);
        let owner = spec.replicas.first().map_or(Owner::Agent, |replica| replica.owner);
        let retained = Self {
            lmap: None,
            detectors: None,
            learning: None,
            shelf: Shelf::default(),
            strides: Strides::default(),
            warm_model: Some(model),
            continues,
            interval,
            detector,
            samples: 0,
            alarm,
            in_episode: false,
            since: now,
            owner,
        };
        (Some(retained), Ok(()))
    }

    /// Whether `other`, which another worker has handed over, is to be used in its place: the LMAP has run there since,
    /// or this one is of other settings.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let is_alike = self.interval == other.interval && self.detector == other.detector;
        self.detectors.is_none() && (other.continues || !is_alike)
    }

    /// Another run of the host agent begins, which knows of no alarm yet and numbers LMAPs anew.
    pub(crate) fn forget_host(&mut self) {
        (self.lmap, self.alarm, self.in_episode) = (None, Alarm::default(), false);
    }

    /// Drops the detectors, and keeps their model.
    pub(crate) fn drop_detectors(&mut self) {
        self.learning = None;
        if let Some(detectors) = self.detectors.take() {
            self.warm_model = detectors.learned_model();
        }
    }

    /// Takes the model that the configuration `lmap` hands over for another interval than that of its detectors, unless
    /// there is one; or for theirs, if they judge by a model of an operator that is taken back.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage::Model`] if it cannot be read.
    pub(crate) fn learn_from(&mut self, lmap: &proto::Lmap, spec: &LmapSpec) -> Result<(), UnexpectedMessage> {
        if lmap.learnt.is_empty() {
            return Ok(());
        }
        let is_trained = self.detectors.as_ref().is_some_and(Detectors::is_trained);
        if self.interval == spec.interval {
            if is_trained && spec.model.is_empty() {
                self.warm_model = Some(Arc::new(lmap::Model::decode(&lmap.learnt)?));
            }
        } else if self.shelf.get(spec.interval).is_none() {
            self.shelf.put(spec.interval, Some(Arc::new(lmap::Model::decode(&lmap.learnt)?)));
        }
        Ok(())
    }

    /// The learned model.
    pub(crate) fn learned_model(&self) -> Option<Arc<lmap::Model>> {
        self.detectors.as_ref().and_then(Detectors::learned_model).or_else(|| self.warm_model.clone())
    }

    /// Bytes of the model, if it is all that is retained; `None` with detectors.
    pub(crate) fn model_bytes(&self) -> Option<u64> {
        let model = self.warm_model.as_ref().map_or(0, |model| model.memory_bytes() as u64);
        let bytes = model + self.shelf.memory_bytes();
        (self.detectors.is_none() && bytes > 0).then_some(bytes)
    }

    /// Bytes of the detectors; `None` without them.
    pub(crate) fn detector_bytes(&self) -> Option<u64> {
        let learning = self.learning.as_ref().map_or(0, |learning| learning.detectors.memory_bytes());
        self.detectors
            .as_ref()
            .map(|detectors| (detectors.memory_bytes() + learning) as u64 + self.shelf.memory_bytes())
    }

    /// Whether there are detectors or a model.
    pub(crate) fn is_useful(&self) -> bool {
        self.detectors.is_some() || self.warm_model.is_some() || !self.shelf.is_empty()
    }

    pub(crate) fn detectors(&self) -> Option<&Detectors> {
        self.detectors.as_ref()
    }

    /// Its detectors, and those that learn another interval.
    pub(crate) fn all_detectors(&self) -> impl Iterator<Item = &Detectors> {
        self.detectors.iter().chain(self.learning.as_ref().map(|learning| &learning.detectors))
    }

    pub(crate) fn all_detectors_mut(&mut self) -> impl Iterator<Item = &mut Detectors> {
        self.detectors.iter_mut().chain(self.learning.as_mut().map(|learning| &mut learning.detectors))
    }
}

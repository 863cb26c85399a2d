//! What is retained of an LMAP without a configuration: detectors for a while, a model for longer.

use std::sync::Arc;

use super::RetainedLmap;
use crate::detector_slot::Detectors;

impl RetainedLmap {
    /// Drops the detectors, and keeps their model.
    pub(crate) fn drop_detectors(&mut self) {
        if let Some(detectors) = self.detectors.take() {
            self.warm_model = detectors.learned_model();
        }
    }

    /// The learned model.
    pub(crate) fn learned_model(&self) -> Option<Arc<lmap::Model>> {
        self.detectors.as_ref().and_then(Detectors::learned_model).or_else(|| self.warm_model.clone())
    }

    /// Bytes of the model, if it is all that is retained; `None` with detectors.
    pub(crate) fn model_bytes(&self) -> Option<u64> {
        let model = self.warm_model.as_ref().filter(|_| self.detectors.is_none())?;
        Some(model.memory_bytes() as u64)
    }

    /// Whether there are detectors or a model.
    pub(crate) fn is_useful(&self) -> bool {
        self.detectors.is_some() || self.warm_model.is_some()
    }

    pub(crate) fn detectors(&self) -> Option<&Detectors> {
        self.detectors.as_ref()
    }

    pub(crate) fn detectors_mut(&mut self) -> Option<&mut Detectors> {
        self.detectors.as_mut()
    }
}

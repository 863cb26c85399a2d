//! What the edges ask about the node as a whole.

use super::Node;
use crate::readiness::Facts;

impl Node {
    /// What readiness is judged by.
    pub(crate) fn readiness(&self) -> Facts {
        let state = self.lock();
        let workers = state.plane.worker_readiness();
        let (draining, now, last_service) = (*self.draining.borrow(), self.clock.now(), state.last_service);
        Facts { draining, workers, now, last_service }
    }
}

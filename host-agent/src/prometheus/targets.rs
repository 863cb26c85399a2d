//! All targets that there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::view::{ScrapeCounts, TargetView};

/// All targets: those of the configuration, in its order, and those of pods, which come and go. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets(Arc<TargetTable>);

#[derive(Debug, Default)]
struct TargetTable {
    views: Mutex<Vec<Arc<TargetView>>>,
    /// What targets have counted that are gone, so that sums never fall.
    gone: ScrapeCounts,
}

impl Targets {
    /// Those that there are now.
    pub(crate) fn views(&self) -> Vec<Arc<TargetView>> {
        self.lock().clone()
    }

    /// There is one more.
    pub(super) fn add(&self, view: Arc<TargetView>) {
        self.lock().push(view);
    }

    /// One is gone.
    pub(super) fn remove(&self, view: &Arc<TargetView>) {
        let mut views = self.lock();
        views.retain(|other| !Arc::ptr_eq(other, view));
        self.0.gone.add_all(&view.counts);
    }

    /// What targets have counted that are gone.
    pub(super) fn gone(&self) -> &ScrapeCounts {
        &self.0.gone
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<TargetView>>> {
        self.0.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

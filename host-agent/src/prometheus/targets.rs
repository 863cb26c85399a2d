//! All targets that there are, each with the task that scrapes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use otlp::ListenerRules;
use tokio::runtime::Handle;
use wire::time::Nanos;

use super::plan::TargetPlan;
use super::scraper::Scraper;
use super::view::{ScrapeCounts, TargetView};
use crate::node::Node;

/// All targets, in the order in which they came: those of the configuration, and those of pods. Clones share them.
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

    /// Has a task on `threads` scrape by `plan`, from `offset` on, until the target [ends](Self::end) or `node` drains.
    /// Its name may belong to others by the rules of `listeners`; without them, the API server says whose it is.
    pub(super) fn begin(
        &self,
        plan: TargetPlan,
        offset: Nanos,
        listeners: Option<Arc<ListenerRules>>,
        (node, threads): (&Arc<Node>, &Handle),
    ) -> Arc<TargetView> {
        let view = Arc::new(TargetView::new(&plan));
        self.lock().push(Arc::clone(&view));
        let (of, node) = (Arc::clone(&view), Arc::clone(node));
        threads.spawn(async move {
            let mut scraper = Scraper::new(plan, Arc::clone(&of), Arc::clone(&node), listeners);
            let is_ended = tokio::select! {
                biased;
                () = node.drained() => false,
                () = of.ended() => true,
                () = scraper.run(offset) => true,
            };
            // At a shutdown, its services stay as they are.
            if is_ended {
                scraper.remove();
            }
        });
        view
    }

    /// The target of `view` is scraped no more, and its replicas leave their service.
    pub(super) fn end(&self, view: &Arc<TargetView>) {
        view.end();
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

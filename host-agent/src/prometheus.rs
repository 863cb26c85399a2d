//! Prometheus endpoints as sources: a task for each scrapes it and fills a region of its service, so that the NIC agent
//! and the LMAP know no difference. What is watched decides [`exposition`].
//!
//! Each target has two replicas in its service: one with the chosen series, which is written with each scrape that
//! succeeds; and one with `up`, which is written always. So values of a target that is down are missing, and not 0.

mod metrics;
mod pods;
mod replica;
mod scraper;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exposition::TargetSettings;
use remote_write::client::Client;
use tokio::runtime::Handle;
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

use crate::node::Node;
use crate::pod_watch::PodWatch;
use scraper::Scraper;
use view::ScrapeCounts;

pub(crate) use metrics::TargetMetrics;
pub(crate) use view::TargetView;

/// A target that is configured.
#[derive(Debug)]
pub(crate) struct TargetPlan {
    pub(crate) service: ServiceName,
    pub(crate) instance: InstanceName,
    pub(crate) url: String,
    pub(crate) client: Client,
    /// `None`: by its cost.
    pub(crate) interval: Option<Nanos>,
    pub(crate) cpu_share: f64,
    pub(crate) max_bytes: usize,
    pub(crate) settings: TargetSettings,
}

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

    fn add(&self, view: Arc<TargetView>) {
        self.lock().push(view);
    }

    fn remove(&self, view: &Arc<TargetView>) {
        let mut views = self.lock();
        views.retain(|other| !Arc::ptr_eq(other, view));
        self.0.gone.add_all(&view.counts);
    }

    /// What targets have counted that are gone.
    fn gone(&self) -> &ScrapeCounts {
        &self.0.gone
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<TargetView>>> {
        self.0.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a task for each of `plans` on `threads`, and one for each endpoint of `pods`, until `node` drains.
pub(crate) fn start(
    plans: Vec<TargetPlan>,
    of_pods: Option<&Arc<PodWatch>>,
    node: &Arc<Node>,
    threads: &Handle,
) -> Targets {
    let targets = Targets::default();
    if let Some(of_pods) = of_pods {
        threads.spawn(pods::run(Arc::clone(of_pods), targets.clone(), Arc::clone(node)));
    }
    let all = plans.len().max(1) as u64;
    for (number, plan) in (0..).zip(plans) {
        let view = Arc::new(TargetView::new(&plan));
        targets.add(Arc::clone(&view));
        let node = Arc::clone(node);
        // Not all at once.
        let offset = Nanos(1_000_000_000 * number / all);
        threads.spawn(async move {
            let mut scraper = Scraper::new(plan, view, Arc::clone(&node));
            tokio::select! {
                () = scraper.run(offset) => {}
                () = node.drained() => {}
            }
        });
    }
    targets
}

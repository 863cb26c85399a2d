//! Prometheus endpoints as sources: a task for each scrapes it and fills a region of its service, so that the NIC agent
//! and the LMAP know no difference. What is watched decides [`exposition`].
//!
//! Each target has two replicas in its service: one with the chosen series, which is written with each scrape that
//! succeeds; and one with `up`, which is written always. So values of a target that is down are missing, and not 0.

mod metrics;
mod replica;
mod scraper;
mod view;

use std::sync::Arc;

use exposition::TargetSettings;
use remote_write::client::Client;
use tokio::runtime::Handle;
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

use crate::node::Node;
use scraper::Scraper;

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

/// Starts a task for each of `plans` on `threads`, until `node` drains. Returns their views, in the same order.
pub(crate) fn start(plans: Vec<TargetPlan>, node: &Arc<Node>, threads: &Handle) -> Vec<Arc<TargetView>> {
    let all = plans.len().max(1) as u64;
    let mut views = Vec::new();
    for (number, plan) in (0..).zip(plans) {
        let view = Arc::new(TargetView::new(&plan));
        views.push(Arc::clone(&view));
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
    views
}

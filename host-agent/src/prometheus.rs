//! Prometheus endpoints as sources: a task for each scrapes it and fills a region of its service, so that the NIC agent
//! and the LMAP know no difference. What is watched decides [`exposition`].
//!
//! Each target has two replicas in its service: one with the chosen series, which is written with each scrape that
//! succeeds; and one with `up`, which is written always. So values of a target that is down are missing, and not 0.

mod metrics;
mod plan;
mod pods;
mod replica;
mod scraper;
mod targets;
mod view;

use std::sync::Arc;

use agent_runtime::reload::Reloadable;
use otlp::{ListenerRules, SenderRules};
use tokio::runtime::Handle;
use wire::time::Nanos;

use crate::node::Node;
use crate::pod_watch::PodWatch;
use scraper::Scraper;

pub(crate) use metrics::TargetMetrics;
pub(crate) use plan::TargetPlan;
pub(crate) use targets::Targets;
pub(crate) use view::TargetView;

/// Starts a task for each of `plans` on `threads`, and one for each endpoint of `pods`, until `node` drains. By `rules`
/// names belong to services; whose a pod is, the API server says.
pub(crate) fn start(
    plans: Vec<TargetPlan>,
    of_pods: Option<&Arc<PodWatch>>,
    node: &Arc<Node>,
    threads: &Handle,
    rules: Reloadable<SenderRules>,
) -> Targets {
    let targets = Targets::default();
    if let Some(of_pods) = of_pods {
        threads.spawn(pods::run(Arc::clone(of_pods), targets.clone(), Arc::clone(node)));
    }
    let all = plans.len().max(1) as u64;
    let listeners = Arc::new(ListenerRules::new(rules));
    for (number, plan) in (0..).zip(plans) {
        let view = Arc::new(TargetView::new(&plan));
        targets.add(Arc::clone(&view));
        let (node, listeners) = (Arc::clone(node), Arc::clone(&listeners));
        // Not all at once.
        let offset = Nanos(1_000_000_000 * number / all);
        threads.spawn(async move {
            let mut scraper = Scraper::new(plan, view, Arc::clone(&node), Some(listeners));
            tokio::select! {
                () = scraper.run(offset) => {}
                () = node.drained() => {}
            }
        });
    }
    targets
}

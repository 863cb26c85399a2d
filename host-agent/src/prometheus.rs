//! Prometheus endpoints as sources: a task for each scrapes it and fills a region of its service, so that the NIC agent
//! and the LMAP know no difference. What is watched decides [`exposition`].
//!
//! Each target has two replicas in its service: one with the chosen series, which is written with each scrape that
//! succeeds; and one with `up`, which is written always. So values of a target that is down are missing, and not 0.

mod configured;
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

use crate::config::PrometheusTarget;
use crate::node::Node;
use crate::pod_watch::PodWatch;

pub(crate) use configured::{ConfiguredTargets, TargetRenewal};
pub(crate) use metrics::TargetMetrics;
pub(crate) use plan::TargetPlan;
pub(crate) use targets::Targets;

/// Starts a task for each of `plans` on `threads`, and one for each endpoint of `pods`, until `node` drains. By `rules`
/// names belong to services; whose a pod is, the API server says.
pub(crate) fn start(
    plans: Vec<(PrometheusTarget, TargetPlan)>,
    of_pods: Option<&Arc<PodWatch>>,
    node: &Arc<Node>,
    threads: &Handle,
    rules: Reloadable<SenderRules>,
) -> ConfiguredTargets {
    let (targets, listeners) = (Targets::default(), Arc::new(ListenerRules::new(rules)));
    if let Some(of_pods) = of_pods {
        threads.spawn(pods::run(Arc::clone(of_pods), targets.clone(), Arc::clone(node)));
    }
    ConfiguredTargets::start(plans, targets, listeners, (node, threads))
}

//! Endpoints of pods: each is a target from when its pod has started until it goes.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use pods::Endpoint;
use tokio::sync::oneshot;

use super::scraper::Scraper;
use super::{TargetView, Targets};
use crate::config::pod_target;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// How often it is looked which pods have started, and which have gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A scraper that ends when this is dropped.
type Running = (Arc<TargetView>, oneshot::Sender<()>);

/// Scrapes the endpoints of `pods` until `node` drains.
pub(super) async fn run(pods: Arc<PodWatch>, targets: Targets, node: Arc<Node>) {
    let mut running: BTreeMap<Endpoint, Option<Running>> = BTreeMap::new();
    let mut version = None;
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = node.drained() => return,
            _ = ticks.tick() => {}
        }
        // PodMonitors change seldom, and are no part of the version.
        if version.replace(pods.version()) == Some(pods.version()) && !pods.take_monitors_changed() {
            continue;
        }
        let wanted = pods.endpoints().scraped;
        running.retain(|endpoint, scraper| {
            let stays = wanted.contains(endpoint);
            if let Some((view, _)) = scraper.as_ref().filter(|_| !stays) {
                tracing::info!(service = endpoint.service, url = endpoint.url, "a pod is not scraped any more");
                targets.remove(view);
            }
            stays
        });
        for endpoint in wanted {
            if let Entry::Vacant(place) = running.entry(endpoint) {
                let started = start(place.key(), &targets, &node);
                place.insert(started);
            }
        }
    }
}

/// Starts to scrape `endpoint`; `None` if no service may have its name.
fn start(endpoint: &Endpoint, targets: &Targets, node: &Arc<Node>) -> Option<Running> {
    let Endpoint { service, instance, url } = endpoint.clone();
    tracing::info!(service, instance, url, "a pod is scraped");
    let plan = match pod_target(service, instance, url).plan() {
        Ok(plan) => plan,
        Err(error) => {
            let (error, pod) = (agent_runtime::chain(&error), &endpoint.instance);
            tracing::warn!(error, pod, "a pod's endpoint cannot be scraped");
            return None;
        }
    };
    let view = Arc::new(TargetView::new(&plan));
    targets.add(Arc::clone(&view));
    let (stop, stopped) = oneshot::channel();
    let (of, node) = (Arc::clone(&view), Arc::clone(node));
    tokio::spawn(async move {
        let mut scraper = Scraper::new(plan, of, Arc::clone(&node));
        tokio::select! {
            () = scraper.run(wire::time::Nanos::ZERO) => {}
            _ = stopped => {}
            () = node.drained() => {}
        }
        scraper.leave();
    });
    Some((view, stop))
}

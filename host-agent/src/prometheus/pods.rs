//! Endpoints of pods: each is a target from when its pod has started until it goes.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use pods::Endpoint;
use tokio::runtime::Handle;
use wire::time::Nanos;

use super::targets::Targets;
use super::view::TargetView;
use crate::config::pod_target;
use crate::node::Node;
use crate::pod_watch::PodWatch;

/// How often it is looked which pods have started, and which have gone.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Scrapes the endpoints of `pods` until `node` drains.
pub(super) async fn run(pods: Arc<PodWatch>, targets: Targets, node: Arc<Node>) {
    let mut running: BTreeMap<Endpoint, Option<Arc<TargetView>>> = BTreeMap::new();
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
        running.retain(|endpoint, view| {
            let stays = wanted.contains(endpoint);
            if let Some(view) = view.as_ref().filter(|_| !stays) {
                tracing::info!(service = endpoint.service, url = endpoint.url, "a pod is not scraped any more");
                targets.end(view);
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
fn start(endpoint: &Endpoint, targets: &Targets, node: &Arc<Node>) -> Option<Arc<TargetView>> {
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
    Some(targets.begin(plan, Nanos::ZERO, None, (node, &Handle::current())))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use support::wait::Wait;
    use wire::id::Incarnation;
    use wire::time::Interval;

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::Settings;
    use crate::pod_watch::PodPlan;

    const WAIT: Wait = Wait::up_to(Duration::from_secs(20));

    #[tokio::test]
    async fn an_annotated_pod_is_scraped_until_it_goes_and_its_counts_stay() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().route("/stats", get(|| async { ([("content-type", "text/plain")], "a 1\n") }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let settings = Settings::new(Incarnation(1), Interval::new(Nanos::from_millis(100)).unwrap());
        let node = Arc::new(Node::new(settings, 4, Clock::start(), None));
        let pods = Arc::new(PodWatch::new(PodPlan { scrape_targets: 1, ..PodPlan::default() }, node.clock()));
        let annotations = json!({"prometheus.io/scrape": "true", "prometheus.io/port": port.to_string(),
            "prometheus.io/path": "/stats"});
        let pod = json!({
            "metadata": {"name": "payment-1", "namespace": "shop", "uid": format!("{:032x}", 1), "annotations": annotations},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"podIPs": [{"ip": "127.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        for event in [Event::Init, Event::InitApply(pod.clone()), Event::InitDone] {
            pods.apply(Ok(event));
        }
        let targets = Targets::default();
        tokio::spawn(run(Arc::clone(&pods), targets.clone(), Arc::clone(&node)));
        let replies = || targets.views().iter().map(|view| view.reply()).collect::<Vec<_>>();

        let scraped = async || replies().iter().any(|reply| reply.scrapes > 0).then_some(()).ok_or_else(&replies);
        WAIT.until_async("it is scraped", scraped).await;
        let reply = replies().remove(0);
        assert_eq!((reply.service.as_str(), reply.failed_scrapes), ("shop/payment-1", 0));
        pods.apply(Ok(Event::Delete(pod)));
        WAIT.until_async("it is not scraped any more", async || replies().is_empty()).await;

        assert!(targets.gone().scrapes.get() > 0);
        node.drain();
    }
}

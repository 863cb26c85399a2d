//! `PodMonitor`s, where the API server knows them.

use std::sync::atomic::Ordering;

use agent_runtime::lock;
use kube::api::{ApiResource, NotUsed, Object};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use pods::Monitor;
use pods::monitor::MonitorSpec;
use tokio_stream::StreamExt as _;

use super::PodWatch;
use crate::cached_lists::{bounded, cached};

/// Most `PodMonitor`s that are kept.
const MAX_MONITORS: usize = 256;
/// Most bytes of a list of them in one answer.
const MAX_LIST_BYTES: usize = 1 << 20;

type PodMonitor = Object<MonitorSpec, NotUsed>;

/// Watches them for ever. Where the kind is unknown, it is asked for again now and then: it may be installed later.
pub(super) async fn watch(client: Client, watched: &PodWatch) {
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PodMonitor");
    let kind = ApiResource::from_gvk_with_plural(&kind, "podmonitors");
    let monitors: Api<PodMonitor> = Api::all_with(bounded(client, MAX_LIST_BYTES), &kind);
    let mut events = core::pin::pin!(cached(monitors, None));
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed = Vec::new(),
            Ok(Event::InitApply(object)) => listed.extend(read(&object).filter(|_| listed.len() < MAX_MONITORS)),
            Ok(Event::InitDone) => {
                let named = listed.drain(..).map(|monitor: Monitor| (key(&monitor), monitor));
                *lock(&watched.monitors) = named.collect();
                watched.monitors_changed.store(true, Ordering::Relaxed);
            }
            Ok(Event::Apply(object)) => watched.change(&object, read(&object)),
            Ok(Event::Delete(object)) => watched.change(&object, None),
            // Mostly that the kind does not exist.
            Err(error) => tracing::debug!(error = agent_runtime::chain(&error), "PodMonitors cannot be watched"),
        }
    }
}

fn key(monitor: &Monitor) -> (String, String) {
    (monitor.namespace.clone(), monitor.name.clone())
}

fn read(object: &PodMonitor) -> Option<Monitor> {
    let (namespace, name) = (object.namespace()?, object.name_any());
    let monitor = Monitor::new(&namespace, &name, &object.spec);
    match &monitor {
        Some(monitor) if !monitor.left_out.is_empty() => {
            tracing::info!(namespace, name, left_out = monitor.left_out.join("; "), "a PodMonitor is followed in part");
        }
        Some(_) => {}
        None => tracing::info!(namespace, name, "a PodMonitor is not followed: it selects by what is not understood"),
    }
    monitor
}

impl PodWatch {
    fn change(&self, object: &PodMonitor, monitor: Option<Monitor>) {
        let mut monitors = lock(&self.monitors);
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        monitors.remove(&key);
        if let Some(monitor) = monitor.filter(|_| monitors.len() < MAX_MONITORS) {
            monitors.insert(key, monitor);
        }
        self.monitors_changed.store(true, Ordering::Relaxed);
    }
}

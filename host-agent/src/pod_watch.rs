//! The pods of this node: a list and a watch of the API server fill a table, which names cgroups, senders, processes
//! and endpoints. Nothing waits for the API server: while it is away, what is known stays.

mod answered;
mod identity;
mod monitors;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use agent_runtime::reload::Reloadable;
use agent_runtime::{Count, lock};
use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use otlp::{PodSender, PodSenders};
use pods::table::{Endpoints, Rollout};
use pods::{Member, Monitor, Pod, PodId, Pods};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_stream::{Stream, StreamExt as _};

use crate::cached_lists::{bounded, cached};
use crate::clock::Clock;
use crate::node::Node;

/// Where the API server has pods.
const PODS: &str = "/api/v1/pods";
/// Most bytes of the node's pods in one answer. Each has at most some hundred KiB, and mostly ten.
const MAX_LIST_BYTES: usize = 16 << 20;

/// Whose pods are watched, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodPlan {
    pub(crate) node: String,
    /// Services whose pods forward what others send.
    pub(crate) forwarders: BTreeSet<String>,
    /// Most endpoints of pods that are scraped.
    pub(crate) scrape_targets: usize,
    /// Whether `PodMonitor`s are watched, too.
    pub(crate) pod_monitors: bool,
}

/// A container of a pod, however often it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodContainer {
    pod: PodId,
    name: String,
}

/// What is known of the node's pods.
#[derive(Debug)]
pub(crate) struct PodWatch {
    plan: PodPlan,
    clock: Clock,
    pods: Mutex<Pods>,
    monitors: Mutex<BTreeMap<(String, String), Monitor>>,
    monitors_changed: AtomicBool,
    /// Pods by address, for the OTLP endpoint.
    senders: Reloadable<PodSenders>,
    /// Notified at each change of what is known.
    changed: Notify,
    /// Why the watch does not work now.
    error: Mutex<Option<String>>,
    /// Errors so far.
    errors: Count,
    /// New versions so far.
    rollouts: Count,
}

impl PodWatch {
    /// Nothing is known yet.
    pub(crate) fn new(plan: PodPlan, clock: Clock) -> Self {
        let senders = Reloadable::new(PodSenders::default());
        let (pods, monitors, error) = Default::default();
        let (errors, rollouts, monitors_changed) = Default::default();
        let changed = Notify::new();
        Self { plan, clock, pods, monitors, monitors_changed, senders, changed, error, errors, rollouts }
    }

    /// Whose the cgroup `path` is, if it is the container of a pod that is known and has started.
    pub(crate) fn member(&self, path: &str) -> Option<Member> {
        self.pods().member(path, self.now())
    }

    /// The pod and the container that the cgroup `path` is, for [`Self::awaits`].
    pub(crate) fn container(&self, path: &str) -> Option<PodContainer> {
        let pods = self.pods();
        pods.container(path).map(|(pod, name)| PodContainer { pod, name: name.to_owned() })
    }

    /// Whether its pod wants `container` to run.
    pub(crate) fn awaits(&self, container: &PodContainer) -> bool {
        self.pods().get(container.pod).is_some_and(|pod| pod.awaits(&container.name))
    }

    /// Changes with each change of what is known, and of which pods have started.
    pub(crate) fn version(&self) -> u64 {
        self.pods().version(self.now())
    }

    /// Pods by address, as they come and go.
    pub(crate) fn senders(&self) -> Reloadable<PodSenders> {
        self.senders.clone()
    }

    /// Endpoints that are to be scraped now.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let monitors: Vec<_> = lock(&self.monitors).values().cloned().collect();
        self.pods().endpoints(&monitors, self.plan.scrape_targets, self.now())
    }

    /// Whether `PodMonitor`s have changed since the last call.
    pub(crate) fn take_monitors_changed(&self) -> bool {
        self.monitors_changed.swap(false, Ordering::Relaxed)
    }

    /// All pods that are known, once a list was complete.
    pub(crate) fn all(&self) -> Option<Vec<Pod>> {
        let pods = self.pods();
        pods.is_listed().then(|| pods.iter().cloned().collect())
    }

    /// Pods that are known, errors of the watch and new versions so far.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        let (errors, rollouts) = (self.errors.get(), self.rollouts.get());
        (self.pods().count(), errors, rollouts)
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = lock(&self.error).clone();
        let (count, refused) = {
            let pods = self.pods();
            (pods.count(), pods.refused())
        };
        let away = error.map(|error| {
            format!(
                "kubernetes: the pods of this node cannot be watched: {error}; the {count} that are known stay, new ones \
                 are not seen (does the service account have the right to list and watch pods?)"
            )
        });
        let full = || format!("kubernetes: {refused} pods are not watched: {count} are known, which is the most");
        away.or_else(|| (refused > 0).then(full)).or_else(|| self.scrape_problem())
    }

    /// What of pods' endpoints is not scraped.
    fn scrape_problem(&self) -> Option<String> {
        let Endpoints { over_limit, refused, scraped } = self.endpoints();
        if over_limit > 0 && self.plan.scrape_targets > 0 {
            let (limit, all) = (scraped.len(), scraped.len() + over_limit);
            return Some(format!(
                "kubernetes: {limit} of {all} endpoints of pods are scraped: raise kubernetes.scrape_targets"
            ));
        }
        let (pod, why) = refused.first().filter(|_| self.plan.scrape_targets > 0)?;
        let more = refused.len() - 1;
        Some(format!("kubernetes: {pod} is not scraped: {why}; and {more} more pods"))
    }

    fn now(&self) -> Duration {
        self.clock.now().into()
    }

    fn pods(&self) -> MutexGuard<'_, Pods> {
        lock(&self.pods)
    }

    /// Takes what the API server tells.
    pub(crate) fn apply(&self, event: Result<Event<api::Pod>, watcher::Error>) {
        let now = self.now();
        let error = match event {
            Ok(event) => {
                let is_listing = matches!(event, Event::Init | Event::InitApply(_));
                let rollout = {
                    let mut pods = self.pods();
                    take(&mut pods, event, now)
                };
                if !is_listing {
                    self.publish();
                }
                if let Some(Rollout { service, from, to }) = rollout {
                    self.rollouts.one_more();
                    tracing::info!(service, from, to, "a new version; its pods join when they have started");
                }
                None
            }
            Err(error) => {
                self.errors.one_more();
                Some(agent_runtime::chain(&error))
            }
        };
        let mut current = lock(&self.error);
        if let Some(error) = error.as_ref().filter(|_| current.is_none()) {
            tracing::warn!(error, "the pods of this node cannot be watched");
        }
        *current = error;
    }

    /// The API server has accepted a watch: what comes is known again, also if nothing does.
    fn answered(&self) {
        if let Some(error) = lock(&self.error).take() {
            tracing::info!(error, "the pods of this node are watched again");
        }
    }

    /// Tells senders' addresses, and who waits for a pod.
    fn publish(&self) {
        let sender = |pod: &Pod| {
            let Member { service, instance } = pod.member(None);
            let sender = PodSender::new(&service, &instance, pod.attributes());
            Arc::new(if self.plan.forwarders.contains(&service) { sender.forwarding() } else { sender })
        };
        let by_address: Vec<_> =
            self.pods().by_address().into_iter().map(|(address, pod)| (address, sender(pod))).collect();
        self.senders.replace(PodSenders::new(by_address));
        self.changed.notify_waiters();
    }
}

/// Takes one event into the table.
fn take(pods: &mut Pods, event: Event<api::Pod>, now: Duration) -> Option<Rollout> {
    match event {
        Event::Apply(object) => return Pod::new(&object).and_then(|pod| pods.apply(pod, now)),
        Event::Delete(object) => drop(Pod::new(&object).map(|pod| pods.remove(pod.id))),
        Event::Init => pods.begin_list(),
        Event::InitApply(object) => drop(Pod::new(&object).map(|pod| pods.add_listed(pod, now))),
        Event::InitDone => pods.end_list(),
    }
    None
}

/// Watches the pods of `plan` with `client` on `threads`, until `node` drains.
pub(crate) fn start(plan: PodPlan, config: kube::Config, node: &Arc<Node>, threads: &Handle) -> Arc<PodWatch> {
    let watched = Arc::new(PodWatch::new(plan, node.clock()));
    let (of, node) = (Arc::clone(&watched), Arc::clone(node));
    threads.spawn(async move {
        tokio::select! {
            () = connect(config, &of) => {}
            () = node.drained() => {}
        }
    });
    watched
}

async fn connect(config: kube::Config, watched: &Arc<PodWatch>) {
    match Client::try_from(config) {
        // Large: the readers of lists are part of it.
        Ok(client) => Box::pin(run(client, watched)).await,
        Err(error) => {
            tracing::error!(error = agent_runtime::chain(&error), "the API server cannot be asked");
            *lock(&watched.error) = Some(agent_runtime::chain(&error));
        }
    }
}

async fn run(client: Client, watched: &Arc<PodWatch>) {
    let of = Arc::clone(watched);
    let client = answered::telling(client, PODS, move || of.answered());
    // From its cache, which knows pods by their nodes: in its store, all pods of the cluster would be read for these.
    let pods: Api<api::Pod> = Api::all(bounded(client.clone(), MAX_LIST_BYTES));
    // It lists again when the API server has forgotten what came since.
    let pods = feed(cached(pods, Some(format!("spec.nodeName={}", watched.plan.node))), watched);
    let monitors = async {
        if watched.plan.pod_monitors && watched.plan.scrape_targets > 0 {
            monitors::watch(client, watched).await;
        }
    };
    tokio::join!(pods, monitors);
}

async fn feed(events: impl Stream<Item = Result<Event<api::Pod>, watcher::Error>>, watched: &PodWatch) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        watched.apply(event);
    }
}

#[cfg(test)]
mod tests;

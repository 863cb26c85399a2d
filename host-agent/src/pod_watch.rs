//! The pods of this node: a list and a watch of the API server fill a table, which names cgroups. Nothing waits for the
//! API server: while it is away, what is known stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client};
use pods::{Member, Pod, Pods};
use tokio::runtime::Handle;
use tokio_stream::{Stream, StreamExt as _};

use crate::node::Node;

/// Pods of one answer. Each has at most some hundred KiB, and mostly ten.
const PAGE: u32 = 25;

/// Whose pods are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPlan {
    pub(crate) node: String,
}

/// What is known of the node's pods.
#[derive(Debug, Default)]
pub(crate) struct PodWatch {
    pods: Mutex<Pods>,
    /// Why the watch does not work now.
    error: Mutex<Option<String>>,
    /// Errors so far.
    errors: AtomicU64,
}

impl PodWatch {
    /// Whose the cgroup `path` is, if it is the container of a pod that is known.
    pub(crate) fn member(&self, path: &str) -> Option<Member> {
        self.pods().member(path)
    }

    /// Changes with each change of what is known.
    pub(crate) fn version(&self) -> u64 {
        self.pods().version()
    }

    /// Pods that are known, and errors of the watch so far.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.pods().count(), self.errors.load(Ordering::Relaxed))
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
        away.or_else(|| (refused > 0).then(full))
    }

    fn pods(&self) -> MutexGuard<'_, Pods> {
        // No code under this lock panics. If one did, the table would still be usable.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, event: Result<Event<api::Pod>, watcher::Error>) {
        let error = match event {
            Ok(event) => {
                let mut pods = self.pods();
                match event {
                    Event::Init => pods.begin_list(),
                    Event::InitApply(object) => drop(Pod::new(&object).map(|pod| pods.add_listed(pod))),
                    Event::InitDone => pods.end_list(),
                    Event::Apply(object) => drop(Pod::new(&object).map(|pod| pods.apply(pod))),
                    Event::Delete(object) => drop(Pod::new(&object).map(|pod| pods.remove(pod.id))),
                }
                None
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                Some(agent_runtime::chain(&error))
            }
        };
        let mut current = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error.as_ref().filter(|_| current.is_none()) {
            tracing::warn!(error, "the pods of this node cannot be watched");
        }
        *current = error;
    }
}

/// Watches the pods of `plan` with `client` on `threads`, until `node` drains.
pub(crate) fn start(plan: &PodPlan, config: kube::Config, node: &Arc<Node>, threads: &Handle) -> Arc<PodWatch> {
    let watched = Arc::new(PodWatch::default());
    let (of, node, name) = (Arc::clone(&watched), Arc::clone(node), plan.node.clone());
    threads.spawn(async move {
        tokio::select! {
            () = run(config, &name, &of) => {}
            () = node.drained() => {}
        }
    });
    watched
}

async fn run(config: kube::Config, node: &str, watched: &PodWatch) {
    match Client::try_from(config) {
        Ok(client) => {
            let pods: Api<api::Pod> = Api::all(client);
            let settings = watcher::Config::default().fields(&format!("spec.nodeName={node}")).page_size(PAGE);
            // It begins anew after errors, each time later, and lists again when the API server has forgotten.
            feed(watch(pods, settings).default_backoff(), watched).await;
        }
        Err(error) => {
            tracing::error!(error = agent_runtime::chain(&error), "the API server cannot be asked");
            *watched.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent_runtime::chain(&error));
        }
    }
}

async fn feed(events: impl Stream<Item = Result<Event<api::Pod>, watcher::Error>>, watched: &PodWatch) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        watched.apply(event);
    }
}

#[cfg(test)]
mod tests;

//! `Lmap`s, `SamplingPolicy`s and `SynopsisPolicy`s, custom resources of Kubernetes: a list and a watch of the API
//! server tell them, this node applies those that are about its pods, and says in one object of its own what came of
//! each (decisions D38, D39 and D55).
//!
//! Each node decides by itself, from all objects and all of its pods anew (`resources`, which is pure). Nothing waits
//! for the API server: while it is away, what is known stays in effect. On a node without Kubernetes files say the
//! same.

mod apply;
mod files;
mod known;
mod reconciler;
mod sampling;
mod status;
mod synopses;

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kube::Client;
use kube::api::ApiResource;
use otlp::Edge;
use resources::plan::{MAX_OBJECT_BYTES, MAX_OBJECTS};
use resources::sampling_plan::{MAX_POLICIES, MAX_POLICY_BYTES};
use resources::synopsis_plan::{MAX_SYNOPSIS_POLICIES, MAX_SYNOPSIS_POLICY_BYTES};
use resources::{Lmap, LmapSpec, NodeReport, SamplingPolicy, SamplingPolicySpec, SynopsisPolicy, SynopsisPolicySpec};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::known::{ObjectKind, WatchedKind};
use crate::node::Node;
use crate::pod_watch::PodWatch;

pub use files::{FolderError, problems_of_resources};

const LMAPS: ObjectKind =
    ObjectKind { one: "Lmap", many: "Lmaps", resource: "lmaps", objects: MAX_OBJECTS, bytes: MAX_OBJECT_BYTES };
const POLICIES: ObjectKind = ObjectKind {
    one: "SamplingPolicy",
    many: "SamplingPolicies",
    resource: "samplingpolicies",
    objects: MAX_POLICIES,
    bytes: MAX_POLICY_BYTES,
};

const SYNOPSES: ObjectKind = ObjectKind {
    one: "SynopsisPolicy",
    many: "SynopsisPolicies",
    resource: "synopsispolicies",
    objects: MAX_SYNOPSIS_POLICIES,
    bytes: MAX_SYNOPSIS_POLICY_BYTES,
};

/// How often things are done.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// It is looked whether something has changed.
    look: Duration,
    /// What was refused is tried again.
    again: Duration,
    /// A change of the status waits for others that come with it.
    settle: Duration,
    /// The status is written at most so often.
    write: Duration,
    /// Files are read again.
    files: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_millis(500),
            again: Duration::from_secs(30),
            // All nodes see a change at once, and do not write at once.
            settle: Duration::from_millis(2_000 + u64::from(rand::random::<u16>() % 4_000)),
            write: Duration::from_secs(30),
            files: Duration::from_secs(5),
        }
    }
}

/// The kinds that are watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedKinds {
    pub(crate) lmaps: bool,
    pub(crate) sampling_policies: bool,
    pub(crate) synopsis_policies: bool,
}

impl WatchedKinds {
    /// Whether any of them is watched.
    pub(crate) const fn any(self) -> bool {
        self.lmaps || self.sampling_policies || self.synopsis_policies
    }
}

/// What is known of the objects, and what came of them.
#[derive(Debug)]
pub(crate) struct CustomObjects {
    /// Who tells of the objects: kubernetes, or resources (files).
    source: &'static str,
    node_name: String,
    pace: Pace,
    lmaps: WatchedKind<LmapSpec>,
    policies: WatchedKind<SamplingPolicySpec>,
    synopses: WatchedKind<SynopsisPolicySpec>,
    /// Where traces are sampled, once that is known; `None` inside: nowhere.
    edge: OnceLock<Option<Arc<Edge>>>,
    report: Mutex<NodeReport>,
    /// Notified when the report has changed.
    reported: Notify,
    /// Why the status cannot be written.
    write_error: Mutex<Option<String>>,
    /// What is wrong with files, where they say all this.
    file_problems: Mutex<Vec<String>>,
}

impl CustomObjects {
    fn new(source: &'static str, node_name: String, pace: Pace) -> Self {
        let (lmaps, policies) = (WatchedKind::new(LMAPS), WatchedKind::new(POLICIES));
        let synopses = WatchedKind::new(SYNOPSES);
        let (edge, report, reported, write_error, file_problems) = Default::default();
        Self { source, node_name, pace, lmaps, policies, synopses, edge, report, reported, write_error, file_problems }
    }

    /// Traces are sampled at `edge`, or nowhere. Policies wait until this is said.
    pub(crate) fn set_edge(&self, edge: Option<Arc<Edge>>) {
        if self.edge.set(edge).is_err() {
            tracing::warn!("where traces are sampled was said twice; the first counts");
        }
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problems(&self) -> Vec<String> {
        let write = lock(&self.write_error).clone().map(|error| {
            format!(
                "kubernetes: what came of custom resources cannot be written: {error} (may the service account get and \
                 patch lmapnodestatuses?)"
            )
        });
        let report = lock(&self.report);
        let more =
            if report.not_applied > 1 { format!("; and {} more", report.not_applied - 1) } else { String::new() };
        let first = &report.first_problem;
        let first = (!first.is_empty()).then(|| format!("{}: {first}{more}", self.source));
        let files = lock(&self.file_problems).clone();
        let kinds = self.lmaps.problems().chain(self.policies.problems()).chain(self.synopses.problems());
        kinds.chain(write).chain(files).chain(first).collect()
    }
}

/// No code under these locks panics. If one did, the tables would still be usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches objects of `kinds` on `threads`, and applies those that are about `pods` to `node`, until it drains.
pub(crate) fn start(
    (node_name, config): (String, kube::Config),
    kinds: WatchedKinds,
    pods: &Arc<PodWatch>,
    node: &Arc<Node>,
    threads: &Handle,
) -> Arc<CustomObjects> {
    let objects = Arc::new(CustomObjects::new("kubernetes", node_name, Pace::default()));
    if kinds.synopsis_policies {
        // What is measured stays until it is known what is wanted.
        node.plane(|plane, _| plane.await_streams());
    }
    let (of, pods, node) = (Arc::clone(&objects), Arc::clone(pods), Arc::clone(node));
    threads.spawn(async move {
        let running = Arc::clone(&node);
        tokio::select! {
            () = run(config, kinds, &of, &pods, &running) => {}
            () = node.drained() => {}
        }
    });
    objects
}

/// Applies the objects in the files of `folder` to `node` on `threads`, until it drains. Nothing is written about them:
/// the status of the node tells.
pub(crate) fn start_from_files(folder: PathBuf, node: &Arc<Node>, threads: &Handle) -> Arc<CustomObjects> {
    let objects = Arc::new(CustomObjects::new("resources", String::new(), Pace::default()));
    node.plane(|plane, _| plane.await_streams());
    let (of, node) = (Arc::clone(&objects), Arc::clone(node));
    threads.spawn(async move {
        let running = Arc::clone(&node);
        tokio::select! {
            () = run_from_files(&folder, &of, &running) => {}
            () = node.drained() => {}
        }
    });
    objects
}

async fn run_from_files(folder: &Path, objects: &CustomObjects, node: &Node) {
    tokio::join!(files::watch(folder, objects), reconciler::run(objects, None, node));
}

async fn run(config: kube::Config, kinds: WatchedKinds, objects: &CustomObjects, pods: &PodWatch, node: &Node) {
    let client = match Client::try_from(config) {
        Ok(client) => client,
        Err(error) => {
            let error = agent_runtime::chain(&error);
            tracing::error!(error, "the API server cannot be asked for custom resources");
            *lock(&objects.lmaps.error) = Some(error);
            return;
        }
    };
    let lmaps = async {
        if kinds.lmaps {
            objects.lmaps.watch(client.clone(), ApiResource::erase::<Lmap>(&())).await;
        }
    };
    let policies = async {
        if kinds.sampling_policies {
            objects.policies.watch(client.clone(), ApiResource::erase::<SamplingPolicy>(&())).await;
        }
    };
    let synopses = async {
        if kinds.synopsis_policies {
            objects.synopses.watch(client.clone(), ApiResource::erase::<SynopsisPolicy>(&())).await;
        }
    };
    let writing = status::write(client.clone(), objects);
    tokio::join!(lmaps, policies, synopses, reconciler::run(objects, Some(pods), node), writing);
}

#[cfg(test)]
mod tests;

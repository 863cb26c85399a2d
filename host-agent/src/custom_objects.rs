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
mod objects;
mod reconciler;
mod sampling;
mod status;
mod synopses;

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_runtime::lock;
use kube::Client;
use kube::api::ApiResource;
use resources::{Lmap, SamplingPolicy, SynopsisPolicy};
use tokio::runtime::Handle;

use self::objects::Pace;
use crate::node::Node;
use crate::pod_watch::PodWatch;

pub use files::{FolderError, problems_of_resources};
pub(crate) use objects::CustomObjects;

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

/// Watches objects of `kinds` on `threads`, and applies those that are about `pods` to `node`, until it drains. What
/// came of a change is written within `spread`.
pub(crate) fn start(
    (node_name, config): (String, kube::Config),
    (kinds, spread): (WatchedKinds, Duration),
    pods: &Arc<PodWatch>,
    node: &Arc<Node>,
    threads: &Handle,
) -> Arc<CustomObjects> {
    let pace = Pace::of(&node_name, spread);
    let objects = Arc::new(CustomObjects::new("kubernetes", node_name, pace));
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

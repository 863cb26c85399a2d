//! `Lmap`s, custom resources of Kubernetes: a list and a watch of the API server tell them, this node applies those
//! that are about its pods, and says in one object of its own what came of each (decision D38).
//!
//! Each node decides by itself, from all objects and all of its pods anew (`resources`, which is pure). Nothing waits
//! for the API server: while it is away, what is known stays in effect.

mod apply;
mod reconciler;
mod status;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as changes};
use kube::{Api, Client, ResourceExt as _};
use resources::plan::{Declared, Key, MAX_OBJECT_BYTES, MAX_OBJECTS};
use resources::{Lmap, NodeReport};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_stream::StreamExt as _;

use crate::node::Node;
use crate::pod_watch::PodWatch;

/// Objects of one answer.
const PAGE: u32 = 25;

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
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_millis(500),
            again: Duration::from_secs(30),
            // All nodes see a change at once, and do not write at once.
            settle: Duration::from_millis(2_000 + u64::from(rand::random::<u16>() % 4_000)),
            write: Duration::from_secs(30),
        }
    }
}

/// Objects that are known, with their sizes.
#[derive(Debug, Default)]
struct KnownObjects {
    objects: BTreeMap<Key, (Declared, usize)>,
    /// Whether a list was complete.
    is_listed: bool,
    /// Changes of what is known.
    version: u64,
    /// Objects that there was no room for.
    refused: u64,
}

impl KnownObjects {
    /// Takes `object`. Whether it says something else than before: what the controller writes into its status is of no
    /// concern here.
    fn insert(&mut self, object: Declared, bytes: usize) -> bool {
        let key = object.key();
        if self.objects.get(&key).is_some_and(|(known, _)| *known == object) {
            return false;
        }
        let others = self.objects.iter().filter(|(known, _)| **known != key);
        let (count, held) = others.fold((0, 0), |(count, held), (_, (_, bytes))| (count + 1, held + bytes));
        if count < MAX_OBJECTS && held + bytes <= MAX_OBJECT_BYTES {
            self.objects.insert(key, (object, bytes));
        } else {
            self.objects.remove(&key);
            self.refused += 1;
        }
        true
    }
}

/// What is known of `Lmap`s, and what came of them.
#[derive(Debug)]
pub(crate) struct LmapObjects {
    node_name: String,
    pace: Pace,
    known: Mutex<KnownObjects>,
    report: Mutex<NodeReport>,
    /// Notified when the report has changed.
    reported: Notify,
    /// Why the watch does not work now, and why the status cannot be written.
    errors: Mutex<[Option<String>; 2]>,
}

impl LmapObjects {
    fn new(node_name: String, pace: Pace) -> Self {
        let (known, report, reported, errors) = Default::default();
        Self { node_name, pace, known, report, reported, errors }
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problems(&self) -> Vec<String> {
        let [watch, write] = lock(&self.errors).clone();
        let refused = lock(&self.known).refused;
        let report = lock(&self.report);
        let watch = watch.map(|error| {
            format!(
                "kubernetes: Lmaps cannot be watched: {error}; those that are known stay in effect (may the service \
                 account list and watch lmaps?)"
            )
        });
        let write = write.map(|error| {
            format!(
                "kubernetes: what came of Lmaps cannot be written: {error} (may the service account get and patch \
                 lmapnodestatuses?)"
            )
        });
        let refused = (refused > 0).then(|| {
            format!("kubernetes: {refused} Lmaps are not in effect: {MAX_OBJECTS} of 2 MiB in all are the most")
        });
        let more =
            if report.not_applied > 1 { format!("; and {} more", report.not_applied - 1) } else { String::new() };
        let first = &report.first_problem;
        let first = (!first.is_empty()).then(|| format!("kubernetes: Lmap {first}{more}"));
        [watch, write, refused, first].into_iter().flatten().collect()
    }

    /// Takes what the API server tells. `listed` are the objects of a list in progress.
    fn take(&self, event: Result<Event<DynamicObject>, watcher::Error>, listed: &mut KnownObjects) {
        let mut error = None;
        match event {
            Ok(Event::Init) => *listed = KnownObjects::default(),
            Ok(Event::InitApply(object)) => _ = insert(listed, &object),
            Ok(Event::InitDone) => {
                let mut known = lock(&self.known);
                let version = known.version + 1;
                *known = KnownObjects { is_listed: true, version, ..core::mem::take(listed) };
            }
            Ok(Event::Apply(object)) => {
                let mut known = lock(&self.known);
                known.version += u64::from(insert(&mut known, &object));
            }
            Ok(Event::Delete(object)) => {
                let mut known = lock(&self.known);
                known.objects.remove(&(object.namespace().unwrap_or_default(), object.name_any()));
                known.version += 1;
            }
            // The kind may be installed later.
            Err(failed) if is_missing(&failed) => tracing::debug!("there is no kind Lmap"),
            Err(failed) => {
                let failed = agent_runtime::chain(&failed);
                tracing::debug!(error = failed, "Lmaps cannot be watched");
                error = Some(failed);
            }
        }
        lock(&self.errors)[0] = error;
    }
}

/// Whether the API server does not know the kind.
fn is_missing(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error)
    | watcher::Error::WatchStartFailed(error)
    | watcher::Error::WatchFailed(error)) = error
    else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Takes `object` as far as it is understood: one that is not must not hide the others.
fn insert(known: &mut KnownObjects, object: &DynamicObject) -> bool {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let bytes = spec.to_string().len();
    let created = object.creation_timestamp().map_or(i64::MAX, |time| time.0.as_second());
    let generation = object.metadata.generation.unwrap_or_default();
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let spec = serde_json::from_value(spec)
        .map_err(|error| format!("{error}: is the definition of Lmap that of this release (uview-crds)?"));
    known.insert(Declared { namespace, name, created, generation, spec }, bytes)
}

/// No code under these locks panics. If one did, the tables would still be usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches `Lmap`s on `threads`, and applies those that are about `pods` to `node`, until it drains.
pub(crate) fn start(
    node_name: String,
    config: kube::Config,
    pods: &Arc<PodWatch>,
    node: &Arc<Node>,
    threads: &Handle,
) -> Arc<LmapObjects> {
    let objects = Arc::new(LmapObjects::new(node_name, Pace::default()));
    let (of, pods, node) = (Arc::clone(&objects), Arc::clone(pods), Arc::clone(node));
    threads.spawn(async move {
        let running = Arc::clone(&node);
        tokio::select! {
            () = run(config, &of, &pods, &running) => {}
            () = node.drained() => {}
        }
    });
    objects
}

async fn run(config: kube::Config, objects: &LmapObjects, pods: &PodWatch, node: &Node) {
    let client = match Client::try_from(config) {
        Ok(client) => client,
        Err(error) => {
            let error = agent_runtime::chain(&error);
            tracing::error!(error, "the API server cannot be asked for Lmaps");
            lock(&objects.errors)[0] = Some(error);
            return;
        }
    };
    tokio::join!(watch(client.clone(), objects), reconciler::run(objects, pods, node), status::write(client, objects));
}

/// Watches them for ever. Where the kind is unknown, it is asked for again now and then.
async fn watch(client: Client, objects: &LmapObjects) {
    let lmaps: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Lmap>(&()));
    let events = changes(lmaps, watcher::Config::default().page_size(PAGE)).default_backoff();
    let mut events = core::pin::pin!(events);
    let mut listed = KnownObjects::default();
    while let Some(event) = events.next().await {
        objects.take(event, &mut listed);
    }
}

#[cfg(test)]
mod tests;

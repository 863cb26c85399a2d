//! The objects of one kind, as the API server tells of them: a list and a watch.

use std::collections::BTreeMap;
use std::sync::Mutex;

use agent_runtime::api_server::is_missing;
use agent_runtime::lock;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use pods::Pod;
use resources::plan::{Declared, Key, SpecError};
use serde::de::DeserializeOwned;
use tokio_stream::StreamExt as _;

use crate::cached_lists::{bounded, cached};
use crate::pod_watch::PodWatch;

/// A kind, and how much of it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectKind {
    /// One of it: Lmap.
    pub(super) one: &'static str,
    /// Several of it: Lmaps.
    pub(super) many: &'static str,
    /// What the API server calls it in paths and in rights: lmaps.
    pub(super) resource: &'static str,
    /// Most objects that are kept.
    pub(super) objects: usize,
    /// Most bytes of all of them.
    pub(super) bytes: usize,
}

/// Objects of one kind, with their sizes.
#[derive(Debug)]
pub(super) struct KnownObjects<S> {
    pub(super) objects: BTreeMap<Key, (Declared<S>, usize)>,
    /// Whether a list was complete.
    is_listed: bool,
    /// Changes of what is known.
    pub(super) version: u64,
    /// Objects that there was no room for.
    refused: u64,
}

impl<S> Default for KnownObjects<S> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), is_listed: false, version: 0, refused: 0 }
    }
}

impl<S: DeserializeOwned + PartialEq> KnownObjects<S> {
    /// Takes `object` as far as it is understood: one that is not must not hide the others. Whether it says something
    /// else than before: what the controller writes into its status is of no concern here.
    fn insert(&mut self, object: &DynamicObject, kind: ObjectKind) -> bool {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let bytes = spec.to_string().len();
        let created = object.creation_timestamp().map_or(i64::MAX, |time| time.0.as_second());
        let generation = object.metadata.generation.unwrap_or_default();
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let spec = serde_json::from_value(spec).map_err(|error| SpecError { kind: kind.one, cause: error.to_string() });
        let declared = Declared { namespace, name, created, generation, spec };
        let key = declared.key();
        if self.objects.get(&key).is_some_and(|(known, _)| *known == declared) {
            return false;
        }
        let others = self.objects.iter().filter(|(known, _)| **known != key);
        let (count, held) = others.fold((0, 0), |(count, held), (_, (_, bytes))| (count + 1, held + bytes));
        if count < kind.objects && held + bytes <= kind.bytes {
            self.objects.insert(key, (declared, bytes));
        } else {
            self.objects.remove(&key);
            self.refused += 1;
        }
        true
    }
}

/// Which objects and which pods are known.
pub(super) type Versions = (u64, u64);

/// What there is to plan.
pub(super) enum Knowledge<S> {
    /// One of both lists is not complete.
    Incomplete,
    /// What was known before.
    Same,
    /// Objects or pods have changed. `None`: this node has no pods, and objects name its services.
    New(Versions, Vec<Declared<S>>, Option<Vec<Pod>>),
}

/// What is known of the objects of one kind, and why their watch does not work now.
#[derive(Debug)]
pub(super) struct WatchedKind<S> {
    pub(super) kind: ObjectKind,
    pub(super) known: Mutex<KnownObjects<S>>,
    pub(super) error: Mutex<Option<String>>,
}

impl<S: DeserializeOwned + Clone + PartialEq> WatchedKind<S> {
    pub(super) fn new(kind: ObjectKind) -> Self {
        Self { kind, known: Mutex::default(), error: Mutex::default() }
    }

    /// Objects and pods, if one of both has changed since `versions`.
    pub(super) fn since(&self, versions: Option<Versions>, pods: Option<&PodWatch>) -> Knowledge<S> {
        let (version, declared) = {
            let known = lock(&self.known);
            let version = (known.version, pods.map_or(0, PodWatch::version));
            if versions == Some(version) {
                return Knowledge::Same;
            }
            if !known.is_listed {
                return Knowledge::Incomplete;
            }
            (version, known.objects.values().map(|(object, _)| object.clone()).collect())
        };
        match pods.map(PodWatch::all) {
            None => Knowledge::New(version, declared, None),
            Some(None) => Knowledge::Incomplete,
            Some(pods) => Knowledge::New(version, declared, pods),
        }
    }

    /// From now on these are all objects that there are.
    pub(super) fn replace(&self, objects: Vec<Declared<S>>) {
        let mut known = lock(&self.known);
        let version = known.version + 1;
        // Their number and bytes are bounded where they are read.
        let objects = objects.into_iter().map(|object| (object.key(), (object, 0))).collect();
        *known = KnownObjects { objects, is_listed: true, version, refused: 0 };
    }

    /// Objects that there was no room for.
    pub(super) fn refused(&self) -> u64 {
        lock(&self.known).refused
    }

    /// What an operator has to know, for the status.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        let ObjectKind { many, resource, objects, bytes, .. } = self.kind;
        let watch = lock(&self.error).clone().map(|error| {
            format!(
                "kubernetes: {many} cannot be watched: {error}; those that are known stay in effect (may the service \
                 account list and watch {resource}?)"
            )
        });
        let refused = self.refused();
        let refused = (refused > 0).then(|| {
            format!(
                "kubernetes: {refused} {many} are not in effect: {objects} of {} KiB in all are the most",
                bytes >> 10
            )
        });
        watch.into_iter().chain(refused)
    }

    /// Takes what the API server tells. `listed` are the objects of a list in progress.
    pub(super) fn take(&self, event: Result<Event<DynamicObject>, watcher::Error>, listed: &mut KnownObjects<S>) {
        let mut error = None;
        match event {
            Ok(Event::Init) => *listed = KnownObjects::default(),
            Ok(Event::InitApply(object)) => _ = listed.insert(&object, self.kind),
            Ok(Event::InitDone) => {
                let mut known = lock(&self.known);
                let version = known.version + 1;
                *known = KnownObjects { is_listed: true, version, ..core::mem::take(listed) };
            }
            Ok(Event::Apply(object)) => {
                let mut known = lock(&self.known);
                known.version += u64::from(known.insert(&object, self.kind));
            }
            Ok(Event::Delete(object)) => {
                let mut known = lock(&self.known);
                known.objects.remove(&(object.namespace().unwrap_or_default(), object.name_any()));
                known.version += 1;
            }
            // The kind may be installed later.
            Err(failed) if is_missing(&failed) => tracing::debug!(kind = self.kind.one, "there is no such kind"),
            Err(failed) => {
                let failed = agent_runtime::chain(&failed);
                tracing::debug!(kind = self.kind.one, error = failed, "objects cannot be watched");
                error = Some(failed);
            }
        }
        *lock(&self.error) = error;
    }

    /// Watches objects of the kind `resource` for ever. Where it is unknown, it is asked for again now and then.
    pub(super) async fn watch(&self, client: Client, resource: ApiResource) {
        // A list that is longer than all that is kept is read in pages.
        let objects: Api<DynamicObject> = Api::all_with(bounded(client, self.kind.bytes), &resource);
        let mut events = core::pin::pin!(cached(objects, None));
        let mut listed = KnownObjects::default();
        while let Some(event) = events.next().await {
            self.take(event, &mut listed);
        }
    }
}

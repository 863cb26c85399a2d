//! What is known of the cluster: lists and watches of `Lmap`s, `SamplingPolicy`s and `SynopsisPolicy`s, of what nodes
//! say about them, and of nodes.
//!
//! Nothing is done as long as one of the lists is not complete: half of the nodes are no cluster. A cluster whose
//! definitions are of an earlier release has no `SynopsisPolicy`s.

use core::pin::pin;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_runtime::api_server::is_missing;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as changes};
use kube::{Api, Client, ResourceExt as _};
use resources::aggregate::{
    Cluster, KnownObject, NodeVerdict, ObjectKind, OfKinds, Outcome, Report, StatusWrite, orphans, reconcile,
};
use resources::node_status::{MAX_STATES, ObjectState};
use resources::plan::Key;
use resources::{Lmap, LmapNodeStatus, NodeReport, SamplingPolicy, SynopsisPolicy};
use tokio_stream::{Stream, StreamExt as _};

/// Objects of one answer: as many as fit into it, whoever wrote them, if each has 1.5 MiB, which is the most that an
/// API server stores; and those with metadata only.
const PAGES: [u32; 2] = [3, 50];
/// Most objects of one kind.
const MAX_OBJECTS: usize = 10_000;
/// Most bytes of all lists. While a kind is listed anew, what was known stays: all are there twice.
pub(crate) const MAX_BYTES: usize = 2 * (3 * KnownObject::MOST + Report::MOST + String::MOST);

/// What a kind of value takes.
trait Weight {
    /// Most bytes of all of them.
    const MOST: usize;

    /// Bytes that one takes with its name, about.
    fn bytes(&self) -> usize;
}

/// The uid of a node.
impl Weight for String {
    const MOST: usize = 8 << 20;

    fn bytes(&self) -> usize {
        384 + self.len()
    }
}

impl Weight for KnownObject {
    const MOST: usize = 12 << 20;

    fn bytes(&self) -> usize {
        let texts = self.status.conditions.iter().map(|condition| 128 + condition.message.len());
        640 + self.status.first_problem.len() + texts.sum::<usize>()
    }
}

impl Weight for Report {
    const MOST: usize = 32 << 20;

    fn bytes(&self) -> usize {
        let text = |outcome: &Outcome| match outcome {
            Outcome::Applied => 0,
            Outcome::Pending(text) | Outcome::Refused(text) | Outcome::Conflicted(text) => text.len(),
        };
        let services = |verdict: &NodeVerdict| verdict.services.iter().map(|name| 24 + name.len()).sum::<usize>();
        let one = |((namespace, name), verdict): (&Key, &NodeVerdict)| {
            128 + namespace.len() + name.len() + text(&verdict.outcome) + services(verdict)
        };
        let OfKinds { lmaps, policies, synopses } = &self.verdicts;
        384 + lmaps.iter().chain(policies).chain(synopses).map(one).sum::<usize>()
    }
}

/// How far one kind is known.
#[derive(Debug)]
struct Listing<I, V> {
    /// Objects of a list in progress.
    buffer: BTreeMap<I, V>,
    buffer_bytes: usize,
    bytes: usize,
    is_listed: bool,
    refused: usize,
    error: Option<String>,
    /// The API server does not know the kind.
    is_missing: bool,
}

impl<I, V> Default for Listing<I, V> {
    fn default() -> Self {
        let (buffer, error) = Default::default();
        Self { buffer, buffer_bytes: 0, bytes: 0, is_listed: false, refused: 0, error, is_missing: false }
    }
}

impl<I: Ord, V: Weight> Listing<I, V> {
    /// Takes what the API server tells into `known`. `read` gives what an object is kept as.
    fn take<K>(
        &mut self,
        known: &mut BTreeMap<I, V>,
        event: Result<Event<K>, watcher::Error>,
        read: impl Fn(&K) -> (I, V),
    ) {
        (self.error, self.is_missing) = (None, false);
        match event {
            Ok(Event::Init) => (self.buffer, self.buffer_bytes, self.refused) = Default::default(),
            Ok(Event::InitApply(object)) => {
                let (id, value) = read(&object);
                let bytes = self.buffer_bytes + value.bytes();
                if self.buffer.len() < MAX_OBJECTS && bytes <= V::MOST {
                    self.buffer_bytes = bytes;
                    self.buffer.insert(id, value);
                } else {
                    self.refused += 1;
                }
            }
            Ok(Event::InitDone) => {
                *known = core::mem::take(&mut self.buffer);
                self.bytes = known.values().map(V::bytes).sum();
                self.is_listed = true;
            }
            Ok(Event::Apply(object)) => self.insert(known, read(&object)),
            Ok(Event::Delete(object)) => {
                let gone = known.remove(&read(&object).0);
                self.bytes -= gone.map_or(0, |gone| gone.bytes());
            }
            Err(error) => {
                self.is_missing = is_missing(&error);
                self.error = Some(agent_runtime::chain(&error));
            }
        }
    }

    fn insert(&mut self, known: &mut BTreeMap<I, V>, (id, value): (I, V)) {
        self.bytes -= known.remove(&id).map_or(0, |before| before.bytes());
        let bytes = self.bytes + value.bytes();
        if bytes <= V::MOST && known.len() < MAX_OBJECTS {
            self.bytes = bytes;
            known.insert(id, value);
        } else {
            self.refused += 1;
        }
    }
}

/// The state, with how far it is known.
#[derive(Debug, Default)]
struct State {
    cluster: Cluster,
    lmaps: Listing<Key, KnownObject>,
    policies: Listing<Key, KnownObject>,
    synopses: Listing<Key, KnownObject>,
    reports: Listing<String, Report>,
    nodes: Listing<String, String>,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterView {
    state: Mutex<State>,
}

impl ClusterView {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics. If one did, the tables would still be usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all lists were complete once.
    pub(crate) fn is_complete(&self) -> bool {
        let state = self.lock();
        let has_synopses = state.synopses.is_listed || state.synopses.is_missing;
        state.lmaps.is_listed
            && state.policies.is_listed
            && has_synopses
            && state.reports.is_listed
            && state.nodes.is_listed
    }

    /// Statuses that have to be written, the first `most` of those that are `due`; none as long as a list is not
    /// complete.
    pub(crate) fn writes(&self, now: &Time, most: usize, due: impl Fn(ObjectKind, &Key) -> bool) -> Vec<StatusWrite> {
        if self.is_complete() { reconcile(&self.lock().cluster, now, most, due) } else { Vec::new() }
    }

    /// Takes `object`, which was written.
    pub(crate) fn take_written(&self, kind: ObjectKind, object: &DynamicObject) {
        let mut state = self.lock();
        let State { cluster, lmaps, policies, synopses, .. } = &mut *state;
        let listing = match kind {
            ObjectKind::Lmap => lmaps,
            ObjectKind::SamplingPolicy => policies,
            ObjectKind::SynopsisPolicy => synopses,
        };
        listing.insert(cluster.objects.of_mut(kind), known_object(object));
    }

    /// Reports without a node, with their uids; none as long as it is not sure that all nodes are known.
    pub(crate) fn orphans(&self) -> BTreeMap<String, String> {
        let is_complete = self.is_complete();
        let State { cluster, nodes, .. } = &*self.lock();
        let knows_all = is_complete && nodes.error.is_none() && nodes.refused == 0;
        if knows_all { orphans(cluster) } else { BTreeMap::new() }
    }

    /// Numbers of Lmaps, of SamplingPolicies, of SynopsisPolicies, of nodes that report, and of objects that there was
    /// no room for.
    pub(crate) fn sizes(&self) -> [usize; 5] {
        let State { cluster, lmaps, policies, synopses, reports, nodes } = &*self.lock();
        let refused = lmaps.refused + policies.refused + synopses.refused + reports.refused + nodes.refused;
        let [lmaps, policies, synopses] = ObjectKind::ALL.map(|kind| cluster.objects.of(kind).len());
        [lmaps, policies, synopses, cluster.reports.len(), refused]
    }

    /// Why one of the watches does not work now.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = self.lock();
        // Definitions of an earlier release have no such kind.
        let synopses = state.synopses.error.as_ref().filter(|_| !state.synopses.is_missing);
        let all = [
            ("lmaps", state.lmaps.error.as_ref()),
            ("samplingpolicies", state.policies.error.as_ref()),
            ("synopsispolicies", synopses),
            ("lmapnodestatuses", state.reports.error.as_ref()),
            ("nodes", state.nodes.error.as_ref()),
        ];
        let (kind, error) = all.into_iter().find_map(|(kind, error)| Some((kind, error?)))?;
        Some(format!(
            "{kind} cannot be watched: {error} (is uview-crds installed, and may the service account watch them?)"
        ))
    }

    /// The LMAPs that the `Lmap` `key` sets, with their nodes; `None` if there is no such object.
    pub(crate) fn services(&self, key: &Key) -> Option<Vec<(String, Vec<String>)>> {
        let state = self.lock();
        let Cluster { objects, reports, nodes } = &state.cluster;
        objects.lmaps.get(key)?;
        let set = |(node, report): (&String, &Report)| {
            let services = report.verdicts.lmaps.get(key).filter(|_| nodes.contains_key(node))?.services.clone();
            Some((node.clone(), services))
        };
        Some(reports.iter().filter_map(set).collect())
    }
}

/// What is kept of an object. A status that is not understood is one that has to be written.
fn known_object(object: &DynamicObject) -> (Key, KnownObject) {
    let status = object.data.get("status").cloned().and_then(|status| serde_json::from_value(status).ok());
    let known = KnownObject {
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        status: status.unwrap_or_default(),
    };
    ((object.namespace().unwrap_or_default(), object.name_any()), known)
}

/// What is kept of a node's report; no verdict of one that is not understood.
fn report(object: &DynamicObject) -> (String, Report) {
    let report: NodeReport = serde_json::from_value(object.data.clone()).unwrap_or_default();
    let verdicts = |states: &[ObjectState]| -> BTreeMap<Key, NodeVerdict> {
        let states = states.iter().take(MAX_STATES);
        states.map(|state| ((state.namespace.clone(), state.name.clone()), state.into())).collect()
    };
    let verdicts = OfKinds {
        lmaps: verdicts(&report.lmaps),
        policies: verdicts(&report.sampling_policies),
        synopses: verdicts(&report.synopsis_policies),
    };
    (object.name_any(), Report { uid: object.uid().unwrap_or_default(), verdicts })
}

/// Watches all five kinds for ever.
pub(crate) async fn watch(client: Client, known: &ClusterView) {
    let config = |page: u32| watcher::Config::default().page_size(page);
    let all_of = |of: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), of);
    let lmaps = all_of(&ApiResource::erase::<Lmap>(&()));
    let policies = all_of(&ApiResource::erase::<SamplingPolicy>(&()));
    let synopses = all_of(&ApiResource::erase::<SynopsisPolicy>(&()));
    let reports = all_of(&ApiResource::erase::<LmapNodeStatus>(&()));
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let lmaps = follow("lmaps", known, changes(lmaps, config(PAGES[0])), |state, event| {
        state.lmaps.take(&mut state.cluster.objects.lmaps, event, known_object);
    });
    let policies = follow("samplingpolicies", known, changes(policies, config(PAGES[0])), |state, event| {
        state.policies.take(&mut state.cluster.objects.policies, event, known_object);
    });
    let synopses = follow("synopsispolicies", known, changes(synopses, config(PAGES[0])), |state, event| {
        state.synopses.take(&mut state.cluster.objects.synopses, event, known_object);
    });
    let reports = follow("lmapnodestatuses", known, changes(reports, config(PAGES[0])), |state, event| {
        state.reports.take(&mut state.cluster.reports, event, report);
    });
    let nodes = follow("nodes", known, changes(nodes, config(PAGES[1])), |state, event| {
        state.nodes.take(&mut state.cluster.nodes, event, |node| (node.name_any(), node.uid().unwrap_or_default()));
    });
    tokio::join!(lmaps, policies, synopses, reports, nodes);
}

/// Takes `events` for ever. After errors it begins anew, each time later; if the API server has forgotten what came
/// since (410), with a new list.
async fn follow<K>(
    kind: &str,
    known: &ClusterView,
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    take: impl Fn(&mut State, Result<Event<K>, watcher::Error>),
) {
    let mut events = pin!(events.default_backoff());
    while let Some(event) = events.next().await {
        if let Err(error) = &event {
            tracing::debug!(kind, error = agent_runtime::chain(error), "the watch begins anew");
        }
        take(&mut known.lock(), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of a MiB, of which there are three at most.
    #[derive(Debug, PartialEq)]
    struct Heavy(u8);

    impl Weight for Heavy {
        const MOST: usize = 3 << 20;

        fn bytes(&self) -> usize {
            1 << 20
        }
    }

    #[test]
    fn a_list_takes_as_many_bytes_as_it_may_and_counts_the_others() {
        let (mut listing, mut known) = (Listing::default(), BTreeMap::new());
        let read = |name: &u32| (*name, Heavy(1));
        let mut take = |event| listing.take(&mut known, Ok(event), read);
        take(Event::Init);
        (0..5).for_each(|name| take(Event::InitApply(name)));
        take(Event::InitDone);
        assert_eq!((known.keys().copied().collect::<Vec<_>>(), listing.refused), (vec![0, 1, 2], 2));

        let mut take = |event| listing.take(&mut known, Ok(event), read);
        take(Event::Apply(7));
        take(Event::Apply(1));
        take(Event::Delete(0));
        take(Event::Apply(8));
        assert_eq!((known.into_keys().collect::<Vec<_>>(), listing.bytes), (vec![1, 2, 8], 3 << 20));
        assert_eq!(listing.refused, 3);
    }
}

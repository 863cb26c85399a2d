//! What came of each `Lmap`, `SamplingPolicy` and `SynopsisPolicy` in the whole cluster, from what its nodes say. Pure:
//! the same objects give the same writes.
//!
//! A node counts for an object if it names it: then it runs one of its pods. What a node says about an earlier
//! generation is no answer yet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::node_status::{MAX_MESSAGE, ObjectState};
use crate::object_status::{MAX_PROBLEM, ObjectStatus};
use crate::plan::Key;
use crate::text::short;

/// The condition that says whether an object is in effect.
pub const APPLIED: &str = "Applied";
/// The condition that says whether an older object is in the way.
pub const CONFLICTED: &str = "Conflicted";

/// Kinds of objects that have a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// How workloads are watched.
    Lmap,
    /// Which of their traces are kept.
    SamplingPolicy,
    /// Which of their packets are watched.
    SynopsisPolicy,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lmap, Self::SamplingPolicy, Self::SynopsisPolicy];

    /// Its name: `Lmap`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lmap => "Lmap",
            Self::SamplingPolicy => "SamplingPolicy",
            Self::SynopsisPolicy => "SynopsisPolicy",
        }
    }

    /// The reason of the condition that an older object of this kind is in the way.
    const fn older(self) -> &'static str {
        match self {
            Self::Lmap => "OlderLmap",
            Self::SamplingPolicy => "OlderSamplingPolicy",
            Self::SynopsisPolicy => "OlderSynopsisPolicy",
        }
    }
}

/// Objects of all kinds, or what is known of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfKinds<V> {
    /// Of `Lmap`s, by namespace and name.
    pub lmaps: BTreeMap<Key, V>,
    /// Of `SamplingPolicy`s, by namespace and name.
    pub policies: BTreeMap<Key, V>,
    /// Of `SynopsisPolicy`s, by namespace and name.
    pub synopses: BTreeMap<Key, V>,
}

impl<V> Default for OfKinds<V> {
    fn default() -> Self {
        Self { lmaps: BTreeMap::new(), policies: BTreeMap::new(), synopses: BTreeMap::new() }
    }
}

impl<V> OfKinds<V> {
    /// Those of one kind.
    #[must_use]
    pub const fn of(&self, kind: ObjectKind) -> &BTreeMap<Key, V> {
        match kind {
            ObjectKind::Lmap => &self.lmaps,
            ObjectKind::SamplingPolicy => &self.policies,
            ObjectKind::SynopsisPolicy => &self.synopses,
        }
    }

    /// Those of one kind, to change them.
    pub const fn of_mut(&mut self, kind: ObjectKind) -> &mut BTreeMap<Key, V> {
        match kind {
            ObjectKind::Lmap => &mut self.lmaps,
            ObjectKind::SamplingPolicy => &mut self.policies,
            ObjectKind::SynopsisPolicy => &mut self.synopses,
        }
    }
}

/// An object, as far as its status is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownObject {
    /// Its uid: another object may have had the same name.
    pub uid: String,
    /// The version that the API server gave it, for writes that must not overwrite a newer one.
    pub resource_version: String,
    /// Counts changes of its spec.
    pub generation: i64,
    /// The status that the API server has.
    pub status: ObjectStatus,
}

/// What one node makes of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in effect.
    Applied,
    /// It will be; why not yet.
    Pending(String),
    /// It is not, and why.
    Refused(String),
    /// An older object sets one of its services, or all; which one.
    Conflicted(String),
}

/// What one node says about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The generation that it has seen.
    pub generation: i64,
    /// What came of it.
    pub outcome: Outcome,
    /// The LMAPs of the node that the object sets; not all, if there are many.
    pub services: Vec<String>,
}

impl From<&ObjectState> for NodeVerdict {
    fn from(state: &ObjectState) -> Self {
        let find = |kind| state.conditions.iter().find(|condition| condition.type_ == kind);
        let is_true = |condition: &&Condition| condition.status == "True";
        let text = |condition: &Condition| short(condition.message.clone(), MAX_MESSAGE);
        let applied = find(APPLIED);
        let outcome = match (find(CONFLICTED).filter(is_true), applied) {
            (Some(conflict), _) => Outcome::Conflicted(text(conflict)),
            (None, Some(applied)) if is_true(&applied) => Outcome::Applied,
            (None, Some(applied)) if applied.reason == "Waiting" => Outcome::Pending(text(applied)),
            (None, Some(applied)) => Outcome::Refused(text(applied)),
            (None, None) => Outcome::Pending(String::new()),
        };
        let generation = applied.and_then(|condition| condition.observed_generation).unwrap_or_default();
        Self { generation, outcome, services: state.services.clone() }
    }
}

/// What one node says about all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The uid of the object that says so.
    pub uid: String,
    /// What came of each object that is about pods of the node.
    pub verdicts: OfKinds<NodeVerdict>,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// All objects of all kinds.
    pub objects: OfKinds<KnownObject>,
    /// What each node says about them, by the node's name.
    pub reports: BTreeMap<String, Report>,
    /// Uids of the nodes that there are, by name: a report outlives its node.
    pub nodes: BTreeMap<String, String>,
}

/// Something to tell people, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether something is wrong.
    pub is_warning: bool,
    /// Why, in one word.
    pub reason: String,
    /// The same as a sentence.
    pub note: String,
}

/// A status to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// The object's kind.
    pub kind: ObjectKind,
    /// The object's namespace and name.
    pub key: Key,
    /// The object's uid.
    pub uid: String,
    /// The version on which this is based.
    pub resource_version: String,
    /// What is written.
    pub status: ObjectStatus,
    /// What is told when it was written.
    pub notices: Vec<Notice>,
}

/// The statuses that differ from what the API server has: the first `most` of those that are `due`. Conditions that
/// hold as before keep the time of their transition, others have `now`.
#[must_use]
pub fn reconcile(
    cluster: &Cluster,
    now: &Time,
    most: usize,
    due: impl Fn(ObjectKind, &Key) -> bool,
) -> Vec<StatusWrite> {
    let mut writes = Vec::new();
    for kind in ObjectKind::ALL {
        let left = most - writes.len();
        writes.extend(reconcile_kind(cluster, kind, now, left, |key| due(kind, key)));
    }
    writes
}

fn reconcile_kind(
    cluster: &Cluster,
    kind: ObjectKind,
    now: &Time,
    most: usize,
    due: impl Fn(&Key) -> bool,
) -> Vec<StatusWrite> {
    let mut said: BTreeMap<&Key, Vec<(&str, &NodeVerdict)>> = BTreeMap::new();
    for (node, report) in cluster.reports.iter().filter(|(node, _)| cluster.nodes.contains_key(*node)) {
        for (key, verdict) in report.verdicts.of(kind) {
            said.entry(key).or_default().push((node, verdict));
        }
    }
    let write = |(key, object): (&Key, &KnownObject)| {
        let nodes = said.get(key).map(Vec::as_slice).unwrap_or_default();
        let status = status(kind, object, nodes, now);
        (status != object.status).then(|| StatusWrite {
            kind,
            key: key.clone(),
            uid: object.uid.clone(),
            resource_version: object.resource_version.clone(),
            notices: notices(kind, &object.status, &status),
            status,
        })
    };
    cluster.objects.of(kind).iter().filter(|(key, _)| due(key)).filter_map(write).take(most).collect()
}

/// Reports of nodes that are not there, with their uids: a node may have gone, or not be known yet. None without any
/// node: a cluster has some.
#[must_use]
pub fn orphans(cluster: &Cluster) -> BTreeMap<String, String> {
    let is_gone = |(node, _): &(&String, &Report)| !cluster.nodes.is_empty() && !cluster.nodes.contains_key(*node);
    cluster.reports.iter().filter(is_gone).map(|(node, report)| (node.clone(), report.uid.clone())).collect()
}

/// What came of `object` on `nodes`, by name.
fn status(kind: ObjectKind, object: &KnownObject, nodes: &[(&str, &NodeVerdict)], now: &Time) -> ObjectStatus {
    let counts = Counts::of(object.generation, nodes);
    let condition = |type_: &str, (status, reason, message): (&str, &str, String)| {
        let same = object.status.condition(type_).filter(|known| known.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: short(message, MAX_PROBLEM),
            observed_generation: Some(object.generation),
            last_transition_time: same.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
        }
    };
    ObjectStatus {
        observed_generation: object.generation,
        nodes_applied: counts.applied,
        nodes_refused: counts.refused,
        nodes_pending: counts.pending,
        conditions: vec![condition(APPLIED, counts.applied()), condition(CONFLICTED, counts.conflicted(kind))],
        first_problem: counts.first_problem.map(|problem| short(problem, MAX_PROBLEM)).unwrap_or_default(),
    }
}

/// What the nodes say about one object, counted.
#[derive(Debug, Default)]
struct Counts {
    applied: u32,
    refused: u32,
    pending: u32,
    conflicted: u32,
    /// The first node that does not apply it, and why.
    first_problem: Option<String>,
    /// The first node that has a conflict, and which one.
    first_conflict: Option<String>,
    /// The first node that says what it waits for.
    first_pending: Option<String>,
}

impl Counts {
    fn of(generation: i64, nodes: &[(&str, &NodeVerdict)]) -> Self {
        let mut counts = Self::default();
        for (node, verdict) in nodes {
            let told = |why: &str| Some(format!("{node}: {why}"));
            match &verdict.outcome {
                _ if verdict.generation != generation => counts.pending += 1,
                Outcome::Applied => counts.applied += 1,
                Outcome::Pending(why) => {
                    counts.pending += 1;
                    counts.first_pending = counts.first_pending.take().or_else(|| told(why));
                }
                Outcome::Refused(why) => {
                    counts.refused += 1;
                    counts.first_problem = counts.first_problem.take().or_else(|| told(why));
                }
                Outcome::Conflicted(why) => {
                    counts.refused += 1;
                    counts.conflicted += 1;
                    counts.first_problem = counts.first_problem.take().or_else(|| told(why));
                    counts.first_conflict = counts.first_conflict.take().or_else(|| told(why));
                }
            }
        }
        counts
    }

    const fn all(&self) -> u32 {
        self.applied + self.refused + self.pending
    }

    /// Status, reason and message of the condition `Applied`.
    fn applied(&self) -> (&'static str, &'static str, String) {
        let all = self.all();
        let in_effect = match (self.applied, all) {
            (0, _) => "in effect on no node".to_owned(),
            (applied, all) => format!("in effect on {applied} of {all} nodes"),
        };
        if let Some(problem) = &self.first_problem {
            let reason = if self.applied > 0 { "PartlyApplied" } else { "Refused" };
            return ("False", reason, format!("{in_effect}; {problem}"));
        }
        match (all, self.pending) {
            (0, _) => {
                let text = "no node says that it runs such pods: are there pods in this namespace that it selects, and \
                            does uview run on their nodes?";
                ("Unknown", "NoPods", text.to_owned())
            }
            (1, 0) => ("True", "Applied", "in effect on the one node that runs its pods".to_owned()),
            (all, 0) => ("True", "Applied", format!("in effect on all {all} nodes that run its pods")),
            (_, pending) => {
                let why = self.first_pending.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
                ("False", "Waiting", format!("{in_effect}, not yet on {pending}{why}"))
            }
        }
    }

    /// Status, reason and message of the condition `Conflicted`.
    fn conflicted(&self, kind: ObjectKind) -> (&'static str, &'static str, String) {
        match &self.first_conflict {
            None => ("False", "NoConflict", String::new()),
            Some(first) => ("True", kind.older(), format!("on {} of {} nodes; {first}", self.conflicted, self.all())),
        }
    }
}

/// What people are told of the transition from `before` to `after`: each reason that is new.
fn notices(kind: ObjectKind, before: &ObjectStatus, after: &ObjectStatus) -> Vec<Notice> {
    let of = |status: &ObjectStatus, type_| {
        status.condition(type_).map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    let mut notices = Vec::new();
    for condition in &after.conditions {
        let known = of(before, &condition.type_);
        let is_new = known.as_ref() != Some(&(condition.status.clone(), condition.reason.clone()))
            || before.observed_generation != after.observed_generation;
        let was_true = known.is_some_and(|(status, _)| status == "True");
        let (is_warning, reason, note) = match (condition.type_.as_str(), condition.status.as_str()) {
            (APPLIED, "True") => (false, "Applied", condition.message.clone()),
            (APPLIED, "False") if condition.reason != "Waiting" => {
                (true, condition.reason.as_str(), condition.message.clone())
            }
            (CONFLICTED, "True") => (true, "Conflicted", condition.message.clone()),
            (CONFLICTED, "False") if was_true => {
                (false, "ConflictResolved", format!("no older {} sets one of its services any more", kind.name()))
            }
            _ => continue,
        };
        if is_new {
            notices.push(Notice { is_warning, reason: reason.to_owned(), note });
        }
    }
    notices
}

#[cfg(test)]
mod tests;

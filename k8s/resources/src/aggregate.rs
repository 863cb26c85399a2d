//! What came of each `Lmap` in the whole cluster, from what its nodes say. Pure: the same objects give the same writes.
//!
//! A node counts for an object if it names it: then it runs one of its pods. What a node says about an earlier
//! generation is no answer yet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::lmap_status::{LmapStatus, MAX_PROBLEM};
use crate::node_status::{MAX_MESSAGE, ObjectState};
use crate::plan::Key;
use crate::text::short;

/// The condition that says whether an object is in effect.
pub const APPLIED: &str = "Applied";
/// The condition that says whether an older object is in the way.
pub const CONFLICTED: &str = "Conflicted";

/// An `Lmap`, as far as its status is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownLmap {
    /// Its uid: another object may have had the same name.
    pub uid: String,
    /// The version that the API server gave it, for writes that must not overwrite a newer one.
    pub resource_version: String,
    /// Counts changes of its spec.
    pub generation: i64,
    /// The status that the API server has.
    pub status: LmapStatus,
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

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// All objects, by namespace and name.
    pub lmaps: BTreeMap<Key, KnownLmap>,
    /// What each node says about them, by the node's name.
    pub reports: BTreeMap<String, BTreeMap<Key, NodeVerdict>>,
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
    /// The object's namespace and name.
    pub key: Key,
    /// The object's uid.
    pub uid: String,
    /// The version on which this is based.
    pub resource_version: String,
    /// What is written.
    pub status: LmapStatus,
    /// What is told when it was written.
    pub notices: Vec<Notice>,
}

/// The statuses that differ from what the API server has. Conditions that hold as before keep the time of their
/// transition, others have `now`.
#[must_use]
pub fn reconcile(cluster: &Cluster, now: &Time) -> Vec<StatusWrite> {
    let mut said: BTreeMap<&Key, Vec<(&str, &NodeVerdict)>> = BTreeMap::new();
    for (node, verdicts) in cluster.reports.iter().filter(|(node, _)| cluster.nodes.contains_key(*node)) {
        for (key, verdict) in verdicts {
            said.entry(key).or_default().push((node, verdict));
        }
    }
    let write = |(key, lmap): (&Key, &KnownLmap)| {
        let nodes = said.get(key).map(Vec::as_slice).unwrap_or_default();
        let status = status(lmap, nodes, now);
        (status != lmap.status).then(|| StatusWrite {
            key: key.clone(),
            uid: lmap.uid.clone(),
            resource_version: lmap.resource_version.clone(),
            notices: notices(&lmap.status, &status),
            status,
        })
    };
    cluster.lmaps.iter().filter_map(write).collect()
}

/// What came of `lmap` on `nodes`, by name.
fn status(lmap: &KnownLmap, nodes: &[(&str, &NodeVerdict)], now: &Time) -> LmapStatus {
    let counts = Counts::of(lmap.generation, nodes);
    let condition = |kind: &str, (status, reason, message): (&str, &str, String)| {
        let same = lmap.status.condition(kind).filter(|known| known.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: short(message, MAX_PROBLEM),
            observed_generation: Some(lmap.generation),
            last_transition_time: same.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
        }
    };
    LmapStatus {
        observed_generation: lmap.generation,
        nodes_applied: counts.applied,
        nodes_refused: counts.refused,
        nodes_pending: counts.pending,
        conditions: vec![condition(APPLIED, counts.applied()), condition(CONFLICTED, counts.conflicted())],
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
    fn conflicted(&self) -> (&'static str, &'static str, String) {
        match &self.first_conflict {
            None => ("False", "NoConflict", String::new()),
            Some(first) => ("True", "OlderLmap", format!("on {} of {} nodes; {first}", self.conflicted, self.all())),
        }
    }
}

/// What people are told of the transition from `before` to `after`: each reason that is new.
fn notices(before: &LmapStatus, after: &LmapStatus) -> Vec<Notice> {
    let of = |status: &LmapStatus, kind| {
        status.condition(kind).map(|condition| (condition.status.clone(), condition.reason.clone()))
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
                (false, "ConflictResolved", "no older Lmap sets one of its services any more".to_owned())
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

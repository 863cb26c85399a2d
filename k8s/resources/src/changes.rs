//! What has to be changed, after what was applied before; and what came of it, for the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::node_status::ObjectState;
use crate::plan::{Plan, Settings};
use crate::report::{KindReport, KindWords, report_of};

/// What was applied to an LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The LMAP's number: a later one of the same name is another one, with nothing applied.
    pub lmap: u32,
    /// What it has since.
    pub settings: Arc<Settings>,
}

/// One change of an LMAP.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A service's own LMAP goes back to what the configuration says.
    Reset {
        /// Name of the LMAP.
        name: String,
        /// Number of the LMAP.
        lmap: u32,
    },
    /// An LMAP over several services ends.
    Delete {
        /// Name of the LMAP.
        name: String,
        /// Number of the LMAP.
        lmap: u32,
    },
    /// An LMAP has these settings, and the configuration's where they say nothing.
    Set {
        /// Name of the LMAP.
        name: String,
        /// Its number; `None`: one over several services, which is made.
        lmap: Option<u32>,
        /// What it is to have.
        settings: Arc<Settings>,
    },
}

/// What has to be done so that LMAPs have what is `wanted`. `present` are the numbers of those that there are now. A
/// service that has no LMAP yet gets nothing: its first replica makes one, and then it is set.
#[must_use]
pub fn changes(
    applied: &BTreeMap<String, Applied>,
    wanted: &BTreeMap<String, Arc<Settings>>,
    present: &BTreeMap<String, u32>,
) -> Vec<Change> {
    let is_there = |name: &String, of: &Applied| present.get(name) == Some(&of.lmap);
    let left = applied.iter().filter(|(name, of)| !wanted.contains_key(*name) && is_there(name, of));
    let left = left.map(|(name, of)| {
        let (name, lmap) = (name.clone(), of.lmap);
        if of.settings.members.is_empty() { Change::Reset { name, lmap } } else { Change::Delete { name, lmap } }
    });
    let set = wanted.iter().filter_map(|(name, settings)| {
        let lmap = present.get(name).copied();
        let is_done = applied.get(name).is_some_and(|of| lmap == Some(of.lmap) && of.settings == *settings);
        let waits = lmap.is_none() && settings.members.is_empty();
        (!is_done && !waits).then(|| Change::Set { name: name.clone(), lmap, settings: Arc::clone(settings) })
    });
    left.chain(set).collect()
}

/// What came of the `Lmap`s of `plan`. `applied` is what is in effect, `refused` why the rest is not. Conditions that
/// were the same in `before` keep the time of their transition; others have `now`.
#[must_use]
pub fn report(
    plan: &Plan,
    applied: &BTreeMap<String, Applied>,
    refused: &BTreeMap<String, String>,
    (before, now): (&[ObjectState], &Time),
) -> KindReport {
    let is_done = |name: &str| {
        applied.get(name).is_some_and(|done| plan.wanted.get(name).is_some_and(|wanted| done.settings == *wanted))
    };
    let words = KindWords { kind: "Lmap", waits: "has no LMAP yet: nothing is measured of it so far" };
    report_of(plan, words, (is_done, refused), (before, now))
}

#[cfg(test)]
mod tests;

//! What has to be changed, after what was applied before; and what came of it, for the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::node_status::{LmapState, MAX_MESSAGE, MAX_SERVICES, MAX_STATES, NodeReport};
use crate::plan::{Plan, Selected, Settings};

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

/// The status of this node after `plan`. `applied` is what is in effect, `refused` why the rest is not. Conditions that
/// were the same in `before` keep the time of their transition; others have `now`.
#[must_use]
pub fn report(
    plan: &Plan,
    applied: &BTreeMap<String, Applied>,
    refused: &BTreeMap<String, String>,
    (before, now): (&NodeReport, &Time),
) -> NodeReport {
    let mut report = NodeReport::default();
    for selected in &plan.selected {
        let [is_applied, conflicted] = verdicts(selected, plan, applied, refused);
        if is_applied.0 && !conflicted.0 {
            report.applied += 1;
        } else {
            report.not_applied += 1;
            if report.first_problem.is_empty() {
                let why = if conflicted.0 { &conflicted.2 } else { &is_applied.2 };
                report.first_problem = format!("{}/{}: {why}", selected.key.0, selected.key.1);
            }
        }
        if report.lmaps.len() == MAX_STATES {
            continue;
        }
        let (namespace, name) = selected.key.clone();
        let earlier = before.lmaps.iter().find(|state| (&state.namespace, &state.name) == (&namespace, &name));
        let condition = |type_: &str, (is_true, reason, message): (bool, &str, String)| {
            let status = if is_true { "True" } else { "False" }.to_owned();
            let same = earlier.and_then(|state| state.conditions.iter().find(|known| known.type_ == type_));
            let same = same.filter(|known| known.status == status);
            Condition {
                type_: type_.to_owned(),
                status,
                reason: reason.to_owned(),
                message,
                observed_generation: Some(selected.generation),
                last_transition_time: same.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
            }
        };
        let conditions = vec![condition("Applied", is_applied), condition("Conflicted", conflicted)];
        let services = selected.sets.iter().take(MAX_SERVICES).cloned().collect();
        report.lmaps.push(LmapState { namespace, name, services, conditions });
    }
    report
}

/// Whether it holds, why in one word, and why in a sentence.
type Verdict = (bool, &'static str, String);

/// `Applied`, and `Conflicted`.
fn verdicts(
    of: &Selected,
    plan: &Plan,
    applied: &BTreeMap<String, Applied>,
    refused: &BTreeMap<String, String>,
) -> [Verdict; 2] {
    let conflicted = match of.conflicts.first_key_value() {
        None => (false, "NoConflict", String::new()),
        Some((service, (namespace, name))) => {
            let more = others(of.conflicts.len());
            let text = format!(
                "{service}{more} is set by the older Lmap {namespace}/{name}: delete one of the two, or select other \
                 workloads"
            );
            (true, "OlderLmap", short(text))
        }
    };
    let is_done = |name: &&String| {
        applied.get(*name).is_some_and(|done| plan.wanted.get(*name).is_some_and(|wanted| done.settings == *wanted))
    };
    let first_refused = of.sets.iter().find_map(|name| Some((name, refused.get(name)?)));
    let is_applied = if let Some(why) = &of.invalid {
        (false, "Invalid", short(why.clone()))
    } else if let Some((name, why)) = first_refused {
        (false, "Refused", short(format!("{name}: {why}")))
    } else if of.sets.is_empty() {
        (false, "Conflicted", "it sets nothing here: see the condition Conflicted".to_owned())
    } else if let Some(name) = of.sets.iter().find(|name| !is_done(name)) {
        (false, "Waiting", short(format!("{name} has no LMAP yet: nothing is measured of its pods so far")))
    } else {
        (true, "Applied", String::new())
    };
    [is_applied, conflicted]
}

fn others(all: usize) -> String {
    if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() }
}

fn short(text: String) -> String {
    crate::text::short(text, MAX_MESSAGE)
}

#[cfg(test)]
mod tests;

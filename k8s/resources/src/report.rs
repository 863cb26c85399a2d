//! What came of the objects of one kind on this node, for the status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::node_status::{MAX_MESSAGE, MAX_SERVICES, MAX_STATES, ObjectState};
use crate::plan::{Plan, Selected, full_name};

/// What came of the objects of one kind on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindReport {
    /// Objects that are in effect.
    pub applied: u32,
    /// Objects that are not, or in part.
    pub not_applied: u32,
    /// The first of those, with its kind, and why; empty if there is none.
    pub first_problem: String,
    /// All of them, by namespace and name; the first [`MAX_STATES`].
    pub states: Vec<ObjectState>,
}

/// The words of one kind.
#[derive(Clone, Copy, Debug)]
pub struct KindWords {
    /// The kind's name.
    pub kind: &'static str,
    /// What is said behind the name of what is not done yet, and not refused either.
    pub waits: &'static str,
}

/// How far a name of a plan is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameState {
    /// What is wanted of it is in effect.
    Done,
    /// It will be; what is said behind its name.
    Waits(String),
    /// It is not, and why.
    Refused(String),
}

/// What came of the objects of `plan`. `is_done` says of a name whether what is wanted of it is in effect, `refused`
/// why it is not. Conditions that were the same in `before` keep the time of their transition; others have `now`.
#[must_use]
pub fn report_of<T>(
    plan: &Plan<T>,
    words: KindWords,
    (is_done, refused): (impl Fn(&str) -> bool, &BTreeMap<String, String>),
    (before, now): (&[ObjectState], &Time),
) -> KindReport {
    let state = |name: &str| match refused.get(name) {
        Some(why) => NameState::Refused(why.clone()),
        None if is_done(name) => NameState::Done,
        None => NameState::Waits(words.waits.to_owned()),
    };
    report_states(plan, words.kind, state, (before, now))
}

/// What came of the objects of `plan`, which are of `kind`. `state` says how far a name is. Conditions that were the
/// same in `before` keep the time of their transition; others have `now`.
#[must_use]
pub fn report_states<T>(
    plan: &Plan<T>,
    kind: &str,
    state: impl Fn(&str) -> NameState,
    (before, now): (&[ObjectState], &Time),
) -> KindReport {
    let mut report = KindReport::default();
    for selected in &plan.selected {
        let conflicted = conflicted(selected, kind);
        let is_applied = applied(selected, &state);
        let (namespace, name) = selected.key.clone();
        if is_applied.0 && !conflicted.0 {
            report.applied += 1;
        } else {
            report.not_applied += 1;
            if report.first_problem.is_empty() {
                let why = if conflicted.0 { &conflicted.2 } else { &is_applied.2 };
                report.first_problem = format!("{kind} {}: {why}", full_name(&selected.key));
            }
        }
        if report.states.len() == MAX_STATES {
            continue;
        }
        let earlier = before.iter().find(|state| (&state.namespace, &state.name) == (&namespace, &name));
        let of = |type_, verdict| condition(type_, verdict, selected.generation, (earlier, now));
        let conditions = vec![of("Applied", is_applied), of("Conflicted", conflicted)];
        let services = selected.sets.iter().take(MAX_SERVICES).cloned().collect();
        report.states.push(ObjectState { namespace, name, services, conditions });
    }
    report
}

/// Whether it holds, why in one word, and why in a sentence.
type Verdict = (bool, String, String);

/// A condition, with the time of the `earlier` one if that says the same.
fn condition(
    type_: &str,
    (is_true, reason, message): Verdict,
    generation: i64,
    (earlier, now): (Option<&ObjectState>, &Time),
) -> Condition {
    let status = if is_true { "True" } else { "False" }.to_owned();
    let same = earlier.and_then(|state| state.conditions.iter().find(|known| known.type_ == type_));
    let same = same.filter(|known| known.status == status);
    Condition {
        type_: type_.to_owned(),
        status,
        reason,
        message,
        observed_generation: Some(generation),
        last_transition_time: same.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
    }
}

/// Whether an older object of the kind sets something that `of` would set.
fn conflicted(of: &Selected, kind: &str) -> Verdict {
    let Some((service, owner)) = of.conflicts.first_key_value() else {
        return (false, "NoConflict".to_owned(), String::new());
    };
    let (more, owner) = (others(of.conflicts.len()), full_name(owner));
    let text =
        format!("{service}{more} is set by the older {kind} {owner}: delete one of the two, or select other workloads");
    (true, format!("Older{kind}"), short(text))
}

/// Whether `of` is in effect on all that it sets.
fn applied(of: &Selected, state: impl Fn(&str) -> NameState) -> Verdict {
    let not = |reason: &str, text: String| (false, reason.to_owned(), short(text));
    if let Some(why) = &of.invalid {
        return not("Invalid", why.clone());
    }
    let mut waits = None;
    for name in &of.sets {
        match state(name) {
            NameState::Refused(why) => return not("Refused", format!("{name}: {why}")),
            NameState::Waits(why) => waits = waits.or_else(|| Some(format!("{name} {why}"))),
            NameState::Done => {}
        }
    }
    match waits {
        _ if of.sets.is_empty() => not("Conflicted", "it sets nothing here: see the condition Conflicted".to_owned()),
        Some(text) => not("Waiting", text),
        None => (true, "Applied".to_owned(), String::new()),
    }
}

fn others(all: usize) -> String {
    if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() }
}

fn short(text: String) -> String {
    crate::text::short(text, MAX_MESSAGE)
}

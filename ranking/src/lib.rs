//! Which of the services in alarm is the suspected cause: the one that an operator would look at first who reads the explanations.
//!
//! Pure: what is known of each service in, an order out. The demo's judge, the host agent's status and its hooks use it alike.
//!
//! # The rule
//!
//! 1. A *silent* service, whose heartbeat stands still, comes first: whatever the others say, it has stopped.
//! 2. A service that *points at* another one in alarm comes after all that point at none. It does if a quarter or more of what its top
//!    metrics explain is about calls to that one ([`Explanation::peer`]): who waits for a slow callee is a victim. Where traces tell who calls whom
//!    ([`Calls`]), one whose answers are slow or fail points at a service in alarm below it, and one that mainly has less to do than usual at
//!    a service in alarm above it.
//! 3. Then the highest score as a multiple of γ decides, and last who was in alarm first.
//!
//! # Limits
//!
//! - Calls are known by the label `peer`, whose value has to be the callee's service name, or from spans. Services that do not say whom their calls
//!   go to, and send no spans, never point, and are ranked by their scores alone.
//! - Only services of this node can be pointed at: a callee elsewhere is nobody here. Of calls only those are known of which both spans came here.
//! - If calls to two callees make a quarter each, only the first by name is looked at.
//! - Two that point at each other are both victims; the higher score decides.
//! - It is one rule for all faults, found on the demo's five. It names where to look first, and proves nothing.

mod calls;
mod explanation;

use wire::time::Nanos;

pub use calls::Calls;
pub use explanation::{Explanation, TOP};

/// Services are ranked by what is known so long after the first alarm: later, victims have the higher scores.
pub const RANKED_AFTER: Nanos = Nanos::from_secs(2);

/// An alarm is explained by what its first second shows: later, everything stands out.
pub const EXPLAINED_BY: Nanos = Nanos::from_secs(1);

/// Traces are asked about so many services in alarm, those with the highest scores: where there are more, nobody knows the cause.
const SUSPECTS: usize = 16;

/// What is known of one service in alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flagged<'a> {
    /// Its name.
    pub service: &'a str,
    /// Its heartbeat stands still.
    pub silent: bool,
    /// Whom its explanation is about ([`Explanation::peer`]).
    pub peer: Option<&'a str>,
    /// What the alarm says of the requests that it answers.
    pub answers: Answers,
    /// The highest score as a multiple of γ until [`RANKED_AFTER`]; 0 if there was none by then.
    pub strength: f64,
    /// When its alarm began, from a beginning that all have in common.
    pub began: Nanos,
}

/// What an alarm says of the requests that a service answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Nothing, or nobody counts them.
    #[default]
    Unknown,
    /// They take longer, or fail more often.
    Worse,
    /// Mainly that there is less of something than usual.
    Less,
}

/// A service's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Which of the flagged services, by its place in what was given.
    pub flagged: usize,
    /// The flagged service that it points at, likewise.
    pub points_at: Option<usize>,
}

/// The flagged services in the order in which they are suspected; the first is the suspected cause. No service is to be there twice.
/// Services that nothing tells apart keep their order. O(n²).
#[must_use]
pub fn rank(flagged: &[Flagged<'_>], calls: &Calls) -> Vec<Ranked> {
    let mut suspects: Vec<_> = flagged.iter().enumerate().filter(|(_, one)| one.answers != Answers::Less).collect();
    suspects.sort_by(|(_, one), (_, other)| other.strength.total_cmp(&one.strength));
    suspects.truncate(SUSPECTS);
    let mut ranked: Vec<(Ranked, &Flagged<'_>)> = flagged
        .iter()
        .enumerate()
        .map(|(at, one)| (Ranked { flagged: at, points_at: points_at(one, flagged, &suspects, calls) }, one))
        .collect();
    ranked.sort_by(|(place, one), (other_place, other)| {
        let silence = other.silent.cmp(&one.silent);
        let pointing = place.points_at.is_some().cmp(&other_place.points_at.is_some());
        silence.then(pointing).then(other.strength.total_cmp(&one.strength)).then(one.began.cmp(&other.began))
    });
    ranked.into_iter().map(|(place, _)| place).collect()
}

/// Whom `one` points at: the callee that its metrics name, or the first of `suspects` that is above or below it in traces.
fn points_at(
    one: &Flagged<'_>,
    flagged: &[Flagged<'_>],
    suspects: &[(usize, &Flagged<'_>)],
    calls: &Calls,
) -> Option<usize> {
    let named = one.peer.and_then(|peer| flagged.iter().position(|flagged| flagged.service == peer));
    if named.is_some() || one.silent {
        return named;
    }
    let above = |caller: &str, callee: &str| calls.is_below(callee, caller) && !calls.is_below(caller, callee);
    let mut suspects = suspects.iter();
    let pointed = suspects.find(|(_, other)| match one.answers {
        Answers::Unknown => false,
        Answers::Worse => above(one.service, other.service),
        Answers::Less => above(other.service, one.service),
    });
    pointed.map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(service: &str, strength: f64) -> Flagged<'_> {
        Flagged { service, silent: false, peer: None, answers: Answers::Unknown, strength, began: Nanos::ZERO }
    }

    fn order<'a>(flagged: &[Flagged<'a>]) -> Vec<&'a str> {
        rank(flagged, &Calls::default()).into_iter().map(|ranked| flagged[ranked.flagged].service).collect()
    }

    #[test]
    fn silence_comes_first_then_who_points_at_nobody_then_the_score_then_the_time() {
        let silent = Flagged { silent: true, ..flagged("silent", 0.0) };
        let victim = Flagged { peer: Some("cause"), ..flagged("victim", 90.0) };
        let cause = flagged("cause", 7.0);
        let late = Flagged { began: Nanos::from_millis(300), ..flagged("late", 2.0) };
        let early = Flagged { began: Nanos::from_millis(100), ..flagged("early", 2.0) };

        assert_eq!(order(&[late, victim, early, cause, silent]), ["silent", "cause", "early", "late", "victim"]);
    }

    #[test]
    fn whoever_points_at_a_service_that_is_not_in_alarm_points_at_none() {
        let elsewhere = Flagged { peer: Some("elsewhere"), ..flagged("frontend", 5.0) };

        let ranked = rank(&[flagged("cart", 3.0), elsewhere], &Calls::default());

        assert_eq!(ranked[0], Ranked { flagged: 1, points_at: None });
    }

    #[test]
    fn two_that_point_at_each_other_are_ranked_by_their_scores() {
        let one = Flagged { peer: Some("two"), ..flagged("one", 2.0) };
        let two = Flagged { peer: Some("one"), ..flagged("two", 3.0) };

        assert_eq!(
            rank(&[one, two], &Calls::default()).iter().map(|ranked| ranked.points_at).collect::<Vec<_>>(),
            [Some(0), Some(1)]
        );
        assert_eq!(order(&[one, two]), ["two", "one"]);
    }

    #[test]
    fn a_score_that_is_no_number_breaks_nothing() {
        assert_eq!(rank(&[flagged("a", f64::NAN), flagged("b", 1.0)], &Calls::default()).len(), 2);
        assert!(rank(&[], &Calls::default()).is_empty());
    }

    #[test]
    fn where_traces_tell_who_calls_whom_slow_answers_point_down_and_less_to_do_points_up() {
        let calls = Calls::new([("frontend", "cart"), ("cart", "store"), ("frontend", "payment")]);
        let order = |flagged: &[Flagged<'_>]| -> Vec<String> {
            let ranked = rank(flagged, &calls);
            let name = |at: usize| flagged[at].service;
            ranked.iter().map(|r| format!("{}{}", name(r.flagged), r.points_at.map_or("", |_| "*"))).collect()
        };
        let worse = |service, strength| Flagged { answers: Answers::Worse, ..flagged(service, strength) };
        let less = |service, strength| Flagged { answers: Answers::Less, ..flagged(service, strength) };

        assert_eq!(order(&[worse("frontend", 17.0), worse("store", 5.0)]), ["store", "frontend*"]);
        assert_eq!(order(&[worse("frontend", 3.0), less("payment", 9.0)]), ["frontend", "payment*"]);
        assert_eq!(order(&[worse("payment", 3.0), worse("cart", 9.0)]), ["cart", "payment"], "neither calls the other");
        assert_eq!(
            order(&[flagged("frontend", 9.0), worse("cart", 3.0)]),
            ["frontend", "cart"],
            "about something else"
        );
        assert_eq!(order(&[less("frontend", 9.0), less("cart", 3.0)]), ["frontend", "cart"], "nobody does more");
        let silent = Flagged { silent: true, ..less("store", 0.0) };
        assert_eq!(order(&[worse("frontend", 9.0), silent]), ["store", "frontend"], "a silent one is no victim");
    }

    #[test]
    fn callers_of_each_other_do_not_point() {
        let calls = Calls::new([("a", "b"), ("b", "a")]);
        let worse = |service, strength| Flagged { answers: Answers::Worse, ..flagged(service, strength) };

        assert!(rank(&[worse("a", 1.0), worse("b", 2.0)], &calls).iter().all(|ranked| ranked.points_at.is_none()));
    }
}

//! Ranks the services in alarm by how likely each is the cause. The first one is the *suspected cause*: where an
//! operator should look first.
//!
//! Verdicts of several services often have one cause, because callers of a faulty service show it, too. The other
//! modules of this crate decide per service or per trace; this one compares services. Pure: facts about each service
//! in, an order out. Used by the host agent's status and webhooks, and by the demo.
//!
//! # The rule
//!
//! 1. A *silent* service, whose heartbeat stands still, comes first: whatever the others show, it has stopped.
//! 2. A service that *points at* another one in alarm comes after all that point at none. It does if a quarter or more
//!    of what its top metrics explain is about calls to that one ([`Explanation::peer`]): a service that waits for a
//!    slow callee is a victim. If traces show who calls whom ([`Calls`]), a service whose responses are slow or fail
//!    points at a service in alarm below it whose delay explains its own, or above it if its own delay is too small
//!    for what that one waits ([`is_victim`]). One that mainly has less to do than usual points at a service above it.
//! 3. Then the highest score as a multiple of γ decides, and last the earliest alarm.
//!
//! # Limits
//!
//! - Calls are known by the label `peer`, whose value has to be the callee's service name, or from spans. Services that
//!   have neither never point at another one, and are ranked by their scores alone.
//! - Only services of this node are ranked. A callee on another node is never pointed at. Calls are known if both spans
//!   arrived here.
//! - If calls to two callees make a quarter each, only the first by name counts.
//! - Two services that point at each other are both victims; the higher score decides.
//! - It is one rule for all faults, tuned on the demo's five. It names where to look first, and proves nothing.

mod calls;
mod delay;
mod explanation;

use wire::time::Nanos;

pub use calls::Calls;
pub use delay::{CallRelation, is_victim, longest_delay};
pub use explanation::{Cause, Explanation, TOP};

/// Scores count until so long after the first alarm: later, victims have the higher scores.
pub const RANKED_AFTER: Nanos = Nanos::from_secs(2);

/// The first second of an alarm explains it: later, every metric stands out.
pub const EXPLAINED_BY: Nanos = Nanos::from_secs(1);

/// At most so many services in alarm, those with the highest scores, are compared by traces: with more of them the
/// cause is unknown.
pub const SUSPECTS: usize = 16;

/// Facts about one service in alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceInAlarm<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Whether its heartbeat stands still.
    pub silent: bool,
    /// The callee that its explanation is about ([`Explanation::peer`]).
    pub peer: Option<&'a str>,
    /// How its responses have changed.
    pub responses: ResponseChange,
    /// By how many seconds they take longer ([`longest_delay`]); `None` if unknown.
    pub slower: Option<f64>,
    /// Highest score as a multiple of γ until [`RANKED_AFTER`]; 0 if there was none by then.
    pub strength: f64,
    /// Start of its alarm, on a clock that all services share.
    pub began: Nanos,
}

/// What an alarm says of the responses of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseChange {
    /// Nothing: no metric counts them, or none stands out.
    #[default]
    Unknown,
    /// They take longer, or fail more often.
    Worse,
    /// Mainly, there are fewer than usual.
    Less,
}

/// A service in the ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedService {
    /// Its index in the slice of services in alarm.
    pub flagged: usize,
    /// Index of the service in alarm at which it points.
    pub points_at: Option<usize>,
}

/// Ranks the services in alarm; the first is the suspected cause. No service may be there twice. Ties keep their order.
/// O(n²).
#[must_use]
pub fn rank(flagged: &[ServiceInAlarm<'_>], calls: &Calls) -> Vec<RankedService> {
    let mut suspects: Vec<_> =
        flagged.iter().enumerate().filter(|(_, one)| one.responses != ResponseChange::Less).collect();
    suspects.sort_by(|(_, one), (_, other)| other.strength.total_cmp(&one.strength));
    suspects.truncate(SUSPECTS);
    let mut ranked: Vec<(RankedService, &ServiceInAlarm<'_>)> = flagged
        .iter()
        .enumerate()
        .map(|(at, one)| (RankedService { flagged: at, points_at: points_at(one, flagged, &suspects, calls) }, one))
        .collect();
    ranked.sort_by(|(place, one), (other_place, other)| {
        let silence = other.silent.cmp(&one.silent);
        let pointing = place.points_at.is_some().cmp(&other_place.points_at.is_some());
        silence.then(pointing).then(other.strength.total_cmp(&one.strength)).then(one.began.cmp(&other.began))
    });
    ranked.into_iter().map(|(place, _)| place).collect()
}

/// Index of the service at which `one` points: the callee that its metrics name, or the first of `suspects` above or
/// below it in traces.
fn points_at(
    one: &ServiceInAlarm<'_>,
    flagged: &[ServiceInAlarm<'_>],
    suspects: &[(usize, &ServiceInAlarm<'_>)],
    calls: &Calls,
) -> Option<usize> {
    let named = one.peer.and_then(|peer| flagged.iter().position(|flagged| flagged.service == peer));
    if named.is_some() || one.silent {
        return named;
    }
    let relation =
        |other: &str| CallRelation::of(calls.is_below(other, one.service), calls.is_below(one.service, other));
    let mut suspects = suspects.iter();
    let pointed = suspects.find(|(_, other)| match one.responses {
        ResponseChange::Unknown => false,
        ResponseChange::Worse => is_victim(relation(other.service), one.slower, other.slower),
        ResponseChange::Less => relation(other.service) == CallRelation::Caller,
    });
    pointed.map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(service: &str, strength: f64) -> ServiceInAlarm<'_> {
        ServiceInAlarm {
            service,
            silent: false,
            peer: None,
            responses: ResponseChange::Unknown,
            slower: None,
            strength,
            began: Nanos::ZERO,
        }
    }

    fn order<'a>(flagged: &[ServiceInAlarm<'a>]) -> Vec<&'a str> {
        rank(flagged, &Calls::default()).into_iter().map(|ranked| flagged[ranked.flagged].service).collect()
    }

    #[test]
    fn silence_comes_first_then_services_that_point_at_none_then_the_score_then_the_time() {
        let silent = ServiceInAlarm { silent: true, ..flagged("silent", 0.0) };
        let victim = ServiceInAlarm { peer: Some("cause"), ..flagged("victim", 90.0) };
        let cause = flagged("cause", 7.0);
        let late = ServiceInAlarm { began: Nanos::from_millis(300), ..flagged("late", 2.0) };
        let early = ServiceInAlarm { began: Nanos::from_millis(100), ..flagged("early", 2.0) };

        assert_eq!(order(&[late, victim, early, cause, silent]), ["silent", "cause", "early", "late", "victim"]);
    }

    #[test]
    fn a_callee_that_is_not_in_alarm_is_not_pointed_at() {
        let elsewhere = ServiceInAlarm { peer: Some("elsewhere"), ..flagged("frontend", 5.0) };

        let ranked = rank(&[flagged("cart", 3.0), elsewhere], &Calls::default());

        assert_eq!(ranked[0], RankedService { flagged: 1, points_at: None });
    }

    #[test]
    fn two_that_point_at_each_other_are_ranked_by_their_scores() {
        let one = ServiceInAlarm { peer: Some("two"), ..flagged("one", 2.0) };
        let two = ServiceInAlarm { peer: Some("one"), ..flagged("two", 3.0) };

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
        let order = |flagged: &[ServiceInAlarm<'_>]| -> Vec<String> {
            let ranked = rank(flagged, &calls);
            let name = |at: usize| flagged[at].service;
            ranked.iter().map(|r| format!("{}{}", name(r.flagged), r.points_at.map_or("", |_| "*"))).collect()
        };
        let worse =
            |service, strength| ServiceInAlarm { responses: ResponseChange::Worse, ..flagged(service, strength) };
        let less = |service, strength| ServiceInAlarm { responses: ResponseChange::Less, ..flagged(service, strength) };

        assert_eq!(order(&[worse("frontend", 17.0), worse("store", 5.0)]), ["store", "frontend*"]);
        assert_eq!(order(&[worse("frontend", 3.0), less("payment", 9.0)]), ["frontend", "payment*"]);
        assert_eq!(order(&[worse("payment", 3.0), worse("cart", 9.0)]), ["cart", "payment"], "neither calls the other");
        assert_eq!(
            order(&[flagged("frontend", 9.0), worse("cart", 3.0)]),
            ["frontend", "cart"],
            "about something else"
        );
        assert_eq!(order(&[less("frontend", 9.0), less("cart", 3.0)]), ["frontend", "cart"], "nobody does more");
        let silent = ServiceInAlarm { silent: true, ..less("store", 0.0) };
        assert_eq!(order(&[worse("frontend", 9.0), silent]), ["store", "frontend"], "a silent one is no victim");
    }

    #[test]
    fn a_callee_whose_delay_is_too_small_for_its_callers_is_not_the_cause() {
        let calls = Calls::new([("frontend", "payment"), ("frontend", "store")]);
        let worse = |service, strength, slower| ServiceInAlarm {
            responses: ResponseChange::Worse,
            slower,
            ..flagged(service, strength)
        };
        let names = |flagged: &[ServiceInAlarm<'_>]| -> Vec<String> {
            rank(flagged, &calls).iter().map(|ranked| flagged[ranked.flagged].service.to_owned()).collect()
        };
        let frontend = worse("frontend", 3.0, Some(0.18));

        assert_eq!(names(&[frontend, worse("payment", 40.0, Some(0.002))]), ["frontend", "payment"]);
        assert_eq!(names(&[frontend, worse("payment", 2.0, Some(0.1))]), ["payment", "frontend"]);
        let both = [frontend, worse("payment", 40.0, Some(0.002)), worse("store", 2.0, Some(0.17))];
        assert_eq!(names(&both), ["store", "payment", "frontend"]);
        assert_eq!(names(&[frontend, worse("payment", 2.0, None)]), ["payment", "frontend"], "it may be an error");
    }

    #[test]
    fn callers_of_each_other_do_not_point() {
        let calls = Calls::new([("a", "b"), ("b", "a")]);
        let worse =
            |service, strength| ServiceInAlarm { responses: ResponseChange::Worse, ..flagged(service, strength) };

        assert!(rank(&[worse("a", 1.0), worse("b", 2.0)], &calls).iter().all(|ranked| ranked.points_at.is_none()));
    }
}

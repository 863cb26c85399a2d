//! Which of the services in alarm is the suspected cause: the one that an operator would look at first who reads the explanations.
//!
//! Pure: what is known of each service in, an order out. The demo's judge, the host agent's status and its hooks use it alike.
//!
//! # The rule
//!
//! 1. A *silent* service, whose heartbeat stands still, comes first: whatever the others say, it has stopped.
//! 2. A service that *points at* another one in alarm comes after all that point at none. It does if a quarter or more of what its top
//!    metrics explain is about calls to that one ([`Explanation::peer`]): who waits for a slow callee is a victim.
//! 3. Then the highest score as a multiple of γ decides, and last who was in alarm first.
//!
//! # Limits
//!
//! - Calls are known by the label `peer`, whose value has to be the callee's service name. Services that do not say whom their calls go to
//!   never point, and are ranked by their scores alone.
//! - Only services of this node can be pointed at: a callee elsewhere is nobody here.
//! - If calls to two callees make a quarter each, only the first by name is looked at.
//! - Two that point at each other are both victims; the higher score decides.
//! - It is one rule for all faults, found on the demo's five. It names where to look first, and proves nothing.

mod explanation;

use wire::time::Nanos;

pub use explanation::{Explanation, TOP};

/// Services are ranked by what is known so long after the first alarm: later, victims have the higher scores.
pub const RANKED_AFTER: Nanos = Nanos::from_secs(2);

/// An alarm is explained by what its first second shows: later, everything stands out.
pub const EXPLAINED_BY: Nanos = Nanos::from_secs(1);

/// What is known of one service in alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flagged<'a> {
    /// Its name.
    pub service: &'a str,
    /// Its heartbeat stands still.
    pub silent: bool,
    /// Whom its explanation is about ([`Explanation::peer`]).
    pub peer: Option<&'a str>,
    /// The highest score as a multiple of γ until [`RANKED_AFTER`]; 0 if there was none by then.
    pub strength: f64,
    /// When its alarm began, from a beginning that all have in common.
    pub began: Nanos,
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
/// Services that nothing tells apart keep their order. O(n²) for n services.
#[must_use]
pub fn rank(flagged: &[Flagged<'_>]) -> Vec<Ranked> {
    let place = |name: &str| flagged.iter().position(|flagged| flagged.service == name);
    let mut ranked: Vec<(Ranked, &Flagged<'_>)> = flagged
        .iter()
        .enumerate()
        .map(|(at, one)| (Ranked { flagged: at, points_at: one.peer.and_then(place) }, one))
        .collect();
    ranked.sort_by(|(place, one), (other_place, other)| {
        let silence = other.silent.cmp(&one.silent);
        let pointing = place.points_at.is_some().cmp(&other_place.points_at.is_some());
        silence.then(pointing).then(other.strength.total_cmp(&one.strength)).then(one.began.cmp(&other.began))
    });
    ranked.into_iter().map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(service: &str, strength: f64) -> Flagged<'_> {
        Flagged { service, silent: false, peer: None, strength, began: Nanos::ZERO }
    }

    fn order<'a>(flagged: &[Flagged<'a>]) -> Vec<&'a str> {
        rank(flagged).into_iter().map(|ranked| flagged[ranked.flagged].service).collect()
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

        let ranked = rank(&[flagged("cart", 3.0), elsewhere]);

        assert_eq!(ranked[0], Ranked { flagged: 1, points_at: None });
    }

    #[test]
    fn two_that_point_at_each_other_are_ranked_by_their_scores() {
        let one = Flagged { peer: Some("two"), ..flagged("one", 2.0) };
        let two = Flagged { peer: Some("one"), ..flagged("two", 3.0) };

        assert_eq!(rank(&[one, two]).iter().map(|ranked| ranked.points_at).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(order(&[one, two]), ["two", "one"]);
    }

    #[test]
    fn a_score_that_is_no_number_breaks_nothing() {
        assert_eq!(rank(&[flagged("a", f64::NAN), flagged("b", 1.0)]).len(), 2);
        assert!(rank(&[]).is_empty());
    }
}

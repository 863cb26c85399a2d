//! Delays of callers and callees: which can be the cause of which.

use wire::quantity::in_seconds;

/// Share of a caller's delay from which on its callee explains it.
const EXPLAINS: f64 = 0.1;

/// By how many seconds something took longer than expected: the largest of `differences` between observed and expected
/// means or quantiles, each with its unit. `None` if nothing took longer, or no unit is one of time.
#[must_use]
pub fn longest_delay<'a>(differences: impl IntoIterator<Item = (f64, &'a str)>) -> Option<f64> {
    let seconds = differences.into_iter().filter_map(|(difference, unit)| in_seconds(difference, unit));
    seconds.filter(|seconds| *seconds > 0.0).max_by(f64::total_cmp)
}

/// Whether the delay in a callee can be the cause of its caller's delay, in seconds: it is at least a tenth of it. A
/// service that took two milliseconds instead of none is not why another took 180. Where one is not known, it can.
#[must_use]
pub fn explains(called: Option<f64>, caller: Option<f64>) -> bool {
    match (called, caller) {
        (Some(called), Some(caller)) => called >= EXPLAINS * caller,
        _ => true,
    }
}

/// Where another service in alarm stands in the call graph, seen from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRelation {
    /// It is below: the one waits for it.
    Callee,
    /// It is above: it waits for the one.
    Caller,
    /// Neither calls the other, or each the other.
    Neither,
}

impl CallRelation {
    /// The relation of a service that `is_below` the one, and that `is_above` it.
    #[must_use]
    pub const fn of(is_below: bool, is_above: bool) -> Self {
        match (is_below, is_above) {
            (true, false) => Self::Callee,
            (false, true) => Self::Caller,
            _ => Self::Neither,
        }
    }
}

/// Whether a service whose responses take `slower` seconds longer is a victim of another one in alarm, whose responses
/// take `others` seconds longer: it waits for that one, whose delay explains its own; or that one waits for it, and
/// its delay is too small for that. The one rule that incidents and kept traces have.
#[must_use]
pub fn is_victim(other: CallRelation, slower: Option<f64>, others: Option<f64>) -> bool {
    match other {
        CallRelation::Callee => explains(others, slower),
        CallRelation::Caller => !explains(slower, others),
        CallRelation::Neither => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_the_largest_one_in_seconds_of_what_took_longer() {
        assert_eq!(longest_delay([(80.0, "ms"), (0.05, "s"), (9.0, "By"), (-3.0, "s")]), Some(0.08));
        assert_eq!(longest_delay([(-1.0, "s"), (5.0, "")]), None);
    }

    #[test]
    fn a_callee_explains_a_tenth_of_its_callers_delay_or_more() {
        assert!(explains(Some(0.018), Some(0.18)) && !explains(Some(0.002), Some(0.18)));
        assert!(explains(None, Some(0.18)) && explains(Some(0.002), None));
    }

    #[test]
    fn of_two_that_call_each_other_in_one_direction_at_most_one_is_the_victim() {
        let delays = [None, Some(0.002), Some(0.018), Some(0.18)];
        for (caller, callee) in delays.into_iter().flat_map(|one| delays.map(|other| (one, other))) {
            let waits = is_victim(CallRelation::Callee, caller, callee);
            let is_small = is_victim(CallRelation::Caller, callee, caller);
            assert_eq!(waits, !is_small, "{caller:?} {callee:?}");
            assert_eq!(waits, explains(callee, caller));
        }
        assert!(!is_victim(CallRelation::of(true, true), Some(0.1), Some(0.1)), "a circle of calls says nothing");
    }
}

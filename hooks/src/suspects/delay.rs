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
}

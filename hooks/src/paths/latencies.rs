//! The learnt quantile of an operation's request durations.

use std::collections::BTreeMap;

use wire::histogram::Scale;
use wire::time::Nanos;

use crate::id::OperationId;
use crate::paths::rates::micros;

/// How the quantile is learnt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyRule {
    /// The quantile, 0 to 1: requests above it are slow. 0.99 by default, as in the paper.
    pub quantile: f64,
    /// No request is slow before so many were seen. 1,000 by default: ten are above the 99th percentile.
    pub requests: u64,
    /// Requests count for at least so long, at most for twice that, and longer if there are few. 10 min by default.
    pub window: Nanos,
    /// Requests made during alarms are not learnt, unless an operation has had no others for so long: then the change
    /// is permanent, and is learnt within two windows. 10 min by default.
    pub patience: Nanos,
    /// Operations of which it is learnt: requests of further ones are never slow. 10,000 by default, as in
    /// [`PathLimits`](crate::paths::PathLimits).
    pub operations: usize,
    /// Buckets of durations in µs. 16 per power of two by default: a quantile is exact to 6 %, for 4 KiB per operation
    /// and generation.
    pub scale: Scale,
}

impl Default for LatencyRule {
    fn default() -> Self {
        let scale = Scale::new(4, 36).unwrap_or(Scale::DEFAULT);
        let (window, patience) = (Nanos::from_secs(600), Nanos::from_secs(600));
        Self { quantile: 0.99, requests: 1_000, window, patience, operations: 10_000, scale }
    }
}

/// Quantiles are updated every so many requests.
const RENEWED_EVERY: u64 = 64;
/// A request that takes no longer than this share of its operation's is like most of them.
const TYPICAL: f64 = 0.9;

#[derive(Debug)]
struct Fixture {
    now: Box<[u64]>,
    before: Box<[u64]>,
    /// Requests in `now` and in `before`.
    counts: [u64; 2],
    since: Nanos,
    usual: Option<Nanos>,
    typical: Option<Nanos>,
    /// Since when all requests were made during alarms.
    alarmed: Option<Nanos>,
}

/// The learnt quantile of each operation, of a bounded number.
#[derive(Debug)]
pub struct Latencies {
    rule: LatencyRule,
    operations: BTreeMap<OperationId, Fixture>,
    skipped: u64,
}

impl Latencies {
    /// Without any learnt quantile.
    #[must_use]
    pub const fn new(rule: LatencyRule) -> Self {
        Self { rule, operations: BTreeMap::new(), skipped: 0 }
    }

    /// The quantile that is learnt, 0 to 1.
    #[must_use]
    pub const fn quantile(&self) -> f64 {
        self.rule.quantile
    }

    /// Learns the duration of a request of `operation`. A request made during an `alarm` is not learnt, so that a fault
    /// does not become usual, unless the alarm lasts longer than [`LatencyRule::patience`].
    pub fn learn(&mut self, operation: OperationId, duration: Nanos, alarm: bool, now: Nanos) {
        let rule = &self.rule;
        if self.operations.len() >= rule.operations && !self.operations.contains_key(&operation) {
            return;
        }
        let learnt = self.operations.entry(operation).or_insert_with(|| {
            let empty = || vec![0; rule.scale.buckets() as usize + 1].into();
            Fixture {
                now: empty(),
                before: empty(),
                counts: [0; 2],
                since: now,
                usual: None,
                typical: None,
                alarmed: None,
            }
        });
        if alarm {
            let since = *learnt.alarmed.get_or_insert(now);
            if now.since(since).is_none_or(|length| length < rule.patience) {
                self.skipped += 1;
                return;
            }
        } else {
            learnt.alarmed = None;
        }
        let over = now.since(learnt.since).is_some_and(|length| length >= rule.window);
        if over && learnt.counts[0] >= rule.requests {
            core::mem::swap(&mut learnt.now, &mut learnt.before);
            learnt.now.fill(0);
            (learnt.counts, learnt.since) = ([0, learnt.counts[0]], now);
        }
        learnt.now[rule.scale.bucket(micros(duration)) as usize] += 1;
        learnt.counts[0] += 1;
        let all = learnt.counts[0] + learnt.counts[1];
        if all >= rule.requests && (learnt.usual.is_none() || learnt.counts[0].is_multiple_of(RENEWED_EVERY)) {
            let counts: Vec<u64> = learnt.now.iter().zip(&learnt.before).map(|(a, b)| a + b).collect();
            let quantile = |of: f64| {
                let micros = rule.scale.quantile(&counts, of);
                micros.map(|micros| Nanos::from_micros(micros.ceil() as u64))
            };
            (learnt.usual, learnt.typical) = (quantile(rule.quantile), quantile(TYPICAL));
        }
    }

    /// The learnt quantile of `operation`; `None` while too few requests were seen.
    #[must_use]
    pub fn usual(&self, operation: OperationId) -> Option<Nanos> {
        self.operations.get(&operation)?.usual
    }

    /// What nine of ten requests for `operation` do not exceed; `None` while too few were seen.
    #[must_use]
    pub fn typical(&self, operation: OperationId) -> Option<Nanos> {
        self.operations.get(&operation)?.typical
    }

    /// Requests that were not learnt because they were made during an alarm.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Drops the state of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.operations.remove(&operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAY: OperationId = OperationId(1);

    /// 1 ms to 100 ms, evenly.
    fn learn(latencies: &mut Latencies, requests: u64, factor: u64, now: Nanos) {
        (0..requests)
            .for_each(|n| latencies.learn(PAY, Nanos::from_micros((n % 100 + 1) * 1_000 * factor), false, now));
    }

    #[test]
    fn nothing_is_usual_before_enough_was_seen() {
        let mut latencies = Latencies::new(LatencyRule::default());

        learn(&mut latencies, 999, 1, Nanos(0));
        assert_eq!(latencies.usual(PAY), None);
        learn(&mut latencies, 1, 1, Nanos(0));

        let usual = latencies.usual(PAY).unwrap().as_secs_f64();
        assert!((usual / 0.099 - 1.0).abs() < 0.065, "{usual}");
    }

    #[test]
    fn nine_of_ten_requests_take_no_longer_than_is_typical() {
        let mut latencies = Latencies::new(LatencyRule::default());

        learn(&mut latencies, 999, 1, Nanos(0));
        assert_eq!(latencies.typical(PAY), None);
        learn(&mut latencies, 1, 1, Nanos(0));

        let typical = latencies.typical(PAY).unwrap().as_secs_f64();
        assert!((typical / 0.09 - 1.0).abs() < 0.065, "{typical}");
        latencies.forget(PAY);
        assert_eq!(latencies.typical(PAY), None);
    }

    #[test]
    fn a_fault_does_not_become_usual_and_what_lasts_does() {
        let mut latencies = Latencies::new(LatencyRule::default());
        learn(&mut latencies, 2_000, 1, Nanos(0));
        let healthy = latencies.usual(PAY);
        let slow = |latencies: &mut Latencies, second| {
            (0..100).for_each(|_| latencies.learn(PAY, Nanos::from_secs(1), true, Nanos::from_secs(second)));
            latencies.usual(PAY)
        };

        for second in (0..1_000).step_by(10) {
            assert_eq!(slow(&mut latencies, second).filter(|_| second < 600), healthy.filter(|_| second < 600));
        }
        let lasting = latencies.usual(PAY).unwrap().as_secs_f64();
        assert!((lasting - 1.0).abs() < 0.065, "{lasting}");
        assert_eq!(latencies.skipped(), 60 * 100);

        // Another fault, after a healthy moment.
        let mut latencies = Latencies::new(LatencyRule::default());
        learn(&mut latencies, 2_000, 1, Nanos(0));
        for second in (0..2_000).step_by(10) {
            let ratio = slow(&mut latencies, second).unwrap().as_secs_f64() / healthy.unwrap().as_secs_f64();
            assert!((ratio - 1.0).abs() < 0.01, "after {second} s: {ratio}");
            learn(&mut latencies, 100, 1, Nanos::from_secs(second + 5));
        }
    }

    #[test]
    fn what_is_usual_follows_within_two_windows_and_is_kept_while_nothing_comes() {
        let mut latencies = Latencies::new(LatencyRule::default());
        learn(&mut latencies, 2_000, 1, Nanos(0));

        for window in 1..=2 {
            learn(&mut latencies, 2_000, 10, Nanos::from_secs(600 * window));
        }
        let slower = latencies.usual(PAY).unwrap().as_secs_f64();
        assert!((slower / 0.99 - 1.0).abs() < 0.065, "{slower}");

        learn(&mut latencies, 1, 1, Nanos::from_secs(100_000));
        assert_eq!(latencies.usual(PAY).unwrap().as_secs_f64(), slower);
        latencies.forget(PAY);
        assert_eq!(latencies.usual(PAY), None);
    }

    #[test]
    fn operations_are_bounded_and_one_that_is_forgotten_makes_room() {
        let mut latencies = Latencies::new(LatencyRule { operations: 2, requests: 1, ..LatencyRule::default() });
        let mut learnt = |forgotten: Option<u32>| {
            if let Some(operation) = forgotten {
                latencies.forget(OperationId(operation));
            }
            let learns = |operation| {
                latencies.learn(OperationId(operation), Nanos::from_secs(1), false, Nanos(0));
                latencies.usual(OperationId(operation)).is_some()
            };
            [1, 2, 3].map(learns)
        };

        assert_eq!(learnt(None), [true, true, false]);
        assert_eq!(learnt(Some(1)), [true, true, false]);
    }
}

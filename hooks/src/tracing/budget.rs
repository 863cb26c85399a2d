//! Bytes per second that a tenant may keep, as token buckets, and which policy yields when they are short.

use wire::time::Nanos;

use crate::tracing::reason::Policy;

/// Limits of one tenant's budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetRule {
    /// Encoded bytes that may be kept per second, in the long run. 1 MB by default.
    pub bytes_per_s: u64,
    /// Unused budget is saved for so long: the depth of the buckets. 10 s by default.
    pub burst: Nanos,
    /// Share of the budget that is reserved for the floor, 0 to 1. 0.2 by default.
    pub floor_share: f64,
    /// Share of the budget that is reserved for errors, 0 to 1. 0.2 by default.
    pub error_share: f64,
}

impl Default for BudgetRule {
    fn default() -> Self {
        Self { bytes_per_s: 1_000_000, burst: Nanos::from_secs(10), floor_share: 0.2, error_share: 0.2 }
    }
}

/// Share of the common bucket that decisions of other nodes may take.
const OTHERS: f64 = 0.5;

/// Invalid settings of a budget.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The shares are negative, or exceed the whole budget together.
    #[error("shares of {floor} for the floor and {error} for errors: both must be at least 0, and together at most 1")]
    Shares {
        /// Share of the floor.
        floor: f64,
        /// Share of errors.
        error: f64,
    },
    /// The budget is zero.
    #[error("a budget of {bytes_per_s} bytes per second with a burst of {burst}: both must be above 0")]
    Nothing {
        /// Configured bytes per second.
        bytes_per_s: u64,
        /// Configured length of the burst.
        burst: Nanos,
    },
}

/// A token bucket: tokens are bytes. Below zero for bytes that were kept on credit.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    most: f64,
    per_s: f64,
}

impl TokenBucket {
    fn full(per_s: f64, burst: Nanos) -> Self {
        let most = per_s * burst.as_secs_f64();
        Self { tokens: most, most, per_s }
    }

    /// Adds the tokens of `seconds` and `more`. Returns what did not fit.
    fn fill(&mut self, seconds: f64, more: f64) -> f64 {
        let filled = self.tokens + self.per_s * seconds + more;
        self.tokens = filled.min(self.most);
        filled - self.tokens
    }

    /// A trace is granted as long as there are more than `reserve` tokens, and may take more than that: in the long run
    /// the rate holds.
    fn spend(&mut self, bytes: f64, reserve: f64) -> bool {
        let granted = self.tokens > reserve;
        if granted {
            self.tokens -= bytes;
        }
        granted
    }
}

/// What a tenant may keep.
///
/// The floor and errors have a bucket each. The rest of the budget, and what overflows from these two, is in a common
/// bucket. From that, [`Policy::Trigger`] may take only while more than 60 % of the burst are saved,
/// [`Policy::Latency`] 40 %, [`Policy::Lmap`] 20 %, [`Policy::Error`] 10 %. So they yield in this order under lasting
/// demand: the later ones get nothing unless the earlier ones leave enough.
///
/// Late spans of traces that this node selected are owed in full. What other nodes decide is never refused, and charged
/// to the common bucket up to half of it. So however much a peer keeps, or says that it keeps, this node's own policies
/// have the other half.
#[derive(Clone, Debug)]
pub struct Budget {
    floor: TokenBucket,
    error: TokenBucket,
    common: TokenBucket,
    /// What may still be charged to the common bucket for decisions of others.
    others: TokenBucket,
    at: Nanos,
    forgiven: f64,
}

impl Budget {
    /// A full budget, at `now`.
    ///
    /// # Errors
    ///
    /// [`BudgetError`], for shares that are not shares and for a budget of nothing.
    pub fn new(rule: BudgetRule, now: Nanos) -> Result<Self, BudgetError> {
        let BudgetRule { bytes_per_s, burst, floor_share: floor, error_share: error } = rule;
        if !(floor >= 0.0 && error >= 0.0 && floor + error <= 1.0) {
            return Err(BudgetError::Shares { floor, error });
        }
        if bytes_per_s == 0 || burst == Nanos::ZERO {
            return Err(BudgetError::Nothing { bytes_per_s, burst });
        }
        let bucket = |share: f64| TokenBucket::full(bytes_per_s as f64 * share, burst);
        Ok(Self {
            floor: bucket(floor),
            error: bucket(error),
            common: bucket(1.0 - floor - error),
            others: bucket((1.0 - floor - error) * OTHERS),
            at: now,
            forgiven: 0.0,
        })
    }

    /// Whether `policy` may keep a trace of `bytes` at `now`; if so, the bytes are taken from the budget. The floor
    /// always may, because its share is a promise to every reader of `ot=th`: what it needs beyond its buckets is owed.
    pub fn spend(&mut self, policy: Policy, bytes: u64, now: Nanos) -> bool {
        self.fill(now);
        let bytes = bytes as f64;
        let share = match policy {
            Policy::Floor => 0.0,
            Policy::Error => 0.1,
            Policy::Lmap => 0.2,
            Policy::Latency => 0.4,
            Policy::Trigger => 0.6,
        };
        let own = match policy {
            Policy::Floor => self.floor.spend(bytes, 0.0),
            Policy::Error => self.error.spend(bytes, 0.0),
            _ => false,
        };
        if own || self.common.spend(bytes, share * self.common.most) {
            return true;
        }
        if policy == Policy::Floor {
            self.owe(bytes);
        }
        policy == Policy::Floor
    }

    /// Takes `bytes` of late spans of a trace that this node selected. They are kept whatever is left, and owed in
    /// full: no policy but the floor and errors selects another trace before they are paid. Debts beyond one burst are
    /// forgiven, and counted.
    pub fn late(&mut self, bytes: u64, now: Nanos) {
        self.fill(now);
        self.owe(bytes as f64);
    }

    /// Takes `bytes` that another node decided to keep, late spans included. They are kept whatever is left. More than
    /// half of the common bucket in the long run, and debts beyond one burst, are forgiven and counted.
    pub fn charge(&mut self, bytes: u64, now: Nanos) {
        self.fill(now);
        let charged = (bytes as f64).min(self.others.tokens);
        self.others.tokens -= charged;
        self.forgiven += bytes as f64 - charged;
        self.owe(charged);
    }

    fn owe(&mut self, bytes: f64) {
        self.common.tokens -= bytes;
        let beyond = -self.common.most - self.common.tokens;
        if beyond > 0.0 {
            self.common.tokens += beyond;
            self.forgiven += beyond;
        }
    }

    /// The level of the common bucket: 1 if nothing was used for the time of a burst, below 0 while it is in debt.
    #[must_use]
    pub fn left(&self) -> f64 {
        if self.common.most > 0.0 { self.common.tokens / self.common.most } else { 0.0 }
    }

    /// Bytes that were kept beyond the budget and never paid for.
    #[must_use]
    pub const fn forgiven(&self) -> f64 {
        self.forgiven
    }

    fn fill(&mut self, now: Nanos) {
        let Some(passed) = now.since(self.at) else { return };
        self.at = now;
        let seconds = passed.as_secs_f64();
        let spilled = self.floor.fill(seconds, 0.0) + self.error.fill(seconds, 0.0);
        self.common.fill(seconds, spilled);
        self.others.fill(seconds, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every policy wants `kilobytes` of traces of 1 kB in each of `seconds` seconds; what each got.
    fn demand(budget: &mut Budget, policies: &[Policy], kilobytes: u64, seconds: u64) -> Vec<u64> {
        let mut got = vec![0; policies.len()];
        for step in 0..seconds * 10 {
            let now = Nanos::from_millis(step * 100);
            for _ in 0..kilobytes / 10 {
                for (got, policy) in got.iter_mut().zip(policies) {
                    *got += 1_000 * u64::from(budget.spend(*policy, 1_000, now));
                }
            }
        }
        got
    }

    #[test]
    fn under_lasting_demand_policies_yield_in_the_stated_order() {
        let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

        let got = demand(&mut budget, &Policy::ALL, 500, 1_000);

        // Each wants 500 MB, the budget is 1,000 MB and the burst of 10: the floor and errors have all they want, the
        // others nothing.
        let [floor, error, lmap, latency, code] = got[..] else { panic!("{got:?}") };
        assert!(floor > 495_000_000 && error > 490_000_000, "{got:?}");
        assert!(lmap < 20_000_000 && latency <= lmap && code <= latency, "{got:?}");
    }

    #[test]
    fn floor_and_errors_have_a_share_that_nobody_takes() {
        let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
        demand(&mut budget, &[Policy::Lmap, Policy::Latency], 5_000, 100);
        let now = Nanos::from_secs(100);

        let floor = (0..3_000).filter(|_| budget.spend(Policy::Floor, 1_000, now)).count();
        let error = (0..3_000).filter(|_| budget.spend(Policy::Error, 1_000, now)).count();

        // 2 MB each, and what stayed in the common pot below the LMAPs' reserve.
        assert!(floor >= 2_000 && error >= 2_000, "{floor} {error}");
    }

    #[test]
    fn what_others_decided_is_charged_and_debts_are_bounded() {
        let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

        budget.charge(100_000_000, Nanos::ZERO);

        // Half of the common bucket of 6 MB.
        assert!((budget.left() - 0.5).abs() < 1e-9, "{}", budget.left());
        assert!((budget.forgiven() - 97_000_000.0).abs() < 1.0, "{}", budget.forgiven());
    }

    #[test]
    fn late_spans_of_own_traces_are_owed_in_full_up_to_a_burst() {
        let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();

        budget.late(9_000_000, Nanos::ZERO);
        assert!((budget.left() - -0.5).abs() < 1e-9 && budget.forgiven() < 1.0, "{}", budget.left());
        assert!(!budget.spend(Policy::Lmap, 1, Nanos::from_secs(3)));
        assert!(budget.spend(Policy::Lmap, 1, Nanos::from_secs(8)));

        budget.late(100_000_000, Nanos::from_secs(8));
        assert!((budget.left() - -1.0).abs() < 1e-9 && budget.forgiven() > 80_000_000.0, "{}", budget.left());
    }

    #[test]
    fn own_policies_have_half_of_the_common_budget_however_much_other_nodes_keep() {
        let mut budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
        let mut got = 0_u64;

        for step in 0..10_000 {
            let now = Nanos::from_millis(step * 100);
            budget.charge(10_000_000, now);
            for _ in 0..100 {
                got += 1_000 * u64::from(budget.spend(Policy::Lmap, 1_000, now));
            }
        }

        // Half of 600 kB/s for 1,000 s, and what the floor and errors do not use.
        assert!(got > 300_000_000, "{got}");
    }

    #[test]
    fn a_budget_of_nothing_or_of_more_than_all_is_refused() {
        let rule = BudgetRule::default();

        assert!(Budget::new(BudgetRule { floor_share: 0.7, error_share: 0.7, ..rule }, Nanos::ZERO).is_err());
        assert!(Budget::new(BudgetRule { floor_share: f64::NAN, ..rule }, Nanos::ZERO).is_err());
        assert!(Budget::new(BudgetRule { bytes_per_s: 0, ..rule }, Nanos::ZERO).is_err());
    }

    proptest! {
        /// Whatever is asked for in whatever order: no more than rate × time + burst, and one trace for each pot.
        #[test]
        fn what_is_kept_stays_within_the_budget(wishes in proptest::collection::vec((1..5_usize, 1..200_000_u64, 0..300_u64), 1..400)) {
            let rule = BudgetRule::default();
            let mut budget = Budget::new(rule, Nanos::ZERO).unwrap();
            let (mut now, mut kept) = (0, 0);
            for (policy, bytes, wait) in wishes {
                now += wait;
                kept += bytes * u64::from(budget.spend(Policy::ALL[policy], bytes, Nanos::from_millis(now)));
                prop_assert!(kept as f64 <= 1e6 * (now as f64 / 1e3) + 1e7 + 3.0 * 200_000.0);
            }
        }
    }
}

//! How many bytes per second a tenant may keep, and who yields when they are not enough.

use wire::time::Nanos;

use crate::tracing::reason::Policy;

/// A tenant's budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetRule {
    /// Encoded bytes kept per second, in the long run. 1 MB by default.
    pub bytes_per_s: u64,
    /// For so long it saves what was not used. 10 s by default.
    pub burst: Nanos,
    /// The share that is the floor's alone. 0.2 by default.
    pub floor_share: f64,
    /// The share that is the error policy's alone. 0.2 by default.
    pub error_share: f64,
}

impl Default for BudgetRule {
    fn default() -> Self {
        Self { bytes_per_s: 1_000_000, burst: Nanos::from_secs(10), floor_share: 0.2, error_share: 0.2 }
    }
}

/// A budget that cannot be spent.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// More than all of it is given to the shares, or less than nothing.
    #[error("shares of {floor} for the floor and {error} for errors: both must be at least 0, and together at most 1")]
    Shares {
        /// As asked for.
        floor: f64,
        /// As asked for.
        error: f64,
    },
    /// Nothing can be kept.
    #[error("{bytes_per_s} bytes per second, saved for {burst}: neither can be nothing")]
    Nothing {
        /// As asked for.
        bytes_per_s: u64,
        /// As asked for.
        burst: Nanos,
    },
}

/// What was saved of a part of the budget, in bytes; below zero for what was kept on credit.
#[derive(Clone, Copy, Debug)]
struct Pot {
    saved: f64,
    most: f64,
    per_s: f64,
}

impl Pot {
    fn full(per_s: f64, burst: Nanos) -> Self {
        let most = per_s * burst.as_secs_f64();
        Self { saved: most, most, per_s }
    }

    /// Puts in `seconds`' worth and `more`. Returns what did not fit.
    fn fill(&mut self, seconds: f64, more: f64) -> f64 {
        let filled = self.saved + self.per_s * seconds + more;
        self.saved = filled.min(self.most);
        filled - self.saved
    }

    /// A trace is granted as long as more than `reserve` is saved, and may take more than that: in the long run the rate holds.
    fn spend(&mut self, bytes: f64, reserve: f64) -> bool {
        let granted = self.saved > reserve;
        if granted {
            self.saved -= bytes;
        }
        granted
    }
}

/// What a tenant may keep.
///
/// Floor and errors have a pot of their own; what these do not use, and the rest of the budget, is everyone's. From the common pot
/// [`Policy::Code`] may take only while more than 60 % of the burst are saved, [`Policy::Latency`] 40 %, [`Policy::Lmap`] 20 %: under lasting
/// demand they yield in this order, the later ones not at all as long as the earlier ones leave enough.
#[derive(Clone, Debug)]
pub struct Budget {
    floor: Pot,
    error: Pot,
    common: Pot,
    at: Nanos,
    forgiven: f64,
}

impl Budget {
    /// A full one, at `now`.
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
        let pot = |share: f64| Pot::full(bytes_per_s as f64 * share, burst);
        Ok(Self { floor: pot(floor), error: pot(error), common: pot(1.0 - floor - error), at: now, forgiven: 0.0 })
    }

    /// Whether `policy` may keep a trace of `bytes` at `now`; they are taken from the budget if so. The floor always may: its share is what an
    /// operator promised to whoever reads `ot=th`, so what it needs beyond its pots is [charged](Self::charge) to the others.
    pub fn spend(&mut self, policy: Policy, bytes: u64, now: Nanos) -> bool {
        self.fill(now);
        let bytes = bytes as f64;
        let share = match policy {
            Policy::Floor => 0.0,
            Policy::Error => 0.1,
            Policy::Lmap => 0.2,
            Policy::Latency => 0.4,
            Policy::Code => 0.6,
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

    /// Takes `bytes` that are kept whatever is left: late spans of kept traces, and traces that another node decided to keep. What is owed
    /// beyond one burst is forgiven, and counted.
    pub fn charge(&mut self, bytes: u64, now: Nanos) {
        self.fill(now);
        self.owe(bytes as f64);
    }

    fn owe(&mut self, bytes: f64) {
        self.common.saved -= bytes;
        let beyond = -self.common.most - self.common.saved;
        if beyond > 0.0 {
            self.common.saved += beyond;
            self.forgiven += beyond;
        }
    }

    /// The share of the common pot that is left: 1 if nothing was used for a burst's time, below 0 while it owes.
    #[must_use]
    pub fn left(&self) -> f64 {
        if self.common.most > 0.0 { self.common.saved / self.common.most } else { 0.0 }
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
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every policy wants `bytes` of traces of 1 kB in each of `seconds` seconds; what each got.
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

        // Each wants 500 MB, the budget is 1,000 MB and the burst of 10: the floor and errors have all they want, the others nothing.
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

        assert!(!budget.spend(Policy::Lmap, 1, Nanos::from_secs(5)));
        assert!((budget.left() - -0.17).abs() < 0.2 && budget.left() < 0.0, "{}", budget.left());
        assert!((budget.forgiven() - 88_000_000.0).abs() < 1.0, "{}", budget.forgiven());
        assert!(budget.spend(Policy::Lmap, 1, Nanos::from_secs(20)));
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

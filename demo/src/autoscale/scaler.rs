//! When to add a replica: the rule of a horizontal autoscaler over the utilisation of the workers. Pure.

use wire::time::Nanos;

/// Utilisation, 0 to 1, above which a replica is added.
const TARGET: f64 = 0.8;
/// Utilisation above which more requests arrive than can be served.
const FULL: f64 = 0.95;
/// Consecutive samples above a limit before it counts, so that a burst does not.
const LOOKS: u32 = 3;

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Leave the replicas as they are.
    Wait,
    /// Start another replica.
    Add,
    /// Another replica is needed, but the maximal number is reached.
    Overloaded,
}

/// Follows the utilisation of the replicas.
#[derive(Debug)]
pub(super) struct Scaler {
    most: usize,
    last: Option<(Nanos, Vec<u64>)>,
    high: u32,
    full: u32,
}

impl Scaler {
    /// A scaler for at most `most` replicas.
    pub(super) fn new(most: usize) -> Self {
        Self { most, last: None, high: 0, full: 0 }
    }

    /// The number of replicas has changed: earlier samples no longer count.
    pub(super) fn changed(&mut self) {
        (self.last, self.high, self.full) = (None, 0, 0);
    }

    /// Decides at `now`. `busy` has the total busy time of each replica in nanoseconds; `starting`: another replica is
    /// starting already.
    pub(super) fn look(&mut self, now: Nanos, busy: &[u64], starting: bool) -> Decision {
        let before = self.last.replace((now, busy.to_vec()));
        let Some((then, before)) = before.filter(|(_, before)| before.len() == busy.len()) else {
            return Decision::Wait;
        };
        let passed = now.since(then).unwrap_or_default().0.max(1) as f64;
        let spent: u64 = busy.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).sum();
        let share = spent as f64 / passed / busy.len().max(1) as f64;
        let count = |looks: &mut u32, limit: f64| {
            *looks = if share > limit { *looks + 1 } else { 0 };
            *looks >= LOOKS
        };
        let (high, full) = (count(&mut self.high, TARGET), count(&mut self.full, FULL));
        match busy.len() < self.most {
            true if high && !starting => Decision::Add,
            false if full => Decision::Overloaded,
            _ => Decision::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decisions for replicas with these utilisations in each second.
    fn decide(scaler: &mut Scaler, replicas: usize, shares: &[f64]) -> Vec<Decision> {
        let mut busy = vec![0_u64; replicas];
        let mut look = |(second, share): (usize, &f64)| {
            for busy in &mut busy {
                *busy += (share * 1e9) as u64;
            }
            scaler.look(Nanos::from_secs(second as u64), &busy, false)
        };
        shares.iter().enumerate().map(&mut look).collect()
    }

    #[test]
    fn a_replica_is_added_after_three_busy_looks_and_not_after_a_burst() {
        use Decision::{Add, Wait};

        let found = decide(&mut Scaler::new(2), 1, &[0.0, 0.9, 0.9, 0.5, 0.9, 0.9, 0.9]);

        assert_eq!(found, [Wait, Wait, Wait, Wait, Wait, Wait, Add]);
    }

    #[test]
    fn at_the_limit_it_is_overloaded_only_when_hands_are_never_free() {
        let mut scaler = Scaler::new(2);

        assert!(decide(&mut scaler, 2, &[0.0, 0.9, 0.9, 0.9, 0.9]).iter().all(|found| *found == Decision::Wait));
        scaler.changed();
        assert_eq!(decide(&mut scaler, 2, &[0.0, 1.0, 1.0, 1.0]).last(), Some(&Decision::Overloaded));
    }

    #[test]
    fn while_one_starts_no_other_is_asked_for() {
        let mut scaler = Scaler::new(3);

        let found: Vec<_> =
            (0..6_u64).map(|second| scaler.look(Nanos::from_secs(second), &[second * 1_000_000_000], true)).collect();

        assert!(found.iter().all(|found| *found == Decision::Wait), "{found:?}");
    }
}

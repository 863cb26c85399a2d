//! When to add a replica: the rule of a horizontal autoscaler, over how busy the hands are. Pure.

use wire::time::Nanos;

/// A replica more when the hands are busy for more than this share of the time.
const TARGET: f64 = 0.8;
/// Beyond this share there are more visitors than can be served.
const FULL: f64 = 0.95;
/// So many looks in sequence, so that a burst is none.
const LOOKS: u32 = 3;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Wait,
    /// Start another replica.
    Add,
    /// There should be another one, and none is allowed.
    Overloaded,
}

/// Follows how busy the replicas are.
#[derive(Debug)]
pub(super) struct Scaler {
    most: usize,
    last: Option<(Nanos, Vec<u64>)>,
    high: u32,
    full: u32,
}

impl Scaler {
    /// Up to `most` replicas.
    pub(super) fn new(most: usize) -> Self {
        Self { most, last: None, high: 0, full: 0 }
    }

    /// The number of replicas has changed: what was seen before says nothing any more.
    pub(super) fn changed(&mut self) {
        (self.last, self.high, self.full) = (None, 0, 0);
    }

    /// At `now` the replicas have been busy for so many nanoseconds in all. `starting`: one more is on its way.
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

    /// What a scaler decides when its replicas are busy for these shares of each second.
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

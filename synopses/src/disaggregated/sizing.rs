//! How many fragments a flow should update. Starting points: then climb by measured errors.

/// The number K that makes an error of more than `error` packets least likely: S w y/(e X) with `fragments` S of
/// `counters` w and `packets` X in an epoch, from 1 to S. Markov's bound, uniform load.
#[must_use]
pub fn count_for_error(fragments: usize, counters: u32, error: f64, packets: f64) -> usize {
    clamped(fragments as f64 * f64::from(counters) * error / (core::f64::consts::E * packets), fragments)
}

/// The number K that makes a collision in all chosen fragments least likely: S w ln 2/N for N `flows`, from 1 to S.
#[must_use]
pub fn count_for_collisions(fragments: usize, counters: u32, flows: f64) -> usize {
    clamped(fragments as f64 * f64::from(counters) * core::f64::consts::LN_2 / flows, fragments)
}

/// Bound of the probability that a flow's error exceeds `error` packets, from the loads of the chosen fragments with
/// `counters` counters each: Π min(1, load/(w y)).
#[must_use]
pub fn error_probability(loads: &[u64], counters: u32, error: f64) -> f64 {
    loads.iter().map(|load| (*load as f64 / (f64::from(counters) * error)).min(1.0)).product()
}

fn clamped(count: f64, fragments: usize) -> usize {
    // A cast saturates, and takes what is no number as 0.
    (libm::round(count) as usize).clamp(1, fragments.max(1))
}

/// Climbs to the best number K, one step per epoch, by the errors of some flows that are counted exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountClimb {
    count: usize,
    most: usize,
    up: bool,
    last: Option<f64>,
}

impl CountClimb {
    /// Begins at a number from 1 to the path's length, `most`.
    #[must_use]
    pub fn new(count: usize, most: usize) -> Self {
        let most = most.max(1);
        Self { count: count.clamp(1, most), most, up: true, last: None }
    }

    /// K for the current epoch.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Takes the mean error of the epoch, and returns K for the next one. Turns round if the error grew. An error that
    /// is no number changes nothing.
    pub fn step(&mut self, error: f64) -> usize {
        if error.is_nan() {
            return self.count;
        }
        let turns = self.last.is_some_and(|last| error > last) || (self.up && self.count == self.most);
        self.up = if turns { !self.up } else { self.up } || self.count == 1;
        let next = if self.up { self.count + 1 } else { self.count - 1 };
        self.count = next.clamp(1, self.most);
        self.last = Some(error);
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_where_their_bounds_are_least() {
        let (fragments, counters, packets, error) = (8, 2_000_u32, 60_000.0, 50.0);
        let bound = |count: usize| {
            let load = (count as f64 * packets / fragments as f64) as u64;
            error_probability(&vec![load; count], counters, error)
        };
        let best = count_for_error(fragments, counters, error, packets);

        assert_eq!(best, 5);
        assert!((1..=fragments).all(|count| bound(best) <= bound(count)));
        assert_eq!(count_for_collisions(8, 2_000, 6_000.0), 2);
        assert_eq!((count_for_error(8, 2_000, f64::NAN, 1.0), count_for_collisions(8, 2_000, 0.0)), (1, 8));
    }

    #[test]
    fn a_climb_stays_beside_the_least_error() {
        for start in 1..=8 {
            let mut climb = CountClimb::new(start, 8);
            for epoch in 0..40 {
                let count = climb.count();
                assert!((1..=8).contains(&count));
                assert!(epoch < 16 || count.abs_diff(3) <= 2, "from {start}: {count} in epoch {epoch}");
                climb.step((count as f64 - 3.0).powi(2));
            }
        }
        assert_eq!(CountClimb::new(4, 8).step(f64::NAN), 4);
        assert_eq!(CountClimb::new(9, 0).step(1.0), 1);
    }
}

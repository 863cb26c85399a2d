//! Tunes the admission probability to the traffic.

/// Number of successive epochs that have to need another probability.
const PATIENCE: u32 = 3;
/// Factor by which the probability may differ from the best one. It costs little.
const TOLERANCE: f64 = 2.0;

/// The p with which the lifetime M/p is the number of requests during `delay_s`: M / (rate × delay), at most 1. Use the
/// 99th percentile as `delay_s`; the median is several times worse. 1 without traffic.
#[must_use]
pub fn best_probability(slots: usize, requests_per_s: f64, delay_s: f64) -> f64 {
    let meanwhile = requests_per_s * delay_s;
    // False for a NaN, too.
    if meanwhile > slots as f64 { slots as f64 / meanwhile } else { 1.0 }
}

/// Initial probabilities of two fridges that share `slots`: lifetimes of twice the median and twice the 99th
/// percentile. Their sum is at most 1.
#[must_use]
pub fn starting_probabilities(slots: usize, requests_per_s: f64, median_s: f64, p99_s: f64) -> [f64; 2] {
    let best = |delay_s: f64| best_probability(slots / 2, requests_per_s, 2.0 * delay_s);
    let (short, long) = (best(median_s), best(p99_s));
    let sum = (short + long).max(1.0);
    [short / sum, long / sum]
}

/// Traffic of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Number of requests.
    pub requests: u64,
    /// Length in nanoseconds.
    pub length_ns: u64,
    /// 99th percentile of the delay in nanoseconds; `None` if it is unknown or not trusted.
    pub p99_ns: Option<f64>,
}

/// Decides when a fridge is replaced by one with another probability: when the best one is less than half or more than
/// twice as large in three successive epochs.
#[derive(Clone, Debug)]
pub struct Tuner {
    slots: usize,
    probability: f64,
    outside: u32,
}

impl Tuner {
    /// A tuner for a fridge of `slots` slots with this `probability`.
    #[must_use]
    pub const fn new(slots: usize, probability: f64) -> Self {
        Self { slots, probability, outside: 0 }
    }

    /// The new probability; `None` to keep the current one. Ignores an epoch without traffic or without a percentile.
    #[must_use]
    pub fn update(&mut self, epoch: &Epoch) -> Option<f64> {
        let p99_ns = epoch.p99_ns.filter(|_| epoch.requests > 0 && epoch.length_ns > 0)?;
        let per_s = epoch.requests as f64 / (epoch.length_ns as f64 / 1e9);
        let best = best_probability(self.slots, per_s, p99_ns / 1e9);
        let ratio = best / self.probability;
        if (1.0 / TOLERANCE..=TOLERANCE).contains(&ratio) {
            self.outside = 0;
            return None;
        }
        self.outside += 1;
        if self.outside < PATIENCE {
            return None;
        }
        self.outside = 0;
        self.probability = best;
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(requests: u64, p99_ms: f64) -> Epoch {
        Epoch { requests, length_ns: 1_000_000_000, p99_ns: Some(p99_ms * 1e6) }
    }

    #[test]
    fn a_lifetime_is_as_long_as_the_longest_delay_of_interest() {
        // 4,096 slots, a million requests per second, 64 ms: 64,000 requests come meanwhile.
        assert_eq!(best_probability(4_096, 1e6, 0.064), 0.064);
        assert_eq!(best_probability(4_096, 1e3, 0.064), 1.0);
        assert_eq!(best_probability(4_096, 0.0, 0.0), 1.0);
        assert_eq!(best_probability(4_096, f64::NAN, 0.1), 1.0);
        let [short, long] = starting_probabilities(8_192, 1e6, 0.01, 0.5);
        assert!((short - 0.2048).abs() < 1e-9 && (long - 0.004_096).abs() < 1e-9);
        let [one, other] = starting_probabilities(8_192, 1.0, 0.01, 0.5);
        assert_eq!(one + other, 1.0);
    }

    #[test]
    fn the_probability_changes_after_three_successive_epochs() {
        let mut tuner = Tuner::new(4_096, 0.064);

        assert_eq!(tuner.update(&epoch(1_000_000, 120.0)), None);
        assert_eq!(tuner.update(&epoch(1_000_000, 400.0)), None);
        assert_eq!(tuner.update(&epoch(1_000_000, 400.0)), None);
        assert_eq!(tuner.update(&epoch(1_000_000, 64.0)), None);
        assert_eq!(tuner.update(&epoch(1_000_000, 400.0)), None);
        assert_eq!(tuner.update(&epoch(1_000_000, 400.0)), None);
        assert_eq!(tuner.update(&Epoch { p99_ns: None, ..epoch(1_000_000, 0.0) }), None);
        assert_eq!(tuner.update(&epoch(0, 400.0)), None);
        let changed = tuner.update(&epoch(1_000_000, 400.0)).expect("the third one");
        assert!((changed - 0.010_24).abs() < 1e-9);
        assert_eq!(tuner.update(&epoch(1_000_000, 400.0)), None);
    }
}

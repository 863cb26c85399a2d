//! The schedule of requests: open loop, independent of responses.

use wire::time::Nanos;

use crate::graph::Errand;
use crate::noise::Noise;

/// Period of the sine wave in the rate: a day, shortened.
const WAVE_SECONDS: f64 = 40.0;
/// Amplitude of the wave as a share of the rate.
const WAVE: f64 = 0.12;
/// Standard deviation of the drift, in the logarithm of the rate.
const DRIFT: f64 = 0.06;
/// Time constant of the drift.
const DRIFT_SECONDS: f64 = 6.0;
/// Bursts: factor of the rate, range of durations, and range of pauses between them.
const BURST: f64 = 1.5;
const BURST_SECONDS: (f64, f64) = (0.3, 1.2);
const CALM_SECONDS: (f64, f64) = (2.5, 8.0);
/// Share of requests that buy.
const BUYERS: f64 = 0.35;

/// One request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledRequest {
    /// Time after the start.
    pub(crate) at: Nanos,
    /// Browse or buy.
    pub(crate) errand: Errand,
    /// Random number that selects the visitor and the product.
    pub(crate) key: u64,
}

/// An endless schedule: random arrivals whose rate is a wave, with bursts and a drift.
#[derive(Debug)]
pub(crate) struct Schedule {
    noise: Noise,
    per_second: f64,
    phase: f64,
    seconds: f64,
    drift: f64,
    burst: (f64, f64),
}

impl Schedule {
    /// A schedule of `per_second` requests per second on average, without bursts.
    pub(crate) fn new(seed: u64, per_second: f64) -> Self {
        let mut noise = Noise::new(seed, "load");
        let phase = noise.between(0.0, core::f64::consts::TAU);
        let start = noise.between(CALM_SECONDS.0, CALM_SECONDS.1);
        Self { noise, per_second, phase, seconds: 0.0, drift: 0.0, burst: (start, start + BURST_SECONDS.1) }
    }

    /// The current rate in requests per second.
    fn rate(&self) -> f64 {
        let angle = core::f64::consts::TAU * self.seconds / WAVE_SECONDS + self.phase;
        let burst = if self.burst.0 <= self.seconds { BURST } else { 1.0 };
        self.per_second * (1.0 + WAVE * angle.sin()) * (DRIFT * self.drift).exp() * burst
    }

    /// Advances time by `seconds`: updates the drift (an Ornstein–Uhlenbeck process) and the burst.
    fn pass(&mut self, seconds: f64) {
        self.seconds += seconds;
        let kept = (-seconds / DRIFT_SECONDS).exp();
        self.drift = self.drift * kept + (1.0 - kept * kept).sqrt() * self.noise.normal();
        if self.burst.1 <= self.seconds {
            let start = self.seconds + self.noise.between(CALM_SECONDS.0, CALM_SECONDS.1);
            self.burst = (start, start + self.noise.between(BURST_SECONDS.0, BURST_SECONDS.1));
        }
    }
}

impl Iterator for Schedule {
    type Item = ScheduledRequest;

    fn next(&mut self) -> Option<ScheduledRequest> {
        let gap = self.noise.exponential() / self.rate();
        self.pass(gap);
        let errand = if self.noise.uniform() < BUYERS { Errand::Buy } else { Errand::Browse };
        Some(ScheduledRequest { at: Nanos((self.seconds * 1e9) as u64), errand, key: self.noise.number() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in each second of ten minutes.
    fn per_second(seed: u64) -> Vec<u32> {
        let mut seconds = vec![0; 600];
        for due in Schedule::new(seed, 140.0).take_while(|due| due.at < Nanos::from_secs(600)) {
            seconds[due.at.0 as usize / 1_000_000_000] += 1;
        }
        seconds
    }

    #[test]
    fn one_seed_is_one_schedule() {
        let first = |seed| Schedule::new(seed, 140.0).take(100).collect::<Vec<_>>();

        assert_eq!(first(4), first(4));
        assert_ne!(first(4), first(5));
    }

    #[test]
    fn there_are_at_least_a_hundred_a_second_on_average_and_in_nine_of_ten_seconds() {
        for seed in 0..10 {
            let mut seconds = per_second(seed);
            let mean = seconds.iter().sum::<u32>() / 600;
            seconds.sort_unstable();

            assert!((130..170).contains(&mean), "seed {seed}: {mean} a second");
            assert!(seconds[60] >= 100, "seed {seed}: {} in the tenth percentile", seconds[60]);
        }
    }

    #[test]
    fn the_rate_goes_up_and_down_by_more_than_chance() {
        let seconds = per_second(1);
        let mean = f64::from(seconds.iter().sum::<u32>()) / 600.0;
        let variance = seconds.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / 600.0;

        assert!(variance > 2.0 * mean, "a Poisson process would have {mean}, this has {variance}");
    }
}

//! Exact distribution of weighted samples, which stores all of them. [`super::Histogram`] needs constant memory.

use alloc::vec::Vec;

/// Minimum effective number of samples above a trusted quantile.
pub(super) const FEW: f64 = 30.0;
/// Number of standard deviations around the mean that contain 95 % of a normal distribution.
const DEVIATIONS: f64 = 1.96;

/// A delay and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Delay in nanoseconds.
    pub delay_ns: u64,
    /// Number of answered requests that it stands for.
    pub weight: f64,
}

/// A quantile of the delay, and its precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Delay in nanoseconds.
    pub delay_ns: f64,
    /// Lower end of the 95 % confidence interval in nanoseconds. Its coverage is less in the tail: 87 % at the 95th
    /// percentile, 65 % at the 99th, if that is at four lifetimes.
    pub low_ns: f64,
    /// Upper end of the 95 % confidence interval in nanoseconds.
    pub high_ns: f64,
    /// Effective number of samples above the quantile, (Σ w)² / Σ w².
    pub effective_above: f64,
    /// Fewer than 30 effective samples are above the quantile: do not trust it.
    pub low_confidence: bool,
}

/// Sums of weights and of their squares, which give the variance of a share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) weight: f64,
    pub(super) squares: f64,
}

impl Sums {
    pub(super) fn add(&mut self, weight: f64, squares: f64) {
        self.weight += weight;
        self.squares += squares;
    }

    /// (Σ w)² / Σ w², 0 without samples.
    pub(super) fn effective(self) -> f64 {
        if self.squares > 0.0 { self.weight * self.weight / self.squares } else { 0.0 }
    }

    /// Standard deviation of a share `self / all`: √(Σ w (w − 1) (1\[below\] − F)²) / n.
    pub(super) fn share_deviation(self, all: Self) -> f64 {
        let above = Self { weight: all.weight - self.weight, squares: all.squares - self.squares };
        let share = self.weight / all.weight;
        let (inside, outside) = ((self.squares - self.weight).max(0.0), (above.squares - above.weight).max(0.0));
        libm::sqrt(inside * (1.0 - share) * (1.0 - share) + outside * share * share) / all.weight
    }
}

/// Computes a quantile from the sums below a delay and from the delay at a share.
pub(super) fn quantile(share: f64, all: Sums, delay_at: impl Fn(f64) -> f64, below: impl Fn(f64) -> Sums) -> Quantile {
    let delay_ns = delay_at(share);
    let sums = below(delay_ns);
    let deviation = DEVIATIONS * sums.share_deviation(all);
    let above = Sums { weight: all.weight - sums.weight, squares: all.squares - sums.squares };
    let effective_above = above.effective();
    Quantile {
        delay_ns,
        low_ns: delay_at((share - deviation).max(0.0)),
        high_ns: delay_at((share + deviation).min(1.0)),
        effective_above,
        low_confidence: effective_above < FEW,
    }
}

/// The distribution of at least one weighted sample.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Distinct delays in ascending order, with the sums of all samples up to them.
    steps: Vec<(u64, Sums)>,
    all: Sums,
}

impl Distribution {
    /// The distribution of `samples`; `None` if there are none with a positive weight. Sorts them in O(n log n).
    #[must_use]
    pub fn estimate(samples: &[Sample]) -> Option<Self> {
        let mut sorted: Vec<Sample> = samples.iter().copied().filter(|sample| sample.weight > 0.0).collect();
        sorted.sort_unstable_by_key(|sample| sample.delay_ns);
        let mut all = Sums::default();
        let mut steps: Vec<(u64, Sums)> = Vec::with_capacity(sorted.len());
        for Sample { delay_ns, weight } in sorted {
            all.add(weight, weight * weight);
            match steps.last_mut() {
                Some(last) if last.0 == delay_ns => last.1 = all,
                _ => steps.push((delay_ns, all)),
            }
        }
        (!steps.is_empty()).then_some(Self { steps, all })
    }

    /// Unbiased estimate of the number of answered requests, Σ w.
    #[must_use]
    pub const fn answered(&self) -> f64 {
        self.all.weight
    }

    /// Effective number of samples, (Σ w)² / Σ w²: unweighted samples of the same precision.
    #[must_use]
    pub fn effective(&self) -> f64 {
        self.all.effective()
    }

    /// Share of delays above `delay_ns`, and its standard deviation.
    #[must_use]
    pub fn above(&self, delay_ns: u64) -> (f64, f64) {
        let below = self.below(delay_ns);
        (1.0 - below.weight / self.all.weight, below.share_deviation(self.all))
    }

    /// The quantile `share`, clamped to \[0, 1\], of the delay. Linear between two samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Quantile {
        let share = share.clamp(0.0, 1.0);
        quantile(share, self.all, |share| self.delay_at(share), |delay| self.below(delay as u64))
    }

    fn below(&self, delay_ns: u64) -> Sums {
        let steps = self.steps.partition_point(|step| step.0 <= delay_ns);
        steps.checked_sub(1).map_or(Sums::default(), |last| self.steps[last].1)
    }

    fn delay_at(&self, share: f64) -> f64 {
        let weight = share * self.all.weight;
        let at = self.steps.partition_point(|step| step.1.weight < weight).min(self.steps.len() - 1);
        let (delay, upper) = self.steps[at];
        let Some(before) = at.checked_sub(1) else { return delay as f64 };
        let (earlier, lower) = self.steps[before];
        let part = ((weight - lower.weight) / (upper.weight - lower.weight)).clamp(0.0, 1.0);
        earlier as f64 + part * (delay - earlier) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: &[(u64, f64)]) -> Vec<Sample> {
        of.iter().map(|&(delay_ns, weight)| Sample { delay_ns, weight }).collect()
    }

    #[test]
    fn no_sample_is_no_data_and_never_zero() {
        assert!(Distribution::estimate(&[]).is_none());
        assert!(Distribution::estimate(&samples(&[(5, 0.0)])).is_none());
    }

    #[test]
    fn equal_delays_are_one_step_and_counted_once() {
        let distribution = Distribution::estimate(&samples(&[(20, 1.0), (10, 1.0), (20, 2.0)])).expect("samples");

        assert_eq!(distribution.answered(), 4.0);
        assert_eq!(distribution.above(10).0, 0.75);
        assert_eq!(distribution.above(20).0, 0.0);
        assert_eq!(distribution.above(9).0, 1.0);
        assert!((distribution.effective() - 16.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_linear_between_two_delays() {
        let distribution = Distribution::estimate(&samples(&[(10, 1.0), (20, 1.0), (40, 2.0)])).expect("samples");
        let delay = |share| distribution.quantile(share).delay_ns;

        assert_eq!((delay(0.0), delay(0.25), delay(0.375), delay(0.5)), (10.0, 10.0, 15.0, 20.0));
        assert_eq!((delay(0.75), delay(1.0), delay(7.0)), (30.0, 40.0, 40.0));
    }

    #[test]
    fn unweighted_samples_have_no_deviation_and_weighted_ones_have() {
        let exact = Distribution::estimate(&samples(&[(10, 1.0), (20, 1.0)])).expect("samples");
        let rough = Distribution::estimate(&samples(&[(10, 4.0), (20, 4.0)])).expect("samples");

        // Every answered request was seen: the share is no estimate.
        assert_eq!(exact.above(10), (0.5, 0.0));
        // Σ w (w − 1) (…)² = 2 × 12 / 4 over n² = 64.
        assert!((rough.above(10).1 - libm::sqrt(6.0 / 64.0)).abs() < 1e-12);
        let quantile = rough.quantile(0.5);
        assert!(quantile.low_ns <= quantile.delay_ns && quantile.delay_ns <= quantile.high_ns);
        assert!(quantile.low_confidence && quantile.effective_above == 1.0);
    }
}

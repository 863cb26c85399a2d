//! Histogram of weighted samples, in constant memory. The width of buckets grows with the delay.

use alloc::boxed::Box;
use alloc::vec;

use thiserror::Error;

use super::distribution::{Quantile, Sample, Sums, quantile};

/// Octaves of a delay in ticks, which has 32 bits.
const OCTAVES: usize = 32;
/// Maximum resolution: 2^6 buckets per octave, which is finer than a sample.
const FINEST: u32 = 6;
/// Allowed weights of samples. Their squares and sums stay within the range of a float.
pub(super) const WEIGHTS: core::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// Unit and resolution of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramShape {
    /// Its unit is 2^`tick_shift` nanoseconds, at most 2³². Use the fridge's value.
    pub tick_shift: u32,
    /// It has 2^`fineness` buckets per octave, at most 2⁶. With 8 the error of a delay is at most an eighth. A switch
    /// can do 1.
    pub fineness: u32,
}

impl Default for HistogramShape {
    fn default() -> Self {
        Self { tick_shift: 10, fineness: 3 }
    }
}

/// Invalid shape, or a merge of different shapes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// The resolution or the tick is out of range.
    #[error("2^{} buckets per octave of 2^{} ns, at most 2^{FINEST} of 2^32 are possible", .0.fineness, .0.tick_shift)]
    Shape(HistogramShape),
    /// The other histogram has another shape.
    #[error("a histogram of {found:?} cannot be merged into one of {expected:?}")]
    Merge {
        /// Shape of the other histogram.
        found: HistogramShape,
        /// Shape of this histogram.
        expected: HistogramShape,
    },
}

/// Histogram of weights by delay. Sums of unbiased estimates are unbiased: histograms of epochs, cores and NICs can be
/// added.
///
/// Buckets have Σ w and Σ w². The squares give the effective number of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub(super) shape: HistogramShape,
    pub(super) buckets: Box<[Sums]>,
    pub(super) samples: u64,
}

impl Histogram {
    /// An empty histogram.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Shape`] if the shape is out of range.
    pub fn new(shape: HistogramShape) -> Result<Self, HistogramError> {
        if shape.fineness > FINEST || shape.tick_shift > 32 {
            return Err(HistogramError::Shape(shape));
        }
        let buckets = vec![Sums::default(); OCTAVES << shape.fineness].into_boxed_slice();
        Ok(Self { shape, buckets, samples: 0 })
    }

    /// Adds a sample. Ignores weights below 10⁻⁶⁰ and above 10⁶⁰.
    pub fn insert(&mut self, sample: Sample) {
        if WEIGHTS.contains(&sample.weight) {
            let bucket = self.bucket(sample.delay_ns);
            self.buckets[bucket].add(sample.weight, sample.weight * sample.weight);
            self.samples += 1;
        }
    }

    /// Adds the samples of `other`.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Merge`] if it has another shape.
    pub fn merge(&mut self, other: &Self) -> Result<(), HistogramError> {
        if self.shape != other.shape {
            return Err(HistogramError::Merge { found: other.shape, expected: self.shape });
        }
        for (bucket, sums) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.add(sums.weight, sums.squares);
        }
        self.samples = self.samples.saturating_add(other.samples);
        Ok(())
    }

    /// Removes all samples at the end of an epoch. Do not empty the fridge, which would lose long delays.
    pub fn clear(&mut self) {
        self.buckets.fill(Sums::default());
        self.samples = 0;
    }

    /// Unit and resolution.
    #[must_use]
    pub const fn shape(&self) -> HistogramShape {
        self.shape
    }

    /// Number of samples.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes of the buckets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Unbiased estimate of the number of answered requests, Σ w. `None` (unknown) without samples.
    #[must_use]
    pub fn answered(&self) -> Option<f64> {
        self.all().map(|all| all.weight)
    }

    /// Effective number of samples, (Σ w)² / Σ w²: unweighted samples of the same precision.
    #[must_use]
    pub fn effective(&self) -> f64 {
        self.all().unwrap_or_default().effective()
    }

    /// Share of delays above `delay_ns`, and its standard deviation.
    #[must_use]
    pub fn above(&self, delay_ns: u64) -> Option<(f64, f64)> {
        let all = self.all()?;
        let below = self.below(delay_ns as f64);
        Some(((1.0 - below.weight / all.weight).max(0.0), below.share_deviation(all)))
    }

    /// The quantile `share`, clamped to \[0, 1\], of the delay. Exact to a bucket, and interpolated on a logarithmic
    /// scale within it.
    #[must_use]
    pub fn estimate(&self, share: f64) -> Option<Quantile> {
        let all = self.all()?;
        let share = share.clamp(0.0, 1.0);
        Some(quantile(share, all, |share| self.delay_at(share * all.weight), |delay| self.below(delay)))
    }

    fn all(&self) -> Option<Sums> {
        let mut all = Sums::default();
        self.buckets.iter().for_each(|sums| all.add(sums.weight, sums.squares));
        (all.weight > 0.0).then_some(all)
    }

    fn bucket(&self, delay_ns: u64) -> usize {
        let ticks = u32::try_from(delay_ns >> self.shape.tick_shift).unwrap_or(u32::MAX).max(1);
        let octave = ticks.ilog2();
        let within = (u64::from(ticks) << self.shape.fineness) >> octave;
        ((octave as usize) << self.shape.fineness) + within as usize - (1 << self.shape.fineness)
    }

    /// Lower edge of a bucket in nanoseconds. The first bucket begins at 0, since it has delays below a tick.
    fn edge(&self, bucket: usize) -> f64 {
        let parts = (1_u64 << self.shape.fineness) as f64;
        let (octave, part) = (bucket >> self.shape.fineness, bucket & ((1 << self.shape.fineness) - 1));
        if bucket == 0 {
            return 0.0;
        }
        libm::ldexp(1.0 + part as f64 / parts, octave as i32 + self.shape.tick_shift as i32)
    }

    fn delay_at(&self, weight: f64) -> f64 {
        let mut before = 0.0;
        let mut end = 0.0;
        for (bucket, sums) in self.buckets.iter().enumerate().filter(|(_, sums)| sums.weight > 0.0) {
            let (low, high) = (self.edge(bucket), self.edge(bucket + 1));
            let part = (weight - before) / sums.weight;
            if part <= 1.0 {
                let part = part.max(0.0);
                return if low > 0.0 { low * libm::pow(high / low, part) } else { high * part };
            }
            before += sums.weight;
            end = high;
        }
        end
    }

    /// Sums of all delays up to `delay_ns`, with the proportional part of the bucket that contains it.
    fn below(&self, delay_ns: f64) -> Sums {
        let mut below = Sums::default();
        for (bucket, sums) in self.buckets.iter().enumerate().filter(|(_, sums)| sums.weight > 0.0) {
            let (low, high) = (self.edge(bucket), self.edge(bucket + 1));
            if delay_ns >= high {
                below.add(sums.weight, sums.squares);
                continue;
            }
            if delay_ns > low {
                let part = if low > 0.0 { libm::log(delay_ns / low) / libm::log(high / low) } else { delay_ns / high };
                below.add(part * sums.weight, part * sums.squares);
            }
            break;
        }
        below
    }
}

/// Histograms of one fridge's samples by class, such as service or tenant.
#[derive(Clone, Debug)]
pub struct PerClass {
    histograms: Box<[Histogram]>,
    unknown: u64,
}

impl PerClass {
    /// Empty histograms for the classes below `classes`.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Shape`] if the shape is out of range.
    pub fn new(classes: u16, shape: HistogramShape) -> Result<Self, HistogramError> {
        let histograms = vec![Histogram::new(shape)?; usize::from(classes)].into_boxed_slice();
        Ok(Self { histograms, unknown: 0 })
    }

    /// Adds a sample of a class. A sample of an unknown class is only counted.
    pub fn insert(&mut self, class: u16, sample: Sample) {
        match self.histograms.get_mut(usize::from(class)) {
            Some(histogram) => histogram.insert(sample),
            None => self.unknown += 1,
        }
    }

    /// Histogram of a class.
    #[must_use]
    pub fn class(&self, class: u16) -> Option<&Histogram> {
        self.histograms.get(usize::from(class))
    }

    /// Removes all samples of all classes.
    pub fn clear(&mut self) {
        self.histograms.iter_mut().for_each(Histogram::clear);
    }

    /// Number of samples of unknown classes.
    #[must_use]
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Bytes of all buckets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.histograms.iter().map(Histogram::memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn histogram(fineness: u32, samples: &[(u64, f64)]) -> Histogram {
        let mut histogram = Histogram::new(HistogramShape { tick_shift: 0, fineness }).expect("a shape that can be");
        for &(delay_ns, weight) in samples {
            histogram.insert(Sample { delay_ns, weight });
        }
        histogram
    }

    #[test]
    fn a_bucket_begins_where_its_edge_is() {
        for fineness in 0..=FINEST {
            let histogram = histogram(fineness, &[]);
            for delay in (2..3_000).chain([1 << 20, (1 << 31) + 12_345, (1 << 32) - 1]) {
                let bucket = histogram.bucket(delay);
                let (low, high) = (histogram.edge(bucket), histogram.edge(bucket + 1));
                assert!(low <= delay as f64 && (delay as f64) < high, "{delay} in {low}..{high}");
            }
        }
    }

    #[test]
    fn the_first_bucket_has_zero_and_one_tick_and_the_last_has_all_long_delays() {
        let histogram = histogram(0, &[]);

        assert_eq!((histogram.bucket(0), histogram.bucket(1), histogram.bucket(2)), (0, 0, 1));
        assert_eq!(histogram.bucket(u64::MAX), 31);
        assert_eq!(
            (histogram.memory_bytes(), Histogram::new(HistogramShape::default()).unwrap().memory_bytes()),
            (512, 4096)
        );
    }

    #[test]
    fn without_samples_everything_is_unknown() {
        let mut histogram = histogram(3, &[(5, f64::NAN), (5, 0.0), (5, -1.0), (5, f64::INFINITY)]);

        assert_eq!((histogram.answered(), histogram.estimate(0.5), histogram.above(1)), (None, None, None));
        histogram.insert(Sample { delay_ns: 5, weight: 2.0 });
        assert_eq!((histogram.answered(), histogram.samples()), (Some(2.0), 1));
        histogram.clear();
        assert_eq!(histogram.answered(), None);
    }

    #[test]
    fn quantiles_are_those_of_all_samples_to_a_bucket() {
        let samples: Vec<_> = (1..=8_388_u64).map(|delay| (delay * 1_000, 1.0 + (delay % 3) as f64)).collect();
        let histogram = histogram(3, &samples);
        let of = |&(delay_ns, weight): &(u64, f64)| Sample { delay_ns, weight };
        let exact = super::super::Distribution::estimate(&samples.iter().map(of).collect::<Vec<_>>()).expect("samples");

        for share in [0.01, 0.1, 0.5, 0.9, 0.99] {
            let (ours, truth) = (histogram.estimate(share).expect("samples"), exact.quantile(share));
            assert!((ours.delay_ns / truth.delay_ns - 1.0).abs() < 0.03, "{share}: {ours:?}, {truth:?}");
            assert!((ours.low_ns..=ours.high_ns).contains(&truth.delay_ns), "{share}: {ours:?}, {truth:?}");
            let (above, deviation) = histogram.above(truth.delay_ns as u64).expect("samples");
            assert!((above - (1.0 - share)).abs() < 0.01, "{share}: {above} ± {deviation}");
        }
        assert!((histogram.effective() / exact.effective() - 1.0).abs() < 1e-9);
        assert!(histogram.estimate(0.5).is_some_and(|quantile| !quantile.low_confidence));
        assert!(histogram.estimate(0.999).is_some_and(|quantile| quantile.low_confidence));
    }

    #[test]
    fn only_histograms_of_one_shape_are_merged() {
        let error = histogram(3, &[]).merge(&histogram(2, &[])).expect_err("another shape");

        assert!(matches!(error, HistogramError::Merge { .. }));
        assert!(Histogram::new(HistogramShape { tick_shift: 0, fineness: 7 }).is_err());
    }

    #[test]
    fn classes_do_not_mix() {
        let mut classes = PerClass::new(2, HistogramShape::default()).expect("a shape that can be");
        classes.insert(0, Sample { delay_ns: 1_000, weight: 1.0 });
        classes.insert(1, Sample { delay_ns: 9_000, weight: 2.0 });
        classes.insert(2, Sample { delay_ns: 9_000, weight: 2.0 });

        assert_eq!(classes.class(0).and_then(Histogram::answered), Some(1.0));
        assert_eq!(classes.class(1).and_then(Histogram::answered), Some(2.0));
        assert_eq!((classes.class(2), classes.unknown(), classes.memory_bytes()), (None, 1, 8192));
        classes.clear();
        assert_eq!(classes.class(1).and_then(Histogram::answered), None);
    }

    proptest! {
        #[test]
        fn merged_histograms_are_that_of_all_samples(
            one in prop::collection::vec((any::<u64>(), 1.0..1e6), 0..50),
            other in prop::collection::vec((any::<u64>(), 1.0..1e6), 0..50),
        ) {
            let mut merged = histogram(3, &one);
            merged.merge(&histogram(3, &other)).expect("one shape");
            let all = histogram(3, &[one, other].concat());

            prop_assert_eq!(merged.samples(), all.samples());
            for (ours, expected) in merged.buckets.iter().zip(&all.buckets) {
                prop_assert!((ours.weight - expected.weight).abs() <= 1e-12 * expected.weight);
                prop_assert!((ours.squares - expected.squares).abs() <= 1e-12 * expected.squares);
            }
        }

        #[test]
        fn a_quantile_rises_with_its_share(samples in prop::collection::vec((0_u64..1 << 40, 1.0..1e3), 1..50)) {
            let histogram = histogram(3, &samples);
            let quantiles: Vec<_> = (0..=20)
                .map(|step| histogram.estimate(f64::from(step) / 20.0).expect("samples").delay_ns)
                .collect();
            prop_assert!(quantiles.is_sorted(), "{quantiles:?}");
        }
    }
}

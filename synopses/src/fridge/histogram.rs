//! Weighted samples in constant memory: buckets whose width grows with the delay.

use alloc::boxed::Box;
use alloc::vec;

use thiserror::Error;

use super::distribution::{Quantile, Sample, Sums, quantile};

/// Octaves of a delay in ticks, which has 32 bits.
const OCTAVES: usize = 32;
/// 2^6 buckets per octave: more precise than a sample.
const FINEST: u32 = 6;
/// Weights of samples are far within; of what is, neither squares nor sums leave the range of a float.
pub(super) const WEIGHTS: core::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// How fine a histogram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramShape {
    /// Its unit is 2^this nanoseconds, at most 2³²; that of the fridge loses nothing.
    pub tick_shift: u32,
    /// 2^this buckets per octave, at most 2⁶. With 8 of them no delay is off by more than an eighth; 1 is what a switch can do.
    pub fineness: u32,
}

impl Default for HistogramShape {
    fn default() -> Self {
        Self { tick_shift: 10, fineness: 3 }
    }
}

/// A histogram that cannot be, or not be merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// Too fine, or of too long ticks.
    #[error("2^{} buckets per octave of 2^{} ns, at most 2^{FINEST} of 2^32 are possible", .0.fineness, .0.tick_shift)]
    Shape(HistogramShape),
    /// Of another shape: its buckets mean other delays.
    #[error("a histogram of {found:?} cannot be merged into one of {expected:?}")]
    Merge {
        /// The other's.
        found: HistogramShape,
        /// This one's.
        expected: HistogramShape,
    },
}

/// Weights by delay. Sums of unbiased estimates: those of epochs, cores and NICs can be added.
///
/// Buckets keep Σ w and Σ w², since without the squares nobody knows how much an estimate rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub(super) shape: HistogramShape,
    pub(super) buckets: Box<[Sums]>,
    pub(super) samples: u64,
}

impl Histogram {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Shape`] if it is too fine.
    pub fn new(shape: HistogramShape) -> Result<Self, HistogramError> {
        if shape.fineness > FINEST || shape.tick_shift > 32 {
            return Err(HistogramError::Shape(shape));
        }
        let buckets = vec![Sums::default(); OCTAVES << shape.fineness].into_boxed_slice();
        Ok(Self { shape, buckets, samples: 0 })
    }

    /// One sample. What weighs less than 10⁻⁶⁰ or more than 10⁶⁰ is left out.
    pub fn insert(&mut self, sample: Sample) {
        if WEIGHTS.contains(&sample.weight) {
            let bucket = self.bucket(sample.delay_ns);
            self.buckets[bucket].add(sample.weight, sample.weight * sample.weight);
            self.samples += 1;
        }
    }

    /// Adds what `other` saw.
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

    /// Forgets all samples: an epoch ends. The fridge goes on as it is; emptying it would lose long delays.
    pub fn clear(&mut self) {
        self.buckets.fill(Sums::default());
        self.samples = 0;
    }

    /// How fine it is.
    #[must_use]
    pub const fn shape(&self) -> HistogramShape {
        self.shape
    }

    /// How many samples it has.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes of the buckets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// How many requests were answered: Σ w, unbiased; `None` without a sample, since then it is not known.
    #[must_use]
    pub fn answered(&self) -> Option<f64> {
        self.all().map(|all| all.weight)
    }

    /// How many unweighted samples would be as good: (Σ w)² / Σ w².
    #[must_use]
    pub fn effective(&self) -> f64 {
        self.all().unwrap_or_default().effective()
    }

    /// The share of delays above `delay_ns`, and its deviation.
    #[must_use]
    pub fn above(&self, delay_ns: u64) -> Option<(f64, f64)> {
        let all = self.all()?;
        let below = self.below(delay_ns as f64);
        Some(((1.0 - below.weight / all.weight).max(0.0), below.share_deviation(all)))
    }

    /// The delay that a share `share`, clamped to \[0, 1\], of the answered requests does not exceed. Exact to a bucket, within which delays are
    /// taken as evenly spread on a logarithmic scale.
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

    /// Where a bucket begins, in nanoseconds; the first one at 0, since delays of no tick are in it.
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

    /// Sums of all delays up to `delay_ns`, with the part of a bucket that it cuts.
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

/// A histogram for each class (service, tenant) of one fridge's samples.
#[derive(Clone, Debug)]
pub struct PerClass {
    histograms: Box<[Histogram]>,
    unknown: u64,
}

impl PerClass {
    /// Empty ones for the classes below `classes`.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Shape`] if they are too fine.
    pub fn new(classes: u16, shape: HistogramShape) -> Result<Self, HistogramError> {
        let histograms = vec![Histogram::new(shape)?; usize::from(classes)].into_boxed_slice();
        Ok(Self { histograms, unknown: 0 })
    }

    /// One sample of a class; that of a class that does not exist is counted.
    pub fn insert(&mut self, class: u16, sample: Sample) {
        match self.histograms.get_mut(usize::from(class)) {
            Some(histogram) => histogram.insert(sample),
            None => self.unknown += 1,
        }
    }

    /// That of one class.
    #[must_use]
    pub fn class(&self, class: u16) -> Option<&Histogram> {
        self.histograms.get(usize::from(class))
    }

    /// Forgets all samples of all classes.
    pub fn clear(&mut self) {
        self.histograms.iter_mut().for_each(Histogram::clear);
    }

    /// Samples of classes that do not exist.
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
    fn no_tick_and_one_tick_share_a_bucket_and_what_is_too_long_has_the_last() {
        let histogram = histogram(0, &[]);

        assert_eq!((histogram.bucket(0), histogram.bucket(1), histogram.bucket(2)), (0, 0, 1));
        assert_eq!(histogram.bucket(u64::MAX), 31);
        assert_eq!(
            (histogram.memory_bytes(), Histogram::new(HistogramShape::default()).unwrap().memory_bytes()),
            (512, 4096)
        );
    }

    #[test]
    fn nothing_is_known_of_nothing() {
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
    fn only_what_has_the_same_shape_is_merged() {
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

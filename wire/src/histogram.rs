//! The fixed scale of histograms: which bucket a value falls into, and what the counts of an interval say.
//!
//! Buckets are log-linear: 2^`sub_bits` of them per power of two, so that a bucket is at most 2^−`sub_bits` of its
//! lower bound wide. These are the buckets of an exponential histogram of fixed scale, but for bounds that need no
//! logarithm ([`Scale::exponential`]).
//!
//! A histogram is a run of [`Scale::slots`] slots: the buckets, one for what lies beyond, and the sum. Its count is
//! derived. It is not a snapshot: buckets and sum are read one after the other while others write, so they agree only
//! up to the writes in between.

/// Ends the name of the histogram that has the values below 0 of another one, without their sign: no bucket holds them.
pub const BELOW_ZERO: &str = ".below_zero";

/// The buckets of a histogram. Always `sub_bits` ≤ 5 and `sub_bits` < `max_bits` ≤ 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    sub_bits: u8,
    max_bits: u8,
}

/// A scale out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a histogram with {sub_bits} sub-bucket bits and {max_bits} value bits: sub-bucket bits must be at most 5, value bits above them and at most 48"
)]
pub struct ScaleError {
    /// Requested buckets per power of two, as a power of two.
    pub sub_bits: u32,
    /// Requested limit: values below two to this power have buckets.
    pub max_bits: u32,
}

impl Scale {
    /// Four buckets per power of two (a value is known to 25 %), values below 2^32 (71 minutes in µs): 124 buckets,
    /// 1,008 bytes.
    pub const DEFAULT: Self = Self { sub_bits: 2, max_bits: 32 };

    /// 2^`sub_bits` buckets per power of two, for values below 2^`max_bits`.
    ///
    /// # Errors
    ///
    /// [`ScaleError`] unless `sub_bits` ≤ 5 and `sub_bits` < `max_bits` ≤ 48.
    pub const fn new(sub_bits: u32, max_bits: u32) -> Result<Self, ScaleError> {
        if !(sub_bits <= 5 && sub_bits < max_bits && max_bits <= 48) {
            return Err(ScaleError { sub_bits, max_bits });
        }
        Ok(Self { sub_bits: sub_bits as u8, max_bits: max_bits as u8 })
    }

    /// The buckets for what OpenTelemetry calls an exponential histogram of `scale`, for values below 2^48: as many per
    /// power of two. Their bounds are equal at powers of two; between them they lie up to 6.2 % above OpenTelemetry's,
    /// which grow by the factor 2^(2^−`scale`). Here they grow linearly, so that finding a bucket takes no logarithm.
    ///
    /// # Errors
    ///
    /// [`ScaleError`] unless `scale` ≤ 5, which knows values to 3 %.
    pub const fn exponential(scale: u32) -> Result<Self, ScaleError> {
        Self::new(scale, 48)
    }

    /// Buckets per power of two, as a power of two.
    #[must_use]
    pub const fn sub_bits(self) -> u32 {
        self.sub_bits as u32
    }

    /// Values below two to this power have buckets.
    #[must_use]
    pub const fn max_bits(self) -> u32 {
        self.max_bits as u32
    }

    /// Number of buckets, without the last one for larger values.
    #[must_use]
    pub const fn buckets(self) -> u32 {
        (self.max_bits() - self.sub_bits() + 1) << self.sub_bits
    }

    /// Number of slots of the histogram: buckets, one for larger values, and the sum.
    #[must_use]
    pub const fn slots(self) -> u32 {
        self.buckets() + 2
    }

    /// Index of the sum in the run of slots.
    #[must_use]
    pub const fn sum_slot(self) -> u32 {
        self.buckets() + 1
    }

    /// The bucket of `value`: 0 to [`Scale::buckets`], the last one for larger values. A handful of instructions with
    /// one branch on data.
    #[must_use]
    #[inline]
    pub const fn bucket(self, value: u64) -> u32 {
        let linear = 1_u64 << self.sub_bits;
        if value < linear {
            return value as u32;
        }
        let exponent = value.ilog2();
        if exponent >= self.max_bits() {
            return self.buckets();
        }
        let shift = exponent - self.sub_bits();
        let sub = ((value >> shift) - linear) as u32;
        ((shift + 1) << self.sub_bits) + sub
    }

    /// The least value of `bucket`; 2^`max_bits` for the last one.
    #[must_use]
    pub const fn lower_bound(self, bucket: u32) -> u64 {
        let linear = 1_u64 << self.sub_bits;
        if bucket >= self.buckets() {
            return 1 << self.max_bits;
        }
        if (bucket as u64) < linear {
            return bucket as u64;
        }
        let shift = (bucket >> self.sub_bits) - 1;
        let sub = (bucket as u64) & (linear - 1);
        (linear + sub) << shift
    }

    /// The value below which the share `quantile` (0 to 1) of `counts` lies, or `None` if nothing was counted. `counts`
    /// holds the buckets and the one for larger values; missing ones count as empty. Linear within a bucket; the last
    /// bound for larger values.
    #[must_use]
    pub fn quantile(self, counts: &[u64], quantile: f64) -> Option<f64> {
        self.quantile_of((0_u32..).zip(counts.iter().copied()), quantile)
    }

    /// The same of `counted`, buckets in ascending order with their counts, empty ones among them or left out: nearly
    /// all buckets of an interval are empty.
    #[must_use]
    pub fn quantile_of(self, counted: impl Iterator<Item = (u32, u64)> + Clone, quantile: f64) -> Option<f64> {
        // An empty bucket takes a comparison, and no sum of floats.
        let counted = counted.filter(|(_, count)| *count > 0);
        let total: u64 = counted.clone().fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
        if total == 0 {
            return None;
        }
        let wanted = quantile.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        for (bucket, count) in counted {
            let count = count as f64;
            if below + count >= wanted {
                let low = self.lower_bound(bucket) as f64;
                let high = self.lower_bound(bucket + 1) as f64;
                return Some(low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        Some(self.lower_bound(self.buckets()) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_between_its_buckets_bounds() {
        for (sub_bits, max_bits) in [(0, 8), (2, 32), (5, 48)] {
            let scale = Scale::new(sub_bits, max_bits).unwrap();
            let values = (0..1000).chain((0..max_bits).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1]));

            for value in values.filter(|v| *v < 1 << max_bits) {
                let bucket = scale.bucket(value);

                assert!(scale.lower_bound(bucket) <= value, "{value} in {bucket} of {scale:?}");
                assert!(value < scale.lower_bound(bucket + 1), "{value} in {bucket} of {scale:?}");
            }
        }
    }

    #[test]
    fn buckets_are_numbered_without_a_gap() {
        let scale = Scale::DEFAULT;

        let bounds: Vec<_> = (0..=scale.buckets()).map(|bucket| scale.lower_bound(bucket)).collect();

        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(scale.buckets(), 124);
        assert_eq!(scale.slots(), 126);
        assert!((0..scale.buckets()).all(|bucket| scale.bucket(scale.lower_bound(bucket)) == bucket));
    }

    #[test]
    fn bounds_are_those_of_an_exponential_histogram_to_six_percent() {
        for scale in 0..=5 {
            let ours = Scale::exponential(scale).unwrap();
            let per_power = 1_u32 << scale;
            let index = |value: u32| ours.bucket(u64::from(value));

            for power in [8_u32, 20, 31] {
                for step in 0..per_power {
                    let theirs = (f64::from(power) + f64::from(step) / f64::from(per_power)).exp2();
                    let bound = ours.lower_bound(index(1 << power) + step) as f64;
                    assert!((1.0..1.062).contains(&(bound / theirs)), "{bound} {theirs}");
                    assert!(step > 0 || bound == theirs);
                }
            }
        }
        assert!(Scale::exponential(6).is_err());
    }

    #[test]
    fn what_lies_beyond_has_a_bucket_of_its_own() {
        let scale = Scale::DEFAULT;

        assert_eq!(scale.bucket((1 << 32) - 1), scale.buckets() - 1);
        assert_eq!(scale.bucket(1 << 32), scale.buckets());
        assert_eq!(scale.bucket(u64::MAX), scale.buckets());
        assert!(scale.bucket(u64::MAX) < scale.sum_slot());
    }

    #[test]
    fn a_quantile_is_within_its_buckets_width() {
        let scale = Scale::DEFAULT;
        let mut counts = vec![0; scale.buckets() as usize + 1];
        for value in 1..=10_000 {
            counts[scale.bucket(value) as usize] += 1;
        }

        for (quantile, truth) in [(0.5, 5_000.0), (0.99, 9_900.0)] {
            let estimate = scale.quantile(&counts, quantile).unwrap();
            assert!((estimate / truth - 1.0).abs() < 0.25, "{quantile}: {estimate}, {truth}");
        }
        assert_eq!(scale.quantile(&[0; 10], 0.5), None);
    }

    #[test]
    fn passing_over_empty_buckets_changes_no_bit_of_a_quantile() {
        let scale = Scale::DEFAULT;
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..1_000 {
            let mut counts = vec![0_u64; scale.buckets() as usize + 1];
            for _ in 0..=draw(20) {
                counts[draw(u64::from(scale.buckets()) + 1) as usize] += draw(1_000);
            }
            let total: u64 = counts.iter().sum();

            for quantile in [0.0, 0.5, 0.99, 1.0] {
                let (wanted, mut below, mut expected) = (quantile * total as f64, 0.0, None);
                for (bucket, &count) in (0_u32..).zip(&counts) {
                    let count = count as f64;
                    if expected.is_none() && count > 0.0 && below + count >= wanted {
                        let low = scale.lower_bound(bucket) as f64;
                        let high = scale.lower_bound(bucket + 1) as f64;
                        expected = Some(low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0));
                    }
                    below += count;
                }
                assert_eq!(
                    scale.quantile(&counts, quantile).map(f64::to_bits),
                    expected.map(f64::to_bits),
                    "{quantile} of {counts:?}"
                );
            }
        }
    }

    #[test]
    fn a_scale_that_does_not_fit_is_refused() {
        assert!(Scale::new(6, 32).is_err());
        assert!(Scale::new(2, 2).is_err());
        assert!(Scale::new(2, 49).is_err());
    }
}

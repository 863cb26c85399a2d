//! Statistics of histograms: the bucket counters of two fetches → count, mean and 99th percentile between them.

use core::num::NonZeroU64;

use wire::histogram::Scale;

/// The buckets and the sum at the last fetch.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    before: Box<[u64]>,
    known: bool,
}

impl Buckets {
    pub(crate) fn new(scale: Scale) -> Self {
        Self { before: vec![0; scale.slots() as usize].into(), known: false }
    }

    /// Writes the increase of each slot since the last call into `added` (as long as `slots`), and stores `slots`.
    /// Returns false if the increase is unknown: the first time, or if a bucket shrank. The sum, which is the last
    /// slot, may wrap around; a bucket never does.
    pub(crate) fn step(&mut self, slots: &[u64], added: &mut [u64]) -> bool {
        let buckets = slots.len().saturating_sub(1);
        let grew = self.before.iter().zip(slots).take(buckets).all(|(before, now)| now >= before);
        for ((added, before), &now) in added.iter_mut().zip(&mut *self.before).zip(slots) {
            *added = now.wrapping_sub(*before);
            *before = now;
        }
        core::mem::replace(&mut self.known, true) && grew
    }

    /// Memory of the stored slots, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&self.before[..])
    }

    /// Discards the stored slots: the next step returns false.
    pub(crate) fn forget(&mut self) {
        self.known = false;
    }
}

/// Count, mean and 99th percentile of an interval. The latter two are in the metric's unit, and NaN if the count is 0.
///
/// `added` has the buckets, the overflow bucket, and the sum. Buckets and sum are read one after the other while the
/// service writes, so the sum may include more or fewer values than the buckets. The mean is clamped to the bounds that
/// the buckets allow.
pub(crate) fn statistics(scale: Scale, parts_per_unit: NonZeroU64, added: &[u64]) -> [f64; 3] {
    let Some((&sum, buckets)) = added.split_last() else { return [f64::NAN; 3] };
    let (mut count, mut least, mut most) = (0_u64, 0.0, 0.0);
    for (bucket, &of_bucket) in (0_u32..).zip(buckets).filter(|(_, of_bucket)| **of_bucket > 0) {
        count = count.saturating_add(of_bucket);
        least += scale.lower_bound(bucket) as f64 * of_bucket as f64;
        let beyond = bucket >= scale.buckets();
        most += if beyond { f64::INFINITY } else { scale.lower_bound(bucket + 1) as f64 * of_bucket as f64 };
    }
    if count == 0 {
        return [0.0, f64::NAN, f64::NAN];
    }
    let parts = parts_per_unit.get() as f64;
    let mean = (sum as f64).clamp(least, most) / count as f64;
    let p99 = scale.quantile(buckets, 0.99).unwrap_or(f64::NAN);
    [count as f64, mean / parts, p99 / parts]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCALE: Scale = Scale::DEFAULT;
    const MILLIS: NonZeroU64 = NonZeroU64::new(1000).expect("1000 is not 0");

    fn observed(values: &[u64], sum_before: u64) -> Vec<u64> {
        let mut slots = vec![0; SCALE.slots() as usize];
        slots[SCALE.sum_slot() as usize] = sum_before;
        for &value in values {
            slots[SCALE.bucket(value) as usize] += 1;
            let sum = &mut slots[SCALE.sum_slot() as usize];
            *sum = sum.wrapping_add(value);
        }
        slots
    }

    fn added(before: &[u64], after: &[u64]) -> Option<Vec<u64>> {
        let (mut buckets, mut added) = (Buckets::new(SCALE), vec![0; before.len()]);
        assert!(!buckets.step(before, &mut added), "nothing is known the first time");
        buckets.step(after, &mut added).then_some(added)
    }

    #[test]
    fn an_interval_is_what_came_between_two_scrapes() {
        let before = observed(&[10_000; 5], 0);
        let after = observed(&[10_000, 10_000, 10_000, 10_000, 10_000, 2000, 4000, 6000], 0);

        let [count, mean, p99] = statistics(SCALE, MILLIS, &added(&before, &after).unwrap());

        assert_eq!(count, 3.0);
        assert_eq!(mean, 4.0);
        assert!((5.12..=7.2).contains(&p99), "p99 is {p99}, to 25 % of 6");
    }

    #[test]
    fn an_interval_in_which_nothing_came_has_a_count_and_no_mean() {
        let slots = observed(&[1, 2], 0);

        let [count, mean, p99] = statistics(SCALE, MILLIS, &added(&slots, &slots).unwrap());

        assert_eq!(count, 0.0);
        assert!(mean.is_nan() && p99.is_nan());
    }

    #[test]
    fn a_sum_that_wraps_around_is_no_reset_and_a_bucket_that_shrinks_is() {
        let before = observed(&[], u64::MAX - 1);
        let after = observed(&[8], u64::MAX - 1);

        let [count, mean, _] = statistics(SCALE, NonZeroU64::MIN, &added(&before, &after).unwrap());

        assert_eq!((count, mean), (1.0, 8.0));
        assert_eq!(added(&observed(&[1], 0), &observed(&[2], 0)), None);
    }

    #[test]
    fn a_sum_that_is_ahead_of_the_buckets_does_not_move_the_mean_out_of_them() {
        let mut added = observed(&[100], 0);
        added[SCALE.sum_slot() as usize] = 100_000;

        let [_, mean, _] = statistics(SCALE, NonZeroU64::MIN, &added);

        assert!((96.0..=112.0).contains(&mean), "the bucket of 100 ends at 112, the mean is {mean}");
    }

    proptest! {
        #[test]
        fn any_words_give_numbers_that_are_not_negative_or_missing(
            words in proptest::collection::vec(prop_oneof![any::<u64>(), 0..3_u64, Just(u64::MAX)], SCALE.slots() as usize)
        ) {
            for value in statistics(SCALE, MILLIS, &words) {
                prop_assert!(value.is_nan() || (value.is_finite() && value >= 0.0));
            }
        }
    }
}

//! Statistics of histograms: the bucket counters of two fetches → count, mean and 99th percentile between them.

use core::num::NonZeroU64;

use wire::histogram::Scale;

/// Buckets that are compared at once. Nearly all are as they were, in steps of this many.
const COMPARED: usize = 8;

/// The buckets and the sum at the last fetch.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    before: Box<[u64]>,
    known: bool,
}

/// What came into a histogram between two fetches: the buckets that have changed, in ascending order, and the sum.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    changed: Vec<(u32, u64)>,
    sum: u64,
}

impl Clone for Growth {
    /// Nothing yet, with room for as much, so that it does not allocate later.
    fn clone(&self) -> Self {
        Self { changed: Vec::with_capacity(self.changed.capacity()), sum: 0 }
    }
}

impl Growth {
    /// Makes room for a histogram of `scale`.
    pub(crate) fn reserve(&mut self, scale: Scale) {
        self.changed.clear();
        self.changed.reserve_exact(scale.slots() as usize);
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<(u32, u64)>() * self.changed.capacity()
    }

    /// Adds it to `merged`, all slots of a histogram.
    pub(crate) fn add_to(&self, merged: &mut [u64]) {
        let Some((sum, buckets)) = merged.split_last_mut() else { return };
        *sum = sum.wrapping_add(self.sum);
        for (bucket, added) in &self.changed {
            if let Some(bucket) = buckets.get_mut(*bucket as usize) {
                *bucket = bucket.wrapping_add(*added);
            }
        }
    }

    /// The same as [`statistics`] of all slots. O(buckets that have changed).
    pub(crate) fn statistics(&self, scale: Scale, parts_per_unit: NonZeroU64) -> [f64; 3] {
        statistics_of(scale, parts_per_unit, self.changed.iter().copied(), self.sum)
    }

    /// Takes some buckets from `first` on, and stores what they are `now`. Returns false if one of them shrank.
    fn add_block(&mut self, first: usize, before: &mut [u64], now: &[u64]) -> bool {
        let mut grew = true;
        for (bucket, (before, &now)) in (first as u32..).zip(before.iter_mut().zip(now)) {
            let was = core::mem::replace(before, now);
            if now != was {
                grew &= now > was;
                self.changed.push((bucket, now.wrapping_sub(was)));
            }
        }
        grew
    }
}

impl Buckets {
    pub(crate) fn new(scale: Scale) -> Self {
        Self { before: vec![0; scale.slots() as usize].into(), known: false }
    }

    /// Fills `growth` with the increase since the last call, and stores `slots`. Returns false if the increase is
    /// unknown: the first time, or if a bucket shrank. The sum, which is the last slot, may wrap around; a bucket never
    /// does. Reads each slot once, and writes those that have changed. Never allocates if there is room in `growth`.
    pub(crate) fn step(&mut self, slots: &[u64], growth: &mut Growth) -> bool {
        growth.changed.clear();
        let (Some((sum, buckets)), Some((sum_before, before))) = (slots.split_last(), self.before.split_last_mut())
        else {
            return false;
        };
        growth.sum = sum.wrapping_sub(core::mem::replace(sum_before, *sum));
        let mut grew = true;
        let (blocks, rest) = buckets.as_chunks::<COMPARED>();
        let (blocks_before, rest_before) = before.as_chunks_mut::<COMPARED>();
        for (at, (before, now)) in blocks_before.iter_mut().zip(blocks).enumerate() {
            let differs = before.iter().zip(now).fold(0, |bits, (before, now)| bits | (before ^ now));
            if differs != 0 {
                grew &= growth.add_block(COMPARED * at, before, now);
            }
        }
        grew &= growth.add_block(COMPARED * blocks.len(), rest_before, rest);
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
    let counted = (0_u32..).zip(buckets.iter().copied()).filter(|(_, of_bucket)| *of_bucket > 0);
    statistics_of(scale, parts_per_unit, counted, sum)
}

/// The same of `counted`, the buckets that are not empty, in ascending order.
fn statistics_of(
    scale: Scale,
    parts_per_unit: NonZeroU64,
    counted: impl Iterator<Item = (u32, u64)> + Clone,
    sum: u64,
) -> [f64; 3] {
    let (mut count, mut least, mut most) = (0_u64, 0.0, 0.0);
    for (bucket, of_bucket) in counted.clone() {
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
    let p99 = scale.quantile_of(counted, 0.99).unwrap_or(f64::NAN);
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

    fn room(scale: Scale) -> Growth {
        let mut growth = Growth::default();
        growth.reserve(scale);
        growth
    }

    fn added(before: &[u64], after: &[u64]) -> Option<Vec<u64>> {
        let (mut buckets, mut growth, mut added) = (Buckets::new(SCALE), room(SCALE), vec![0; before.len()]);
        assert!(!buckets.step(before, &mut growth), "nothing is known the first time");
        let grew = buckets.step(after, &mut growth);
        growth.add_to(&mut added);
        grew.then_some(added)
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
        fn what_changed_has_the_statistics_of_all_slots_to_the_bit(
            scale in (0..6_u32, 1..20_u32).prop_map(|(sub_bits, more)| Scale::new(sub_bits, sub_bits + more).unwrap()),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..1000_u64), 0..20),
            shrinks in any::<bool>(),
        ) {
            let slots = scale.slots() as usize;
            let (mut buckets, mut growth) = (Buckets::new(scale), room(scale));
            let mut now = vec![7; slots];
            buckets.step(&now, &mut growth);
            let before = now.clone();
            for (bucket, sum, by) in &changes {
                now[bucket.index(slots - 1)] += by;
                now[slots - 1] += sum.index(1 << 20) as u64;
            }
            if shrinks {
                now[slots / 2] = 6;
            }

            let grew = buckets.step(&now, &mut growth);

            prop_assert_eq!(grew, !shrinks);
            prop_assert_eq!(&buckets.before[..], &now[..]);
            if grew {
                let added: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
                let mut merged = vec![0; slots];
                growth.add_to(&mut merged);
                prop_assert_eq!(&merged, &added);
                let bits = |of: [f64; 3]| of.map(f64::to_bits);
                prop_assert_eq!(bits(growth.statistics(scale, MILLIS)), bits(statistics(scale, MILLIS, &added)));
            }
            prop_assert!(growth.changed.capacity() >= slots && growth.changed.len() <= slots);
        }

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

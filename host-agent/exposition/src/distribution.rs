//! Histograms of OTLP: what came into their buckets between two exports, whatever their temporality and bounds.
//!
//! # Guarantee
//!
//! Buckets of an exponential histogram are merged in pairs until they are no finer than those of a region (scale 2,
//! four per power of two), and no more than [`MAX_BUCKETS`]. Merging is exact: bucket i of scale s lies in bucket
//! ⌊i / 2⌋ of scale s − 1. So a quantile is known to the width of a bucket, also where an SDK lowers the scale between
//! two exports.

use crate::placement::{Increase, Shape};

/// Scale of an exponential histogram above which buckets are merged.
const FINEST: i32 = 2;
/// Scale below which one bucket holds all numbers.
const COARSEST: i32 = -11;
/// Non-empty buckets that are kept of an exponential histogram.
const MAX_BUCKETS: usize = 160;
/// Bytes of its line's number and of a pointer, in a table that is half full.
const PLACE: usize = 34;
/// Buckets of a point that are read, empty ones too.
pub const MAX_READ: usize = 2_048;
/// Exponents of 2 between which all finite numbers lie.
const LOWEST: f64 = -1_075.0;
const HIGHEST: f64 = 1_024.0;
/// Number of the bucket for 0.
const ZERO: i64 = i64::MIN;
/// Added to the number of a bucket that holds values below 0: far from all numbers of others, which fit into 32 bits.
const BELOW: i64 = -(1 << 40);

/// The buckets of one point.
#[derive(Clone, Copy, Debug)]
pub enum PointBuckets<'p> {
    /// A count for each of `bounds`, which rise, and one more; or none of both.
    Explicit {
        /// Upper bounds of the buckets.
        bounds: &'p [f64],
        /// Counts, the last one of what is above all bounds.
        counts: &'p [u64],
    },
    /// Counts of values at 0, and of buckets on both sides of it, of this `scale`.
    Exponential {
        /// The base is 2^(2^−scale).
        scale: i32,
        /// Values at 0.
        at_zero: u64,
        /// Number of the first bucket: number i is from base^i to base^(i+1).
        offset: i32,
        /// Counts of the buckets from there on.
        counts: &'p [u64],
        /// The same of values below 0, without their sign: number of the first bucket, and counts.
        below: (i32, &'p [u64]),
    },
}

/// One point of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct HistogramPoint<'p> {
    /// Values in all buckets.
    pub count: u64,
    /// Absent or NaN: not known.
    pub sum: Option<f64>,
    /// How many values are where.
    pub buckets: PointBuckets<'p>,
}

/// How a point relates to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It counts what came since then.
    Growth,
    /// It counts from the same start as the one before.
    Total,
    /// It counts from a new start: all of it came since then.
    Restart,
    /// What of it is new is not known.
    Baseline,
}

/// What bounds the buckets.
#[derive(Clone, Debug, PartialEq)]
enum Grid {
    Explicit(Vec<f64>),
    /// Of this scale.
    Exponential(i32),
}

/// What the numbers of a point's buckets mean.
enum Numbering<'p> {
    /// Places among these bounds.
    Bounds(&'p [f64]),
    /// Powers of the base of this scale, which is at most [`FINEST`].
    Scale(i32),
}

/// Buckets by number, rising, and their counts.
pub type Counts = Vec<(i64, u64)>;

/// A histogram: what it had counted at its last point, and what came in this export.
#[derive(Clone, Debug)]
pub struct Distribution {
    grid: Grid,
    /// Non-empty buckets by number, rising.
    before: Counts,
    grown: Counts,
    sum_before: Option<f64>,
    sum_grown: Option<f64>,
    count_grown: f64,
    /// Lowest and highest bucket ever seen on either side of 0, in powers of two.
    range: Option<(f64, f64)>,
    /// Whether there ever was a bucket of an exponential histogram below 0.
    has_below: bool,
}

/// What is added to the number of an exponential histogram's bucket, which is not [`ZERO`].
const fn side(number: i64) -> i64 {
    if number < BELOW / 2 { BELOW } else { 0 }
}

/// Halves the resolution of an exponential histogram `steps` times.
fn merged(counts: &mut Counts, steps: u32) {
    if steps == 0 {
        return;
    }
    for (number, _) in counts.iter_mut().filter(|(number, _)| *number != ZERO) {
        let side = side(*number);
        *number = side + ((*number - side) >> steps.min(63));
    }
    counts.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        is_same
    });
}

/// Adds `more` to bucket `number`.
fn add(counts: &mut Counts, number: i64, more: u64) {
    match counts.binary_search_by_key(&number, |(known, _)| *known) {
        Ok(at) => counts[at].1 = counts[at].1.saturating_add(more),
        Err(at) => counts.insert(at, (number, more)),
    }
}

/// Whether no bucket of `now` has less than it had `before`.
fn has_grown(now: &[(i64, u64)], before: &[(i64, u64)]) -> bool {
    before.iter().all(|&(number, count)| of(now, number) >= count)
}

/// The count of bucket `number`.
fn of(counts: &[(i64, u64)], number: i64) -> u64 {
    counts.binary_search_by_key(&number, |(known, _)| *known).map_or(0, |at| counts[at].1)
}

/// The lower bound of bucket `number` of `scale`, as a power of two.
fn exponent(number: i64, scale: i32) -> f64 {
    number as f64 * f64::from(-scale).exp2()
}

/// Whether bounds rise, and only the last one may be infinite.
fn are_bounds(bounds: &[f64]) -> bool {
    let last = bounds.len().saturating_sub(1);
    let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
    rise && bounds.iter().enumerate().all(|(at, bound)| bound.is_finite() || at == last && *bound == f64::INFINITY)
}

impl HistogramPoint<'_> {
    /// Writes its non-empty buckets to `held`, and returns what their numbers mean. `None` if counts and bounds do not
    /// match, bounds do not rise, or buckets lie beyond all finite numbers.
    fn read(&self, held: &mut Counts) -> Option<Numbering<'_>> {
        held.clear();
        match self.buckets {
            PointBuckets::Explicit { bounds, counts } => {
                let matches = counts.len() == bounds.len() + 1 || counts.is_empty() && bounds.is_empty();
                if !(matches && are_bounds(bounds)) {
                    return None;
                }
                held.extend((0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0));
                if counts.is_empty() && self.count > 0 {
                    held.push((0, self.count));
                }
                Some(Numbering::Bounds(bounds))
            }
            PointBuckets::Exponential { scale, at_zero, offset, counts, below } => {
                for (first, counts) in [(BELOW + i64::from(below.0), below.1), (i64::from(offset), counts)] {
                    held.extend((first..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0));
                }
                merged(held, scale.saturating_sub(FINEST).max(0).unsigned_abs());
                let scale = scale.min(FINEST);
                let is_number = |number: i64| exponent(number, scale) < HIGHEST && exponent(number + 1, scale) > LOWEST;
                if scale < COARSEST || !held.iter().all(|(number, _)| is_number(*number - side(*number))) {
                    return None;
                }
                if at_zero > 0 {
                    held.insert(0, (ZERO, at_zero));
                }
                Some(Numbering::Scale(scale))
            }
        }
    }
}

impl Distribution {
    /// A histogram of which no point was taken.
    pub fn new() -> Self {
        Self {
            grid: Grid::Explicit(Vec::new()),
            before: Counts::new(),
            grown: Counts::new(),
            sum_before: None,
            sum_grown: None,
            count_grown: 0.0,
            range: None,
            has_below: false,
        }
    }

    /// Begins an export.
    pub fn begin(&mut self) {
        self.grown.clear();
        (self.sum_grown, self.count_grown) = (None, 0.0);
    }

    /// Takes a point; false if it is malformed, and then nothing of it counts. `scratch` saves allocations.
    pub fn take(&mut self, point: &HistogramPoint<'_>, relation: Relation, scratch: &mut Counts) -> bool {
        let Some(numbering) = point.read(scratch) else { return false };
        let is_same = match numbering {
            Numbering::Scale(scale) => self.meet(scale, relation, scratch),
            Numbering::Bounds(bounds) => self.has_bounds(bounds),
        };
        // Other bounds: what was counted in the old ones is no part of these.
        let relation = if is_same || relation != Relation::Total { relation } else { Relation::Baseline };
        self.widen(scratch);
        self.count(point, scratch, relation);
        self.coarsen();
        true
    }

    /// Brings itself and `now` to one scale. False if it was no exponential histogram.
    fn meet(&mut self, scale: i32, relation: Relation, now: &mut Counts) -> bool {
        let Grid::Exponential(known) = &mut self.grid else {
            self.grid = Grid::Exponential(scale);
            self.before.clear();
            self.grown.clear();
            return false;
        };
        // The resolution may rise again where nothing is compared.
        let is_replaced = matches!(relation, Relation::Restart | Relation::Baseline) || self.before.is_empty();
        let common = if is_replaced && self.grown.is_empty() { scale } else { scale.min(*known) };
        merged(now, (scale - common).unsigned_abs());
        if common < *known {
            let steps = (*known - common).unsigned_abs();
            merged(&mut self.before, steps);
            merged(&mut self.grown, steps);
        }
        *known = common;
        true
    }

    /// Whether `bounds` are those of before; takes them if they are not.
    fn has_bounds(&mut self, bounds: &[f64]) -> bool {
        let is_same = matches!(&self.grid, Grid::Explicit(known) if known == bounds);
        if !is_same {
            self.grid = Grid::Explicit(bounds.to_vec());
            self.before.clear();
            self.grown.clear();
        }
        is_same
    }

    fn count(&mut self, point: &HistogramPoint<'_>, now: &Counts, relation: Relation) {
        let sum = point.sum.filter(|sum| sum.is_finite());
        // Less than before without a new start: it began anew all the same.
        let is_compared = relation == Relation::Total && has_grown(now, &self.before);
        if relation != Relation::Baseline {
            for &(number, count) in now {
                let more = count - if is_compared { of(&self.before, number) } else { 0 };
                if more > 0 {
                    add(&mut self.grown, number, more);
                    self.count_grown += more as f64;
                }
            }
            let before = if is_compared { self.sum_before.unwrap_or(f64::NAN) } else { 0.0 };
            if let Some(grown) = sum.map(|sum| sum - before).filter(|grown| grown.is_finite()) {
                self.sum_grown = Some(self.sum_grown.unwrap_or(0.0) + grown);
            }
        }
        if relation != Relation::Growth {
            self.before.clone_from(now);
            self.sum_before = sum;
        }
    }

    /// Notes how far buckets reach.
    fn widen(&mut self, now: &Counts) {
        let Grid::Exponential(scale) = self.grid else { return };
        for (number, _) in now.iter().filter(|(number, _)| *number != ZERO) {
            let side = side(*number);
            self.has_below |= side == BELOW;
            let (low, high) = (exponent(*number - side, scale), exponent(*number - side + 1, scale));
            let (least, most) = self.range.unwrap_or((low, high));
            self.range = Some((least.min(low), most.max(high)));
        }
    }

    /// Merges buckets while there are too many.
    fn coarsen(&mut self) {
        let Grid::Exponential(scale) = &mut self.grid else { return };
        while self.before.len().max(self.grown.len()) > MAX_BUCKETS && *scale > COARSEST {
            *scale -= 1;
            merged(&mut self.before, 1);
            merged(&mut self.grown, 1);
        }
    }

    /// What came in this export, and the sum of it if it is known.
    pub const fn growth(&self) -> (f64, Option<f64>) {
        (self.count_grown, self.sum_grown)
    }

    /// Bytes of it, of its buckets, and of its place among others.
    pub fn bytes(&self) -> usize {
        let bounds = if let Grid::Explicit(bounds) = &self.grid { bounds.capacity() } else { 0 };
        let counts = self.before.capacity() + self.grown.capacity();
        PLACE + size_of::<Self>() + bounds * size_of::<f64>() + counts * size_of::<(i64, u64)>()
    }

    /// Whether it has values below 0, as far as was seen.
    pub fn is_two_sided(&self) -> bool {
        match &self.grid {
            Grid::Explicit(bounds) => bounds.first().is_some_and(|bound| *bound < 0.0),
            Grid::Exponential(_) => self.has_below,
        }
    }

    /// The region's buckets for it.
    pub fn shape(&self) -> Shape {
        match &self.grid {
            Grid::Explicit(bounds) => Shape::of(bounds.iter().copied().filter(|bound| bound.is_finite())),
            Grid::Exponential(_) => {
                let (low, high) = self.range.unwrap_or((-10.0, 10.0));
                Shape::of([low.max(-60.0).exp2(), high.clamp(-59.0, 300.0).exp2()])
            }
        }
    }

    /// What came in this export, by bucket.
    pub fn increases(&self) -> impl Iterator<Item = Increase> + Clone + '_ {
        self.grown.iter().map(|&(number, count)| {
            let (low, high) = match &self.grid {
                Grid::Explicit(bounds) => {
                    let at = number as usize;
                    let least = if self.is_two_sided() { f64::NEG_INFINITY } else { 0.0 };
                    let low = at.checked_sub(1).and_then(|at| bounds.get(at)).copied().unwrap_or(least);
                    (low, bounds.get(at).copied().unwrap_or(f64::INFINITY))
                }
                Grid::Exponential(_) if number == ZERO => (0.0, 0.0),
                Grid::Exponential(scale) => {
                    let side = side(number);
                    let (near, far) = (number - side, number - side + 1);
                    let (near, far) = (exponent(near, *scale).exp2(), exponent(far, *scale).exp2());
                    if side == BELOW { (-far, -near) } else { (near, far) }
                }
            };
            Increase { low, high, count: count as f64 }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INFINITY: f64 = f64::INFINITY;

    fn explicit<'p>(bounds: &'p [f64], counts: &'p [u64], sum: f64) -> HistogramPoint<'p> {
        let buckets = PointBuckets::Explicit { bounds, counts };
        HistogramPoint { count: counts.iter().sum(), sum: Some(sum), buckets }
    }

    fn exponential(scale: i32, offset: i32, counts: &[u64]) -> HistogramPoint<'_> {
        let buckets = PointBuckets::Exponential { scale, at_zero: 0, offset, counts, below: (0, &[]) };
        HistogramPoint { count: counts.iter().sum(), sum: None, buckets }
    }

    fn first(point: &HistogramPoint<'_>) -> Option<Distribution> {
        let mut first = Distribution::new();
        first.take(point, Relation::Baseline, &mut Counts::new()).then_some(first)
    }

    /// Lower and upper bound of a bucket, and what came into it.
    type Bucket = (f64, f64, f64);

    /// Takes `point` as all of an export. Returns the buckets with what came, and the growth.
    fn next(
        known: &mut Distribution,
        point: &HistogramPoint<'_>,
        relation: Relation,
    ) -> (Vec<Bucket>, (f64, Option<f64>)) {
        known.begin();
        assert!(known.take(point, relation, &mut Counts::new()));
        (known.increases().map(|Increase { low, high, count }| (low, high, count)).collect(), known.growth())
    }

    #[test]
    fn cumulative_counts_grow_and_a_smaller_one_is_a_new_beginning() {
        let bounds = [1.0, 2.0];
        let mut known = first(&explicit(&bounds, &[5, 0, 1], 9.0)).unwrap();

        let (buckets, growth) = next(&mut known, &explicit(&bounds, &[7, 0, 4], 20.0), Relation::Total);
        assert_eq!((buckets, growth), (vec![(0.0, 1.0, 2.0), (2.0, INFINITY, 3.0)], (5.0, Some(11.0))));

        let smaller = explicit(&bounds, &[1, 1, 4], 7.0);
        assert_eq!(next(&mut known, &smaller, Relation::Total).1, (6.0, Some(7.0)));
        let restarted = explicit(&bounds, &[9, 9, 9], 50.0);
        assert_eq!(next(&mut known, &restarted, Relation::Restart).1, (27.0, Some(50.0)));
        assert_eq!(next(&mut known, &restarted, Relation::Total).1, (0.0, Some(0.0)));
    }

    #[test]
    fn counts_that_do_not_match_the_bounds_are_refused() {
        for (bounds, counts) in [
            (&[1.0, 2.0][..], &[1, 2][..]),
            (&[2.0, 1.0], &[1, 2, 3]),
            (&[1.0, f64::NAN], &[1, 2, 3]),
            (&[f64::NEG_INFINITY, 1.0], &[1, 2, 3]),
            (&[1.0], &[]),
            (&[], &[1, 2]),
        ] {
            assert!(first(&explicit(bounds, counts, 0.0)).is_none(), "{bounds:?} {counts:?}");
        }
        let none = explicit(&[], &[], 3.0);
        assert!(first(&HistogramPoint { count: 4, ..none }).is_some(), "a count and a sum are enough");
    }

    #[test]
    fn other_bounds_are_a_new_baseline() {
        let mut known = first(&explicit(&[1.0], &[5, 5], 10.0)).unwrap();

        assert_eq!(next(&mut known, &explicit(&[2.0], &[6, 6], 12.0), Relation::Total).1, (0.0, None));
        assert_eq!(next(&mut known, &explicit(&[2.0], &[6, 8], 16.0), Relation::Total).1, (2.0, Some(4.0)));
    }

    #[test]
    fn a_lower_scale_between_two_exports_loses_no_count() {
        // Scale 1: buckets are (1, √2], (√2, 2], (2, 2√2], (2√2, 4].
        let mut known = first(&exponential(1, 0, &[1, 2, 3, 4])).unwrap();

        let (buckets, _) = next(&mut known, &exponential(0, 0, &[5, 9, 1]), Relation::Total);

        assert_eq!(buckets, [(1.0, 2.0, 2.0), (2.0, 4.0, 2.0), (4.0, 8.0, 1.0)]);
    }

    #[test]
    fn scales_and_offsets_beyond_all_numbers_are_refused_or_merged() {
        for (scale, offset, is_read) in [
            (i32::MAX, 0, true),
            (i32::MAX, i32::MAX, true),
            (i32::MIN, 0, false),
            (0, i32::MAX, false),
            (0, i32::MIN, false),
            (-10, 0, true),
            (20, i32::MIN, false),
            (0, 1_023, true),
        ] {
            assert_eq!(first(&exponential(scale, offset, &[3])).is_some(), is_read, "{scale} {offset}");
        }
    }

    #[test]
    fn a_delta_after_a_coarse_one_is_fine_again() {
        let mut known = first(&exponential(-2, 0, &[])).unwrap();
        next(&mut known, &exponential(-2, 0, &[1]), Relation::Growth);

        let (buckets, _) = next(&mut known, &exponential(0, 3, &[1]), Relation::Growth);

        assert_eq!(buckets, [(8.0, 16.0, 1.0)]);
    }

    proptest! {
        #[test]
        fn any_points_give_buckets_with_as_many_values_as_they_count_and_no_more_than_are_kept(
            points in proptest::collection::vec(
                (-12_i32..25, -4_000_i32..4_000, proptest::collection::vec(0_u64..9, 0..300)), 1..6),
        ) {
            let (mut known, mut scratch) = (Distribution::new(), Counts::new());
            for (scale, offset, counts) in &points {
                let point = exponential(*scale, *offset, counts);
                known.begin();
                if known.take(&point, Relation::Growth, &mut scratch) {
                    let sum: f64 = known.increases().map(|increase| increase.count).sum();
                    prop_assert_eq!(sum, counts.iter().sum::<u64>() as f64);
                    prop_assert!(known.increases().all(|increase| increase.low <= increase.high));
                    prop_assert!(known.before.len() + known.grown.len() <= 2 * MAX_BUCKETS);
                    prop_assert!(known.shape().scale.slots() < 400);
                }
            }
        }
    }
}

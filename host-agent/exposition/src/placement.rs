//! Counts of a histogram with any bounds, placed in the buckets of a region.
//!
//! What came into one bucket since the last scrape is placed at one point of it. The share of the bucket's width at
//! which it lies is the same for all buckets, and such that the sum is that of the target. So count and mean are exact,
//! and a change within a bucket is seen. Buckets of a region hold values from 0 on: those below 0 have buckets of their
//! own, in which they are positive.

use core::num::NonZeroU64;

use wire::histogram::Scale;

/// Buckets per power of two: a value is known to 25 %, as in the client's histograms.
const SUB_BITS: u32 = 2;
/// Parts of the unit at the lowest bound, so that buckets below it are told apart.
const LOWEST: f64 = 16.0;
/// The most parts of a unit.
const MAX_PARTS: u64 = 1_000_000_000;

/// The region's buckets for a histogram, and parts of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub scale: Scale,
    pub parts: NonZeroU64,
}

impl Shape {
    /// Buckets for a histogram with these finite bounds, and for the same below 0: how far they are from 0 counts.
    pub fn of(bounds: impl IntoIterator<Item = f64>) -> Self {
        let reaches = bounds.into_iter().map(f64::abs).filter(|bound| *bound > 0.0);
        let range = reaches.fold(None, |range: Option<(f64, f64)>, bound| {
            Some(range.map_or((bound, bound), |(lowest, highest)| (lowest.min(bound), highest.max(bound))))
        });
        let (lowest, highest) = range.unwrap_or((0.001, 1_000.0));
        let mut parts = 1_u64;
        while (parts as f64) * lowest < LOWEST && parts < MAX_PARTS && highest * (parts as f64) < 2_f64.powi(40) {
            parts *= 10;
        }
        // Room for values of eight times the last bound.
        let bits = (highest * parts as f64).max(1.0).log2().ceil() as u32 + 3;
        let scale = Scale::new(SUB_BITS, bits.clamp(SUB_BITS + 1, 48)).unwrap_or(Scale::DEFAULT);
        Self { scale, parts: NonZeroU64::new(parts).unwrap_or(NonZeroU64::MIN) }
    }

    /// The slot for `value`, in the histogram's unit.
    pub fn bucket(self, value: f64) -> usize {
        let parts = (value * self.parts.get() as f64).max(0.0);
        self.scale.bucket(parts as u64) as usize
    }
}

/// One bucket and what came into it: its bounds, the lower one infinite if it holds all that is below the upper one,
/// the upper one infinite for the last; and a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Increase {
    pub low: f64,
    pub high: f64,
    pub count: f64,
}

/// The sum of values from 0 on, and of those below 0 without their sign.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub above: f64,
    pub below: f64,
}

impl Sums {
    /// These, for values that have the sum `sum`, which their places meet unless no values in these buckets do.
    fn corrected(self, sum: f64, has_above: bool, has_below: bool) -> Self {
        let above = sum + self.below;
        match (has_above, has_below) {
            (_, false) => Self { above: sum.max(0.0), below: 0.0 },
            (false, true) => Self { above: 0.0, below: (-sum).max(0.0) },
            (true, true) if above >= 0.0 => Self { above, below: self.below },
            (true, true) => Self { above: 0.0, below: -sum },
        }
    }
}

/// What is in the buckets that have an end on only one side, and that end.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    count: f64,
    end: f64,
}

/// A bucket with 0 inside as one below and one above, with as much of the count as they have of the width: where within
/// it the others lie says nothing about how many of its values are negative.
fn split_at_zero(bucket: Increase) -> [Increase; 2] {
    let Increase { low, high, count } = bucket;
    if !(low.is_finite() && low < 0.0 && high > 0.0 && high.is_finite()) {
        return [bucket, Increase { count: 0.0, ..bucket }];
    }
    let below = (count * -low / (high - low)).round();
    [Increase { low, high: 0.0, count: below }, Increase { low: 0.0, high, count: count - below }]
}

/// Where `increases` lie, of which the values have the sum `sum`; `None` if it is not known. Calls `place` with a
/// value, and how many there are of it. Returns the sums of what was placed.
pub fn place(
    increases: impl Iterator<Item = Increase> + Clone,
    sum: Option<f64>,
    mut place: impl FnMut(f64, u64),
) -> Sums {
    let (mut least, mut width) = (0.0, 0.0);
    let (mut beneath, mut beyond) = (Tail::default(), Tail::default());
    let increases = increases.flat_map(split_at_zero);
    for Increase { low, high, count } in increases.clone() {
        if high == f64::INFINITY {
            beyond = Tail { count: beyond.count + count, end: low };
        } else if low == f64::NEG_INFINITY {
            beneath = Tail { count: beneath.count + count, end: if high.is_finite() { high } else { 0.0 } };
        } else {
            least += low * count;
            width += (high - low) * count;
        }
    }
    // What has one end only takes what the others leave, taken in their middle: what is above it if it is more than all
    // ends make, else what is below.
    let sum = sum.filter(|sum| sum.is_finite());
    let ends = least + beneath.end * beneath.count + beyond.end * beyond.count;
    let left = sum.map_or(0.0, |sum| sum - ends - width / 2.0);
    let far = if left > 0.0 && beyond.count > 0.0 { beyond.end + left / beyond.count } else { beyond.end };
    let deep = if left < 0.0 && beneath.count > 0.0 { beneath.end + left / beneath.count } else { beneath.end };
    let share = match sum {
        Some(sum) if width > 0.0 => ((sum - far * beyond.count - deep * beneath.count - least) / width).clamp(0.0, 1.0),
        _ => 0.5,
    };
    let (mut sums, mut has_above, mut has_below) = (Sums::default(), false, false);
    for Increase { low, high, count } in increases {
        if count >= 1.0 {
            let value = if high == f64::INFINITY {
                far
            } else if low == f64::NEG_INFINITY {
                deep
            } else {
                low + (high - low) * share
            };
            place(value, count as u64);
            if value < 0.0 {
                (sums.below, has_below) = (sums.below - value * count, true);
            } else {
                (sums.above, has_above) = (sums.above + value * count, true);
            }
        }
    }
    sum.map_or(sums, |sum| sums.corrected(sum, has_above, has_below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: [f64; 5] = [0.005, 0.05, 0.1, 0.5, 1.0];

    /// Count, sum and 99th percentile of what is placed.
    fn placed(counts: [f64; 6], sum: Option<f64>) -> (u64, f64, f64) {
        let shape = Shape::of(SECONDS);
        let lows = [0.0, 0.005, 0.05, 0.1, 0.5, 1.0];
        let highs = [0.005, 0.05, 0.1, 0.5, 1.0, f64::INFINITY];
        let increases = (0..6).map(|at| Increase { low: lows[at], high: highs[at], count: counts[at] });
        let mut slots = vec![0; shape.scale.slots() as usize];
        let sums = place(increases, sum, |value, count| slots[shape.bucket(value)] += count);
        slots.truncate(shape.scale.buckets() as usize + 1);
        let p99 = shape.scale.quantile(&slots, 0.99).unwrap() / shape.parts.get() as f64;
        (slots.iter().sum(), sums.above, p99)
    }

    #[test]
    fn buckets_hold_the_lowest_bound_and_eight_times_the_highest() {
        for bounds in [&SECONDS[..], &[1e-6, 1e-3], &[100.0, 1e9], &[1.0], &[]] {
            let shape = Shape::of(bounds.iter().copied());
            let inside = |value: f64| shape.bucket(value) < shape.scale.buckets() as usize;

            assert!(bounds.iter().all(|bound| shape.bucket(*bound) > 4 && inside(bound * 7.9)), "{bounds:?} {shape:?}");
        }
        assert_eq!(Shape::of(SECONDS).parts.get(), 10_000);
    }

    #[test]
    fn a_change_within_a_bucket_moves_the_tail() {
        let (count, sum, low) = placed([0.0, 0.0, 0.0, 100.0, 0.0, 0.0], Some(12.0));
        let (_, _, high) = placed([0.0, 0.0, 0.0, 100.0, 0.0, 0.0], Some(40.0));

        assert_eq!((count, sum), (100, 12.0));
        assert!((0.1..0.15).contains(&low) && (0.35..0.5).contains(&high), "{low} {high}");
    }

    #[test]
    fn what_lies_beyond_the_last_bound_is_placed_by_the_sum() {
        let (count, _, p99) = placed([90.0, 0.0, 0.0, 0.0, 0.0, 10.0], Some(40.0));
        assert_eq!(count, 100);
        assert!((3.5..5.2).contains(&p99), "ten of four seconds each: {p99}");

        let (_, sum, p99) = placed([90.0, 0.0, 0.0, 0.0, 0.0, 10.0], None);
        assert!((1.0..1.4).contains(&p99), "without a sum, the last bound: {p99}");
        assert!((10.2..10.3).contains(&sum), "{sum}");
    }

    #[test]
    fn a_sum_that_no_value_explains_stays_in_the_buckets() {
        for sum in [-5.0, 0.0, 1e12, f64::NAN, f64::INFINITY] {
            let (count, _, p99) = placed([0.0, 3.0, 0.0, 0.0, 0.0, 0.0], Some(sum));
            assert_eq!(count, 3);
            assert!((0.004..=0.0625).contains(&p99), "{sum}: {p99}");
        }
    }
}

//! Counts of a histogram with any bounds, placed in the buckets of a region.
//!
//! What came into one bucket since the last scrape is placed at one point of it. The share of the bucket's width at
//! which it lies is the same for all buckets, and such that the sum is that of the target. So count and mean are exact,
//! and a change within a bucket is seen.

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
    /// Buckets for a histogram with the finite `bounds`, which rise.
    pub fn of(bounds: &[f64]) -> Self {
        let lowest = bounds.iter().copied().find(|bound| *bound > 0.0).unwrap_or(0.001);
        let highest = bounds.last().copied().filter(|bound| *bound > 0.0).unwrap_or(1_000.0);
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
    fn bucket(self, value: f64) -> usize {
        let parts = (value * self.parts.get() as f64).max(0.0);
        self.scale.bucket(parts as u64) as usize
    }
}

/// One bucket and what came into it: its bounds, the upper one infinite for the last, and a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Increase {
    pub low: f64,
    pub high: f64,
    pub count: f64,
}

/// Where `increases` lie, of which the values have the sum `sum`; `None` if it is not known. Calls `place` with the
/// region's bucket and the count. Returns the sum of what was placed.
pub fn place(
    shape: Shape,
    increases: impl Iterator<Item = Increase> + Clone,
    sum: Option<f64>,
    mut place: impl FnMut(usize, u64),
) -> f64 {
    let (mut least, mut width, mut beyond) = (0.0, 0.0, 0.0);
    for Increase { low, high, count } in increases.clone() {
        if high.is_finite() {
            least += low * count;
            width += (high - low) * count;
        } else {
            beyond += count;
        }
    }
    let last = increases.clone().last().map_or(0.0, |last| last.low);
    // What lies beyond the last bound takes what the others leave, taken in their middle.
    let sum = sum.filter(|sum| sum.is_finite());
    let middle = least + width / 2.0;
    let far = sum.filter(|_| beyond > 0.0).map_or(last, |sum| ((sum - middle) / beyond).max(last));
    let share = match sum {
        Some(sum) if width > 0.0 => ((sum - far * beyond - least) / width).clamp(0.0, 1.0),
        _ => 0.5,
    };
    let mut placed = 0.0;
    for Increase { low, high, count } in increases {
        if count >= 1.0 {
            let value = if high.is_finite() { low + (high - low) * share } else { far };
            place(shape.bucket(value), count as u64);
            placed += value * count;
        }
    }
    sum.unwrap_or(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: [f64; 5] = [0.005, 0.05, 0.1, 0.5, 1.0];

    /// Count, sum and 99th percentile of what is placed.
    fn placed(counts: [f64; 6], sum: Option<f64>) -> (u64, f64, f64) {
        let shape = Shape::of(&SECONDS);
        let lows = [0.0, 0.005, 0.05, 0.1, 0.5, 1.0];
        let highs = [0.005, 0.05, 0.1, 0.5, 1.0, f64::INFINITY];
        let increases = (0..6).map(|at| Increase { low: lows[at], high: highs[at], count: counts[at] });
        let mut slots = vec![0; shape.scale.slots() as usize];
        let sum = place(shape, increases, sum, |bucket, count| slots[bucket] += count);
        slots.truncate(shape.scale.buckets() as usize + 1);
        let p99 = shape.scale.quantile(&slots, 0.99).unwrap() / shape.parts.get() as f64;
        (slots.iter().sum(), sum, p99)
    }

    #[test]
    fn buckets_hold_the_lowest_bound_and_eight_times_the_highest() {
        for bounds in [&SECONDS[..], &[1e-6, 1e-3], &[100.0, 1e9], &[1.0], &[]] {
            let shape = Shape::of(bounds);
            let inside = |value: f64| shape.bucket(value) < shape.scale.buckets() as usize;

            assert!(bounds.iter().all(|bound| shape.bucket(*bound) > 4 && inside(bound * 7.9)), "{bounds:?} {shape:?}");
        }
        assert_eq!(Shape::of(&SECONDS).parts.get(), 10_000);
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

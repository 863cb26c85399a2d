//! Replaces rows by linear combinations of them, in place.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers in step, by one index")]
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::vectors_mut;
use pulp::{Simd, WithSimd};

/// Vectors of a row that are rebuilt at a time.
const COLUMNS: usize = 3;

/// Row i becomes Σ over all n rows of mix(r, i) · row r, for the first `count` rows. O(n · count · m).
///
/// A few columns at a time are copied away, so that the new rows can take the place of the old.
pub(crate) struct Rebuild<'a> {
    /// n rows of `width` values.
    pub(crate) rows: &'a mut [f64],
    pub(crate) width: usize,
    /// n rows of `stride` values, a multiple of eight that is at least `count`.
    pub(crate) mix: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) count: usize,
    /// Room for [`scratch`](Self::scratch) values.
    pub(crate) scratch: &'a mut [f64],
}

impl Rebuild<'_> {
    /// Values of scratch room that `rows` rows need, for any width of vectors.
    pub(crate) fn scratch(rows: usize) -> usize {
        8 * COLUMNS * rows
    }
}

impl WithSimd for Rebuild<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.width / S::F64_LANES;
        let mut work = Work::<S> {
            rows: vectors_mut::<S>(self.rows),
            width,
            mix: self.mix,
            stride: self.stride,
            count: self.count,
            old: vectors_mut::<S>(self.scratch),
        };
        let mut at = 0;
        while at + COLUMNS <= width {
            work.columns::<COLUMNS>(simd, at);
            at += COLUMNS;
        }
        while at < width {
            work.columns::<1>(simd, at);
            at += 1;
        }
    }
}

struct Work<'a, S: Simd> {
    rows: &'a mut [S::f64s],
    /// Vectors in a row.
    width: usize,
    mix: &'a [f64],
    stride: usize,
    count: usize,
    /// A copy of the columns before the change.
    old: &'a mut [S::f64s],
}

impl<S: Simd> Work<'_, S> {
    #[inline(always)]
    fn columns<const C: usize>(&mut self, simd: S, at: usize) {
        for (row, old) in self.rows.chunks_exact(self.width).zip(self.old.chunks_exact_mut(C)) {
            old.copy_from_slice(&row[at..at + C]);
        }
        let mut row = 0;
        while row < self.count {
            // As many sums as there are registers for.
            if const { S::REGISTER_COUNT >= 32 } {
                self.block::<8, C>(simd, row, at);
                row += 8;
            } else {
                self.block::<4, C>(simd, row, at);
                row += 4;
            }
        }
    }

    /// C vectors of R new rows.
    #[inline(always)]
    fn block<const R: usize, const C: usize>(&mut self, simd: S, first: usize, at: usize) {
        let mut sums = [[simd.splat_f64s(0.0); C]; R];
        for (old, mix) in self.old.chunks_exact(C).zip(self.mix.chunks_exact(self.stride)) {
            let mix = &mix[first..first + R];
            for r in 0..R {
                let factor = simd.splat_f64s(mix[r]);
                for c in 0..C {
                    sums[r][c] = simd.mul_add_e_f64s(factor, old[c], sums[r][c]);
                }
            }
        }
        for r in 0..R.min(self.count - first) {
            let start = (first + r) * self.width + at;
            self.rows[start..start + C].copy_from_slice(&sums[r]);
        }
    }
}

/// Multiplies values by a factor.
pub(crate) struct Scale<'a> {
    pub(crate) values: &'a mut [f64],
    pub(crate) factor: f64,
}

impl WithSimd for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let factor = simd.splat_f64s(self.factor);
        for value in vectors_mut::<S>(self.values) {
            *value = simd.mul_f64s(*value, factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::kernels::every_width;
    use crate::lanes::padded;
    use crate::random::Random;

    /// Every width of vectors against the definition. Tolerance: a sum of n products of numbers below 1, in another
    /// order.
    #[test]
    fn every_width_of_vectors_mixes_rows_as_the_definition_does() {
        for (n, columns, count) in [(1, 1, 1), (5, 9, 3), (50, 141, 24), (20, 30, 9), (12, 40, 12)] {
            let (width, stride) = (padded(columns), padded(count));
            let mut random = Random::new(n as u64);
            let (mut rows, mut mix) = (Aligned::zeros(n * width), Aligned::zeros(n * stride));
            for row in rows.chunks_exact_mut(width) {
                row[..columns].iter_mut().for_each(|value| *value = random.unit() - 0.5);
            }
            for row in mix.chunks_exact_mut(stride) {
                row[..count].iter_mut().for_each(|value| *value = random.unit() - 0.5);
            }
            for arch in every_width() {
                let (mut out, mut scratch) = (rows.clone(), Aligned::zeros(Rebuild::scratch(n)));

                arch.dispatch(Rebuild { rows: &mut out, width, mix: &mix, stride, count, scratch: &mut scratch });

                for (i, j) in (0..n).flat_map(|i| (0..width).map(move |j| (i, j))) {
                    let sum = (0..n).map(|r| mix[r * stride + i.min(count - 1)] * rows[r * width + j]).sum::<f64>();
                    let expected = if i < count { sum } else { rows[i * width + j] };
                    let found = out[i * width + j];
                    assert!((found - expected).abs() < 1e-15 * n as f64, "{arch:?} {i} {j}: {found} {expected}");
                }
            }
        }
    }
}

//! The Gram matrix: products of rows with each other.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers in step, by one index")]
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::vectors;
use pulp::{Simd, WithSimd};

/// B Bᵀ of n rows, of which the first `known` are orthogonal to each other: their products are left as they are. O(n²
/// m).
pub(crate) struct Gram<'a> {
    /// n rows of `width` values.
    pub(crate) rows: &'a [f64],
    pub(crate) width: usize,
    pub(crate) known: usize,
    /// n rows of `stride` values.
    pub(crate) out: &'a mut [f64],
    pub(crate) stride: usize,
}

impl WithSimd for Gram<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut tiles = Tiles {
            width: self.width / S::F64_LANES,
            rows: vectors::<S>(self.rows),
            count: self.rows.len() / self.width,
            out: self.out,
            stride: self.stride,
        };
        for row in 0..self.known.min(tiles.count) {
            tiles.tile::<1, 1>(simd, row, row);
        }
        // As many sums as there are registers for.
        if const { S::REGISTER_COUNT >= 32 } {
            tiles.sweep::<4, 4>(simd, self.known);
        } else {
            tiles.sweep::<4, 2>(simd, self.known);
        }
    }
}

struct Tiles<'a, S: Simd> {
    rows: &'a [S::f64s],
    /// Vectors in a row.
    width: usize,
    count: usize,
    out: &'a mut [f64],
    stride: usize,
}

impl<'a, S: Simd> Tiles<'a, S> {
    /// All products of which one row is not known. The new rows are the inner loop, because they fit the fastest cache.
    #[inline(always)]
    fn sweep<const R: usize, const C: usize>(&mut self, simd: S, known: usize) {
        for right in (0..self.count).step_by(C) {
            for left in (known.max(right)..self.count).step_by(R) {
                self.tile::<R, C>(simd, left, right);
            }
        }
    }

    /// The products of R rows from `left` on with C rows from `right` on. Beyond the last row, the last one is taken
    /// again.
    #[inline(always)]
    fn tile<const R: usize, const C: usize>(&mut self, simd: S, left: usize, right: usize) {
        let last = self.count - 1;
        let mut lefts = [self.row(last); R];
        for (r, row) in lefts.iter_mut().enumerate() {
            *row = self.row((left + r).min(last));
        }
        let mut rights = [self.row(last); C];
        for (c, row) in rights.iter_mut().enumerate() {
            *row = self.row((right + c).min(last));
        }
        let mut sums = [[simd.splat_f64s(0.0); C]; R];
        for at in 0..self.width {
            let mut column = [sums[0][0]; C];
            for c in 0..C {
                column[c] = rights[c][at];
            }
            for r in 0..R {
                let value = lefts[r][at];
                for c in 0..C {
                    sums[r][c] = simd.mul_add_e_f64s(value, column[c], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                let (i, j) = ((left + r).min(last), (right + c).min(last));
                let product = simd.reduce_sum_f64s(sums[r][c]);
                self.out[i * self.stride + j] = product;
                self.out[j * self.stride + i] = product;
            }
        }
    }

    #[inline(always)]
    fn row(&self, index: usize) -> &'a [S::f64s] {
        &self.rows[index * self.width..(index + 1) * self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::kernels::every_width;
    use crate::lanes::padded;
    use crate::random::Random;

    /// Every width of vectors against the definition. Tolerance: a sum of m products of numbers below 1, in another
    /// order.
    #[test]
    fn every_width_of_vectors_finds_the_products_of_all_rows() {
        for (count, columns, known) in [(1, 1, 0), (3, 5, 1), (8, 16, 4), (50, 141, 24), (25, 30, 24), (13, 9, 13)] {
            let (width, stride) = (padded(columns), padded(count));
            let mut random = Random::new(count as u64);
            let mut rows = Aligned::zeros(count * width);
            for row in rows.chunks_exact_mut(width) {
                row[..columns].iter_mut().for_each(|value| *value = random.unit() - 0.5);
            }
            for arch in every_width() {
                let mut out = vec![7.0; count * stride];

                arch.dispatch(Gram { rows: &rows, width, known, out: &mut out, stride });

                for (i, j) in (0..count).flat_map(|i| (0..count).map(move |j| (i, j))) {
                    let row = |index: usize| &rows[index * width..(index + 1) * width];
                    let product: f64 = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
                    let expected = if i != j && i.max(j) < known { 7.0 } else { product };
                    let found = out[i * stride + j];
                    assert!((found - expected).abs() < 1e-15 * columns as f64, "{arch:?} {i} {j}: {found} {expected}");
                }
            }
        }
    }
}

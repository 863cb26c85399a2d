//! The Gram matrix of columns: their products with each other.
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// Columns whose products with some vectors of columns are added up side by side.
const TOGETHER: usize = 4;

/// Bᵀ B. Each product is added up in the order of the rows, and rounded twice for each of them: the same to the bit
/// with vectors of every width. O(n m²).
///
/// Sums stay in registers over all rows. If they were added to the matrix row after row, each row would read and write
/// all of it, which from some 80 columns on is larger than a first cache of 48 kB.
pub(crate) struct ColumnGram<'a> {
    /// n rows of `width` values, a multiple of eight, padded with zeros.
    pub(crate) rows: &'a [f64],
    pub(crate) width: usize,
    /// m rows of `width` values, at least 1 and at most `width` of them.
    pub(crate) out: &'a mut [f64],
}

impl WithSimd for ColumnGram<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, width, out } = self;
        let mut work = Work { rows, width, out };
        let wide = width / S::F64_LANES;
        let mut at = 0;
        while at < wide {
            // As many sums as there are registers for.
            at += match (wide - at).min(if const { S::REGISTER_COUNT >= 32 } { 4 } else { 2 }) {
                1 => work.block::<S, 1>(simd, at),
                2 => work.block::<S, 2>(simd, at),
                3 => work.block::<S, 3>(simd, at),
                _ => work.block::<S, 4>(simd, at),
            };
        }
        work.mirror();
    }
}

struct Work<'a> {
    rows: &'a [f64],
    width: usize,
    out: &'a mut [f64],
}

impl Work<'_> {
    /// The products of C vectors of columns from `at` on with each column up to the last of these. Returns C.
    #[inline(always)]
    fn block<S: Simd, const C: usize>(&mut self, simd: S, at: usize) -> usize {
        let zero = simd.splat_f64s(0.0);
        let columns = self.out.len() / self.width;
        let end = ((at + C) * S::F64_LANES).min(columns);
        for first in (0..end).step_by(TOGETHER) {
            let (mut values, mut sums) = ([zero; C], [[zero; C]; TOGETHER]);
            for row in self.rows.chunks_exact(self.width) {
                values.copy_from_slice(&vectors::<S>(row)[at..at + C]);
                // Beyond the last column there is padding up to a multiple of eight.
                let factors = &row[first..first + TOGETHER];
                for r in 0..TOGETHER {
                    let factor = simd.splat_f64s(factors[r]);
                    for c in 0..C {
                        sums[r][c] = simd.add_f64s(sums[r][c], simd.mul_f64s(factor, values[c]));
                    }
                }
            }
            let out = vectors_mut::<S>(&mut self.out[first * self.width..]);
            let wide = self.width / S::F64_LANES;
            for (row, sums) in out.chunks_exact_mut(wide).zip(&sums) {
                row[at..at + C].copy_from_slice(sums);
            }
        }
        C
    }

    /// What is below the diagonal is what is above it.
    #[inline(always)]
    fn mirror(&mut self) {
        for column in 1..self.out.len() / self.width {
            let (above, row) = self.out.split_at_mut(column * self.width);
            for (value, other) in row.iter_mut().zip(above.chunks_exact(self.width)) {
                *value = other[column];
            }
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

    #[test]
    fn every_width_of_vectors_adds_up_the_rows_one_after_the_other() {
        for (count, columns) in [(1, 1), (3, 5), (13, 9), (7, 33), (50, 40), (120, 108)] {
            let width = padded(columns);
            let mut random = Random::new(columns as u64);
            let mut rows = Aligned::zeros(count * width);
            for row in rows.chunks_exact_mut(width) {
                row[..columns].iter_mut().for_each(|value| *value = random.unit() - 0.5);
            }
            for arch in every_width() {
                let mut out = vec![7.0; columns * width];

                arch.dispatch(ColumnGram { rows: &rows, width, out: &mut out });

                for (i, j) in (0..columns).flat_map(|i| (0..width).map(move |j| (i, j))) {
                    let expected = rows.chunks_exact(width).fold(0.0_f64, |sum, row| sum + row[i] * row[j]);
                    let found = out[i * width + j];
                    assert_eq!(found.to_bits(), expected.to_bits(), "{arch:?} {count} {columns} {i} {j}");
                }
            }
        }
    }
}

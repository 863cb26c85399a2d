//! Sums of squares per column, for the variances after a decomposition.
#![expect(clippy::inline_always, reason = "inlined into the function that has the machine's features")]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// Adds the square of each value of `row` to its column's sum, as far as both go. O(m).
pub(crate) struct AddSquares<'a, T> {
    pub(crate) row: &'a [T],
    pub(crate) sums: &'a mut [f64],
}

impl<T: Copy + Into<f64>> WithSimd for AddSquares<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (sum, value) in self.sums.iter_mut().zip(self.row) {
            let value: f64 = (*value).into();
            *sum += value * value;
        }
    }
}

/// Subtracts the part along one direction u from every column: uⱼ² · `along` from `residual`, and uⱼ² from `outside`.
/// Returns Σⱼ uⱼ² `forgotten`ⱼ. All are padded. O(m).
pub(crate) struct SubtractDirection<'a> {
    pub(crate) direction: &'a [f64],
    pub(crate) along: f64,
    pub(crate) forgotten: &'a [f64],
    pub(crate) residual: &'a mut [f64],
    pub(crate) outside: &'a mut [f64],
}

impl WithSimd for SubtractDirection<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let along = simd.splat_f64s(self.along);
        let mut sum = simd.splat_f64s(0.0);
        let taken = vectors_mut::<S>(self.residual).iter_mut().zip(vectors_mut::<S>(self.outside));
        let given = vectors::<S>(self.direction).iter().zip(vectors::<S>(self.forgotten));
        for ((residual, outside), (u, forgotten)) in taken.zip(given) {
            let square = simd.mul_f64s(*u, *u);
            *residual = simd.sub_f64s(*residual, simd.mul_f64s(square, along));
            *outside = simd.sub_f64s(*outside, square);
            sum = simd.mul_add_e_f64s(square, *forgotten, sum);
        }
        simd.reduce_sum_f64s(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::kernels::every_width;
    use crate::lanes::padded;

    #[test]
    fn every_width_of_vectors_adds_and_takes_off_as_the_definitions_do() {
        for columns in [1, 7, 8, 33] {
            let mut row = vec![0.0; padded(columns)];
            row[..columns].iter_mut().zip(0..).for_each(|(value, column)| *value = f64::from(column) / 4.0 - 3.0);
            let narrow: Vec<f32> = row.iter().map(|value| *value as f32).collect();
            let (aligned, mut forgotten) = (Aligned::from(row.as_slice()), Aligned::zeros(row.len()));
            forgotten[..columns].fill(2.0);
            for arch in every_width() {
                let mut sums = vec![1.0; row.len()];
                arch.dispatch(AddSquares { row: &row, sums: &mut sums });
                arch.dispatch(AddSquares { row: &narrow, sums: &mut sums });
                let (mut residual, mut outside) = (Aligned::zeros(row.len()), Aligned::zeros(row.len()));
                let found = arch.dispatch(SubtractDirection {
                    direction: &aligned,
                    along: 3.0,
                    forgotten: &forgotten,
                    residual: &mut residual,
                    outside: &mut outside,
                });

                // Quarters: exact in both precisions.
                assert_eq!(found, 2.0 * row.iter().map(|value| value * value).sum::<f64>());
                for (column, square) in row.iter().map(|value| value * value).enumerate() {
                    assert_eq!(sums[column], 1.0 + 2.0 * square, "{arch:?} {columns} {column}");
                    assert_eq!((residual[column], outside[column]), (-3.0 * square, -square));
                }
            }
        }
    }
}

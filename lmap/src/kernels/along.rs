//! What all directions together add to each column, for explanations.
#![expect(clippy::inline_always, reason = "inlined into the function that has the machine's features")]

use pulp::{Simd, WithSimd};

/// Columns that are summed up side by side, in registers: a whole group of what scores read.
const TOGETHER: usize = 16;

/// Fills `out` with Σᵢ Uⱼᵢ fᵢ, a value for each column j, in the order of the directions i: the same to the bit with
/// vectors of every width, since nothing is added across columns. O(m k).
pub(crate) struct AlongDirections<'a> {
    /// Rows of U, as many as there are factors.
    pub(crate) directions: &'a [f32],
    /// Values of a row, in whole groups of sixteen.
    pub(crate) width: usize,
    /// f, k values.
    pub(crate) factors: &'a [f64],
    /// At most as long as a row.
    pub(crate) out: &'a mut [f64],
}

impl WithSimd for AlongDirections<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { directions, width, factors, out } = self;
        debug_assert!(width.is_multiple_of(TOGETHER) && out.len() <= width);
        for (block, out) in out.chunks_mut(TOGETHER).enumerate() {
            let mut sums = [0.0; TOGETHER];
            for (row, factor) in directions.chunks_exact(width).zip(factors) {
                let Some(values) = row.as_chunks::<TOGETHER>().0.get(block) else { break };
                for (sum, u) in sums.iter_mut().zip(values) {
                    *sum += f64::from(*u) * factor;
                }
            }
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::every_width;
    use crate::lanes::padded_narrow;
    use crate::random::Random;

    #[test]
    fn every_width_of_vectors_adds_up_the_directions_one_after_the_other() {
        for (columns, rank) in [(1, 1), (7, 3), (16, 4), (33, 5), (141, 12)] {
            let (mut random, width) = (Random::new(columns as u64), padded_narrow(columns));
            let directions: Vec<f32> = (0..rank * width).map(|_| (random.unit() - 0.5) as f32).collect();
            let factors: Vec<f64> = (0..rank).map(|_| random.unit() - 0.5).collect();
            let sum = |column: usize| {
                let each = factors.iter().enumerate();
                each.fold(0.0, |sum, (i, factor)| sum + f64::from(directions[i * width + column]) * factor)
            };
            let expected: Vec<u64> = (0..columns).map(|column| sum(column).to_bits()).collect();

            for arch in every_width() {
                let mut out = vec![f64::NAN; columns];
                arch.dispatch(AlongDirections { directions: &directions, width, factors: &factors, out: &mut out });

                let found: Vec<u64> = out.iter().map(|sum| sum.to_bits()).collect();
                assert_eq!(found, expected, "{arch:?} {columns} {rank}");
            }
        }
    }
}

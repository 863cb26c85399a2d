//! A row's coordinates, residual, and weighted square of the residual, in two passes over the directions.
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// Splits z into p = U z and r = z − Uᵀ p, for directions stored as the rows of U; returns Σ rⱼ² wⱼ. O(m k).
///
/// Subtracts instead of taking ‖z‖² − ‖p‖²: that is cheaper, but cancels when z is near the basis.
pub(crate) struct Score<'a> {
    /// k rows of the width of `z`.
    pub(crate) directions: &'a [f64],
    pub(crate) z: &'a [f64],
    pub(crate) weight: &'a [f64],
    /// p, k values.
    pub(crate) coordinates: &'a mut [f64],
    /// r.
    pub(crate) residual: &'a mut [f64],
}

impl WithSimd for Score<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { directions, z, weight, coordinates, residual } = self;
        let (directions, z) = (vectors::<S>(directions), vectors::<S>(z));
        project(simd, directions, z, coordinates);
        let out =
            Rest { directions, coordinates, z, weight: vectors::<S>(weight), residual: vectors_mut::<S>(residual) };
        out.run(simd)
    }
}

/// p = U z.
#[inline(always)]
fn project<S: Simd>(simd: S, directions: &[S::f64s], z: &[S::f64s], coordinates: &mut [f64]) {
    let (sixes, rest) = coordinates.as_chunks_mut::<6>();
    let (by_six, others) = directions.split_at(sixes.len() * 6 * z.len());
    for (out, rows) in sixes.iter_mut().zip(by_six.chunks_exact(6 * z.len())) {
        *out = dots(simd, rows, z);
    }
    let (twos, rest) = rest.as_chunks_mut::<2>();
    let (by_two, others) = others.split_at(twos.len() * 2 * z.len());
    for (out, rows) in twos.iter_mut().zip(by_two.chunks_exact(2 * z.len())) {
        *out = dots(simd, rows, z);
    }
    if let [out] = rest {
        [*out] = dots(simd, others, z);
    }
}

/// The products of R rows, one after the other, with z. Two sums per row, as one is a chain that waits for itself.
#[inline(always)]
fn dots<S: Simd, const R: usize>(simd: S, rows: &[S::f64s], z: &[S::f64s]) -> [f64; R] {
    let mut sums = [[simd.splat_f64s(0.0); 2]; R];
    let mut row = [z; R];
    for (row, of_rows) in row.iter_mut().zip(rows.chunks_exact(z.len())) {
        *row = of_rows;
    }
    let pairs = z.len() / 2;
    for pair in 0..pairs {
        for r in 0..R {
            for half in 0..2 {
                sums[r][half] = simd.mul_add_e_f64s(row[r][2 * pair + half], z[2 * pair + half], sums[r][half]);
            }
        }
    }
    if z.len() % 2 == 1 {
        for r in 0..R {
            sums[r][0] = simd.mul_add_e_f64s(row[r][2 * pairs], z[2 * pairs], sums[r][0]);
        }
    }
    let mut out = [0.0; R];
    for (out, [even, odd]) in out.iter_mut().zip(sums) {
        *out = simd.reduce_sum_f64s(simd.add_f64s(even, odd));
    }
    out
}

/// The second pass.
struct Rest<'a, S: Simd> {
    directions: &'a [S::f64s],
    coordinates: &'a [f64],
    z: &'a [S::f64s],
    weight: &'a [S::f64s],
    residual: &'a mut [S::f64s],
}

impl<S: Simd> Rest<'_, S> {
    #[inline(always)]
    fn run(mut self, simd: S) -> f64 {
        let width = self.z.len();
        let mut sum = simd.splat_f64s(0.0);
        let mut at = 0;
        while at + 8 <= width {
            sum = self.block::<8>(simd, at, sum);
            at += 8;
        }
        if at + 4 <= width {
            sum = self.block::<4>(simd, at, sum);
            at += 4;
        }
        while at < width {
            sum = self.block::<1>(simd, at, sum);
            at += 1;
        }
        simd.reduce_sum_f64s(sum)
    }

    /// C vectors of the residual from `at` on, and what they add to the weighted square.
    #[inline(always)]
    fn block<const C: usize>(&mut self, simd: S, at: usize, sum: S::f64s) -> S::f64s {
        let mut rest = [sum; C];
        rest.copy_from_slice(&self.z[at..at + C]);
        for (row, p) in self.directions.chunks_exact(self.z.len()).zip(self.coordinates) {
            let (minus, row) = (simd.splat_f64s(-p), &row[at..at + C]);
            for c in 0..C {
                rest[c] = simd.mul_add_e_f64s(minus, row[c], rest[c]);
            }
        }
        let (weight, out) = (&self.weight[at..at + C], &mut self.residual[at..at + C]);
        let mut sum = sum;
        for c in 0..C {
            out[c] = rest[c];
            sum = simd.mul_add_e_f64s(simd.mul_f64s(rest[c], rest[c]), weight[c], sum);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::kernels::every_width;
    use crate::lanes::padded;
    use crate::random::Random;

    /// Every width of vectors against the definition. Tolerance: a sum of m products of numbers below 1, in another order.
    #[test]
    fn every_width_of_vectors_splits_a_row_as_the_definition_does() {
        for (columns, rank) in [(1, 1), (7, 1), (8, 3), (33, 4), (141, 12), (200, 7)] {
            let width = padded(columns);
            let mut random = Random::new(columns as u64);
            let mut row = || {
                let mut row = Aligned::zeros(width);
                row[..columns].iter_mut().for_each(|value| *value = random.unit() - 0.5);
                row
            };
            let (z, weight) = (row(), row());
            let rows: Vec<Aligned> = (0..rank).map(|_| row()).collect();
            let directions = Aligned::from(rows.iter().flat_map(|row| row.to_vec()).collect::<Vec<_>>().as_slice());
            let p: Vec<f64> = rows.iter().map(|row| row.iter().zip(z.iter()).map(|(u, z)| u * z).sum()).collect();
            let r: Vec<f64> =
                (0..width).map(|j| z[j] - rows.iter().zip(&p).map(|(row, p)| row[j] * p).sum::<f64>()).collect();
            let square: f64 = r.iter().zip(weight.iter()).map(|(r, w)| r * r * w).sum();

            for arch in every_width() {
                let (mut coordinates, mut residual) = (vec![0.0; rank], Aligned::zeros(width));
                let found = arch.dispatch(Score {
                    directions: &directions,
                    z: &z,
                    weight: &weight,
                    coordinates: &mut coordinates,
                    residual: &mut residual,
                });

                let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-13 * columns as f64);
                assert!(close(&coordinates, &p), "{arch:?} {columns} {rank}");
                assert!(close(&residual, &r), "{arch:?} {columns} {rank}");
                assert!(close(&[found], &[square]), "{arch:?} {columns} {rank}: {found} {square}");
            }
        }
    }
}

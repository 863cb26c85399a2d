//! The score kernel: coordinates, residual and weighted square of the residual, in two passes over the directions.
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use pulp::{Simd, WithSimd};

/// Splits z into p = U z and r = z − Uᵀ p, for directions stored as the rows of U; returns Σ rⱼ² wⱼ. O(m k).
///
/// In single precision: twice as many numbers in a vector, and half as many bytes to read of U, which is what a node of
/// many LMAPs waits for. Subtracts instead of taking ‖z‖² − ‖p‖²: that is cheaper, but cancels when z is near the
/// basis.
pub(crate) struct Score<'a> {
    /// k rows of the width of `residual`.
    pub(crate) directions: &'a [f32],
    /// Padded or not.
    pub(crate) z: &'a [f64],
    /// As wide as `residual`.
    pub(crate) weight: &'a [f32],
    /// p, k values.
    pub(crate) coordinates: &'a mut [f32],
    /// r, in whole groups of sixteen.
    pub(crate) residual: &'a mut [f32],
}

impl WithSimd for Score<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { directions, z, weight, coordinates, residual } = self;
        debug_assert!(residual.len().is_multiple_of(16) && z.len() <= residual.len());
        for (out, z) in residual.iter_mut().zip(z) {
            *out = *z as f32;
        }
        if let Some(padding) = residual.get_mut(z.len()..) {
            padding.fill(0.0);
        }
        let (directions, weight) = (S::as_simd_f32s(directions).0, S::as_simd_f32s(weight).0);
        let residual = S::as_mut_simd_f32s(residual).0;
        project(simd, directions, residual, coordinates);
        f64::from(ResidualPass { directions, coordinates, weight, residual }.run(simd))
    }
}

/// p = U z.
#[inline(always)]
fn project<S: Simd>(simd: S, directions: &[S::f32s], z: &[S::f32s], coordinates: &mut [f32]) {
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
fn dots<S: Simd, const R: usize>(simd: S, rows: &[S::f32s], z: &[S::f32s]) -> [f32; R] {
    let mut sums = [[simd.splat_f32s(0.0); 2]; R];
    let mut row = [z; R];
    for (row, of_rows) in row.iter_mut().zip(rows.chunks_exact(z.len())) {
        *row = of_rows;
    }
    let pairs = z.len() / 2;
    for pair in 0..pairs {
        for r in 0..R {
            for half in 0..2 {
                sums[r][half] = simd.mul_add_e_f32s(row[r][2 * pair + half], z[2 * pair + half], sums[r][half]);
            }
        }
    }
    if z.len() % 2 == 1 {
        for r in 0..R {
            sums[r][0] = simd.mul_add_e_f32s(row[r][2 * pairs], z[2 * pairs], sums[r][0]);
        }
    }
    let mut out = [0.0; R];
    for (out, [even, odd]) in out.iter_mut().zip(sums) {
        *out = simd.reduce_sum_f32s(simd.add_f32s(even, odd));
    }
    out
}

/// The second pass, over a residual that is z so far.
struct ResidualPass<'a, S: Simd> {
    directions: &'a [S::f32s],
    coordinates: &'a [f32],
    weight: &'a [S::f32s],
    residual: &'a mut [S::f32s],
}

impl<S: Simd> ResidualPass<'_, S> {
    #[inline(always)]
    fn run(mut self, simd: S) -> f32 {
        let width = self.residual.len();
        let mut sum = simd.splat_f32s(0.0);
        let mut at = 0;
        while at + 8 <= width {
            sum = self.block::<8>(simd, at, sum);
            at += 8;
        }
        // What is left side by side: a vector alone waits for each of its products.
        sum = match width - at {
            0 => sum,
            1 => self.block::<1>(simd, at, sum),
            2 => self.block::<2>(simd, at, sum),
            3 => self.block::<3>(simd, at, sum),
            4 => self.block::<4>(simd, at, sum),
            5 => self.block::<5>(simd, at, sum),
            6 => self.block::<6>(simd, at, sum),
            _ => self.block::<7>(simd, at, sum),
        };
        simd.reduce_sum_f32s(sum)
    }

    /// C vectors of the residual from `at` on, and what they add to the weighted square.
    #[inline(always)]
    fn block<const C: usize>(&mut self, simd: S, at: usize, sum: S::f32s) -> S::f32s {
        let width = self.residual.len();
        let mut rest = [sum; C];
        rest.copy_from_slice(&self.residual[at..at + C]);
        for (row, p) in self.directions.chunks_exact(width).zip(self.coordinates) {
            let (minus, row) = (simd.splat_f32s(-p), &row[at..at + C]);
            for c in 0..C {
                rest[c] = simd.mul_add_e_f32s(minus, row[c], rest[c]);
            }
        }
        let (weight, out) = (&self.weight[at..at + C], &mut self.residual[at..at + C]);
        let mut sum = sum;
        for c in 0..C {
            out[c] = rest[c];
            sum = simd.mul_add_e_f32s(simd.mul_f32s(rest[c], rest[c]), weight[c], sum);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Narrow;
    use crate::kernels::every_width;
    use crate::lanes::padded_narrow;
    use crate::random::Random;

    /// Every width of vectors against the definition in double precision. Tolerance: sums of m products of numbers
    /// below 1, each rounded to one part in 10⁷.
    #[test]
    fn every_width_of_vectors_splits_a_row_as_the_definition_does() {
        // With vectors of sixteen, these rows have one to nine of them, and thirteen.
        let shapes = [(1, 1), (7, 1), (8, 3), (32, 5), (33, 4), (64, 6), (65, 9), (90, 7), (108, 5), (128, 2)];
        for (columns, rank) in shapes.into_iter().chain([(141, 12), (200, 7)]) {
            let width = padded_narrow(columns);
            let mut random = Random::new(columns as u64);
            let mut row = || {
                let mut row = Narrow::zeros(width);
                row[..columns].iter_mut().for_each(|value| *value = (random.unit() - 0.5) as f32);
                row
            };
            let wide = |row: &[f32]| row.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
            let (z, weight) = (wide(&row()), row());
            let rows: Vec<Narrow> = (0..rank).map(|_| row()).collect();
            let mut directions = Narrow::zeros(rank * width);
            directions.chunks_exact_mut(width).zip(&rows).for_each(|(out, row)| out.copy_from_slice(row));
            let rows: Vec<Vec<f64>> = rows.iter().map(|row| wide(row)).collect();
            let p: Vec<f64> = rows.iter().map(|row| row.iter().zip(&z).map(|(u, z)| u * z).sum()).collect();
            let r: Vec<f64> =
                (0..width).map(|j| z[j] - rows.iter().zip(&p).map(|(row, p)| row[j] * p).sum::<f64>()).collect();
            let square: f64 = r.iter().zip(wide(&weight)).map(|(r, w)| r * r * w).sum();

            for arch in every_width() {
                // What was there before is of no matter.
                let (mut coordinates, mut residual) = (vec![9.0; rank], Narrow::zeros(width));
                residual.fill(9.0);
                let found = arch.dispatch(Score {
                    directions: &directions,
                    z: &z[..columns],
                    weight: &weight,
                    coordinates: &mut coordinates,
                    residual: &mut residual,
                });

                let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-7 * columns as f64);
                assert!(close(&wide(&coordinates), &p), "{arch:?} {columns} {rank}");
                assert!(close(&wide(&residual), &r), "{arch:?} {columns} {rank}");
                assert!(close(&[found], &[square]), "{arch:?} {columns} {rank}: {found} {square}");
            }
        }
    }
}

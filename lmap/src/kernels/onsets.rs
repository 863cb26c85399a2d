//! Marks the row at which a column first stood out.
#![expect(clippy::inline_always, reason = "inlined into the function that has the machine's features")]

use pulp::{Simd, WithSimd};

/// Where `first`, which is as long as z or longer, is 0 and |z| ≥ `out`, or r² w ≥ `out_square`, `first` becomes `row`.
/// All are padded, and padding of z and r is 0. O(m).
pub(crate) struct MarkOnsets<'a> {
    pub(crate) z: &'a [f64],
    pub(crate) residual: &'a [f32],
    pub(crate) weight: &'a [f32],
    /// Both above 0, or the padding stands out.
    pub(crate) out: f64,
    pub(crate) out_square: f64,
    pub(crate) row: f32,
    pub(crate) first: &'a mut [f32],
}

impl WithSimd for MarkOnsets<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Numbers of two widths: the compiler, which has the machine's features here, knows how to put them beside each
        // other.
        let residuals = self.residual.iter().zip(self.weight);
        for (first, (z, (r, weight))) in self.first.iter_mut().zip(self.z.iter().zip(residuals)) {
            let stands_out = (z.abs() >= self.out) | (f64::from(r * r * weight) >= self.out_square);
            *first = if (*first == 0.0) & stands_out { self.row } else { *first };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::{Aligned, Narrow};
    use crate::kernels::every_width;
    use crate::lanes::{padded, padded_narrow};
    use crate::random::Random;

    #[test]
    fn every_width_of_vectors_notes_what_stands_out_and_did_not_before() {
        for columns in [1, 7, 8, 33, 141] {
            let mut random = Random::new(columns as u64);
            let mut row = |size: f64| {
                let mut row = Aligned::zeros(padded(columns));
                row[..columns].iter_mut().for_each(|value| *value = (random.unit() - 0.5) * size);
                row
            };
            let z = row(8.0);
            let mut narrow = |size| row(size).iter().map(|value| *value as f32).collect::<Vec<_>>();
            let residual = narrow(4.0);
            let weight: Vec<f32> = narrow(8.0).into_iter().map(f32::abs).collect();
            let mut before = Narrow::zeros(padded_narrow(columns));
            before[..columns].iter_mut().step_by(4).for_each(|first| *first = 4.0);
            for arch in every_width() {
                let mut first = before.clone();

                arch.dispatch(MarkOnsets {
                    z: &z,
                    residual: &residual,
                    weight: &weight,
                    out: 3.0,
                    out_square: 9.0,
                    row: 7.0,
                    first: &mut first,
                });

                for column in 0..padded(columns) {
                    let stands_out =
                        z[column].abs() >= 3.0 || residual[column] * residual[column] * weight[column] >= 9.0;
                    let expected = if before[column] == 0.0 && stands_out { 7.0 } else { before[column] };
                    assert_eq!(first[column], expected, "{arch:?} {columns} {column}");
                }
            }
        }
    }
}

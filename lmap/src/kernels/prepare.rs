//! Prepares a row for scoring: checks that all values are finite, and standardises.
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// Whether every value is a number of at most `limit` in size. They need not be padded.
pub(crate) struct AreBounded<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) limit: f64,
}

impl WithSimd for AreBounded<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let (whole, tail) = S::as_simd_f64s(self.values);
        let limit = simd.splat_f64s(self.limit);
        let mut inside = simd.less_than_or_equal_f64s(limit, limit);
        for value in whole {
            inside = simd.and_m64s(inside, simd.less_than_or_equal_f64s(simd.abs_f64s(*value), limit));
        }
        let mut tail_inside = true;
        for value in tail {
            tail_inside &= value.abs() <= self.limit;
        }
        tail_inside && simd.first_true_m64s(simd.not_m64s(inside)) == S::F64_LANES
    }
}

/// z = (value − mean) · inverse; returns whether every |z| is at most `clip`. `values` need not be padded, the others
/// are; the padding of z stays as it is.
pub(crate) struct Standardise<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) mean: &'a [f64],
    pub(crate) inverse: &'a [f64],
    pub(crate) z: &'a mut [f64],
    pub(crate) clip: f64,
}

impl WithSimd for Standardise<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { values, mean, inverse, z, clip } = self;
        let (whole, tail) = S::as_simd_f64s(values);
        let limit = simd.splat_f64s(clip);
        let mut inside = simd.less_than_or_equal_f64s(limit, limit);
        let statistics = vectors::<S>(mean).iter().zip(vectors::<S>(inverse));
        for ((out, value), (mean, inverse)) in vectors_mut::<S>(z).iter_mut().zip(whole).zip(statistics) {
            *out = simd.mul_f64s(simd.sub_f64s(*value, *mean), *inverse);
            inside = simd.and_m64s(inside, simd.less_than_or_equal_f64s(simd.abs_f64s(*out), limit));
        }
        let mut tail_inside = true;
        for column in values.len() - tail.len()..values.len() {
            z[column] = (values[column] - mean[column]) * inverse[column];
            tail_inside &= z[column].abs() <= clip;
        }
        tail_inside && simd.first_true_m64s(simd.not_m64s(inside)) == S::F64_LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::kernels::every_width;
    use crate::lanes::padded;

    #[test]
    fn one_bad_value_anywhere_is_seen() {
        for columns in [1, 7, 8, 9, 24, 141] {
            for arch in every_width() {
                let mut values = vec![-3.0; columns];
                assert!(arch.dispatch(AreBounded { values: &values, limit: 3.0 }));
                for column in 0..columns {
                    for bad in [f64::NAN, f64::INFINITY, -3.1] {
                        values[column] = bad;
                        let inside = arch.dispatch(AreBounded { values: &values, limit: 3.0 });
                        assert!(!inside, "{arch:?} {columns} {column} {bad}");
                        values[column] = -3.0;
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_standardised_and_what_needs_clipping_is_seen() {
        for columns in [1, 7, 8, 9, 24, 141] {
            let width = padded(columns);
            let (mut mean, mut inverse) = (Aligned::zeros(width), Aligned::zeros(width));
            mean.iter_mut().zip(0..).for_each(|(mean, column)| *mean = f64::from(column));
            inverse.iter_mut().zip(0..).for_each(|(inverse, column)| *inverse = f64::from(column % 3));
            for arch in every_width() {
                for (step, clipped) in [(2.0, false), (-2.5, true), (f64::NAN, true)] {
                    let mut values: Vec<f64> = mean[..columns].to_vec();
                    values[columns - 1] += step;
                    let mut z = Aligned::zeros(width);

                    let inside = arch.dispatch(Standardise {
                        values: &values,
                        mean: &mean,
                        inverse: &inverse,
                        z: &mut z,
                        clip: 4.0,
                    });

                    let last = step * inverse[columns - 1];
                    assert_eq!(inside, !clipped || last.abs() <= 4.0, "{arch:?} {columns} {step}");
                    assert!(z[columns - 1] == last || last.is_nan());
                    assert!(z.iter().enumerate().all(|(column, z)| column == columns - 1 || *z == 0.0));
                }
            }
        }
    }
}

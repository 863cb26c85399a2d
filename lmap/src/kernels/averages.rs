//! Averages that go on with a row: means, variances, and the weights that follow from them.
//!
//! Nothing is added across columns, so that every width of vectors finds the same to the bit. Divisions are what these
//! cost: eight side by side take little longer than two.
#![expect(clippy::inline_always, reason = "inlined into the function that has the machine's features")]

use pulp::{Simd, WithSimd};

/// Moves each mean by `share` of what the row deviates: mean + share · z · length / inverse. A column whose inverse is
/// 0 keeps its mean. O(m).
pub(crate) struct MoveMeans<'a> {
    pub(crate) mean: &'a mut [f64],
    /// 1 / the deviation.
    pub(crate) inverse: &'a [f64],
    pub(crate) z: &'a [f64],
    /// What z was divided by.
    pub(crate) length: f64,
    pub(crate) share: f64,
}

impl WithSimd for MoveMeans<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { mean, inverse, z, length, share } = self;
        for ((mean, inverse), z) in mean.iter_mut().zip(inverse).zip(z) {
            let moved = *mean + share * z * length / inverse;
            *mean = if *inverse > 0.0 { moved } else { *mean };
        }
    }
}

/// Moves each variance by `share` towards the square of a value, as far as both go. O(m).
pub(crate) struct MoveVariances<'a> {
    pub(crate) variance: &'a mut [f64],
    pub(crate) values: &'a [f32],
    pub(crate) share: f64,
}

impl WithSimd for MoveVariances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { variance, values, share } = self;
        for (variance, value) in variance.iter_mut().zip(values) {
            let value = f64::from(*value);
            *variance = (1.0 - share) * *variance + share * (value * value);
        }
    }
}

/// weight = 1 / max(variance, floor), as far as both go. O(m).
pub(crate) struct Weigh<'a> {
    pub(crate) variance: &'a [f64],
    pub(crate) floor: f64,
    pub(crate) weight: &'a mut [f32],
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { variance, floor, weight } = self;
        for (weight, variance) in weight.iter_mut().zip(variance) {
            *weight = (1.0 / variance.max(floor)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::every_width;
    use crate::random::Random;

    fn bits(of: &[f64]) -> Vec<u64> {
        of.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn every_width_of_vectors_moves_averages_column_by_column() {
        for columns in [1, 7, 8, 30, 112, 141] {
            let mut random = Random::new(columns as u64);
            let mut row = |least: f64| (0..columns).map(|_| random.unit() + least).collect::<Vec<f64>>();
            let (mean, z, variance) = (row(3.0), row(-0.5), row(0.0));
            let inverse: Vec<f64> =
                row(0.5).iter().enumerate().map(|(at, of)| if at % 3 == 1 { 0.0 } else { *of }).collect();
            let values: Vec<f32> = z.iter().map(|z| *z as f32).collect();
            let moved =
                |at: usize| if inverse[at] > 0.0 { mean[at] + 0.01 * z[at] * 1.5 / inverse[at] } else { mean[at] };
            let means: Vec<f64> = (0..columns).map(moved).collect();
            let nearer = |at: usize| (1.0 - 0.01) * variance[at] + 0.01 * f64::from(values[at]).powi(2);
            let variances: Vec<f64> = (0..columns).map(nearer).collect();
            let weights: Vec<u32> = variance.iter().map(|of| ((1.0 / of.max(0.4)) as f32).to_bits()).collect();

            for arch in every_width() {
                let (mut found, mut nearer, mut weight) = (mean.clone(), variance.clone(), vec![0.0; columns]);
                let (inverse, z) = (&inverse, &z);
                arch.dispatch(MoveMeans { mean: &mut found, inverse, z, length: 1.5, share: 0.01 });
                arch.dispatch(MoveVariances { variance: &mut nearer, values: &values, share: 0.01 });
                arch.dispatch(Weigh { variance: &variance, floor: 0.4, weight: &mut weight });

                assert_eq!(bits(&found), bits(&means), "{arch:?} {columns}");
                assert_eq!(bits(&nearer), bits(&variances), "{arch:?} {columns}");
                assert_eq!(weight.iter().map(|of| of.to_bits()).collect::<Vec<_>>(), weights, "{arch:?} {columns}");
            }
        }
    }
}

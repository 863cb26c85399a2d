//! Reduces a symmetric matrix to tridiagonal form, and transforms eigenvectors back.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers in step, by one index")]
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// What is left of a row of a matrix of size 1 is nothing if its square is less than this: far below rounding, and
/// factors stay in range.
const NOTHING: f64 = 1e-48;

/// Householder's reduction A = Q T Qᵀ from the last row up, so that what is left begins where rows begin. O(n³).
///
/// The update by one reflection and the product that the next one needs go over the matrix together: it is read and
/// written once per step.
pub(crate) struct Tridiagonalise<'a> {
    /// A: n rows of `stride` values, of size up to about 1. Row i becomes the i values of reflection i, then zeros.
    pub(crate) matrix: &'a mut [f64],
    /// A multiple of eight.
    pub(crate) stride: usize,
    /// The diagonal of the result: n values.
    pub(crate) diagonal: &'a mut [f64],
    /// Value i stands between rows i − 1 and i.
    pub(crate) beside: &'a mut [f64],
    /// 2 / ‖v‖² of each reflection, 0 where there is none.
    pub(crate) factors: &'a mut [f64],
    /// 3 · `stride` zeros.
    pub(crate) scratch: &'a mut [f64],
}

impl WithSimd for Tridiagonalise<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, stride, diagonal, beside, factors, scratch } = self;
        let (nothing, scratch) = scratch.split_at_mut(stride);
        let (before_w, product) = scratch.split_at_mut(stride);
        for i in (1..diagonal.len()).rev() {
            let (above, below) = matrix.split_at_mut(i * stride);
            let (row, below) = below.split_at_mut(stride);
            let before_v = below.get(..stride).unwrap_or(nothing);
            update_row(simd, row, i, before_v, before_w);
            diagonal[i] = row[i];
            (beside[i], factors[i]) = reflection(simd, row, i);
            let step = Step { stride: stride / S::F64_LANES, rows: i, before_v, before_w, v: row };
            step.run(simd, above, product);
            product[i..].fill(0.0);
            next_w(simd, row, product, factors[i], before_w);
        }
        diagonal[0] = matrix[0];
    }
}

/// row −= vᵢ w + wᵢ v of the reflection before.
#[inline(always)]
fn update_row<S: Simd>(simd: S, row: &mut [f64], i: usize, v: &[f64], w: &[f64]) {
    let (minus_v, minus_w) = (simd.splat_f64s(-v[i]), simd.splat_f64s(-w[i]));
    for (x, (v, w)) in vectors_mut::<S>(row).iter_mut().zip(vectors::<S>(v).iter().zip(vectors::<S>(w))) {
        *x = simd.mul_add_e_f64s(minus_w, *v, simd.mul_add_e_f64s(minus_v, *w, *x));
    }
}

/// Makes of the first i values of a row the vector v that reflects them onto the last of them. Returns what that
/// becomes, and 2 / ‖v‖².
#[inline(always)]
fn reflection<S: Simd>(simd: S, row: &mut [f64], i: usize) -> (f64, f64) {
    let pivot = row[i - 1];
    row[i - 1..].fill(0.0);
    let mut squares = simd.splat_f64s(0.0);
    for x in vectors::<S>(row) {
        squares = simd.mul_add_e_f64s(*x, *x, squares);
    }
    let rest = simd.reduce_sum_f64s(squares);
    if rest < NOTHING {
        row[..i].fill(0.0);
        return (pivot, 0.0);
    }
    let length = (pivot * pivot + rest).sqrt();
    let reflected = if pivot > 0.0 { -length } else { length };
    row[i - 1] = pivot - reflected;
    (reflected, 1.0 / (length * (length + pivot.abs())))
}

/// w = p − (factor · v · p / 2) v for p = factor · A v.
#[inline(always)]
fn next_w<S: Simd>(simd: S, v: &[f64], product: &[f64], factor: f64, w: &mut [f64]) {
    let (v, product) = (vectors::<S>(v), vectors::<S>(product));
    let mut sum = simd.splat_f64s(0.0);
    for (v, p) in v.iter().zip(product) {
        sum = simd.mul_add_e_f64s(*v, *p, sum);
    }
    let along = simd.splat_f64s(-0.5 * factor * factor * simd.reduce_sum_f64s(sum));
    let factor = simd.splat_f64s(factor);
    for (w, (v, p)) in vectors_mut::<S>(w).iter_mut().zip(v.iter().zip(product)) {
        *w = simd.mul_add_e_f64s(along, *v, simd.mul_f64s(factor, *p));
    }
}

/// One pass over what is left of the matrix.
struct Step<'a> {
    /// Vectors in a row.
    stride: usize,
    /// Rows that are left.
    rows: usize,
    before_v: &'a [f64],
    before_w: &'a [f64],
    v: &'a [f64],
}

impl Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, above: &mut [f64], product: &mut [f64]) {
        let (above, product) = (vectors_mut::<S>(above), vectors_mut::<S>(product));
        let needed = self.rows.div_ceil(S::F64_LANES);
        let mut at = 0;
        while at < needed {
            // As wide as there are registers for, so that the factors of a row are fetched once.
            at += match (needed - at).min(if const { S::REGISTER_COUNT >= 32 } { 8 } else { 4 }) {
                1 => self.columns::<S, 1>(simd, above, product, at),
                2 => self.columns::<S, 2>(simd, above, product, at),
                3 => self.columns::<S, 3>(simd, above, product, at),
                4 => self.columns::<S, 4>(simd, above, product, at),
                5 => self.columns::<S, 5>(simd, above, product, at),
                6 => self.columns::<S, 6>(simd, above, product, at),
                7 => self.columns::<S, 7>(simd, above, product, at),
                _ => self.columns::<S, 8>(simd, above, product, at),
            };
        }
    }

    /// A −= v wᵀ + w vᵀ of the reflection before, and the product with the next v, for C vectors of each row.
    #[inline(always)]
    fn columns<S: Simd, const C: usize>(
        &self,
        simd: S,
        above: &mut [S::f64s],
        product: &mut [S::f64s],
        at: usize,
    ) -> usize {
        let zero = simd.splat_f64s(0.0);
        let (mut v, mut w, mut sums) = ([zero; C], [zero; C], [zero; C]);
        v.copy_from_slice(&vectors::<S>(self.before_v)[at..at + C]);
        w.copy_from_slice(&vectors::<S>(self.before_w)[at..at + C]);
        let factors = self.before_v.iter().zip(self.before_w).zip(self.v);
        for (row, ((before_v, before_w), next)) in above.chunks_exact_mut(self.stride).zip(factors) {
            let (minus_v, minus_w) = (simd.splat_f64s(-before_v), simd.splat_f64s(-before_w));
            let next = simd.splat_f64s(*next);
            let row = &mut row[at..at + C];
            for c in 0..C {
                row[c] = simd.mul_add_e_f64s(minus_w, v[c], simd.mul_add_e_f64s(minus_v, w[c], row[c]));
                sums[c] = simd.mul_add_e_f64s(next, row[c], sums[c]);
            }
        }
        product[at..at + C].copy_from_slice(&sums);
        C
    }
}

/// Q Z: eigenvectors of the tridiagonal matrix become those of the matrix. One lane per vector. O(n² · lanes).
pub(crate) struct BackTransform<'a> {
    /// What [`Tridiagonalise`] left.
    pub(crate) reflections: &'a [f64],
    pub(crate) stride: usize,
    pub(crate) factors: &'a [f64],
    /// n rows of `lanes` values, a multiple of eight.
    pub(crate) lanes: usize,
    pub(crate) vectors: &'a mut [f64],
}

impl WithSimd for BackTransform<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let lanes = self.lanes / S::F64_LANES;
        let z = vectors_mut::<S>(self.vectors);
        for i in 2..self.factors.len() {
            if self.factors[i] == 0.0 {
                continue;
            }
            let v = &self.reflections[i * self.stride..i * self.stride + i];
            let mut at = 0;
            while at < lanes {
                at += match lanes - at {
                    1 => reflect::<S, 1>(simd, v, self.factors[i], lanes, z, at),
                    2 => reflect::<S, 2>(simd, v, self.factors[i], lanes, z, at),
                    3 => reflect::<S, 3>(simd, v, self.factors[i], lanes, z, at),
                    _ => reflect::<S, 4>(simd, v, self.factors[i], lanes, z, at),
                };
            }
        }
    }
}

/// z −= factor v (v · z) for C vectors of lanes. Two sums, as one is a chain that waits for itself.
#[inline(always)]
fn reflect<S: Simd, const C: usize>(
    simd: S,
    v: &[f64],
    factor: f64,
    lanes: usize,
    z: &mut [S::f64s],
    at: usize,
) -> usize {
    let mut sums = [[simd.splat_f64s(0.0); C]; 2];
    let (pairs, rest) = v.as_chunks::<2>();
    for (two, rows) in pairs.iter().zip(z.chunks_exact(2 * lanes)) {
        for half in 0..2 {
            let (v, row) = (simd.splat_f64s(two[half]), &rows[half * lanes + at..half * lanes + at + C]);
            for c in 0..C {
                sums[half][c] = simd.mul_add_e_f64s(v, row[c], sums[half][c]);
            }
        }
    }
    if let [last] = rest {
        let (v, row) = (simd.splat_f64s(*last), &z[2 * pairs.len() * lanes + at..2 * pairs.len() * lanes + at + C]);
        for c in 0..C {
            sums[0][c] = simd.mul_add_e_f64s(v, row[c], sums[0][c]);
        }
    }
    let minus = simd.splat_f64s(-factor);
    for c in 0..C {
        sums[0][c] = simd.mul_f64s(minus, simd.add_f64s(sums[0][c], sums[1][c]));
    }
    for (v, row) in v.iter().zip(z.chunks_exact_mut(lanes)) {
        let (v, row) = (simd.splat_f64s(*v), &mut row[at..at + C]);
        for c in 0..C {
            row[c] = simd.mul_add_e_f64s(v, sums[0][c], row[c]);
        }
    }
    C
}

//! Gram and Schmidt for vectors that are one lane each.
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// What has to be left of the square of a vector of length 1, or it was a sum of the ones before.
const LEFT: f64 = 1e-6;

/// Takes out of every vector what it shares with those before it, and gives it the length 1. Returns `false` if hardly
/// anything was left of one. Vectors that have nothing near them are left as they are. O(n · lanes²).
pub(crate) struct Orthogonalise<'a> {
    /// Rows of `lanes` values, a multiple of eight; vectors of length 1.
    pub(crate) vectors: &'a mut [f64],
    pub(crate) lanes: usize,
    /// Whether vector i shares something with those after it.
    pub(crate) shares: &'a [bool],
    /// Scratch space for `lanes` numbers.
    pub(crate) scratch: &'a mut [f64],
}

impl WithSimd for Orthogonalise<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { vectors, lanes, shares, scratch } = self;
        for lane in 0..shares.len() {
            if !(shares[lane] || lane > 0 && shares[lane - 1]) {
                continue;
            }
            let first = lane / S::F64_LANES;
            let mut at = first;
            while at * S::F64_LANES < lanes {
                at += match lanes / S::F64_LANES - at {
                    1 => products::<S, 1>(simd, vectors, lanes, lane, at, scratch),
                    2 => products::<S, 2>(simd, vectors, lanes, lane, at, scratch),
                    3 => products::<S, 3>(simd, vectors, lanes, lane, at, scratch),
                    _ => products::<S, 4>(simd, vectors, lanes, lane, at, scratch),
                };
            }
            let square = scratch[lane];
            if square.is_nan() || square < LEFT {
                return false;
            }
            // Lane by lane: what the later ones lose, and what this one is divided by.
            let own = 1.0 / square.sqrt();
            for (other, factor) in scratch.iter_mut().enumerate().skip(first * S::F64_LANES) {
                *factor = match other {
                    before if before < lane => 0.0,
                    same if same == lane => own - 1.0,
                    _ => -*factor / square,
                };
            }
            subtract(simd, vectors, lanes, lane, first, scratch);
        }
        true
    }
}

/// The products of one lane with C vectors of lanes, of which it returns the number.
#[inline(always)]
fn products<S: Simd, const C: usize>(
    simd: S,
    values: &[f64],
    lanes: usize,
    lane: usize,
    at: usize,
    out: &mut [f64],
) -> usize {
    let mut sums = [[simd.splat_f64s(0.0); C]; 2];
    for rows in values.chunks(2 * lanes) {
        for (row, sums) in rows.chunks_exact(lanes).zip(&mut sums) {
            let (factor, row) = (simd.splat_f64s(row[lane]), &vectors::<S>(row)[at..at + C]);
            for c in 0..C {
                sums[c] = simd.mul_add_e_f64s(factor, row[c], sums[c]);
            }
        }
    }
    let out = &mut vectors_mut::<S>(out)[at..at + C];
    for c in 0..C {
        out[c] = simd.add_f64s(sums[0][c], sums[1][c]);
    }
    C
}

/// Adds the lane times its factor for every other lane, from one vector of lanes on.
#[inline(always)]
fn subtract<S: Simd>(simd: S, values: &mut [f64], lanes: usize, lane: usize, first: usize, factors: &[f64]) {
    let factors = &vectors::<S>(factors)[first..];
    for row in values.chunks_exact_mut(lanes) {
        let own = simd.splat_f64s(row[lane]);
        for (value, factor) in vectors_mut::<S>(row)[first..].iter_mut().zip(factors) {
            *value = simd.mul_add_e_f64s(own, *factor, *value);
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

    fn product(vectors: &[f64], lanes: usize, a: usize, b: usize) -> f64 {
        vectors.chunks_exact(lanes).map(|row| row[a] * row[b]).sum()
    }

    /// `count` vectors of length 1 and n values.
    fn unit_vectors(n: usize, count: usize) -> Aligned {
        let lanes = padded(count);
        let mut random = Random::new(n as u64);
        let mut vectors = Aligned::zeros(n * lanes);
        for row in vectors.chunks_exact_mut(lanes) {
            row[..count].iter_mut().for_each(|value| *value = random.unit() - 0.5);
        }
        for lane in 0..count {
            let length = product(&vectors, lanes, lane, lane).sqrt();
            vectors.chunks_exact_mut(lanes).for_each(|row| row[lane] /= length);
        }
        vectors
    }

    #[test]
    fn every_width_of_lanes_makes_vectors_orthogonal() {
        for (n, count) in [(1, 1), (9, 3), (50, 24), (51, 33), (8, 8)] {
            let lanes = padded(count);
            for arch in every_width() {
                let mut vectors = unit_vectors(n, count);
                let mut scratch = Aligned::zeros(lanes);
                let shares = vec![true; count];

                assert!(arch.dispatch(Orthogonalise {
                    vectors: &mut vectors,
                    lanes,
                    shares: &shares,
                    scratch: &mut scratch
                }));

                for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                    let expected = f64::from(u8::from(a == b));
                    // Random vectors of a full basis are far from orthogonal: the error grows with their condition.
                    assert!((product(&vectors, lanes, a, b) - expected).abs() < 1e-11, "{arch:?} {n} {a} {b}");
                }
            }
        }
    }

    #[test]
    fn a_vector_that_is_there_twice_is_noticed() {
        for arch in every_width() {
            let mut vectors = unit_vectors(20, 9);
            vectors.chunks_exact_mut(16).for_each(|row| row[8] = row[3]);
            let mut scratch = Aligned::zeros(16);

            let shares = [true; 9];
            assert!(!arch.dispatch(Orthogonalise {
                vectors: &mut vectors,
                lanes: 16,
                shares: &shares,
                scratch: &mut scratch
            }));
        }
    }
}

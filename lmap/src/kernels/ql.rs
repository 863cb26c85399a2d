//! All eigenvalues and eigenvectors of a tridiagonal matrix: slower than one lane per value, and right for any matrix.

use crate::eigen::NotConverged;

/// Sweeps per eigenvalue before giving up. Two or three are usual; the bound only keeps bad input from hanging.
const MAX_SWEEPS: usize = 100;

/// What stands beside the diagonal of a matrix of size 1 and is less than this is nothing: squares would vanish.
const NOTHING: f64 = 1e-24;

/// The implicit QL algorithm with Wilkinson's shift, for a matrix of size about 1. Eigenvalues replace `diagonal`, in
/// no order; `beside` (value i stands between i − 1 and i) is destroyed. Rows of `vectors`, n values each, are rotated
/// along: from the identity on, row i becomes the vector of value i. With no rows only the values are found, O(n²)
/// instead of O(n³).
pub(crate) fn implicit_ql(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut [f64]) -> Result<(), NotConverged> {
    let n = diagonal.len();
    for first in 0..n {
        let mut sweeps = 0;
        loop {
            let last = block_end(diagonal, beside, first);
            if last == first {
                break;
            }
            sweeps += 1;
            if sweeps > MAX_SWEEPS {
                return Err(NotConverged);
            }
            sweep(diagonal, beside, vectors, first, last);
        }
    }
    Ok(())
}

/// The last row of the block that begins with `first`: what stands beside it and the next one is rounding.
fn block_end(diagonal: &[f64], beside: &[f64], first: usize) -> usize {
    let size = |row: usize| diagonal[row].abs() + diagonal[row + 1].abs();
    let apart = |row: &usize| beside[row + 1].abs() <= (f64::EPSILON * size(*row)).max(NOTHING);
    (first..diagonal.len() - 1).find(apart).unwrap_or(diagonal.len() - 1)
}

/// One QL step of the rows `first` to `last`: a shift, and rotations from the bottom up that chase what it leaves.
fn sweep(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut [f64], first: usize, last: usize) {
    let half_gap = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first + 1]);
    let length = (half_gap * half_gap + 1.0).sqrt();
    let shift = diagonal[first] - beside[first + 1] / (half_gap + length.copysign(half_gap));
    let mut g = diagonal[last] - shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for i in (first..last).rev() {
        let f = sine * beside[i + 1];
        let b = cosine * beside[i + 1];
        let r = (f * f + g * g).sqrt();
        if let Some(next) = beside.get_mut(i + 2) {
            *next = r;
        }
        if r == 0.0 {
            // The block has split.
            diagonal[i + 1] -= moved;
            if let Some(end) = beside.get_mut(last + 1) {
                *end = 0.0;
            }
            return;
        }
        (sine, cosine) = (f / r, g / r);
        let g_before = diagonal[i + 1] - moved;
        let turned = (diagonal[i] - g_before) * sine + 2.0 * cosine * b;
        moved = sine * turned;
        diagonal[i + 1] = g_before + moved;
        g = cosine * turned - b;
        rotate(vectors, diagonal.len(), i, sine, cosine);
    }
    diagonal[first] -= moved;
    beside[first + 1] = g;
    if let Some(end) = beside.get_mut(last + 1) {
        *end = 0.0;
    }
}

/// Rotates rows i and i + 1, if there are rows.
fn rotate(vectors: &mut [f64], n: usize, i: usize, sine: f64, cosine: f64) {
    let Some(two) = vectors.get_mut(i * n..(i + 2) * n) else { return };
    let (upper, lower) = two.split_at_mut(n);
    for (u, l) in upper.iter_mut().zip(lower) {
        (*u, *l) = (cosine * *u - sine * *l, sine * *u + cosine * *l);
    }
}

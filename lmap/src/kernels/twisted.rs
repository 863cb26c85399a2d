//! Eigenvectors of a tridiagonal matrix from its eigenvalues, one per lane.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers in step, by one index")]
#![expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]

use super::{vectors, vectors_mut};
use pulp::{Simd, WithSimd};

/// A pivot is at least this, so that the next step can divide by it.
const MIN_PIVOT: f64 = 1e-40;

/// Unit vectors z with T z = λ z, each by one solve from the place where it is largest: T − λ is factored from both
/// ends (Parlett and Dhillon's twisted factorisation), and the two meet where the remaining pivot is least. The
/// residual is |pivot| / ‖z‖ then. Vectors of eigenvalues near to each other need not be orthogonal. O(n · lanes).
pub(crate) struct Twisted<'a> {
    /// n values of size up to about 1.
    pub(crate) diagonal: &'a [f64],
    /// Value i stands between i − 1 and i.
    pub(crate) beside: &'a [f64],
    /// λ, whole groups of eight.
    pub(crate) values: &'a [f64],
    /// n rows with a value per lane.
    pub(crate) out: &'a mut [f64],
    /// One per lane.
    pub(crate) residuals: &'a mut [f64],
    /// Three times the room of `out`.
    pub(crate) scratch: &'a mut [f64],
}

impl WithSimd for Twisted<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let lanes = self.values.len() / S::F64_LANES;
        let third = self.scratch.len() / 3;
        let (up, scratch) = self.scratch.split_at_mut(third);
        let (down, pivots) = scratch.split_at_mut(third);
        let mut work = Work::<S> {
            diagonal: self.diagonal,
            beside: self.beside,
            values: vectors::<S>(self.values),
            lanes,
            out: vectors_mut::<S>(self.out),
            residuals: vectors_mut::<S>(self.residuals),
            up: vectors_mut::<S>(up),
            down: vectors_mut::<S>(down),
            pivots: vectors_mut::<S>(pivots),
        };
        let mut at = 0;
        while at < lanes {
            // Four at a time, so that the division of one hides behind the others.
            at += match lanes - at {
                1 => work.run::<1>(simd, at),
                2 => work.run::<2>(simd, at),
                3 => work.run::<3>(simd, at),
                _ => work.run::<4>(simd, at),
            };
        }
    }
}

struct Work<'a, S: Simd> {
    diagonal: &'a [f64],
    beside: &'a [f64],
    values: &'a [S::f64s],
    lanes: usize,
    out: &'a mut [S::f64s],
    residuals: &'a mut [S::f64s],
    /// What makes row j − 1 of row j, and row j of row j − 1.
    up: &'a mut [S::f64s],
    down: &'a mut [S::f64s],
    /// Of the factorisation from above.
    pivots: &'a mut [S::f64s],
}

/// Where the two factorisations meet.
struct TwistPoint<S: Simd, const C: usize> {
    row: [S::f64s; C],
    pivot: [S::f64s; C],
}

impl<S: Simd> Work<'_, S> {
    #[inline(always)]
    fn run<const C: usize>(&mut self, simd: S, at: usize) -> usize {
        let mut x = [self.values[at]; C];
        x.copy_from_slice(&self.values[at..at + C]);
        self.factor_down(simd, &x);
        let twist = self.factor_up(simd, &x);
        self.solve(simd, &twist, at);
        C
    }

    #[inline(always)]
    fn factor_down<const C: usize>(&mut self, simd: S, x: &[S::f64s; C]) {
        let one = simd.splat_f64s(1.0);
        let mut pivot = [one; C];
        for (j, (d, e)) in self.diagonal.iter().zip(self.beside).enumerate() {
            let (d, e) = (simd.splat_f64s(*d), simd.splat_f64s(if j == 0 { 0.0 } else { *e }));
            let (up, pivots) = (&mut self.up[j * C..(j + 1) * C], &mut self.pivots[j * C..(j + 1) * C]);
            for c in 0..C {
                up[c] = simd.div_f64s(e, pivot[c]);
                pivot[c] = not_zero(simd, simd.sub_f64s(simd.sub_f64s(d, x[c]), simd.mul_f64s(e, up[c])));
                pivots[c] = pivot[c];
            }
        }
    }

    #[inline(always)]
    fn factor_up<const C: usize>(&mut self, simd: S, x: &[S::f64s; C]) -> TwistPoint<S, C> {
        let n = self.diagonal.len();
        let (zero, one) = (simd.splat_f64s(0.0), simd.splat_f64s(1.0));
        let mut pivot = [one; C];
        let mut twist = TwistPoint { row: [zero; C], pivot: [simd.splat_f64s(f64::MAX); C] };
        for j in (0..n).rev() {
            let d = simd.splat_f64s(self.diagonal[j]);
            let e = simd.splat_f64s(if j + 1 < n { self.beside[j + 1] } else { 0.0 });
            let row = simd.splat_f64s(j as f64);
            let (down, pivots) = (&mut self.down[j * C..(j + 1) * C], &self.pivots[j * C..(j + 1) * C]);
            for c in 0..C {
                down[c] = simd.div_f64s(e, pivot[c]);
                let product = simd.mul_f64s(e, down[c]);
                pivot[c] = not_zero(simd, simd.sub_f64s(simd.sub_f64s(d, x[c]), product));
                let left = simd.abs_f64s(simd.sub_f64s(pivots[c], product));
                let less = simd.less_than_f64s(left, twist.pivot[c]);
                twist.pivot[c] = simd.select_f64s(less, left, twist.pivot[c]);
                twist.row[c] = simd.select_f64s(less, row, twist.row[c]);
            }
        }
        twist
    }

    /// 1 where the factorisations meet, the other rows from there, and then all divided by the length.
    #[inline(always)]
    fn solve<const C: usize>(&mut self, simd: S, twist: &TwistPoint<S, C>, at: usize) {
        let n = self.diagonal.len();
        let (zero, one) = (simd.splat_f64s(0.0), simd.splat_f64s(1.0));
        let mut z = [zero; C];
        for j in (0..n).rev() {
            let row = simd.splat_f64s(j as f64);
            for c in 0..C {
                z[c] = simd.select_f64s(simd.equal_f64s(row, twist.row[c]), one, z[c]);
                self.out[j * self.lanes + at + c] = z[c];
                z[c] = simd.mul_f64s(simd.neg_f64s(z[c]), self.up[j * C + c]);
            }
        }
        let (mut z, mut squares) = ([zero; C], [zero; C]);
        for j in 0..n {
            let row = simd.splat_f64s(j as f64);
            let out = &mut self.out[j * self.lanes + at..j * self.lanes + at + C];
            for c in 0..C {
                out[c] = simd.add_f64s(out[c], z[c]);
                squares[c] = simd.mul_add_e_f64s(out[c], out[c], squares[c]);
                z[c] = simd.select_f64s(simd.equal_f64s(row, twist.row[c]), one, z[c]);
                z[c] = simd.mul_f64s(simd.neg_f64s(z[c]), self.down[j * C + c]);
            }
        }
        for c in 0..C {
            squares[c] = simd.div_f64s(one, simd.sqrt_f64s(squares[c]));
            self.residuals[at + c] = simd.mul_f64s(twist.pivot[c], squares[c]);
        }
        for j in 0..n {
            let out = &mut self.out[j * self.lanes + at..j * self.lanes + at + C];
            for c in 0..C {
                out[c] = simd.mul_f64s(out[c], squares[c]);
            }
        }
    }
}

#[inline(always)]
fn not_zero<S: Simd>(simd: S, pivot: S::f64s) -> S::f64s {
    let least = simd.splat_f64s(MIN_PIVOT);
    simd.select_f64s(simd.less_than_f64s(simd.abs_f64s(pivot), least), least, pivot)
}

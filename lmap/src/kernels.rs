//! Vectorised inner loops, which determine the cost of a row: each is written once, for vectors of any width.
//!
//! Each is compiled for AVX-512, AVX2 with FMA, Neon and plain scalars, and chosen at run time by what the machine has
//! (crate `pulp`): once per score and once per phase of a decomposition, because a choice per sum would cost more than
//! the sum. Results of two machines differ in the last digits: the widths add up in different orders.
//!
//! Rows are padded with zeros to whole groups of eight, and begin a cache line.

pub(crate) mod along;
pub(crate) mod averages;
pub(crate) mod bisection;
pub(crate) mod column_gram;
pub(crate) mod gram;
pub(crate) mod onsets;
pub(crate) mod orthogonalise;
pub(crate) mod prefetch;
pub(crate) mod prepare;
pub(crate) mod ql;
pub(crate) mod rebuild;
pub(crate) mod score;
pub(crate) mod squares;
pub(crate) mod tridiagonal;
pub(crate) mod twisted;

use pulp::{Arch, Simd, WithSimd};

/// Runs `work` with the widest vectors of the machine.
pub(crate) fn widest<W: WithSimd>(work: W) -> W::Output {
    Arch::new().dispatch(work)
}

/// `values` as vectors. A tail shorter than a vector would be left out: callers give whole groups of eight.
#[expect(
    clippy::inline_always,
    reason = "inlined into the function that has the machine's features, or a call per vector"
)]
#[inline(always)]
fn vectors<S: Simd>(values: &[f64]) -> &[S::f64s] {
    debug_assert!(values.len().is_multiple_of(8));
    S::as_simd_f64s(values).0
}

#[expect(clippy::inline_always, reason = "as above")]
#[inline(always)]
fn vectors_mut<S: Simd>(values: &mut [f64]) -> &mut [S::f64s] {
    debug_assert!(values.len().is_multiple_of(8));
    S::as_mut_simd_f64s(values).0
}

/// Every vector width of this machine, for tests.
#[cfg(test)]
pub(crate) fn every_width() -> Vec<Arch> {
    let narrow = [Arch::Scalar].into_iter();
    #[cfg(target_arch = "x86_64")]
    let narrow = narrow.chain(pulp::x86::V3::try_new().map(Arch::V3));
    narrow.chain([Arch::new()]).collect()
}

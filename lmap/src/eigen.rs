//! The symmetric eigenproblem: the largest eigenvalues and their vectors.
//!
//! # Source
//! Householder's reduction to a tridiagonal matrix; there, bisection and false position on Givens' sign count, and
//! twisted factorisations (Parlett, Dhillon 2000), each with one vector lane per eigenvalue; implicit QL where that
//! leaves doubt.
//!
//! # Guarantee
//! For a positive semidefinite A: residual ‖A v − λ v‖ ≤ 1e-13 n λ₁; vectors orthogonal to 1e-13 n. Values below 1e-13
//! λ₁ are reported as 0, and have no vectors.
//!
//! # Differences from the source
//! Vectors of eigenvalues nearer than 1e-2 λ₁ are made orthogonal by Gram and Schmidt, and QL takes over if one of them
//! vanishes there or has too large a residual. So no representation tree is needed: a sketch has few directions.

use crate::aligned::Aligned;
use crate::kernels::bisection::Eigenvalues;
use crate::kernels::orthogonalise::Orthogonalise;
use crate::kernels::ql::implicit_ql;
use crate::kernels::rebuild::Scale;
use crate::kernels::tridiagonal::{BackTransform, Tridiagonalise};
use crate::kernels::twisted::Twisted;
use crate::lanes::padded;
use pulp::Arch;

/// Eigenvalues below this share of the largest are rounding errors, and set to 0.
const NEGLIGIBLE: f64 = 1e-13;
/// Values nearer than this share of the largest have vectors that are not orthogonal by themselves.
const NEAR: f64 = 1e-2;
/// A vector's residual is at most this, per row and as a share of the largest value.
const RESIDUAL: f64 = 1e-14;
/// Minimum of squares of off-diagonal values, as a share of the largest value's square: far below rounding errors, and
/// no minor can vanish.
const MIN_SQUARE: f64 = 1e-36;

/// The decomposition did not converge, or the matrix is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConverged;

/// A symmetric, positive semidefinite n × n matrix: products of rows with each other.
#[derive(Clone, Debug)]
pub(crate) struct Symmetric {
    values: Aligned,
    n: usize,
}

impl Symmetric {
    /// An n × n matrix of zeros.
    pub(crate) fn new(n: usize) -> Self {
        Self { values: Aligned::zeros(n * padded(n)), n }
    }

    /// Rows of [`stride`](Self::stride) values.
    pub(crate) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// Number of values from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        padded(self.n)
    }
}

/// The largest eigenvalues and their vectors.
#[derive(Debug)]
pub(crate) struct LeadingPairs {
    /// Descending, at least 0.
    pub(crate) values: Vec<f64>,
    /// Row r holds component r of every vector; a vector of a value that is 0 is zeros.
    pub(crate) vectors: Aligned,
    /// Values in a row of `vectors`, a multiple of eight. Those beyond the vectors asked for are 0.
    pub(crate) lanes: usize,
}

/// The `values` largest eigenvalues and the first `vectors` of their vectors, each at most n. O(n³).
pub(crate) fn leading(matrix: Symmetric, values: usize, vectors: usize) -> Result<LeadingPairs, NotConverged> {
    leading_with(Arch::new(), matrix, values, vectors)
}

fn leading_with(arch: Arch, matrix: Symmetric, values: usize, vectors: usize) -> Result<LeadingPairs, NotConverged> {
    let n = matrix.n;
    let (values, vectors) = (values.max(vectors).min(n), vectors.min(n));
    let Some(reduced) = Tridiagonal::new(arch, matrix)? else {
        let lanes = padded(vectors);
        return Ok(LeadingPairs { values: vec![0.0; values], vectors: Aligned::zeros(n * lanes), lanes });
    };
    let mut found = match reduced.by_lanes(values, vectors) {
        Some(found) => found,
        None => reduced.by_ql(values, vectors)?,
    };
    reduced.back(&mut found);
    Ok(found)
}

/// All eigenvalues in descending order, at least 0. O(n³), a quarter of it with vectors.
pub(crate) fn symmetric_values(matrix: Symmetric) -> Result<Vec<f64>, NotConverged> {
    let n = matrix.n;
    let Some(mut reduced) = Tridiagonal::new(Arch::new(), matrix)? else { return Ok(vec![0.0; n]) };
    implicit_ql(&mut reduced.diagonal, &mut reduced.beside, &mut [])?;
    let mut values: Vec<f64> = reduced.diagonal.iter().map(|value| value.max(0.0) * reduced.scale).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    Ok(values)
}

/// A matrix reduced to tridiagonal form.
struct Tridiagonal {
    /// The vector instructions of the machine.
    arch: Arch,
    /// A power of two that the matrix was divided by.
    scale: f64,
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    /// As [`Tridiagonalise`] leaves them.
    reflections: Aligned,
    factors: Vec<f64>,
    stride: usize,
}

impl Tridiagonal {
    /// `None` for a matrix of zeros.
    fn new(arch: Arch, mut matrix: Symmetric) -> Result<Option<Self>, NotConverged> {
        let (n, stride) = (matrix.n, matrix.stride());
        let diagonal: Vec<f64> = matrix.values.iter().copied().step_by(stride + 1).take(n).collect();
        if n == 0 || diagonal.iter().any(|value| !value.is_finite()) {
            return Err(NotConverged);
        }
        let largest = diagonal.iter().copied().fold(0.0, f64::max);
        if largest < f64::MIN_POSITIVE {
            return Ok(None);
        }
        // No entry exceeds the largest of the diagonal, and a power of two is exact.
        let scale = f64::from_bits(largest.to_bits() & (0x7ff << 52)).max(f64::MIN_POSITIVE);
        arch.dispatch(Scale { values: &mut matrix.values, factor: 1.0 / scale });
        let mut out = Self {
            arch,
            scale,
            diagonal,
            beside: vec![0.0; n],
            reflections: matrix.values,
            factors: vec![0.0; n],
            stride,
        };
        arch.dispatch(Tridiagonalise {
            matrix: &mut out.reflections,
            stride,
            diagonal: &mut out.diagonal,
            beside: &mut out.beside,
            factors: &mut out.factors,
            scratch: &mut Aligned::zeros(3 * stride),
        });
        let finite = out.diagonal.iter().chain(&out.beside).all(|value| value.is_finite());
        if finite { Ok(Some(out)) } else { Err(NotConverged) }
    }

    /// An upper bound of all eigenvalues, by Gershgorin.
    fn bound(&self) -> f64 {
        let beside = |row: usize| self.beside.get(row).map_or(0.0, |value| value.abs());
        let rows = self.diagonal.iter().enumerate();
        let bound = rows.map(|(row, value)| value + beside(row) + beside(row + 1)).fold(0.0, f64::max);
        bound * (1.0 + 1e-12) + MIN_SQUARE.sqrt()
    }

    /// One lane per eigenvalue; `None` if the vectors are not good enough.
    fn by_lanes(&self, count: usize, vectors: usize) -> Option<LeadingPairs> {
        let (n, bound) = (self.diagonal.len(), self.bound());
        let mut squares: Vec<f64> = self.beside.iter().map(|beside| (beside * beside).max(MIN_SQUARE)).collect();
        squares[0] = 0.0;
        let lanes = padded(count);
        let mut values = Aligned::zeros(lanes);
        self.arch.dispatch(Eigenvalues {
            diagonal: &self.diagonal,
            squares: &squares,
            bound,
            floor: NEGLIGIBLE * bound,
            out: &mut values,
            scratch: &mut Aligned::zeros(4 * lanes),
        });
        let cut = NEGLIGIBLE * values[0];
        values.iter_mut().filter(|value| **value <= cut).for_each(|value| *value = 0.0);
        let lanes = padded(vectors);
        let (mut out, mut residuals) = (Aligned::zeros(n * lanes), Aligned::zeros(lanes));
        self.arch.dispatch(Twisted {
            diagonal: &self.diagonal,
            beside: &self.beside,
            values: &values[..lanes],
            out: &mut out,
            residuals: &mut residuals,
            scratch: &mut Aligned::zeros(3 * n * lanes),
        });
        let there = values[..vectors].iter().take_while(|value| **value > 0.0).count();
        for row in out.chunks_exact_mut(lanes.max(1)) {
            row[there..].fill(0.0);
        }
        let largest = values[0];
        let limit = RESIDUAL * n as f64 * largest;
        let good = residuals[..there].iter().all(|residual| *residual <= limit);
        let near = |at: usize| at + 1 < there && values[at] - values[at + 1] < NEAR * largest;
        let shares: Vec<bool> = (0..there).map(near).collect();
        let scratch = &mut Aligned::zeros(lanes);
        let orthogonal =
            good && self.arch.dispatch(Orthogonalise { vectors: &mut out, lanes, shares: &shares, scratch });
        orthogonal.then(|| LeadingPairs { values: values[..count].to_vec(), vectors: out, lanes })
    }

    /// All eigenvalues by implicit QL, of which the largest are returned.
    fn by_ql(&self, count: usize, vectors: usize) -> Result<LeadingPairs, NotConverged> {
        let n = self.diagonal.len();
        let (mut diagonal, mut beside) = (self.diagonal.clone(), self.beside.clone());
        let mut rows = vec![0.0; n * n];
        rows.iter_mut().step_by(n + 1).for_each(|value| *value = 1.0);
        implicit_ql(&mut diagonal, &mut beside, &mut rows)?;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
        let cut = NEGLIGIBLE * diagonal[order[0]];
        let values: Vec<f64> =
            order[..count].iter().map(|&at| if diagonal[at] > cut { diagonal[at] } else { 0.0 }).collect();
        let lanes = padded(vectors);
        let mut out = Aligned::zeros(n * lanes);
        for (lane, (&at, _)) in order[..vectors].iter().zip(&values).enumerate().take_while(|(_, (_, v))| **v > 0.0) {
            for (row, value) in rows[at * n..(at + 1) * n].iter().enumerate() {
                out[row * lanes + lane] = *value;
            }
        }
        Ok(LeadingPairs { values, vectors: out, lanes })
    }

    /// Transforms values and vectors of the reduced matrix to those of the matrix.
    fn back(&self, found: &mut LeadingPairs) {
        for value in &mut found.values {
            *value *= self.scale;
        }
        self.arch.dispatch(BackTransform {
            reflections: &self.reflections,
            stride: self.stride,
            factors: &self.factors,
            lanes: found.lanes,
            vectors: &mut found.vectors,
        });
    }
}

#[cfg(test)]
mod tests;

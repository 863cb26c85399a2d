//! The symmetric eigenproblem, behind one function so that the solver can be exchanged.

use nalgebra::{DMatrix, SymmetricEigen};

/// Sweeps per eigenvalue before giving up. Two or three are usual; the bound only keeps bad input from hanging.
const SWEEPS_PER_VALUE: usize = 100;

/// The eigenvalues of a symmetric matrix in descending order, with their vectors.
#[derive(Debug)]
pub(crate) struct Eigen {
    /// Descending.
    pub(crate) values: Vec<f64>,
    /// Vector i is the slice i·n .. (i + 1)·n, of length 1.
    pub(crate) vectors: Vec<f64>,
}

/// The iteration did not converge, or the matrix is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConverged;

/// Decomposes the symmetric n × n `matrix` (n² values, one row after the other). O(n³).
pub(crate) fn symmetric(matrix: Vec<f64>, n: usize) -> Result<Eigen, NotConverged> {
    if n == 0 || matrix.iter().any(|value| !value.is_finite()) {
        return Err(NotConverged);
    }
    let matrix = DMatrix::from_vec(n, n, matrix);
    let solved = SymmetricEigen::try_new(matrix, f64::EPSILON, SWEEPS_PER_VALUE * n).ok_or(NotConverged)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| solved.eigenvalues[b].total_cmp(&solved.eigenvalues[a]));
    let values = order.iter().map(|&i| solved.eigenvalues[i]).collect();
    let vectors = order.iter().flat_map(|&i| solved.eigenvectors.column(i).iter().copied().collect::<Vec<_>>());
    Ok(Eigen { values, vectors: vectors.collect() })
}

/// Only the eigenvalues of the symmetric n × n `matrix`, descending. About a third of the time of [`symmetric`].
pub(crate) fn symmetric_values(matrix: Vec<f64>, n: usize) -> Result<Vec<f64>, NotConverged> {
    if n == 0 || matrix.iter().any(|value| !value.is_finite()) {
        return Err(NotConverged);
    }
    let mut values: Vec<f64> = DMatrix::from_vec(n, n, matrix).symmetric_eigenvalues().iter().copied().collect();
    values.sort_by(|a, b| b.total_cmp(a));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn random_symmetric(n: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut matrix = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let value = random.unit() - 0.5;
                matrix[i * n + j] = value;
                matrix[j * n + i] = value;
            }
        }
        matrix
    }

    /// Largest entry of A v − λ v and of VᵀV − 1.
    fn errors(matrix: &[f64], eigen: &Eigen, n: usize) -> (f64, f64) {
        let (mut residual, mut orthogonality) = (0.0_f64, 0.0_f64);
        for i in 0..n {
            let v = &eigen.vectors[i * n..(i + 1) * n];
            for row in 0..n {
                let product: f64 = (0..n).map(|c| matrix[row * n + c] * v[c]).sum();
                residual = residual.max((product - eigen.values[i] * v[row]).abs());
            }
            for j in 0..=i {
                let w = &eigen.vectors[j * n..(j + 1) * n];
                let product: f64 = v.iter().zip(w).map(|(a, b)| a * b).sum();
                orthogonality = orthogonality.max((product - f64::from(u8::from(i == j))).abs());
            }
        }
        (residual, orthogonality)
    }

    #[test]
    fn random_matrices_are_decomposed_to_rounding() {
        for (n, seed) in [(1, 1), (2, 2), (20, 3), (50, 4), (100, 5)] {
            let matrix = random_symmetric(n, seed);

            let eigen = symmetric(matrix.clone(), n).unwrap();

            let (residual, orthogonality) = errors(&matrix, &eigen, n);
            assert!(residual < 1e-12 && orthogonality < 1e-12, "{n}: {residual} {orthogonality}");
            assert!(eigen.values.is_sorted_by(|a, b| a >= b));
        }
    }

    #[test]
    fn special_matrices_are_decomposed_to_rounding() {
        let n = 21;
        let mut wilkinson = vec![0.0; n * n];
        let mut graded = vec![0.0; n * n];
        for i in 0..n {
            wilkinson[i * n + i] = (i as f64 - 10.0).abs();
            graded[i * n + i] = 10_f64.powi(-(i as i32));
            if i + 1 < n {
                wilkinson[i * n + i + 1] = 1.0;
                wilkinson[(i + 1) * n + i] = 1.0;
            }
        }
        for matrix in [vec![0.0; n * n], wilkinson, graded, vec![1.0; n * n]] {
            let eigen = symmetric(matrix.clone(), n).unwrap();

            let (residual, orthogonality) = errors(&matrix, &eigen, n);
            assert!(residual < 1e-12 && orthogonality < 1e-12, "{residual} {orthogonality}");
        }
    }

    #[test]
    fn the_values_alone_are_the_same() {
        let matrix = random_symmetric(30, 6);

        let alone = symmetric_values(matrix.clone(), 30).unwrap();

        let both = symmetric(matrix, 30).unwrap().values;
        assert!(alone.iter().zip(&both).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        assert_eq!(symmetric(vec![f64::NAN], 1).unwrap_err(), NotConverged);
        assert_eq!(symmetric_values(vec![f64::INFINITY], 1).unwrap_err(), NotConverged);
    }
}

//! Residuals, orthogonality and values on matrices that solvers fail on, against another solver.

use super::*;
use crate::kernels::every_width;
use crate::random::Random;
use nalgebra::{DMatrix, SymmetricEigen};

/// Rows whose products with each other are the matrix.
struct Case {
    name: &'static str,
    matrix: DMatrix<f64>,
}

fn noise(n: usize, m: usize, seed: u64) -> DMatrix<f64> {
    let mut random = Random::new(seed);
    DMatrix::from_fn(n, m, |_, _| random.unit() - 0.5)
}

/// Q diag(values) Qᵀ for a random Q.
fn with_spectrum(values: &[f64], seed: u64) -> DMatrix<f64> {
    let q = noise(values.len(), values.len(), seed).qr().q();
    let matrix = &q * DMatrix::from_diagonal(&nalgebra::DVector::from_column_slice(values)) * q.transpose();
    (&matrix + matrix.transpose()) * 0.5
}

fn spectrum(n: usize, value: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..n).map(value).collect()
}

/// Wilkinson's matrix moved up, so that no value is negative: pairs of values agree to 1e-15.
fn wilkinson(n: usize) -> DMatrix<f64> {
    let middle = (n / 2) as f64;
    DMatrix::from_fn(n, n, |i, j| match i.abs_diff(j) {
        0 => (i as f64 - middle).abs() + 2.0,
        1 => 1.0,
        _ => 0.0,
    })
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in [1, 2, 3, 7, 8, 9, 20, 50, 100] {
        let rank = |rank: usize, seed| {
            let rows = noise(n, rank, seed);
            &rows * rows.transpose()
        };
        let once = noise(n, n, 5);
        let twice = DMatrix::from_fn(n, n, |i, j| once[(i / 2, j)]);
        let mut add = |name, matrix| cases.push(Case { name, matrix });
        add("random", rank(n, 1));
        add("more columns than rows", rank(3 * n, 2));
        add("rank 1", rank(1, 3));
        add("rank 5", rank(5, 4));
        add("duplicates", &twice * twice.transpose());
        add("zero", DMatrix::zeros(n, n));
        add("ones", DMatrix::from_element(n, n, 1.0));
        add("identity", DMatrix::identity(n, n));
        add("diagonal", DMatrix::from_diagonal(&nalgebra::DVector::from_fn(n, |i, _| (n - i) as f64)));
        add("graded diagonal", DMatrix::from_diagonal(&nalgebra::DVector::from_fn(n, |i, _| 0.1_f64.powi(i as i32))));
        add("spectrum to 1e-16", with_spectrum(&spectrum(n, |i| 10_f64.powf(-16.0 * i as f64 / n as f64)), 6));
        add("two clusters", with_spectrum(&spectrum(n, |i| if i < n / 2 { 1.0 } else { 1e-3 }), 7));
        add("near values", with_spectrum(&spectrum(n, |i| 1.0 + 1e-9 * i as f64), 8));
        add("rows at the edge", with_spectrum(&spectrum(n, |i| 0.9_f64.powi(i as i32)), 9));
        add("wilkinson", wilkinson(n));
        add("huge", rank(n, 10) * 1e290);
        add("tiny", rank(n, 11) * 1e-290);
    }
    cases
}

fn symmetric(matrix: &DMatrix<f64>) -> Symmetric {
    let mut out = Symmetric::new(matrix.nrows());
    let stride = out.stride();
    for (row, target) in out.values_mut().chunks_exact_mut(stride).enumerate() {
        for (column, target) in target[..matrix.nrows()].iter_mut().enumerate() {
            *target = matrix[(row, column)];
        }
    }
    out
}

/// Largest residual ‖A v − λ v‖ / λ₁ and largest entry of VᵀV − 1, over the first vectors, of values above 0.
fn errors(matrix: &DMatrix<f64>, found: &LeadingPairs, vectors: usize, largest: f64) -> (f64, f64) {
    let n = matrix.nrows();
    let there = found.values.iter().take_while(|value| **value > 0.0).count().min(vectors);
    let vectors = DMatrix::from_fn(n, there, |r, c| found.vectors[r * found.lanes + c]);
    let values = nalgebra::DVector::from_column_slice(&found.values[..there]);
    let matrix = matrix / largest.max(f64::MIN_POSITIVE);
    let values = values / largest.max(f64::MIN_POSITIVE);
    let residual = (matrix * &vectors - &vectors * DMatrix::from_diagonal(&values)).amax();
    (residual, (vectors.transpose() * &vectors - DMatrix::identity(there, there)).amax())
}

fn expected(matrix: &DMatrix<f64>) -> Vec<f64> {
    let scale = matrix.amax().max(f64::MIN_POSITIVE);
    let mut values: Vec<f64> =
        SymmetricEigen::new(matrix / scale).eigenvalues.iter().map(|value| value.max(0.0) * scale).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

fn assert_values(found: &[f64], expected: &[f64], name: &str) {
    let n = expected.len() as f64;
    for (found, value) in found.iter().zip(expected) {
        assert!((found - value).abs() <= 1e-14 * n.max(10.0) * expected[0], "{name} {n}: {found} {value}");
    }
}

#[test]
fn every_case_is_decomposed_within_the_stated_tolerances() {
    for Case { name, matrix } in cases() {
        let n = matrix.nrows();
        let expected = expected(&matrix);
        let wanted = [(n, n), (n.div_ceil(2), n / 2), (1, 1)];
        for (arch, (values, vectors)) in every_width().into_iter().flat_map(|arch| wanted.map(|wanted| (arch, wanted)))
        {
            let found = leading_with(arch, symmetric(&matrix), values, vectors).expect(name);

            assert_eq!(found.values.len(), values);
            assert_values(&found.values, &expected, name);
            let (residual, orthogonality) = errors(&matrix, &found, vectors, expected[0]);
            assert!(residual <= 1e-13 * n as f64, "{name} {n} {arch:?}: residual {residual}");
            assert!(orthogonality <= 1e-13 * n as f64, "{name} {n} {arch:?}: orthogonality {orthogonality}");
            assert!(found.values.is_sorted_by(|a, b| a >= b), "{name} {n}");
        }
    }
}

#[test]
fn the_values_alone_are_the_same() {
    for Case { name, matrix } in cases() {
        assert_values(&symmetric_values(symmetric(&matrix)).expect(name), &expected(&matrix), name);
    }
}

#[test]
fn ql_finds_what_the_lanes_find() {
    let mut by_lanes = 0;
    for Case { name, matrix } in cases() {
        let n = matrix.nrows();
        let Some(reduced) = Tridiagonal::new(Arch::new(), symmetric(&matrix)).unwrap() else { continue };
        let mut by_ql = reduced.by_ql(n, n).unwrap();
        reduced.back(&mut by_ql);
        let expected = expected(&matrix);
        let (residual, orthogonality) = errors(&matrix, &by_ql, n, expected[0]);

        assert_values(&by_ql.values, &expected, name);
        assert!(residual <= 1e-13 * n as f64, "{name} {n}: residual {residual}");
        assert!(orthogonality <= 1e-13 * n as f64, "{name} {n}: orthogonality {orthogonality}");
        by_lanes += usize::from(reduced.by_lanes(n, n).is_some());
    }
    assert!(by_lanes > 60, "{by_lanes}"); // both ways were compared, not one with itself
}

#[test]
fn what_is_not_finite_is_refused() {
    for bad in [f64::NAN, f64::INFINITY] {
        for (row, column) in [(0, 0), (2, 1), (9, 9)] {
            let mut matrix = noise(10, 10, 1);
            matrix = &matrix * matrix.transpose();
            (matrix[(row, column)], matrix[(column, row)]) = (bad, bad);

            assert_eq!(leading(symmetric(&matrix), 10, 10).unwrap_err(), NotConverged);
            assert_eq!(symmetric_values(symmetric(&matrix)).unwrap_err(), NotConverged);
        }
    }
    assert_eq!(leading(Symmetric::new(0), 1, 1).unwrap_err(), NotConverged);
}

//! The theorem of Frequent Directions, for both forms, and that merging keeps it.
//!
//! Tolerance: 1e-12 ‖A‖_F². Values come from a Gram matrix, so everything below 1e-12 λ₁ is rounding.

use crate::support::Noise;
use lmap::{FrequentDirections, SketchError, SketchForm};
use nalgebra::DMatrix;
use proptest::prelude::*;

type Matrix = Vec<Vec<f64>>;

const FORMS: [SketchForm; 2] = [SketchForm::Buffered, SketchForm::RowWise];

fn sketch(rows: &[Vec<f64>], columns: usize, l: usize, form: SketchForm) -> FrequentDirections {
    let mut sketch = FrequentDirections::new(columns, l, form).expect("a valid shape");
    for row in rows {
        sketch.append(row).expect("finite rows");
    }
    sketch
}

/// AᵀA, m × m.
fn gram<'a>(rows: impl Iterator<Item = &'a [f64]>, columns: usize) -> DMatrix<f64> {
    let mut gram = DMatrix::zeros(columns, columns);
    for row in rows {
        let row = nalgebra::DVector::from_column_slice(row);
        gram += &row * row.transpose();
    }
    gram
}

/// Asserts 0 ≤ ‖A u‖² − ‖S u‖² ≤ Σδ ≤ ‖A − A_k‖_F² / (l − k) for every unit vector u, through the extreme eigenvalues
/// of AᵀA − SᵀS, and for every k < l.
fn assert_theorem(rows: &[Vec<f64>], sketch: &FrequentDirections) {
    let columns = sketch.columns();
    let exact = gram(rows.iter().map(Vec::as_slice), columns);
    // Rows that grow without end have squares of 10¹² beside deltas of 10⁷: two parts in 10¹² were seen.
    let tolerance = 1e-11 * exact.trace();
    let difference = &exact - gram(sketch.rows(), columns);
    let errors = difference.symmetric_eigenvalues();
    let (least, most) = (errors.min(), errors.max());
    assert!(least >= -tolerance, "the sketch exceeds the rows by {}", -least);
    assert!(most <= sketch.removed() + tolerance, "{most} is more than Σδ = {}", sketch.removed());

    let mut values: Vec<f64> = exact.symmetric_eigenvalues().iter().map(|value| value.max(0.0)).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    for k in 0..sketch.sketch_rows() {
        let tail: f64 = values.iter().skip(k).sum();
        let bound = tail / (sketch.sketch_rows() - k) as f64;
        assert!(sketch.removed() <= bound + tolerance, "k = {k}: Σδ = {} above {bound}", sketch.removed());
    }
}

/// Random rows; of low rank; with the strongest direction last; growing without end; repeated; zero.
fn matrix(kind: u8, count: usize, columns: usize, seed: u64) -> Matrix {
    let mut noise = Noise::new(seed);
    let directions: Matrix = (0..3).map(|_| (0..columns).map(|_| noise.normal()).collect()).collect();
    let row = |t: usize| -> Vec<f64> {
        let mut unit = vec![0.0; columns];
        match kind {
            0 => unit.iter_mut().for_each(|value| *value = noise.normal()),
            1 => {
                let weights: Vec<f64> = (0..3).map(|_| noise.normal()).collect();
                for (column, value) in unit.iter_mut().enumerate() {
                    *value = directions.iter().zip(&weights).map(|(direction, w)| w * direction[column]).sum();
                }
            }
            2 => unit[t * columns / count.max(1)] = if 2 * t < count { 1.0 } else { 1e3 },
            3 => unit[t % columns] = 1.5_f64.powi(t as i32 % 60),
            4 => unit.clone_from(&directions[t % 2]),
            _ => {}
        }
        unit
    };
    (0..count).map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_theorem_holds_for_both_forms(
        kind in 0_u8..6, count in 0_usize..120, columns in 1_usize..40, l in 2_usize..20, seed in any::<u64>(),
    ) {
        let rows = matrix(kind, count, columns, seed);

        for form in FORMS {
            assert_theorem(&rows, &sketch(&rows, columns, l, form));
        }
    }

    #[test]
    fn a_merged_sketch_stands_for_the_rows_of_both(
        kinds in (0_u8..6, 0_u8..6), counts in (0_usize..80, 0_usize..80),
        columns in 1_usize..30, l in 2_usize..16, seed in any::<u64>(),
    ) {
        let (first, second) =
            (matrix(kinds.0, counts.0, columns, seed), matrix(kinds.1, counts.1, columns, seed ^ 1));

        for form in FORMS {
            let mut merged = sketch(&first, columns, l, form);
            merged.merge(&sketch(&second, columns, l, form)).expect("the same shape");

            assert_theorem(&[first.clone(), second.clone()].concat(), &merged);
        }
    }
}

#[test]
fn fewer_columns_than_rows_lose_nothing() {
    let rows = matrix(0, 200, 5, 3);

    for form in FORMS {
        assert_eq!(sketch(&rows, 5, 10, form).removed(), 0.0);
    }
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let mut sketch = FrequentDirections::new(2, 3, SketchForm::Buffered).unwrap();

    assert_eq!(sketch.append(&[1.0]), Err(SketchError::Columns { found: 1, expected: 2 }));
    assert!(matches!(sketch.append(&[1.0, f64::NAN]), Err(SketchError::Value { column: 1, .. })));
    assert_eq!(sketch.append(&[1e200, 0.0]), Err(SketchError::Value { column: 0, value: 1e200 }));
    assert_eq!(sketch.rows().count(), 0);
    assert!(matches!(FrequentDirections::new(2, 1, SketchForm::Buffered), Err(SketchError::Shape { .. })));
}

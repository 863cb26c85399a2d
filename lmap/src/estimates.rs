//! Columns that are estimates of a count: how far they are off by themselves, and what that does to a score.
//!
//! An estimate of n distinct things moves, although nothing changes: other things collide, and of n things about √n
//! come and go. It may show no move of that in training, for instance as the least count of a window. So its error is
//! taken as known, not as learnt: √n + 3.4 % of n, with n the mean of training. A column's deviation is at least that.
//! So are, of what a score divides by, the variances that errors alone would have: Σₖ fₖ Uₖᵢ² along direction i, and
//! of the residual of column j its own fⱼ and Σₖ fₖ (U Uᵀ)ⱼₖ², with fₖ the square of an error in units of the column's
//! deviation. What is learnt, V and T, stays as it is.
//!
//! Nothing of this is in a [`Model`](crate::Model): it follows from means and deviations. O(m k) for each estimate
//! whenever there is a basis, and nothing for a row.

use crate::basis::Basis;
use crate::column::Column;
use crate::settings::ScoreForm;

/// The standard error of an estimate as a share of it: 0.78 / √512, of TS-PCSA with the registers of a stream.
const ERROR_SHARE: f64 = 0.034;
/// An estimate is off by at least that of so many things.
const MIN_COUNT: f64 = 1.0;

/// How far an estimate of `mean` things may be off without saying anything: √n + 3.4 % of n, and n at least 1.
pub(crate) fn error(mean: f64) -> f64 {
    let count = mean.abs().max(MIN_COUNT);
    count.sqrt() + ERROR_SHARE * count
}

/// The columns that are estimates and judged by their value, ascending. Of a level's increments no error is known, and
/// the paper's forms know none at all.
pub(crate) fn estimates(columns: &[Column], levels: &[u32], form: ScoreForm) -> Vec<u32> {
    if form != ScoreForm::Scaled {
        return Vec::new();
    }
    let estimated = columns.iter().enumerate().filter(|(_, column)| column.estimated && column.watched);
    estimated.map(|(at, _)| at as u32).filter(|at| levels.binary_search(at).is_err()).collect()
}

/// The errors of a pipeline's columns, and the variances that follow from them under its basis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    /// Each estimate, ascending, and the variance of its error in units of the column's own.
    columns: Vec<(u32, f32)>,
    /// Per column, what its residual's variance is at least. Empty without estimates.
    residual: Vec<f32>,
    /// Per direction, what its variance is at least. Empty without estimates.
    inside: Vec<f32>,
}

impl Errors {
    /// Bytes per column, and per direction, at most.
    pub(crate) const COLUMN_BYTES: usize = size_of::<(u32, f32)>() + size_of::<f32>();
    pub(crate) const DIRECTION_BYTES: usize = size_of::<f32>();

    /// Of estimates with the variances of their errors, among so many columns.
    pub(crate) fn new(variances: &[(u32, f64)], columns: usize) -> Self {
        let estimates = variances.iter().map(|(column, variance)| (*column, *variance as f32)).collect();
        let residual = vec![0.0; if variances.is_empty() { 0 } else { columns }];
        Self { columns: estimates, residual, inside: Vec::new() }
    }

    /// Computes the variances under another basis. O(m k) for each estimate.
    pub(crate) fn turn(&mut self, basis: &Basis) {
        if self.columns.is_empty() {
            return;
        }
        self.inside.clear();
        self.inside.resize(basis.rank(), 0.0);
        self.residual.fill(0.0);
        let mut along = vec![0.0; self.residual.len()];
        for &(column, variance) in &self.columns {
            along.fill(0.0);
            for (index, inside) in self.inside.iter_mut().enumerate() {
                let direction = basis.direction(index);
                let own = direction[column as usize];
                *inside += variance * (own * own) as f32;
                along.iter_mut().zip(direction).for_each(|(along, u)| *along += own * u);
            }
            along[column as usize] = 1.0;
            for (residual, along) in self.residual.iter_mut().zip(&along) {
                *residual += variance * (along * along) as f32;
            }
        }
    }

    /// Per column, what its residual's variance is at least. Empty without estimates.
    pub(crate) fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// Per direction, what its variance is at least. Empty without estimates.
    pub(crate) fn inside(&self) -> &[f32] {
        &self.inside
    }

    /// The mean square of a score of errors alone.
    pub(crate) fn square(&self) -> f64 {
        self.columns.iter().map(|(_, variance)| f64::from(*variance).min(1.0)).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<(u32, f32)>() * self.columns.len() + size_of::<f32>() * (self.residual.len() + self.inside.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aligned::Aligned;
    use crate::column::ColumnKind;
    use crate::lanes::padded_row;

    #[test]
    fn an_error_is_of_one_thing_at_least_and_a_share_of_many() {
        assert_eq!([0.0, 1.0].map(error), [1.034; 2]);
        assert!((error(21.7) - 5.4).abs() < 0.01, "{}", error(21.7));
        assert!((error(1e6) - 35_000.0).abs() < 1e-6, "{}", error(1e6));
    }

    #[test]
    fn only_watched_values_are_estimates() {
        let of = |estimated, watched| Column { watched, estimated, ..Column::new(ColumnKind::Gauge, 0) };
        let columns = [of(true, true), of(false, true), of(true, false), of(true, true)];

        assert_eq!(estimates(&columns, &[], ScoreForm::Scaled), [0, 3]);
        assert_eq!(estimates(&columns, &[3], ScoreForm::Scaled), [0]);
        assert_eq!(estimates(&columns, &[], ScoreForm::PaperAbsolute), []);
    }

    #[test]
    fn variances_are_those_of_rows_that_are_errors_alone() {
        // Two directions in four columns. Columns 1 and 2 are estimates, whose errors have variances of 4 and 1.
        let half = 0.5_f64.sqrt();
        let directions = [padded_row(&[half, half, 0.0, 0.0]), padded_row(&[0.0, 0.0, 0.6, 0.8])].concat();
        let mut errors = Errors::new(&[(1, 4.0), (2, 1.0)], 4);

        errors.turn(&Basis::new(Aligned::from(directions.as_slice()), 2, 4));

        let near = |found: &[f32], expected: &[f32]| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert!(near(errors.inside(), &[2.0, 0.36]), "{errors:?}");
        assert!(near(errors.residual(), &[1.0, 4.0, 1.0, 0.48 * 0.48]), "{errors:?}");
        assert_eq!(errors.square(), 2.0);
    }

    #[test]
    fn without_estimates_nothing_is_kept() {
        let mut errors = Errors::new(&[], 4);
        errors.turn(&Basis::new(Aligned::zeros(8), 1, 4));

        assert!(errors.bytes() == 0 && errors.residual().is_empty() && errors.inside().is_empty());
    }
}

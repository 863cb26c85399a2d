//! Static principal components: the residual outside the directions of training, which are never updated.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::standard::Standard;
use super::{Candidate, GAMMA, RowScore, TrainError, largest};
use crate::ranking::quantile;
use crate::unit::Unit;

/// Share of the training variance that the directions explain.
const SHARE: f64 = 0.9;

/// Principal directions of training, and the residual of the last row.
#[derive(Clone, Debug)]
pub struct Pca {
    standard: Standard,
    /// m × k, orthonormal columns.
    basis: DMatrix<f64>,
    gamma: f64,
    residual: DVector<f64>,
}

impl Pca {
    /// The least number of directions that explain 90 % of the training variance (at most m − 1), and γ of the training
    /// rows.
    ///
    /// # Errors
    ///
    /// [`TrainError::Rows`] below two rows, [`TrainError::NotFitted`] if the eigenvalues do not converge.
    pub fn train(unit: &Unit) -> Result<Self, TrainError> {
        if unit.train.len() < 2 {
            return Err(TrainError::Rows { found: unit.train.len(), least: 2 });
        }
        let m = unit.metrics.len();
        let (standard, rows) = Standard::fit(unit);
        let z = DMatrix::from_column_slice(m, rows.len() / m, &rows);
        let eigen = SymmetricEigen::try_new(&z * z.transpose(), f64::EPSILON, 0).ok_or(TrainError::NotFitted)?;
        let basis = directions(&eigen);
        let residual = &z - &basis * basis.tr_mul(&z);
        let mut scores: Vec<f64> = residual.column_iter().map(|residual| residual.norm()).collect();
        scores.sort_by(f64::total_cmp);
        Ok(Self { standard, basis, gamma: quantile(&scores, GAMMA), residual: DVector::zeros(m) })
    }
}

fn directions(eigen: &SymmetricEigen<f64, nalgebra::Dyn>) -> DMatrix<f64> {
    let mut order: Vec<usize> = (0..eigen.eigenvalues.len()).collect();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    let total: f64 = eigen.eigenvalues.iter().map(|value| value.max(0.0)).sum();
    let mut explained = 0.0;
    let short = order.iter().take_while(|index| {
        explained += eigen.eigenvalues[**index].max(0.0);
        explained < SHARE * total
    });
    let rank = (short.count() + 1).min(order.len().saturating_sub(1));
    eigen.eigenvectors.select_columns(&order[..rank])
}

impl Candidate for Pca {
    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn step(&mut self, row: &[f64], _gap: bool) -> RowScore {
        let z = DVector::from_vec(self.standard.row(row));
        self.residual = &z - &self.basis * self.basis.tr_mul(&z);
        let score = self.residual.norm();
        RowScore { score, own: score, episode: None }
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        largest(self.residual.iter().map(|residual| residual.abs()), top)
    }
}

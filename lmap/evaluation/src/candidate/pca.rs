//! Static principal components: the residual outside the directions of training, which are never updated.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::TrainError;
use super::peer::{Peer, PeerScore};

/// Share of the training variance that the directions explain.
const SHARE: f64 = 0.9;

/// Principal directions of training, and the residual of the last row.
#[derive(Clone, Debug)]
pub(super) struct Pca {
    /// m × k, orthonormal columns.
    basis: DMatrix<f64>,
    residual: DVector<f64>,
}

impl Peer for Pca {
    /// The least number of directions that explain 90 % of the training variance (at most m − 1).
    fn train(rows: &[f64], columns: usize) -> Result<(Self, Vec<f64>), TrainError> {
        let count = rows.len() / columns;
        if count < 2 {
            return Err(TrainError::Rows { found: count, least: 2 });
        }
        let z = DMatrix::from_column_slice(columns, count, rows);
        let eigen = SymmetricEigen::try_new(&z * z.transpose(), f64::EPSILON, 0).ok_or(TrainError::NotFitted)?;
        let basis = directions(&eigen);
        let residual = &z - &basis * basis.tr_mul(&z);
        let scores = residual.column_iter().map(|residual| residual.norm()).collect();
        Ok((Self { basis, residual: DVector::zeros(columns) }, scores))
    }

    fn score(&mut self, z: &[f64]) -> PeerScore {
        let z = DVector::from_column_slice(z);
        self.residual = &z - &self.basis * self.basis.tr_mul(&z);
        PeerScore::whole(self.residual.norm())
    }

    fn parts(&self, _z: &[f64]) -> Vec<f64> {
        self.residual.iter().map(|residual| residual.abs()).collect()
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

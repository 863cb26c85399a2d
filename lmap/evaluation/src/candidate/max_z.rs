//! The largest |z| of any metric, like many alarm rules.

use super::standard::Standard;
use super::{Candidate, GAMMA, RowScore, TrainError, largest};
use crate::ranking::quantile;
use crate::unit::Unit;

/// Means and deviations of training, and the last row.
#[derive(Clone, Debug)]
pub struct MaxZ {
    standard: Standard,
    gamma: f64,
    z: Vec<f64>,
}

impl MaxZ {
    /// Means, deviations and γ of the training rows.
    ///
    /// # Errors
    ///
    /// [`TrainError::Rows`] without rows.
    pub fn train(unit: &Unit) -> Result<Self, TrainError> {
        if unit.train.is_empty() {
            return Err(TrainError::Rows { found: 0, least: 1 });
        }
        let (standard, rows) = Standard::fit(unit);
        let mut scores: Vec<f64> = rows.chunks_exact(unit.metrics.len()).map(largest_size).collect();
        scores.sort_by(f64::total_cmp);
        Ok(Self { standard, gamma: quantile(&scores, GAMMA), z: Vec::new() })
    }
}

fn largest_size(z: &[f64]) -> f64 {
    z.iter().map(|z| z.abs()).fold(0.0, f64::max)
}

impl Candidate for MaxZ {
    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn step(&mut self, row: &[f64], _gap: bool) -> RowScore {
        self.z = self.standard.row(row);
        let own = self.z.iter().map(|z| z * z).sum::<f64>().sqrt();
        RowScore { score: largest_size(&self.z), own, episode: None }
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        largest(self.z.iter().map(|z| z.abs()), top)
    }
}

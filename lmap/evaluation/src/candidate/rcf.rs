//! A Random Cut Forest (S. Guha, N. Mishra, G. Roy, O. Schrijvers: *Robust Random Cut Forest Based Anomaly Detection On
//! Streams*, ICML 2016), by the crate `rcf3`.
//!
//! The crate's defaults: 50 trees of 256 samples, no shingle; every row is scored and then learnt. Rows are
//! standardised, since cuts are drawn by the ranges of the metrics.

use rcf3::{Forest, RcfError};

use super::standard::Standard;
use super::{Candidate, GAMMA, RowScore, TrainError, largest};
use crate::ranking::quantile;
use crate::unit::Unit;

const TREES: usize = 50;
const SAMPLES: usize = 256;
/// Fixed, so that evaluations are reproducible.
const SEED: u64 = 1;
/// Deviations are clamped here: a forest stores f32, and sums ranges over metrics.
const MAX: f64 = 1e9;

/// A forest, and the last row, which it learns before the next.
pub struct Rcf {
    standard: Standard,
    forest: Forest,
    gamma: f64,
    last: Vec<f32>,
}

impl std::fmt::Debug for Rcf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rcf").field("gamma", &self.gamma).finish_non_exhaustive()
    }
}

impl Rcf {
    /// A forest that has learnt the training rows in order; γ is from their scores under the forest as it is then, as
    /// for the others.
    ///
    /// # Errors
    ///
    /// [`TrainError::Forest`] if the crate refuses the shape or a row, [`TrainError::Rows`] without rows.
    pub fn train(unit: &Unit) -> Result<Self, TrainError> {
        if unit.train.is_empty() {
            return Err(TrainError::Rows { found: 0, least: 1 });
        }
        let refused = |error: RcfError| TrainError::Forest(error.to_string());
        let m = unit.metrics.len();
        let (standard, rows) = Standard::fit(unit);
        let forest = Forest::builder(m).num_trees(TREES).capacity(SAMPLES).shingle_size(1).seed(SEED);
        let mut forest = forest.build().map_err(refused)?;
        for row in rows.chunks_exact(m) {
            forest.update(&single(row)).map_err(refused)?;
        }
        let scores = rows.chunks_exact(m).map(|row| forest.score(&single(row)));
        let mut scores: Vec<f64> = scores.collect::<Result<_, _>>().map_err(refused)?;
        scores.sort_by(f64::total_cmp);
        Ok(Self { standard, forest, gamma: quantile(&scores, GAMMA), last: Vec::new() })
    }
}

fn single(row: &[f64]) -> Vec<f32> {
    row.iter().map(|value| value.clamp(-MAX, MAX) as f32).collect()
}

impl Candidate for Rcf {
    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn step(&mut self, row: &[f64], _gap: bool) -> RowScore {
        if !self.last.is_empty() {
            self.forest.update(&self.last).expect("the row was scored, so it has the forest's length");
        }
        self.last = single(&self.standard.row(row));
        let score = self.forest.score(&self.last).expect("a unit's rows have one value per column");
        RowScore { score, own: score, episode: None }
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        let parts = self.forest.attribution(&self.last).unwrap_or_default();
        largest(parts.into_iter().map(rcf3::Attribution::total), top)
    }
}

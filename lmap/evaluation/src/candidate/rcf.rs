//! A Random Cut Forest (S. Guha, N. Mishra, G. Roy, O. Schrijvers: *Robust Random Cut Forest Based Anomaly Detection On
//! Streams*, ICML 2016), by the crate `rcf3`.
//!
//! The crate's defaults: 50 trees of 256 samples, no shingle; every row is scored and then learnt. Rows are
//! standardised, since cuts are drawn by the ranges of the metrics.

use rcf3::{Forest, RcfError};

use super::TrainError;
use super::peer::{Peer, PeerScore};

const TREES: usize = 50;
const SAMPLES: usize = 256;
/// Fixed, so that evaluations are reproducible.
const SEED: u64 = 1;
/// Deviations are clamped here: a forest stores f32, and sums ranges over metrics.
const MAX: f64 = 1e9;

/// A forest, and the last row, which it learns before the next.
pub(super) struct Rcf {
    forest: Forest,
    last: Vec<f32>,
}

impl std::fmt::Debug for Rcf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rcf").finish_non_exhaustive()
    }
}

impl Peer for Rcf {
    /// A forest that has learnt the rows in order; their scores are those under the forest as it is then, as for the
    /// others.
    fn train(rows: &[f64], columns: usize) -> Result<(Self, Vec<f64>), TrainError> {
        let refused = |error: RcfError| TrainError::Forest(error.to_string());
        let forest = Forest::builder(columns).num_trees(TREES).capacity(SAMPLES).shingle_size(1).seed(SEED);
        let mut forest = forest.build().map_err(refused)?;
        for row in rows.chunks_exact(columns) {
            forest.update(&single(row)).map_err(refused)?;
        }
        let scores = rows.chunks_exact(columns).map(|row| forest.score(&single(row)));
        let scores = scores.collect::<Result<_, _>>().map_err(refused)?;
        Ok((Self { forest, last: Vec::new() }, scores))
    }

    fn score(&mut self, z: &[f64]) -> PeerScore {
        if !self.last.is_empty() {
            self.forest.update(&self.last).expect("the row was scored, so it has the forest's length");
        }
        self.last = single(z);
        PeerScore::whole(self.forest.score(&self.last).expect("a unit's rows have one value per column"))
    }

    fn parts(&self, _z: &[f64]) -> Vec<f64> {
        let parts = self.forest.attribution(&self.last).unwrap_or_default();
        parts.into_iter().map(rcf3::Attribution::total).collect()
    }
}

fn single(row: &[f64]) -> Vec<f32> {
    row.iter().map(|value| value.clamp(-MAX, MAX) as f32).collect()
}

//! How far a row is from the mean of training, without directions.

use super::TrainError;
use super::peer::{Peer, PeerScore};

/// The largest |z| of any metric, like many alarm rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxZ;

/// The Euclidean norm of z.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormZ;

fn norm(z: &[f64]) -> f64 {
    z.iter().map(|z| z * z).sum::<f64>().sqrt().min(f64::MAX)
}

fn sizes(z: &[f64]) -> Vec<f64> {
    z.iter().map(|z| z.abs()).collect()
}

impl Peer for MaxZ {
    fn train(rows: &[f64], columns: usize) -> Result<(Self, Vec<f64>), TrainError> {
        Ok((Self, rows.chunks_exact(columns).map(|z| MaxZ.score(z).score).collect()))
    }

    fn score(&mut self, z: &[f64]) -> PeerScore {
        PeerScore { score: z.iter().map(|z| z.abs()).fold(0.0, f64::max), own: norm(z) }
    }

    fn parts(&self, z: &[f64]) -> Vec<f64> {
        sizes(z)
    }
}

impl Peer for NormZ {
    fn train(rows: &[f64], columns: usize) -> Result<(Self, Vec<f64>), TrainError> {
        Ok((Self, rows.chunks_exact(columns).map(norm).collect()))
    }

    fn score(&mut self, z: &[f64]) -> PeerScore {
        PeerScore::whole(norm(z))
    }

    fn parts(&self, z: &[f64]) -> Vec<f64> {
        sizes(z)
    }
}

//! Detectors of other kinds: standardised rows in, a score out. Standardisation, γ and smoothing are the same for all
//! of them, bare or with our preparation.

use lmap::{Preparation, Settings};

use super::standard::Standard;
use super::{Candidate, RowScore, TrainError};
use crate::ranking::quantile;
use crate::unit::{Rows, Unit};

/// γ of detectors that do not choose one: this quantile of the scores of their training rows.
const GAMMA: f64 = 0.99;

/// The arithmetic of a detector, over standardised rows.
pub(super) trait Peer: Sized {
    /// Trains on rows of `columns` values, one after the other, and returns their scores.
    fn train(rows: &[f64], columns: usize) -> Result<(Self, Vec<f64>), TrainError>;

    /// Scores the next row.
    fn score(&mut self, z: &[f64]) -> PeerScore;

    /// What each column contributed to the last score, in the order of columns.
    fn parts(&self, z: &[f64]) -> Vec<f64>;
}

/// The score of a row, and its deviation as a whole (see [`RowScore::own`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PeerScore {
    pub(super) score: f64,
    pub(super) own: f64,
}

impl PeerScore {
    /// A score that is the row's deviation as a whole.
    pub(super) fn whole(score: f64) -> Self {
        Self { score, own: score }
    }
}

/// Where a peer's rows come from.
#[derive(Debug)]
enum Source {
    /// Subtract the mean, divide by the deviation.
    Standard(Standard),
    /// As the LMAP prepares its own rows.
    Preparation(Box<Preparation>),
}

impl Source {
    fn row(&mut self, row: &[f64], gap: bool) -> Vec<f64> {
        match self {
            Self::Standard(standard) => standard.row(row),
            Self::Preparation(preparation) => prepared(preparation, row, gap),
        }
    }
}

/// A peer with its rows, its threshold and the smoothing of its scores.
#[derive(Debug)]
pub(super) struct PeerDetector<P> {
    source: Source,
    peer: P,
    /// The quantile of the training scores, which are not smoothed, as in the LMAP.
    gamma: f64,
    /// The weight of a new score; 1: not smoothed.
    weight: f64,
    smoothed: Option<f64>,
    z: Vec<f64>,
}

impl<P: Peer> PeerDetector<P> {
    /// Trains on rows that are standardised and nothing else.
    pub(super) fn bare(unit: &Unit) -> Result<Self, TrainError> {
        let (standard, rows) = Standard::fit(unit);
        Self::train(Source::Standard(standard), &rows, unit.metrics.len(), 1.0)
    }

    /// Trains on rows prepared as the LMAP does by `settings`, and smooths scores over the same span.
    pub(super) fn prepared(unit: &Unit, settings: &Settings) -> Result<Self, TrainError> {
        let (preparation, train) = prepare(unit, settings);
        let source = Source::Preparation(Box::new(preparation));
        Self::train(source, &train.filled(None), unit.metrics.len(), 2.0 / (settings.smoothing_span + 1.0))
    }

    fn train(source: Source, rows: &[f64], columns: usize, weight: f64) -> Result<Self, TrainError> {
        let (peer, mut scores) = P::train(rows, columns)?;
        if scores.is_empty() {
            return Err(TrainError::Rows { found: 0, least: 1 });
        }
        scores.sort_by(f64::total_cmp);
        Ok(Self { source, peer, gamma: quantile(&scores, GAMMA), weight, smoothed: None, z: Vec::new() })
    }
}

/// Our preparation, fitted to the training rows of `unit`, and what it makes of them. Test rows may follow.
pub(super) fn prepare(unit: &Unit, settings: &Settings) -> (Preparation, Rows) {
    let fitted = Preparation::fit(&unit.columns, settings, unit.train.iter());
    let mut preparation = fitted.expect("a unit's rows have one value per column");
    let train = unit.train.map(|row, gap| prepared(&mut preparation, row, gap));
    (preparation, train)
}

/// The next row as our preparation has it.
pub(super) fn prepared(preparation: &mut Preparation, row: &[f64], gap: bool) -> Vec<f64> {
    preparation.row(row, gap).expect("a unit's rows have one value per column").to_vec()
}

impl<P: Peer> Candidate for PeerDetector<P> {
    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn step(&mut self, row: &[f64], gap: bool) -> RowScore {
        self.z = self.source.row(row, gap);
        let PeerScore { score, own } = self.peer.score(&self.z);
        let before = self.smoothed.filter(|_| !gap).unwrap_or(score);
        let smoothed = before + self.weight * (score - before);
        self.smoothed = Some(smoothed);
        RowScore { score: smoothed, own, episode: None }
    }

    fn named(&mut self, top: usize) -> Vec<usize> {
        largest(self.peer.parts(&self.z), top)
    }
}

/// The columns with the largest parts, at most `top`, largest first.
fn largest(parts: impl IntoIterator<Item = f64>, top: usize) -> Vec<usize> {
    let mut parts: Vec<(usize, f64)> = parts.into_iter().enumerate().collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts.into_iter().take(top).map(|(column, _)| column).collect()
}

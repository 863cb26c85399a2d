//! The cost of scoring a row, compared with the minimum that a detector of this kind has to compute.

use std::hint::black_box;

use anyhow::{Result, ensure};
use lmap::{Column, ColumnKind, Detector, Settings, State};
use nalgebra::{DMatrix, DVector};

use super::metric_set::Noise;
use super::pair::{Pair, measure};
use super::{Figure, Goal};

/// Metrics of a service, as uView's authors measured.
pub const COLUMNS: usize = 141;
/// Rank k of the sketch.
pub const RANK: usize = 12;
/// Rows l of the sketch.
pub const SKETCH_ROWS: usize = 25;
/// Number of different rows, scored in turn.
pub const ROWS: usize = 1000;
const PEER: &str =
    "nalgebra: x − V Vᵀx and its norm, m = 141, k = 12, two matrix–vector products into reused vectors, nothing else";

/// Rows that follow three common causes, each column with noise of its own.
pub fn rows() -> Vec<Vec<f64>> {
    let mut noise = Noise(88_172_645_463_325_252);
    let mut draw = || noise.draw() as f64 / 1000.0 - 0.5;
    let row = |_| {
        let causes = [draw(), draw(), draw()];
        (0..COLUMNS).map(|column| causes[column % 3] * (1 + column % 7) as f64 + draw()).collect()
    };
    (0..ROWS).map(row).collect()
}

/// An armed detector with `settings`, of a shape that does not depend on the rows.
pub fn armed(rows: &[Vec<f64>], settings: &Settings) -> Result<Detector> {
    let settings = Settings {
        rank: Some(RANK),
        sketch_rows: Some(SKETCH_ROWS),
        fit_again_rows: Vec::new(),
        growth_rows: 0,
        ..settings.clone()
    };
    let columns = (0..COLUMNS as u64).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect();
    let mut detector = Detector::new(columns, settings, 1)?;
    for row in &rows[..200] {
        step(&mut detector, row);
    }
    ensure!(detector.state() == State::Armed, "the detector is not armed: {:?}", detector.state());
    Ok(detector)
}

/// Scores a row and learns it, decompositions included.
pub fn step(detector: &mut Detector, row: &[f64]) {
    // Fails only for a wrong number of columns, which the rows do not have.
    let _ = black_box(detector.score(black_box(row)));
    if let Some(job) = detector.learn() {
        detector.install(job.run());
    }
}

/// The bare computation of a score: the norm of a row's residual outside `basis`.
pub struct Projection {
    basis: DMatrix<f64>,
    row: DVector<f64>,
    within: DVector<f64>,
}

impl Projection {
    /// A projection to [`RANK`] directions in `columns` columns.
    pub fn new(columns: usize) -> Self {
        let mut noise = Noise(1_234_567);
        let basis = DMatrix::from_fn(columns, RANK, |_, _| noise.draw() as f64 - 500.0).qr().q();
        Self { basis, row: DVector::zeros(columns), within: DVector::zeros(RANK) }
    }

    /// The residual norm of a row; it must have `columns` values.
    pub fn score(&mut self, row: &[f64]) -> f64 {
        self.row.copy_from_slice(row);
        self.within.gemv_tr(1.0, &self.basis, &self.row, 0.0);
        self.row.gemv(-1.0, &self.basis, &self.within, 1.0);
        self.row.norm()
    }
}

/// One row scored.
pub fn score(name: &str) -> Result<Figure> {
    let rows = rows();
    let detector = armed(&rows, &Settings::default())?;
    Ok(against_projection(name, &rows, detector, |detector, row| _ = black_box(detector.score(black_box(row)))))
}

/// One row scored, and learnt by the default stride, including its share of decompositions.
pub fn learn(name: &str) -> Result<Figure> {
    let rows = rows();
    let detector = armed(&rows, &Settings::default())?;
    Ok(against_projection(name, &rows, detector, step))
}

/// Memory of an armed detector, compared with its bound.
pub fn memory(name: &str) -> Result<Figure> {
    let held = armed(&rows(), &Settings::default())?.memory_bytes() as f64;
    let bound = ((2 * SKETCH_ROWS + RANK + 8 + 1) * 8 * COLUMNS + 4096) as f64;
    let measured = Pair { ours: held / 1024.0, peer: bound / 1024.0, ratio: held / bound };
    let peer = "(2l + k + 8) · 8 · m bytes, 8 · m for the one replica and 4 KiB, m = 141, l = 25, k = 12";
    Ok(Figure::new(name, "KiB", peer, measured, Goal::AtMost(1.0)))
}

fn against_projection(
    name: &str,
    rows: &[Vec<f64>],
    mut detector: Detector,
    mut judge: impl FnMut(&mut Detector, &[f64]),
) -> Figure {
    let mut projection = Projection::new(COLUMNS);
    let turns = 10;
    let measured = measure(
        turns * ROWS as u64,
        |_| (0..turns).flat_map(|_| rows).for_each(|row| judge(&mut detector, row)),
        |_| (0..turns).flat_map(|_| rows).for_each(|row| _ = black_box(projection.score(black_box(row)))),
    );
    Figure::new(name, "µs", PEER, measured.in_units_of(1000.0), Goal::Stated)
}

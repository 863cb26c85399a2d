//! The cost of scoring a row, compared with the minimum that a detector of this kind has to compute.

use std::hint::black_box;

use anyhow::{Result, ensure};
use lmap::{Column, ColumnKind, Detector, Settings, State};
use nalgebra::{DMatrix, DVector, RealField, convert};

use super::figure::{Figure, Goal};
use super::instructions;
use super::metric_set::Noise;
use super::pair::{Pair, measure};

/// Metrics of a service, as uView's authors measured.
pub const COLUMNS: usize = 141;
/// Rank k of the sketch.
pub const RANK: usize = 12;
/// Rows l of the sketch.
pub const SKETCH_ROWS: usize = 25;
/// Number of different rows, scored in turn.
pub const ROWS: usize = 1000;
const PEER: &str =
    "x − V Vᵀx and its norm, m = 141, k = 12, two matrix–vector products into reused vectors, nothing else";

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
pub struct Projection<T> {
    basis: DMatrix<T>,
    row: DVector<T>,
    within: DVector<T>,
}

impl<T: RealField + Copy> Projection<T> {
    /// A projection to [`RANK`] directions in `columns` columns.
    pub fn new(columns: usize) -> Self {
        let mut noise = Noise(1_234_567);
        let basis = DMatrix::from_fn(columns, RANK, |_, _| noise.draw() as f64 - 500.0).qr().q();
        Self { basis: basis.map(convert), row: DVector::zeros(columns), within: DVector::zeros(RANK) }
    }

    /// The residual norm of a row; it must have `columns` values.
    pub fn score(&mut self, row: &[T]) -> T {
        self.row.copy_from_slice(row);
        self.within.gemv_tr(T::one(), &self.basis, &self.row, T::zero());
        self.row.gemv(-T::one(), &self.basis, &self.within, T::one());
        self.row.norm()
    }
}

/// One row scored, against a projection in the precision `T`, called `precision`.
pub fn score<T: RealField + Copy>(name: &str, precision: &str) -> Result<Figure> {
    against_projection::<T>(name, precision, |detector, row| _ = black_box(detector.score(black_box(row))))
}

/// One row scored, and learnt by the default stride, including its share of decompositions; against the same.
pub fn learn<T: RealField + Copy>(name: &str, precision: &str) -> Result<Figure> {
    against_projection::<T>(name, precision, step)
}

/// Memory of an armed detector, compared with its bound.
pub fn memory(name: &str) -> Result<Figure> {
    let held = armed(&rows(), &Settings::default())?.memory_bytes() as f64;
    let bound = ((2 * SKETCH_ROWS + RANK + 8 + 1) * 8 * COLUMNS + 4096) as f64;
    let measured = Pair::once(held / 1024.0, bound / 1024.0);
    let peer = "(2l + k + 8) · 8 · m bytes, 8 · m for the one replica and 4 KiB, m = 141, l = 25, k = 12";
    Ok(Figure::new(name, "KiB", peer, measured, Goal::AtMost(1.0)))
}

fn against_projection<T: RealField + Copy>(
    name: &str,
    precision: &str,
    mut judge: impl FnMut(&mut Detector, &[f64]),
) -> Result<Figure> {
    let rows = rows();
    let mut detector = armed(&rows, &Settings::default())?;
    let theirs: Vec<Vec<T>> = rows.iter().map(|row| row.iter().map(|value| convert(*value)).collect()).collect();
    let mut projection = Projection::<T>::new(COLUMNS);
    let turns = 10;
    let measured = measure(
        turns * ROWS as u64,
        |_| (0..turns).flat_map(|_| &rows).for_each(|row| judge(&mut detector, row)),
        |_| (0..turns).flat_map(|_| &theirs).for_each(|row| _ = black_box(projection.score(black_box(row)))),
    );
    let peer = format!("nalgebra in {precision}: {PEER}");
    let figure = Figure::new(name, "µs", &peer, measured.in_units_of(1000.0), Goal::Stated);
    Ok(Figure { note: instructions::against_build(precision), ..figure })
}

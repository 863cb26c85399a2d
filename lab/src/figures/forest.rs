//! Scoring and learning compared with a Random Cut Forest.

use std::hint::black_box;

use anyhow::{Result, anyhow, ensure};
use lmap::SketchForm;
use rcf3::{Forest, RcfError};

use super::figure::{Figure, Goal};
use super::instructions;
use super::lmap::{COLUMNS, ROWS, armed, rows, step};
use super::numpy::{every_row, times_ahead};
use super::pair::measure;

/// Rows per turn, for which the forest takes some tens of milliseconds.
const LEARNT: u64 = 200;
const TREES: usize = 50;
const SAMPLES: usize = 256;
const MIN_AHEAD: f64 = 50.0;

/// One row scored and learnt, against a forest that does both.
pub fn forest(name: &str) -> Result<Figure> {
    let refused = |error: RcfError| anyhow!("the forest refuses: {error}");
    let rows = rows();
    let single: Vec<Vec<f32>> = rows.iter().map(|row| row.iter().map(|value| *value as f32).collect()).collect();
    let forest = Forest::builder(COLUMNS).num_trees(TREES).capacity(SAMPLES).shingle_size(1).seed(1);
    let mut forest = forest.build().map_err(refused)?;
    for row in &single {
        forest.update(row).map_err(refused)?;
    }
    let mut detector = armed(&rows, &every_row(SketchForm::Buffered))?;
    let (mut next, mut theirs) = (rows.iter().cycle(), single.iter().cycle());
    let mut failed = None;
    let measured = measure(
        LEARNT,
        |count| next.by_ref().take(count as usize).for_each(|row| step(&mut detector, row)),
        |count| {
            for row in theirs.by_ref().take(count as usize) {
                let scored = forest.score(black_box(row)).map(|score| _ = black_box(score));
                failed = scored.and_then(|()| forest.update(row)).err().or(failed.take());
            }
        },
    );
    failed.map_or(Ok(()), |error| Err(refused(error)))?;
    ensure!(rows.len() == ROWS, "there are {} rows", rows.len());
    let peer = format!("the crate rcf3, {TREES} trees of {SAMPLES} samples, {COLUMNS} columns: score and update");
    let figure = Figure::new(name, "µs", &peer, measured.in_units_of(1000.0), Goal::Stated);
    Ok(times_ahead(figure, Some(MIN_AHEAD), &instructions::against_build("f32")))
}

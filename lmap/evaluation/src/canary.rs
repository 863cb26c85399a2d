//! Fits a model to one version's rows, to be compared with another version's by [`lmap::Canary`]. Pure.

use lmap::{Detector, Model, Settings};

use crate::candidate::TrainError;
use crate::columns::Columns;
use crate::table::{Label, Table};
use crate::unit::Rows;

/// Minimum rows: fewer do not determine how a metric spreads.
const MIN_ROWS: usize = 60;
/// Maximum rows of a fit (the bound of [`Settings::warm_up_rows`]); the last ones are used.
const MAX_ROWS: usize = 100_000;
/// Fixed, so that fits are reproducible.
const SEED: u64 = 1;

/// A model of all rows of `table` that are not labelled as a fault. `interval`: seconds between rows, if known.
///
/// # Errors
///
/// [`TrainError`] if there are too few rows, or a fit fails.
pub fn model(table: &Table, columns: &Columns, interval: Option<f64>) -> Result<Model, TrainError> {
    let rows = Rows::of(table, columns, interval).map_err(|_| TrainError::NotFitted)?;
    let rows = match &table.labels {
        None => rows,
        Some(labels) => rows.select(&labels.iter().map(|label| *label == Label::Normal).collect::<Vec<_>>()),
    };
    let rows = rows.last(MAX_ROWS);
    if rows.len() < MIN_ROWS {
        return Err(TrainError::Rows { found: rows.len(), least: MIN_ROWS });
    }
    let settings = Settings {
        provisional_rows: None,
        warm_up_rows: rows.len(),
        fit_again_rows: Vec::new(),
        ..Settings::default()
    };
    let mut detector = Detector::new(columns.columns.clone(), settings, SEED)?;
    for (row, gap) in rows.iter() {
        if gap {
            detector.gap();
        }
        let _ = detector.score(row).map_err(|_| TrainError::NotFitted)?;
        if let Some(job) = detector.learn() {
            let _ = detector.install(job.run()); // run in place: never stale; a fit that failed leaves no model
        }
    }
    detector.model().ok_or(TrainError::NotFitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::read;

    fn table(rows: usize, fault: usize) -> (Table, Columns) {
        let row = |row: usize| {
            let value = (row * 7919 % 101) as f64;
            let more = if row < fault { 1e6 } else { 0.0 };
            format!("{},{},{}\n", value + more, row % 5, u8::from(row < fault))
        };
        let text: String = (0..rows).map(row).collect();
        let table = read(format!("a,b,label\n{text}").as_bytes()).unwrap();
        let columns = Columns::gauges(&table.metrics, |name| u64::from(name.as_bytes()[0]));
        (table, columns)
    }

    #[test]
    fn a_version_is_what_it_does_without_faults() {
        let (with, columns) = table(300, 50);
        let (without, _) = table(300, 0);

        let [with, without] = [with, without].map(|table| model(&table, &columns, None).unwrap());

        assert!(with.gamma() < 10.0 && (with.gamma() / without.gamma() - 1.0).abs() < 0.5);
        assert_eq!(with.fingerprints().collect::<Vec<_>>(), [97, 98]);
    }

    #[test]
    fn too_few_rows_are_refused() {
        let (table, columns) = table(90, 40);

        assert!(matches!(model(&table, &columns, None), Err(TrainError::Rows { found: 50, least: 60 })));
    }
}

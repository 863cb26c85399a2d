//! A unit: training rows, test rows, labels and responsible metrics of one service, for any detector. Pure.

use std::ops::Range;

use lmap::{Column, Increments, RowError};
use thiserror::Error;

use crate::columns::Columns;
use crate::table::{Label, Table, follows};

/// A metric present in at most this share of the training rows is left out.
const MIN_PRESENT: f64 = 0.9;

/// Why two tables do not form a unit.
#[derive(Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// No usable metric.
    #[error("no metric is in both files and present in more than {} % of the training rows", MIN_PRESENT * 100.0)]
    NoMetric,
    /// The test file has no labels.
    #[error("the test file has no column `label`")]
    NoLabels,
    /// A segment outside of the test file.
    #[error("a labelled segment is of rows {} to {}, the test file has {rows}", .segment.start, .segment.end)]
    Segment {
        /// Its rows, from 0.
        segment: Range<usize>,
        /// Number of test rows.
        rows: usize,
    },
    /// Tables and columns of different width; a mistake of the caller.
    #[error("the columns do not belong to the table")]
    Columns(#[from] RowError),
}

/// Rows of one value per metric, counters taken as increments; NaN is a missing value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    metrics: usize,
    values: Vec<f64>,
    gaps: Vec<bool>,
}

impl Rows {
    /// All rows of `table`, which come every `interval` seconds if that is known.
    ///
    /// # Errors
    ///
    /// [`RowError`] if `columns` are of another table; a mistake of the caller.
    pub fn of(table: &Table, columns: &Columns, interval: Option<f64>) -> Result<Self, RowError> {
        let places: Vec<usize> = (0..table.metrics.len()).collect();
        let all: Vec<(usize, usize)> = places.iter().map(|place| (*place, *place)).collect();
        Counters::new(&all, &columns.counters).rows(table, &places, &gaps(table, None, interval))
    }

    /// The rows with `taken` set, one flag per row. A row after one that is left out follows a gap.
    #[must_use]
    pub fn select(&self, taken: &[bool]) -> Self {
        let mut out = Self { metrics: self.metrics, values: Vec::new(), gaps: Vec::new() };
        let mut before = false;
        for ((row, gap), taken) in self.iter().zip(taken) {
            if *taken {
                out.values.extend_from_slice(row);
                out.gaps.push(gap || !before);
            }
            before = *taken;
        }
        out
    }

    /// Each row replaced by what `change` makes of it and the gap before it: as many values.
    pub(crate) fn map(&self, mut change: impl FnMut(&[f64], bool) -> Vec<f64>) -> Self {
        let values = self.iter().flat_map(|(row, gap)| change(row, gap)).collect();
        Self { values, ..self.clone() }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.gaps.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// The rows in order, each with whether there is a gap before it.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[f64], bool)> {
        self.values.chunks_exact(self.metrics).zip(self.gaps.iter().copied())
    }

    /// The last `count` rows, all if there are fewer.
    #[must_use]
    pub fn last(&self, count: usize) -> Self {
        let skip = self.len().saturating_sub(count);
        let mut gaps = self.gaps[skip..].to_vec();
        if let Some(first) = gaps.first_mut() {
            *first = true;
        }
        Self { metrics: self.metrics, values: self.values[skip * self.metrics..].to_vec(), gaps }
    }

    /// The values with missing ones filled: by the row before; at the beginning by `before`, or without it by the first
    /// value; by 0 for a metric without values.
    #[must_use]
    pub fn filled(&self, before: Option<&[f64]>) -> Vec<f64> {
        let mut out = self.values.clone();
        for column in 0..self.metrics {
            let mut values = self.values.iter().skip(column).step_by(self.metrics);
            let first = || values.find(|value| !value.is_nan()).copied().unwrap_or(0.0);
            let mut held = before.map_or_else(first, |row| row[column]);
            for value in out.iter_mut().skip(column).step_by(self.metrics) {
                held = if value.is_nan() { held } else { *value };
                *value = held;
            }
        }
        out
    }
}

/// Test rows for which experts have named the responsible metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Test rows, from 0.
    pub rows: Range<usize>,
    /// Columns of the unit, ascending.
    pub responsible: Vec<usize>,
}

/// A service, server or process: training and test rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The name in its file names.
    pub name: String,
    /// Names, one per column.
    pub metrics: Vec<String>,
    /// The columns for a detector.
    pub columns: Vec<Column>,
    /// Names of the columns' groups.
    pub groups: Vec<String>,
    /// Rows without a known fault.
    pub train: Rows,
    /// Rows to judge. The first follows the last training row unless there is a gap.
    pub test: Rows,
    /// One per test row.
    pub labels: Vec<Label>,
    /// Kinds of fault, one per test row, empty where there is none.
    pub faults: Vec<String>,
    /// Test rows with known causes; often none.
    pub segments: Vec<Segment>,
}

impl Unit {
    /// Creates a unit from two tables. `columns` describes the metrics of `train`. `segments` names the metrics
    /// responsible for test rows; metrics that the unit does not have are ignored.
    ///
    /// # Errors
    ///
    /// [`UnitError`] if there is no usable metric or no label.
    pub fn new(
        name: String,
        (train, test): (&Table, &Table),
        columns: &Columns,
        segments: &[(Range<usize>, Vec<String>)],
    ) -> Result<Self, UnitError> {
        let labels = test.labels.clone().ok_or(UnitError::NoLabels)?;
        let shared = shared(train, test);
        if shared.is_empty() {
            return Err(UnitError::NoMetric);
        }
        let metrics: Vec<String> = shared.iter().map(|(place, _)| train.metrics[*place].clone()).collect();
        let mut counters = Counters::new(&shared, &columns.counters);
        let interval = train.interval();
        let (in_train, in_test): (Vec<usize>, Vec<usize>) = shared.iter().copied().unzip();
        let before = train.times.as_ref().and_then(|times| times.last().copied());
        let train_rows = counters.rows(train, &in_train, &gaps(train, None, interval))?;
        let test_rows = counters.rows(test, &in_test, &gaps(test, before, interval))?;
        let place = |name: &String| metrics.iter().position(|metric| metric == name);
        let segment = |(rows, names): &(Range<usize>, Vec<String>)| {
            if !(rows.start <= rows.end && rows.end <= labels.len()) {
                return Err(UnitError::Segment { segment: rows.clone(), rows: labels.len() });
            }
            let mut responsible: Vec<usize> = names.iter().filter_map(place).collect();
            responsible.sort_unstable();
            Ok(Segment { rows: rows.clone(), responsible })
        };
        let segments: Vec<Segment> = segments.iter().map(segment).collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            columns: in_train.iter().map(|place| columns.columns[*place]).collect(),
            groups: columns.groups.clone(),
            metrics,
            train: train_rows,
            test: test_rows,
            faults: test.faults.clone().unwrap_or_else(|| vec![String::new(); labels.len()]),
            labels,
            segments: segments.into_iter().filter(|segment| !segment.rows.is_empty()).collect(),
        })
    }

    /// The same with only the last `rows` training rows.
    #[must_use]
    pub fn with_last(&self, rows: usize) -> Self {
        Self { train: self.train.last(rows), ..self.clone() }
    }

    /// The same without the metrics that are constant in training; unchanged if all are.
    #[must_use]
    pub fn without_constants(&self) -> Self {
        let width = self.metrics.len();
        let train = self.train.filled(None);
        let moves = |column: &usize| {
            let mut values = train.iter().skip(*column).step_by(width);
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let kept: Vec<usize> = (0..width).filter(moves).collect();
        if kept.is_empty() {
            return self.clone();
        }
        let cut = |rows: &Rows| Rows {
            metrics: kept.len(),
            values: rows.values.chunks_exact(width).flat_map(|row| kept.iter().map(|column| row[*column])).collect(),
            gaps: rows.gaps.clone(),
        };
        let segment = |segment: &Segment| Segment {
            rows: segment.rows.clone(),
            responsible: segment.responsible.iter().filter_map(|column| kept.binary_search(column).ok()).collect(),
        };
        Self {
            metrics: kept.iter().map(|column| self.metrics[*column].clone()).collect(),
            columns: kept.iter().map(|column| self.columns[*column]).collect(),
            train: cut(&self.train),
            test: cut(&self.test),
            segments: self.segments.iter().map(segment).collect(),
            ..self.clone()
        }
    }

    /// Rows in sequence that are labelled anomalous, as (first row, row after the last).
    #[must_use]
    pub fn events(&self) -> Vec<(usize, usize)> {
        let rows: Vec<usize> = (0..self.labels.len()).filter(|row| self.labels[*row] == Label::Anomalous).collect();
        rows.chunk_by(|a, b| a + 1 == *b).map(|event| (event[0], event[event.len() - 1] + 1)).collect()
    }
}

/// Metrics of both tables that are mostly present, as (index in `train`, index in `test`), in the order of `train`.
fn shared(train: &Table, test: &Table) -> Vec<(usize, usize)> {
    let rows = train.rows().len() as f64;
    let mostly_there = |place: usize| {
        let there = train.rows().filter(|row| !row[place].is_nan()).count();
        there as f64 > MIN_PRESENT * rows
    };
    let both = train.metrics.iter().enumerate().filter_map(|(place, name)| {
        let other = test.metrics.iter().position(|metric| metric == name)?;
        Some((place, other))
    });
    both.filter(|(place, _)| mostly_there(*place)).collect()
}

/// Which rows follow a gap; `before` is the time of the row before the first. Without times only the first does.
fn gaps(table: &Table, before: Option<f64>, interval: Option<f64>) -> Vec<bool> {
    let (Some(times), Some(interval)) = (&table.times, interval) else {
        return (0..table.rows().len()).map(|row| row == 0).collect();
    };
    let mut before = before.unwrap_or(f64::NAN);
    times.iter().map(|time| !follows(time - std::mem::replace(&mut before, *time), interval)).collect()
}

/// Converts cumulative columns to increments, continuing from training to test.
struct Counters {
    /// Columns of the unit.
    places: Vec<usize>,
    increments: Increments<f64>,
}

impl Counters {
    fn new(shared: &[(usize, usize)], counters: &[usize]) -> Self {
        let is_counter = |place: usize| counters.binary_search(&place).is_ok();
        let places: Vec<usize> =
            shared.iter().enumerate().filter(|(_, (place, _))| is_counter(*place)).map(|(column, _)| column).collect();
        Self { increments: Increments::new(places.len()), places }
    }

    fn rows(&mut self, table: &Table, places: &[usize], gaps: &[bool]) -> Result<Rows, RowError> {
        let mut values = Vec::with_capacity(gaps.len() * places.len());
        let (mut totals, mut added) = (vec![0.0; self.places.len()], vec![0.0; self.places.len()]);
        for (row, gap) in table.rows().zip(gaps) {
            if *gap {
                self.increments.gap();
            }
            let start = values.len();
            values.extend(places.iter().map(|place| row[*place]));
            for (total, column) in totals.iter_mut().zip(&self.places) {
                *total = values[start + column];
            }
            self.increments.step(&totals, &mut added)?;
            for (added, column) in added.iter().zip(&self.places) {
                values[start + column] = *added;
            }
        }
        Ok(Rows { metrics: places.len(), values, gaps: gaps.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::read;

    fn unit(train: &str, test: &str, counters: &[usize]) -> Result<Unit, UnitError> {
        let (train, test) = (read(train.as_bytes()).unwrap(), read(test.as_bytes()).unwrap());
        let mut columns = Columns::gauges(&train.metrics, |_| 0);
        columns.counters = counters.to_vec();
        Unit::new("a".to_owned(), (&train, &test), &columns, &[])
    }

    #[test]
    fn metrics_are_those_of_both_files_that_are_mostly_there() {
        let unit = unit("a,b,c\n1,,3\n1,,3\n", "c,label,a,d\n5,0,4,6\n", &[]).unwrap();

        assert_eq!(unit.metrics, ["a", "c"]);
        assert_eq!(unit.test.iter().next(), Some((&[4.0, 5.0][..], true)));
    }

    #[test]
    fn a_counter_goes_on_into_the_test_rows_if_time_does() {
        let goes_on = unit("time,a\n1,10\n2,13\n3,17\n", "time,a,label\n4,22,0\n5,3,0\n6,4,1\n", &[0]).unwrap();
        let stops = unit("time,a\n1,10\n2,13\n3,17\n", "time,a,label\n9,22,0\n10,24,0\n", &[0]).unwrap();

        assert_eq!(goes_on.train.filled(None), [3.0, 3.0, 4.0]);
        let test: Vec<f64> = goes_on.test.iter().map(|(row, _)| row[0]).collect();
        assert!(test[0] == 5.0 && test[1].is_nan() && test[2] == 1.0, "a reset has no increment: {test:?}");
        assert_eq!(goes_on.test.filled(Some(&[4.0])), [5.0, 5.0, 1.0]);
        assert_eq!(stops.test.iter().map(|(_, gap)| gap).collect::<Vec<_>>(), [true, false]);
        assert_eq!(stops.test.filled(Some(&[4.0])), [4.0, 2.0]);
    }

    #[test]
    fn events_are_rows_in_sequence() {
        let unit = unit("a\n1\n2\n", "a,label\n1,1\n1,1\n1,2\n1,1\n1,0\n", &[]).unwrap();

        assert_eq!(unit.events(), [(0, 2), (3, 4)]);
    }

    #[test]
    fn without_labels_or_metrics_it_is_no_unit() {
        assert_eq!(unit("a\n1\n", "a\n1\n", &[]), Err(UnitError::NoLabels));
        assert_eq!(unit("a\n1\n", "b,label\n1,0\n", &[]), Err(UnitError::NoMetric));
    }

    #[test]
    fn a_segment_outside_of_the_rows_is_refused() {
        let (train, test) = (read("a\n1\n".as_bytes()).unwrap(), read("a,label\n1,1\n".as_bytes()).unwrap());
        let columns = Columns::gauges(&train.metrics, |_| 0);
        let segment = |rows: Range<usize>| vec![(rows, vec!["a".to_owned(), "z".to_owned()])];

        let unit = |rows| Unit::new("a".to_owned(), (&train, &test), &columns, &segment(rows));

        assert_eq!(unit(0..1).unwrap().segments, [Segment { rows: 0..1, responsible: vec![0] }]);
        assert_eq!(unit(0..2), Err(UnitError::Segment { segment: 0..2, rows: 1 }));
    }
}

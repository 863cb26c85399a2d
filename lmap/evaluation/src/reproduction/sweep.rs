//! The rank k, the rows l of the sketch and the percentile q of γ, in the paper's relative form (Sec. 4.8.2, Fig. 4.4
//! and 4.5).
//!
//! The paper does not say how to treat metrics that drift or are constant in training. Here drifting gauges are
//! differenced and constants are left out; otherwise their size alone would be the score. As published, U is renewed at
//! every learnt row (row-wise); the buffered sketch, which our detectors have, is another reading.

use lmap::{LevelRule, ScoreForm, Settings, SketchForm};

use crate::candidate::{Lmap, TrainError};
use crate::protocol;
use crate::table::Label;
use crate::unit::Unit;

/// The ranks of a sweep.
pub const RANKS: [usize; 7] = [1, 2, 3, 5, 10, 15, 20];
/// The rows of the sketch of a sweep.
pub const SKETCH_ROWS: [usize; 2] = [25, 50];
/// The percentiles of a sweep.
pub const PERCENTILES: [f64; 6] = [90.0, 95.0, 97.0, 99.0, 99.5, 99.9];

/// The paper's form of the detector: its sketch and sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperForm {
    /// Row-wise as published: U is renewed at every learnt row.
    pub sketch: SketchForm,
    /// k: rank of the basis.
    pub rank: usize,
    /// l: rows of the sketch.
    pub sketch_rows: usize,
    /// q: percentile of γ.
    pub percentile: f64,
}

impl PaperForm {
    /// The settings of a detector of this form.
    #[must_use]
    pub fn settings(self) -> Settings {
        let Self { sketch, rank, sketch_rows, percentile } = self;
        Settings {
            rank: Some(rank),
            sketch_rows: Some(sketch_rows),
            percentile,
            levels: Some(LevelRule::default()),
            sketch,
            ..Settings::paper(ScoreForm::PaperRelative)
        }
    }
}

/// The figures of one choice of k, l and q, on one unit or as mean of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// k: rank of the basis.
    pub rank: usize,
    /// l: rows of the sketch.
    pub sketch_rows: usize,
    /// q: percentile of γ.
    pub percentile: f64,
    /// Median of the training scores.
    pub median: f64,
    /// 99.9th percentile of the training scores.
    pub tail: f64,
    /// Of the rows at or over γ, those of a fault; 0 if there is none.
    pub precision: f64,
    /// Of the rows of a fault, those at or over γ.
    pub recall: f64,
}

/// Evaluates every choice on `unit`, row by row, without rows that do not count.
///
/// # Errors
///
/// [`TrainError`] if the unit cannot be trained on.
pub fn sweep(unit: &Unit, sketch: SketchForm) -> Result<Vec<Point>, TrainError> {
    let unit = unit.without_constants();
    let mut points = Vec::new();
    for sketch_rows in SKETCH_ROWS {
        for rank in RANKS.into_iter().filter(|rank| *rank < sketch_rows) {
            for percentile in PERCENTILES {
                points.push(point(&unit, PaperForm { sketch, rank, sketch_rows, percentile })?);
            }
        }
    }
    Ok(points)
}

fn point(unit: &Unit, form: PaperForm) -> Result<Point, TrainError> {
    let mut candidate = Lmap::train(unit, &form.settings())?;
    let quantiles = candidate.detector().training_quantiles().unwrap_or_default();
    let at = |percent: f64| {
        let place = lmap::QUANTILES.iter().position(|known| *known == percent);
        place.map_or(0.0, |place| quantiles[place])
    };
    let course = protocol::run(&mut candidate, unit);
    let (mut hits, mut taken, mut faulty) = (0, 0, 0);
    for (label, judged) in unit.labels.iter().zip(&course.judged).filter(|(label, _)| **label != Label::Ignored) {
        let over = judged.score >= course.gamma;
        faulty += u32::from(*label == Label::Anomalous);
        taken += u32::from(over);
        hits += u32::from(over && *label == Label::Anomalous);
    }
    let share = |of: u32| if of > 0 { f64::from(hits) / f64::from(of) } else { 0.0 };
    let (precision, recall) = (share(taken), share(faulty));
    let PaperForm { rank, sketch_rows, percentile, .. } = form;
    Ok(Point { rank, sketch_rows, percentile, median: at(50.0), tail: at(99.9), precision, recall })
}

/// The mean of several units' sweeps; empty if there is none.
#[must_use]
pub fn mean(sweeps: &[Vec<Point>]) -> Vec<Point> {
    let Some(first) = sweeps.first() else { return Vec::new() };
    let each = |place: usize, figure: fn(&Point) -> f64| {
        sweeps.iter().filter_map(|sweep| sweep.get(place)).map(figure).sum::<f64>() / sweeps.len() as f64
    };
    let point = |(place, point): (usize, &Point)| Point {
        median: each(place, |point| point.median),
        tail: each(place, |point| point.tail),
        precision: each(place, |point| point.precision),
        recall: each(place, |point| point.recall),
        ..*point
    };
    first.iter().enumerate().map(point).collect()
}

/// The mean of `figure` over the points of this k and l, whatever q is.
#[must_use]
pub fn at(points: &[Point], rank: usize, sketch_rows: usize, figure: fn(&Point) -> f64) -> f64 {
    let of: Vec<f64> = points.iter().filter(|p| p.rank == rank && p.sketch_rows == sketch_rows).map(figure).collect();
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

/// By how much precision and recall differ between l = 25 and l = 50 at the same k and q: the mean, and the most.
#[must_use]
pub fn between_sketches(points: &[Point]) -> (f64, f64) {
    let [few, many] = SKETCH_ROWS;
    let mut apart = Vec::new();
    for point in points.iter().filter(|point| point.sketch_rows == few) {
        let same = |other: &&Point| {
            other.sketch_rows == many && other.rank == point.rank && other.percentile == point.percentile
        };
        if let Some(other) = points.iter().find(same) {
            apart.push((point.precision - other.precision).abs());
            apart.push((point.recall - other.recall).abs());
        }
    }
    (apart.iter().sum::<f64>() / apart.len().max(1) as f64, apart.iter().copied().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;
    use crate::table::read;

    /// Two metrics that follow one load and a third of its own, which a fault moves; a fourth that stands still.
    fn unit() -> Unit {
        let noise = |t: u32| f64::from(t.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
        let row = |t: u32, more: f64| {
            let load = noise(t);
            format!("{},{},{},7", load + 0.01 * noise(t + 1), 2.0 * load + 0.02 * noise(t + 2), noise(t + 3) + more)
        };
        let train: String = (0..300).map(|t| row(10 * t, 0.0) + "\n").collect();
        let test = |t: u32| {
            let faulty = t % 40 >= 30;
            row(7_000 + 10 * t, if faulty { 9.0 } else { 0.0 }) + if faulty { ",1\n" } else { ",0\n" }
        };
        let test: String = (0..200).map(test).collect();
        let train = read(format!("a,b,c,d\n{train}").as_bytes()).unwrap();
        let test = read(format!("a,b,c,d,label\n{test}").as_bytes()).unwrap();
        let columns = Columns::gauges(&train.metrics, |_| 0);
        Unit::new("u".to_owned(), (&train, &test), &columns, &[]).unwrap()
    }

    #[test]
    fn what_stands_still_in_training_is_left_out() {
        assert_eq!(unit().without_constants().metrics, ["a", "b", "c"]);
    }

    #[test]
    fn a_sweep_has_every_choice_once_and_figures_that_are_shares() {
        let points = sweep(&unit(), SketchForm::RowWise).unwrap();

        assert_eq!(points.len(), RANKS.len() * SKETCH_ROWS.len() * PERCENTILES.len());
        for point in &points {
            for figure in [point.median, point.tail, point.precision, point.recall] {
                assert!((0.0..=1.0).contains(&figure), "{point:?}");
            }
            assert!(point.median <= point.tail);
        }
        // One direction leaves the third metric, with most of a faulty row in it; as many as there are leave nothing.
        assert!(at(&points, 1, 25, |point| point.tail) > at(&points, 20, 25, |point| point.tail));
        assert_eq!(mean(&[points.clone(), points.clone()]), points);
        let (mean_apart, most_apart) = between_sketches(&points);
        assert!(mean_apart <= most_apart && most_apart <= 1.0);
    }
}

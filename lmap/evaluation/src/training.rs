//! Training of a model file: the split into learnt and held-out rows, trials of k, l and q, and figures on the held-out
//! rows. Pure.
//!
//! Rows with a known fault, and rows that do not count, are never learnt. Of the others the first 70 % are learnt
//! (μView, 4.8.2); everything else is judged in its order. The final model learns all normal rows: the figures are
//! those of a model with fewer rows.

use lmap::{Model, QUANTILES, RowError, Settings};
use thiserror::Error;

use crate::candidate::{Candidate as _, Lmap, TrainError};
use crate::columns::Columns;
use crate::episodes::Episodes;
use crate::protocol::{self, Count, DetectorRun};
use crate::ranking::{Point, Ranking, quantile};
use crate::table::{Label, Table};
use crate::unit::{Rows, Unit};

/// Number of percentiles of scores: those at [`QUANTILES`].
const COUNT: usize = QUANTILES.len();
/// Share of the normal rows that is learnt.
pub const LEARNT: f64 = 0.7;
/// Minimum normal rows: a fit takes 8, and some must be held out.
pub const MIN_ROWS: usize = 12;
/// Confidence of bounds.
const SURE: f64 = 0.95;

/// Why rows cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SplitError {
    /// Too few normal rows.
    #[error("{found} of {rows} rows are normal, at least {MIN_ROWS} are needed to learn from")]
    FewRows {
        /// Number of normal rows.
        found: usize,
        /// Number of all rows.
        rows: usize,
    },
    /// Columns of another table; a mistake of the caller.
    #[error("the columns do not belong to the table")]
    Columns(#[from] RowError),
}

/// Rows to learn and rows to judge.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The first part of the normal rows to train on; everything else, labelled, to test on.
    pub unit: Unit,
    /// All rows labelled normal.
    pub normal: Rows,
    /// Whether any row is labelled anomalous.
    pub has_faults: bool,
}

impl Split {
    /// Splits the rows of `table`, which come every `interval` seconds if that is known. Without labels all rows are
    /// normal.
    ///
    /// # Errors
    ///
    /// [`SplitError`] if there are too few normal rows.
    pub fn of(name: &str, table: &Table, columns: &Columns, interval: Option<f64>) -> Result<Self, SplitError> {
        let rows = Rows::of(table, columns, interval)?;
        let labels = table.labels.clone().unwrap_or_else(|| vec![Label::Normal; rows.len()]);
        let faults = table.faults.clone().unwrap_or_else(|| vec![String::new(); rows.len()]);
        let normal: Vec<bool> = labels.iter().map(|label| *label == Label::Normal).collect();
        let found = normal.iter().filter(|normal| **normal).count();
        if found < MIN_ROWS {
            return Err(SplitError::FewRows { found, rows: rows.len() });
        }
        let mut left = (found as f64 * LEARNT).round() as usize;
        let learnt: Vec<bool> = normal
            .iter()
            .map(|normal| {
                let taken = *normal && left > 0;
                left -= usize::from(taken);
                taken
            })
            .collect();
        let judged: Vec<bool> = learnt.iter().map(|learnt| !learnt).collect();
        let of_judged = |row: &usize| judged[*row];
        let test: Vec<usize> = (0..rows.len()).filter(of_judged).collect();
        let unit = Unit {
            name: name.to_owned(),
            metrics: table.metrics.clone(),
            columns: columns.columns.clone(),
            groups: columns.groups.clone(),
            train: rows.select(&learnt),
            test: rows.select(&judged),
            labels: test.iter().map(|row| labels[*row]).collect(),
            faults: test.iter().map(|row| faults[*row].clone()).collect(),
            segments: Vec::new(),
        };
        let has_faults = labels.contains(&Label::Anomalous);
        Ok(Self { unit, normal: rows.select(&normal), has_faults })
    }

    /// The model of all normal rows (the last 100,000 if there are more).
    ///
    /// # Errors
    ///
    /// [`TrainError`]: nothing to learn, or settings that do not work.
    pub fn model(&self, settings: &Settings) -> Result<Model, TrainError> {
        let unit = Unit { train: self.normal.clone(), test: self.normal.select(&[]), ..self.unit.clone() };
        Lmap::train(&unit, settings)?.detector().model().ok_or(TrainError::NotFitted)
    }
}

/// One point of a grid: k, l and q to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// k; `None`: by the explained share of the variance.
    pub rank: Option<usize>,
    /// l; `None`: max(25, 2k).
    pub sketch_rows: Option<usize>,
    /// q, of γ.
    pub percentile: f64,
}

impl Trial {
    /// `base` with this point's k, l and q.
    #[must_use]
    pub fn settings(&self, base: &Settings) -> Settings {
        Settings { rank: self.rank, sketch_rows: self.sketch_rows, percentile: self.percentile, ..base.clone() }
    }

    /// Trains on the split's training rows and judges the others. Returns the figures and the score of each row.
    ///
    /// # Errors
    ///
    /// [`TrainError`]: nothing to learn, or settings that do not work.
    pub fn run(&self, base: &Settings, split: &Split) -> Result<(TrialOutcome, DetectorRun), TrainError> {
        let settings = self.settings(base);
        let mut lmap = Lmap::train(&split.unit, &settings)?;
        let (rank, sketch_rows) = lmap.detector().shape().ok_or(TrainError::NotFitted)?;
        let training = lmap.detector().training_quantiles().ok_or(TrainError::NotFitted)?;
        let course = protocol::run(&mut lmap, &split.unit);
        let quiet = settings.episode.quiet as usize;
        let episodes = Episodes::of(&split.unit, &course, quiet);
        let outcome = TrialOutcome {
            trial: *self,
            rank,
            sketch_rows,
            gamma: lmap.gamma(),
            training,
            quiet: QuietStats::of(split, &course, episodes.false_alarms),
            events: episodes.found,
            delay: episodes.median_delay(),
            faults: split.has_faults.then(|| FaultStats::of(split, &course)),
        };
        Ok((outcome, course))
    }
}

/// Every valid combination of k, l and q (k < l).
#[must_use]
pub fn grid(ranks: &[Option<usize>], sketch_rows: &[Option<usize>], percentiles: &[f64]) -> Vec<Trial> {
    let fits = |rank: Option<usize>, rows: Option<usize>| rank.zip(rows).is_none_or(|(rank, rows)| rank < rows);
    let mut trials = Vec::new();
    for &rank in ranks {
        for &rows in sketch_rows.iter().filter(|rows| fits(rank, **rows)) {
            trials.extend(percentiles.iter().map(|&percentile| Trial { rank, sketch_rows: rows, percentile }));
        }
    }
    trials
}

/// Figures on held-out normal rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuietStats {
    /// Number of rows.
    pub rows: usize,
    /// Rows at or over γ.
    pub over: usize,
    /// Episodes that touch only normal rows.
    pub alarms: usize,
    /// Their scores, not smoothed, at [`QUANTILES`]; 0 without rows.
    pub scores: [f64; COUNT],
}

impl QuietStats {
    fn of(split: &Split, course: &DetectorRun, alarms: usize) -> Self {
        let normal = || split.unit.labels.iter().zip(&course.judged).filter(|(label, _)| **label == Label::Normal);
        let mut scores: Vec<f64> = normal().map(|(_, judged)| judged.own).collect();
        scores.sort_by(f64::total_cmp);
        Self {
            rows: scores.len(),
            over: normal().filter(|(_, judged)| judged.score >= course.gamma).count(),
            alarms,
            scores: QUANTILES.map(|percent| quantile(&scores, percent / 100.0)),
        }
    }

    /// Share of rows at or over γ; 0 without rows.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.over as f64 / self.rows.max(1) as f64
    }

    /// Alarms per row that are not exceeded with 95 % confidence, if alarms come independently of each other; infinite
    /// without rows.
    #[must_use]
    pub fn most_alarms_per_row(&self) -> f64 {
        if self.rows == 0 { f64::INFINITY } else { most_expected(self.alarms) / self.rows as f64 }
    }
}

/// Figures on rows with a known fault, against the normal ones. All in \[0, 1\].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultStats {
    /// Anomalous rows, of all rows at or over γ.
    pub precision: f64,
    /// Rows at or over γ, of all anomalous rows.
    pub recall: f64,
    /// F1 at γ.
    pub f1: f64,
    /// F1 at the best threshold, in hindsight.
    pub best_f1: f64,
    /// Area under the precision-recall curve: average precision.
    pub auc_pr: f64,
    /// Area under the ROC curve.
    pub auc_roc: f64,
}

impl FaultStats {
    fn of(split: &Split, course: &DetectorRun) -> Self {
        let ranking = ranking(split, course);
        let judged = || split.unit.labels.iter().zip(&course.judged).filter(|(_, judged)| judged.score >= course.gamma);
        let hits = judged().filter(|(label, _)| **label == Label::Anomalous).count();
        let alarms = judged().filter(|(label, _)| **label != Label::Ignored).count();
        let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            precision: share(hits, alarms),
            recall: share(hits, ranking.anomalous()),
            f1: ranking.at(course.gamma).0,
            best_f1: ranking.best_f1(),
            auc_pr: ranking.auc_pr(),
            auc_roc: ranking.auc_roc(),
        }
    }
}

/// The judged rows that count, by their scores.
#[must_use]
pub fn ranking(split: &Split, course: &DetectorRun) -> Ranking {
    let point = |(label, judged): (&Label, &crate::candidate::RowScore)| match label {
        Label::Ignored => None,
        Label::Normal => Some(Point { score: judged.score, event: None }),
        Label::Anomalous => Some(Point { score: judged.score, event: Some(0) }),
    };
    Ranking::new(split.unit.labels.iter().zip(&course.judged).filter_map(point).collect())
}

/// The figures of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialOutcome {
    /// The point of the grid.
    pub trial: Trial,
    /// k: rank of the basis.
    pub rank: usize,
    /// l: rows of the sketch.
    pub sketch_rows: usize,
    /// γ: the threshold.
    pub gamma: f64,
    /// Scores of the training rows, not smoothed, at [`QUANTILES`].
    pub training: [f64; COUNT],
    /// Figures on held-out normal rows.
    pub quiet: QuietStats,
    /// Labelled events with an episode.
    pub events: Count,
    /// Median rows from an event's first to its episode's.
    pub delay: Option<usize>,
    /// `None` without labelled faults.
    pub faults: Option<FaultStats>,
}

impl TrialOutcome {
    /// Median score of held-out normal rows, divided by that of training rows: well above 1 if k is too large for the
    /// number of rows.
    #[must_use]
    pub fn held_out_factor(&self) -> f64 {
        let middle = QUANTILES.iter().position(|percent| *percent == 50.0).unwrap_or(0);
        if self.training[middle] > 0.0 { self.quiet.scores[middle] / self.training[middle] } else { 1.0 }
    }
}

/// The best trial: with labelled faults the highest F1 at γ, otherwise the lowest rate of quiet rows over γ, then of
/// alarms (μView, 4.8.2); among equals the smaller k and l. `None` without trials.
#[must_use]
pub fn best(outcome: &[TrialOutcome]) -> Option<&TrialOutcome> {
    let key = |outcome: &TrialOutcome| {
        let f1 = outcome.faults.map_or(0.0, |faults| -faults.f1);
        (f1, outcome.quiet.rate(), outcome.quiet.alarms as f64, outcome.rank, outcome.sketch_rows)
    };
    outcome.iter().min_by(|a, b| {
        let (a, b) = (key(a), key(b));
        let shares = a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2));
        shares.then((a.3, a.4).cmp(&(b.3, b.4)))
    })
}

/// The 95 % upper bound of a Poisson mean of which `seen` events were observed: with this mean, the probability of at
/// most `seen` events is 5 %.
#[must_use]
pub fn most_expected(seen: usize) -> f64 {
    // P(no more than seen) falls with the mean; halve the range until it is narrow.
    let at_most = |mean: f64| {
        let mut term = (-mean).exp();
        let mut sum = term;
        for count in 1..=seen {
            term *= mean / count as f64;
            sum += term;
        }
        sum
    };
    let (mut low, mut high) = (seen as f64, 3.0 * seen as f64 + 10.0);
    if seen > 200 {
        return seen as f64 + 1.645 * (seen as f64).sqrt() + 1.0; // the exponential would vanish; normal enough
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > 1.0 - SURE { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use core::fmt::Write as _;

    use super::*;
    use crate::table::read;

    /// Two metrics that follow a wave and one of noise; a fault from row 300 to 319 of 400.
    fn split(faulty: bool) -> Split {
        let mut text = "time,a,b,c,label\n".to_owned();
        let mut random = 1_u32;
        let mut noise = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(random >> 8) / f64::from(1 << 24) - 0.5
        };
        for row in 0..400_u32 {
            let fault = faulty && (300..320).contains(&row);
            let wave = (f64::from(row) / 20.0).sin();
            let more = if fault { 8.0 } else { 0.0 };
            let label = if fault { 1 } else { u32::from(faulty && (320..324).contains(&row)) * 2 };
            let (a, b, c) = (wave + 0.1 * noise(), 3.0 * wave + 0.2 * noise() + more, noise());
            let _ = writeln!(text, "{row},{a},{b},{c},{label}");
        }
        let table = read(text.as_bytes()).unwrap();
        Split::of("u", &table, &Columns::gauges(&table.metrics, |_| 0), Some(1.0)).unwrap()
    }

    const DEFAULT: Trial = Trial { rank: None, sketch_rows: None, percentile: 99.0 };

    #[test]
    fn the_first_normal_rows_are_learnt_and_every_other_one_is_judged() {
        let split = split(true);

        assert_eq!((split.normal.len(), split.unit.train.len(), split.unit.test.len()), (376, 263, 137));
        assert_eq!(split.unit.labels.iter().filter(|label| **label == Label::Anomalous).count(), 20);
        let gaps: Vec<usize> =
            split.normal.iter().enumerate().filter(|(_, (_, gap))| *gap).map(|(row, _)| row).collect();
        assert_eq!(gaps, [0, 300], "where the fault was, rows do not follow each other");
        assert!(split.has_faults);
    }

    #[test]
    fn a_fault_that_was_held_out_is_found_and_quiet_rows_are_counted() {
        let (outcome, course) = DEFAULT.run(&Settings::default(), &split(true)).unwrap();

        assert_eq!(course.judged.len(), 137);
        let faults = outcome.faults.unwrap();
        assert!(faults.recall > 0.9 && faults.auc_pr > 0.9, "{faults:?}");
        assert_eq!((outcome.events, outcome.quiet.rows), (Count { yes: 1, all: 1 }, 113));
        assert!(outcome.quiet.rate() < 0.1, "{:?}", outcome.quiet);
        assert!(outcome.quiet.most_alarms_per_row() >= 2.99 / 113.0);
        assert!((0.5..2.0).contains(&outcome.held_out_factor()), "{}", outcome.held_out_factor());
    }

    #[test]
    fn without_faults_nothing_is_said_of_them() {
        let (outcome, _) = DEFAULT.run(&Settings::default(), &split(false)).unwrap();

        assert_eq!((outcome.faults, outcome.events), (None, Count { yes: 0, all: 0 }));
        assert_eq!(outcome.quiet.rows, 120);
    }

    #[test]
    fn the_model_has_learnt_all_normal_rows() {
        let split = split(true);
        let model = split.model(&DEFAULT.settings(&Settings::default())).unwrap();

        assert_eq!(model.fingerprints().count(), 3);
        let (outcome, _) = DEFAULT.run(&Settings::default(), &split).unwrap();
        assert!(model.training_quantiles() != outcome.training, "the twin has learnt fewer");
    }

    #[test]
    fn a_grid_leaves_out_what_does_not_go_together() {
        let trials = grid(&[None, Some(5), Some(30)], &[None, Some(25)], &[95.0, 99.0]);

        assert_eq!(trials.len(), 10);
        assert!(trials.iter().all(|trial| (trial.rank, trial.sketch_rows) != (Some(30), Some(25))));
    }

    #[test]
    fn the_best_has_the_highest_f1_else_the_fewest_rows_over_gamma_else_the_smallest_k() {
        let (base, _) = DEFAULT.run(&Settings::default(), &split(true)).unwrap();
        let of = |rank: usize, f1: Option<f64>, over: usize| {
            let mut outcome = base;
            (outcome.rank, outcome.quiet.over) = (rank, over);
            outcome.faults = base.faults.zip(f1).map(|(faults, f1)| FaultStats { f1, ..faults });
            outcome
        };

        let best_rank = |outcome: &[TrialOutcome]| best(outcome).unwrap().rank;

        assert_eq!(best_rank(&[of(1, Some(0.5), 0), of(2, Some(0.9), 9), of(3, Some(0.8), 0)]), 2);
        assert_eq!(best_rank(&[of(5, None, 2), of(4, None, 1), of(3, None, 1)]), 3);
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn too_few_rows_are_refused_with_their_number() {
        let table = read("a,label\n1,0\n2,0\n3,1\n".as_bytes()).unwrap();

        let error = Split::of("u", &table, &Columns::gauges(&table.metrics, |_| 0), None).unwrap_err();

        assert_eq!(error.to_string(), "2 of 3 rows are normal, at least 12 are needed to learn from");
    }

    #[test]
    fn the_bound_on_what_is_expected_is_that_of_tables() {
        for (seen, bound) in [(0, 2.996), (1, 4.744), (5, 10.513), (20, 29.062)] {
            assert!((most_expected(seen) - bound).abs() < 0.001, "{seen}: {}", most_expected(seen));
        }
        assert!((200.0..240.0).contains(&most_expected(201)));
    }
}

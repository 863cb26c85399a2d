//! The numpy reference and this crate say the same of the same rows.
//!
//! `tests/oracle/make_vectors.py` says how the vectors were made. Tolerance: 1e-9 relative. Both sides compute in f64
//! and differ in rounding only: the reference takes singular values, the crate eigenvalues of a Gram matrix, exact to
//! 1e-16 λ₁. The directions kept here have eigenvalues, and distances between them, of at least 1e-4 λ₁, so they turn
//! by at most 1e-12; a residual takes that times the length of its row, which is below 1e3 of its units.

use crate::support::run;
use lmap::{Column, ColumnKind, Detector, Episode, ScoreForm, Settings, SketchForm};

const ROWS: &str = include_str!("../data/rows.csv");
/// Scores are in single precision.
const TOLERANCE: f64 = 2e-6;

struct Rows {
    columns: Vec<Column>,
    train: Vec<Vec<f64>>,
    test: Vec<Vec<f64>>,
}

fn rows() -> Rows {
    let mut lines = ROWS.lines();
    let train: usize = lines.next().expect("the first line").parse().expect("the number of training rows");
    let kind = |name| if name == "gauge" { ColumnKind::Gauge } else { ColumnKind::Increment };
    let kinds = lines.next().expect("the second line").split(',');
    let columns = kinds.zip(0..).map(|(name, fingerprint)| Column::new(kind(name), fingerprint)).collect();
    let value = |cell: &str| if cell.is_empty() { f64::NAN } else { cell.parse().expect("a number") };
    let mut all: Vec<Vec<f64>> = lines.map(|line| line.split(',').map(value).collect()).collect();
    let test = all.split_off(train);
    Rows { columns, train: all, test }
}

/// What the reference says.
struct Expected {
    numbers: Vec<Vec<f64>>,
}

impl Expected {
    fn new(text: &str) -> Self {
        let numbers = |line: &str| line.split(',').filter_map(|cell| cell.parse().ok()).collect();
        Self { numbers: text.lines().map(numbers).collect() }
    }

    fn scores(&self) -> &[Vec<f64>] {
        &self.numbers[6..]
    }
}

fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= TOLERANCE * expected.abs(), "{what}: {found}, expected {expected}");
}

/// The detector, trained on the training rows and nothing else.
fn trained(settings: &Settings) -> (Detector, Vec<Vec<f64>>) {
    let Rows { columns, train, test } = rows();
    // The reference gives a moving constant the same weight whatever γ is, and counts its way back, caps no row, leaves
    // V and T as they are when the basis changes, and γ as the halves have it.
    let settings = Settings {
        constant_share: 0.0,
        constants_return: true,
        episode_cap: f64::MAX,
        renew_variances: false,
        variance_growth: f64::MAX,
        held_out_every: 0,
        ..settings.clone()
    };
    let settings =
        Settings { provisional_rows: None, warm_up_rows: train.len(), fit_again_rows: Vec::new(), ..settings.clone() };
    let mut detector = Detector::new(columns, settings, 1).expect("valid settings");
    for row in &train {
        let _ = run(&mut detector, row);
    }
    detector.gap(); // the reference takes no differences across the border
    (detector, test)
}

fn replay(settings: &Settings, expected: &str) {
    let expected = Expected::new(expected);
    let (mut detector, test) = trained(settings);
    assert_eq!(detector.shape().expect("armed").0 as f64, expected.numbers[0][0], "k");
    close(detector.gamma().expect("armed"), expected.numbers[1][0], "γ");
    let quantiles = detector.training_quantiles().expect("armed");
    close(quantiles[5], expected.numbers[2][0], "median of the training scores");
    close(quantiles[10], expected.numbers[3][0], "99th percentile of the training scores");
    assert_eq!(detector.levels().map(|column| column as f64).collect::<Vec<_>>(), expected.numbers[4], "levels");

    let mut episodes = Vec::new();
    for (t, (row, scores)) in test.iter().zip(expected.scores()).enumerate() {
        let verdict = run(&mut detector, row);
        close(verdict.raw, scores[0], &format!("score of row {t}"));
        close(verdict.score, scores[1], &format!("smoothed score of row {t}"));
        match verdict.episode {
            Episode::Began => episodes.push(t as f64),
            Episode::Ended => episodes.push(t as f64 - 4.0),
            Episode::Quiet | Episode::On => {}
        }
    }

    if episodes.len() % 2 == 1 {
        episodes.push(test.len() as f64);
    }
    assert_eq!(episodes, expected.numbers[5], "episodes");
}

fn without_chance() -> Settings {
    Settings { learning_rate: 0.0, ..Settings::default() }
}

#[test]
fn the_default_scores_as_the_reference_does() {
    replay(&without_chance(), include_str!("../data/default.csv"));
}

#[test]
fn the_default_without_growth_scores_as_the_reference_does() {
    replay(&Settings { growth_rows: 0, ..without_chance() }, include_str!("../data/still.csv"));
}

#[test]
fn a_detector_that_learns_every_row_scores_as_the_reference_does() {
    let settings = Settings { learning_rate: 1.0, stride: 1, ..Settings::default() };

    replay(&settings, include_str!("../data/everything.csv"));
}

#[test]
fn the_papers_absolute_form_scores_as_the_reference_does() {
    replay(&Settings::paper(ScoreForm::PaperAbsolute), include_str!("../data/absolute.csv"));
}

#[test]
fn the_papers_relative_form_scores_as_the_reference_does() {
    replay(&Settings::paper(ScoreForm::PaperRelative), include_str!("../data/relative.csv"));
}

#[test]
fn the_papers_row_wise_sketch_scores_as_the_reference_does() {
    let settings = Settings { sketch: SketchForm::RowWise, ..Settings::paper(ScoreForm::PaperAbsolute) };

    replay(&settings, include_str!("../data/rowwise.csv"));
}

/// The reference moves means, variances and basis only between blocks of up to 60 rows. By construction, not by
/// rounding: at n = 300 rows in the averages a block of 12 learnt rows shifts a mean by up to 4 % of a deviation late.
#[test]
fn blocks_of_sixty_rows_change_a_score_by_less_than_five_percent() {
    let blocks: Vec<f64> =
        include_str!("../data/blocks.csv").lines().map(|line| line.parse().expect("a number")).collect();
    let (mut detector, test) = trained(&without_chance());

    let worst = test
        .iter()
        .zip(&blocks)
        .map(|(row, block)| (run(&mut detector, row).raw - block).abs() / block)
        .fold(0.0, f64::max);

    assert!((1e-4..0.05).contains(&worst), "{worst}");
}

//! Groups of columns, each with a limit of its own.

use crate::support::{Noise, run};
use lmap::{BetweenRow, Column, ColumnKind, Detector, Episode, InterimBuffer, Model, Settings};

/// Columns of the process, which are restless, and of the service itself, which are calm.
const RESTLESS: usize = 24;
const CALM: usize = 4;

fn columns() -> Vec<Column> {
    let column = |at| Column { group: u16::from(at >= RESTLESS), ..Column::new(ColumnKind::Gauge, at as u64) };
    (0..RESTLESS + CALM).map(column).collect()
}

fn settings(group_margin: Option<f64>) -> Settings {
    Settings { group_margin, fit_again_rows: Vec::new(), ..Settings::default() }
}

/// A row in which the process has bursts now and then, in some of its columns.
fn row(noise: &mut Noise) -> Vec<f64> {
    let size = if noise.unit() < 0.05 { 12.0 } else { 1.0 };
    let restless = (0..RESTLESS).map(|_| 100.0 + size * noise.normal()).collect::<Vec<_>>();
    restless.into_iter().chain((0..CALM).map(|_| 50.0 + noise.normal())).collect()
}

/// An armed detector that has seen 400 rows, and what makes the next ones.
fn armed(group_margin: Option<f64>) -> (Detector, Noise) {
    let mut detector = Detector::new(columns(), settings(group_margin), 1).expect("valid settings");
    let mut noise = Noise::new(5);
    for _ in 0..400 {
        let _ = run(&mut detector, &row(&mut noise));
    }
    (detector, noise)
}

/// A row in which the service's own first gauge is 16 of its deviations above.
fn jump(noise: &mut Noise) -> Vec<f64> {
    let mut row = row(noise);
    row[RESTLESS] = 50.0 + 16.0;
    row
}

/// Episodes that begin in ten rows with the jump.
fn noticed(detector: &mut Detector, noise: &mut Noise) -> bool {
    (0..10).any(|_| run(detector, &jump(noise)).episode == Episode::Began)
}

#[test]
fn a_gauge_of_the_service_is_seen_although_the_process_is_restless() {
    let (mut without, mut noise) = armed(None);
    let (mut with, mut noise_of_with) = armed(Some(3.0));

    assert!(!noticed(&mut without, &mut noise), "γ of the whole row hides it: the test shows nothing else");
    assert!(noticed(&mut with, &mut noise_of_with));
    let mut reasons = Vec::new();
    with.explain(1, &mut reasons);
    assert_eq!((reasons[0].column, reasons[0].seen), (RESTLESS, 66.0));
}

#[test]
fn ordinary_rows_are_no_episodes_for_it() {
    let (mut with, mut noise) = armed(Some(3.0));
    let (mut without, mut same) = armed(None);

    let began = |detector: &mut Detector, noise: &mut Noise| {
        (0..3_000).filter(|_| run(detector, &row(noise)).episode == Episode::Began).count()
    };

    assert_eq!(began(&mut with, &mut noise), began(&mut without, &mut same));
}

#[test]
fn a_model_has_the_limits() {
    let (detector, mut noise) = armed(Some(3.0));
    let bytes = detector.model().expect("armed").encode();
    let model = Model::decode(&bytes).expect("it was encoded");

    let mut restored = Detector::from_model(&model, columns(), settings(None), 1).expect("the same columns");

    assert!(noticed(&mut restored, &mut noise));
    assert_eq!(restored.model(), Some(model), "and is written as it was read");
}

#[test]
fn merged_models_have_the_limits() {
    let (detector, mut noise) = armed(Some(3.0));
    let model = detector.model().expect("armed");
    let merged = Model::merge(&[&model, &model]).expect("two of a kind");

    let mut restored = Detector::from_model(&merged, columns(), settings(None), 1).expect("the same columns");

    assert!(noticed(&mut restored, &mut noise));
}

#[test]
fn a_look_between_two_rows_sees_it() {
    let over = |group_margin| {
        let (detector, mut noise) = armed(group_margin);
        let (before, values) = (row(&mut noise), jump(&mut noise));
        let look = BetweenRow { values: &values, before: &before, part: 1.0 };
        detector.look(look, &mut InterimBuffer::default()).expect("armed").over
    };

    assert_eq!((over(None), over(Some(3.0))), (false, true));
}

#[test]
fn columns_of_one_group_are_judged_as_a_row_only() {
    let judge = |group_margin| {
        let one = columns().into_iter().map(|column| Column { group: 7, ..column }).collect();
        let mut detector = Detector::new(one, settings(group_margin), 1).expect("valid settings");
        let mut noise = Noise::new(5);
        (0..400).map(|_| run(&mut detector, &row(&mut noise)).score).collect::<Vec<_>>()
    };

    assert_eq!(judge(Some(1.0)), judge(None));
}

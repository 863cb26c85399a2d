//! What lasts: longer rows, between two rows and in models, and patience with pools over fits.

use crate::support::{Noise, gauges, run};
use lmap::{BetweenRow, Column, ColumnKind, Detector, Episode, InterimBuffer, Model, Settings};

/// Columns of the process, which are restless, and of the service itself, which are calm.
const RESTLESS: usize = 24;
const CALM: usize = 4;

fn columns() -> Vec<Column> {
    let column = |at| Column { group: u16::from(at >= RESTLESS), ..Column::new(ColumnKind::Gauge, at as u64) };
    (0..RESTLESS + CALM).map(column).collect()
}

fn settings(long_rows: Option<usize>) -> Settings {
    Settings { long_rows, group_margin: Some(3.0), fit_again_rows: Vec::new(), ..Settings::default() }
}

/// A row in which the process has bursts now and then, and the service's own first gauge is `shift` deviations higher.
fn row(noise: &mut Noise, shift: f64) -> Vec<f64> {
    let size = if noise.unit() < 0.05 { 12.0 } else { 1.0 };
    let restless = (0..RESTLESS).map(|_| 100.0 + size * noise.normal()).collect::<Vec<_>>();
    let mut row: Vec<f64> = restless.into_iter().chain((0..CALM).map(|_| 50.0 + noise.normal())).collect();
    row[RESTLESS] += shift;
    row
}

/// An armed detector that has seen 400 rows, and what makes the next ones.
fn armed(long_rows: Option<usize>) -> (Detector, Noise) {
    armed_by(settings(long_rows))
}

fn armed_by(settings: Settings) -> (Detector, Noise) {
    let mut detector = Detector::new(columns(), settings, 1).expect("valid settings");
    let mut noise = Noise::new(5);
    for _ in 0..400 {
        let _ = run(&mut detector, &row(&mut noise, 0.0));
    }
    (detector, noise)
}

/// Too little for any row by itself.
const SHIFT: f64 = 6.0;

/// Whether an episode begins in ten rows with the shift.
fn noticed(detector: &mut Detector, noise: &mut Noise) -> bool {
    (0..10).any(|_| run(detector, &row(noise, SHIFT)).episode == Episode::Began)
}

#[test]
fn a_look_at_a_whole_row_sees_what_has_lasted_as_the_row_will() {
    let (mut detector, mut noise) = armed(Some(10));
    let (mut plain, _) = armed(None);
    let (mut buffer, mut before) = (InterimBuffer::default(), row(&mut noise, 0.0));
    let _ = (run(&mut detector, &before), run(&mut plain, &before));

    let mut raised = 0;
    for t in 0..10 {
        let next = row(&mut noise, SHIFT);
        let between = |part| BetweenRow { values: &next, before: &before, part };
        let look = detector.look(between(1.0), &mut buffer).expect("armed");
        let _ = detector.look(between(0.2), &mut buffer).expect("it changes nothing");

        let (verdict, without) = (run(&mut detector, &next), run(&mut plain, &next));

        assert!((look.score - verdict.raw).abs() <= 1e-9 * verdict.raw, "row {t}: {look:?}, {verdict:?}");
        raised += u32::from(look.over && without.raw < verdict.raw / 1.2);
        before = next;
    }
    assert!(raised >= 3, "{raised} rows are over by longer rows alone");
}

#[test]
fn one_wild_row_begins_nothing_by_partial_looks_at_healthy_ones() {
    // Two rows make a longer one at half a second; such rows have a margin, too.
    let (mut detector, mut noise) = armed_by(Settings { episode_margin: 1.1, ..settings(Some(2)) });
    let mut buffer = InterimBuffer::default();
    let wild = drifted(&mut noise, 20.0);
    let verdict = run(&mut detector, &wild);
    assert!(verdict.over && verdict.episode == Episode::Quiet, "{verdict:?}");

    for part in [0.2, 0.4] {
        let healthy = row(&mut noise, 0.0);
        let look = detector.look(BetweenRow { values: &healthy, before: &wild, part }, &mut buffer).expect("armed");
        assert!(!look.over && !look.begins, "{part}: {look:?}");
    }
    assert_eq!(run(&mut detector, &row(&mut noise, 0.0)).episode, Episode::Quiet);
}

/// A row in which all of the service's own gauges are `shift` deviations higher.
fn drifted(noise: &mut Noise, shift: f64) -> Vec<f64> {
    let mut row = row(noise, 0.0);
    row[RESTLESS..].iter_mut().for_each(|value| *value += shift);
    row
}

#[test]
fn a_slow_drift_after_the_last_fit_is_not_over_by_longer_rows_and_a_step_after_it_is_an_alarm() {
    let drift = |long_rows| {
        let still = Settings { growth_rows: 0, ..settings(long_rows) };
        let (mut detector, mut noise) = armed_by(still);
        let rows = (0..8_000).map(|at| run(&mut detector, &drifted(&mut noise, f64::from(at) / 4_000.0)));
        let over = rows.filter(|verdict| verdict.gamma.is_some_and(|gamma| verdict.raw >= gamma)).count();
        (over, detector, noise)
    };
    let ((over, mut detector, mut noise), (without, ..)) = (drift(Some(10)), drift(None));

    assert_eq!(over, without, "bursts are over by themselves");
    let is_quiet = (0..50).any(|_| {
        let _ = run(&mut detector, &drifted(&mut noise, 2.0));
        !detector.is_in_episode()
    });
    let began = (0..10).any(|_| run(&mut detector, &drifted(&mut noise, 2.0 + 3.0)).episode == Episode::Began);
    assert!(is_quiet && began);
}

#[test]
fn a_model_has_the_limits_of_longer_rows() {
    let restored = |long_rows| {
        let (detector, mut noise) = armed(long_rows);
        let bytes = detector.model().expect("armed").encode();
        let model = Model::decode(&bytes).expect("it was encoded");
        // A trained model is fitted no more: what it lacks would never come.
        let mut restored = Detector::from_model(&model, columns(), settings(None), 1).expect("the same columns");
        assert_eq!((model.long_rows(), restored.next_fit()), (long_rows, None));
        assert_eq!(restored.model(), Some(model), "it is written as it was read");
        noticed(&mut restored, &mut noise)
    };

    assert!(!restored(None), "rows by themselves hide it: the test shows nothing else");
    assert!(restored(Some(10)));
}

/// A detector from a model that averages `known` rows, with settings that ask for `wanted`, before its fit and after
/// it; and what makes its next rows.
fn before_and_after_a_fit(known: Option<usize>, wanted: Option<usize>) -> (Model, Detector, Noise) {
    let model = armed(known).0.model().expect("armed");
    let settings = Settings { fit_again_rows: vec![200], ..settings(wanted) };
    let mut detector = Detector::warm(&model, columns(), settings, 1).expect("the same columns");
    let (before, mut noise) = (detector.model().expect("armed"), Noise::new(9));
    (0..90).for_each(|_| _ = run(&mut detector, &row(&mut noise, 0.0)));
    assert_eq!((detector.counts().fits, detector.next_fit()), (1, None));
    (before, detector, noise)
}

#[test]
fn a_model_without_limits_leaves_longer_rows_to_the_next_fit() {
    let (before, mut detector, mut noise) = before_and_after_a_fit(None, Some(10));

    assert_eq!(before.long_rows(), None);
    assert_eq!(detector.model().expect("armed").long_rows(), Some(10));
    assert!(noticed(&mut detector, &mut noise));
}

#[test]
fn a_models_number_of_rows_counts_until_a_fit_and_then_that_of_the_settings() {
    for wanted in [Some(5), None] {
        let (before, detector, _) = before_and_after_a_fit(Some(10), wanted);

        assert_eq!(before.long_rows(), Some(10));
        assert_eq!(detector.settings().long_rows, wanted);
        assert_eq!(detector.model().expect("armed").long_rows(), wanted);
    }
}

#[test]
fn rows_of_one_of_several_merged_replicas_are_no_alarm_and_a_fit_finds_limits() {
    let columns = || (0..16).map(|at| Column { group: u16::from(at >= 8), ..Column::new(ColumnKind::Gauge, at) });
    let settings = Settings { fit_again_rows: vec![200], ..settings(Some(10)) };
    let mut noise = Noise::new(3);
    let mut row = |level: f64| (0..16).map(|_| 100.0 + level + noise.normal()).collect::<Vec<_>>();
    let mut model = |level: f64| {
        let mut detector = Detector::new(columns().collect(), settings.clone(), 1).expect("valid settings");
        (0..250).for_each(|_| _ = run(&mut detector, &row(level)));
        detector.model().expect("armed")
    };
    let (low, high) = (model(0.0), model(60.0));
    assert_eq!((low.long_rows(), high.long_rows()), (Some(10), Some(10)));

    // All columns of the one that is elsewhere are two common deviations off the common mean, in each of its rows.
    let merged = Model::merge(&[&low, &low, &low, &low, &high]).expect("they are alike");
    let mut detector = Detector::warm(&merged, columns().collect(), settings, 1).expect("the same columns");
    let began = (0..40).filter(|_| run(&mut detector, &row(60.0)).episode == Episode::Began).count();

    assert_eq!((began, merged.long_rows()), (0, None));
    assert_eq!(Model::decode(&merged.encode()), Ok(merged));
    (0..60).for_each(|_| _ = run(&mut detector, &row(60.0)));
    assert_eq!(detector.counts().fits, 1);
    assert_eq!(detector.model().expect("armed").long_rows(), Some(10));
}

#[test]
fn what_was_out_in_the_start_of_a_process_does_not_count_in_longer_rows() {
    let model = armed(Some(10)).0.model().expect("armed");
    let settings = Settings { settle_rows: 20, ..settings(None) };
    let warm = Detector::warm(&model, columns(), settings.clone(), 1).expect("the same columns");
    // By a trained model rows are judged from the first one on, by themselves.
    let trained = Detector::from_model(&model, columns(), settings, 1).expect("the same columns");
    for mut detector in [warm, trained] {
        let mut noise = armed(None).1;

        let shift = |at| if at < 20 { SHIFT } else { 0.0 };
        let rows = (0..30).map(|at| run(&mut detector, &row(&mut noise, shift(at))).episode);
        let began = rows.filter(|episode| *episode == Episode::Began).count();

        assert_eq!(began, 0, "{:?}", detector.state());
        assert!(noticed(&mut detector, &mut noise), "longer rows are judged");
    }
}

/// Whether growth of a pool counts with the first row after a fit, the `fits`th one, which comes after `rows` ordinary
/// rows and some in which the pool has grown for longer than it may.
fn counts_after_a_fit(fits: u64, rows: usize) -> bool {
    let column = |of: Column| Column { pool: of.fingerprint == 0, level: Some(false), ..of };
    let columns = gauges(6).into_iter().map(column).collect();
    let settings = Settings { pool_rows: Some(2), fit_again_rows: vec![200], ..Settings::default() };
    let mut detector = Detector::new(columns, settings, 1).expect("valid settings");
    let mut noise = Noise::new(7);
    let mut row = |grown: f64| -> Vec<f64> {
        (0..6).map(|at| 500.0 + noise.normal() + if at == 0 { grown } else { 0.0 }).collect()
    };
    for _ in 0..rows {
        let _ = run(&mut detector, &row(0.0));
    }

    let mut grown = 0;
    while detector.counts().fits < fits {
        let _ = run(&mut detector, &row(8.0));
        grown += 1;
    }
    assert!(grown > 2, "its patience is over");

    run(&mut detector, &row(60.0)).over
}

#[test]
fn a_fit_gives_a_pool_that_grows_no_more_patience_but_that_which_arms() {
    assert!(counts_after_a_fit(3, 195));
    assert!(!counts_after_a_fit(2, 115), "what a provisional fit saw of it says little");
}

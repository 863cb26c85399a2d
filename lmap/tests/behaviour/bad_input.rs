//! Whatever comes in, a score is finite and at least 0.

use crate::support::{Noise, Service, detector, gauges, run};
use lmap::{Detector, DetectorError, Episode, RowError, ScoreForm, Settings, State, Verdict};
use proptest::prelude::*;

/// Settings that fit early and often.
fn quick(score: ScoreForm) -> Settings {
    let base = if score == ScoreForm::Scaled { Settings::default() } else { Settings::paper(score) };
    Settings { provisional_rows: Some(8), warm_up_rows: 16, fit_again_rows: vec![40], ..base }
}

fn assert_sane(verdict: Verdict) {
    for score in [verdict.score, verdict.raw] {
        assert!(score.is_finite() && score >= 0.0, "{verdict:?}");
    }
    assert!(verdict.gamma.is_none_or(|gamma| gamma.is_finite() && gamma > 0.0), "{verdict:?}");
}

/// Ordinary and extreme values.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => -10.0..10.0_f64,
        1 => any::<f64>(),
        2 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, -1e308, f64::MAX, f64::MIN_POSITIVE, 5e-324, -0.0, 0.0,
        ]),
    ]
}

fn form() -> impl Strategy<Value = ScoreForm> {
    prop::sample::select(vec![ScoreForm::Scaled, ScoreForm::PaperAbsolute, ScoreForm::PaperRelative])
}

/// `columns` that follow the same load, after enough rows, and how many of 300 further rows without the last half
/// of them are over γ. With `forget`, their source is gone.
fn rows_over_gamma_without_half(columns: usize, forget: bool) -> usize {
    let (mut detector, mut noise) = (detector(columns, Settings::default()), Noise::new(5));
    let mut row = || {
        let load = 1000.0 + 100.0 * noise.normal();
        (0..columns).map(|_| load + noise.normal()).collect::<Vec<_>>()
    };
    for _ in 0..700 {
        let _ = run(&mut detector, &row());
    }
    let mut over = 0;
    for _ in 0..300 {
        let mut row = row();
        for (column, value) in row.iter_mut().enumerate().skip(columns / 2) {
            *value = f64::NAN;
            if forget {
                detector.forget(column);
            }
        }
        over += usize::from(run(&mut detector, &row).over);
    }
    let back: Vec<_> = (0..50).map(|_| run(&mut detector, &row())).filter(|verdict| verdict.over).collect();
    assert!(!forget || back.len() < 3, "they are judged as before: {back:?}");
    over
}

#[test]
fn columns_whose_source_is_gone_are_expected_to_follow_the_others() {
    for columns in [2, 3, 8, 40] {
        let held = rows_over_gamma_without_half(columns, false);
        assert!(held > 250, "the values before do not belong to those of the others: {held} of {columns} columns");
        let over = rows_over_gamma_without_half(columns, true);
        assert!(over < 10, "{over} of 300 with {columns} columns");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn scores_are_finite_for_any_rows(
        rows in (1_usize..12).prop_flat_map(|m| prop::collection::vec(prop::collection::vec(value(), m), 1..120)),
        form in form(), seed in any::<u64>(),
    ) {
        let columns = rows[0].len();
        let mut detector = Detector::new(gauges(columns), quick(form), seed).expect("valid settings");
        let (mut reasons, mut shares) = (Vec::new(), Vec::new());

        for (t, row) in rows.iter().enumerate() {
            if t % 37 == 36 {
                detector.gap();
            }
            assert_sane(run(&mut detector, row));
            detector.explain(3, &mut reasons);
            assert!(reasons.iter().all(|reason| (0.0..=1.0 + 1e-9).contains(&reason.share)), "{reasons:?}");
            assert!(reasons.iter().all(|reason| reason.expected.is_finite() && reason.z.is_finite()), "{reasons:?}");
            detector.group_shares(&mut shares);
            let total = shares.iter().map(|(_, share)| share).sum::<f64>();
            assert!(total == 0.0 || (total - 1.0).abs() < 1e-9, "{total}");
        }
    }

    #[test]
    fn extreme_rows_after_ordinary_ones_do_not_spoil_later_scores(
        wild in prop::collection::vec(prop::collection::vec(value(), 4), 1..40), form in form(), seed in any::<u64>(),
    ) {
        let settings = Settings { learning_rate: 1.0, ..quick(form) };
        let mut detector = Detector::new(gauges(4), settings, seed).expect("valid settings");
        let mut service = Service::new(4, seed);

        for _ in 0..60 {
            assert_sane(run(&mut detector, &service.row()));
        }
        for row in &wild {
            assert_sane(run(&mut detector, row));
        }
        for _ in 0..60 {
            assert_sane(run(&mut detector, &service.row()));
        }
    }
}

#[test]
fn one_column_is_enough() {
    let mut detector = detector(1, Settings::default());
    let mut service = Service::new(1, 1);
    for _ in 0..300 {
        assert_sane(run(&mut detector, &service.row()));
    }

    let verdict = run(&mut detector, &[1e6]);

    assert!(verdict.over);
}

#[test]
fn four_thousand_columns_work() {
    let settings = Settings { provisional_rows: None, warm_up_rows: 40, fit_again_rows: vec![], ..Settings::default() };
    let mut detector = detector(4096, settings);
    let mut service = Service::new(4096, 2);

    for _ in 0..60 {
        assert_sane(run(&mut detector, &service.row()));
    }

    assert_eq!(detector.state(), State::Armed);
}

#[test]
fn a_rank_above_the_number_of_columns_is_cut() {
    let mut detector = detector(3, Settings { rank: Some(20), ..Settings::default() });
    let mut service = Service::new(3, 3);

    for _ in 0..200 {
        assert_sane(run(&mut detector, &service.row()));
    }

    assert_eq!(detector.shape(), Some((2, 25)));
}

#[test]
fn columns_that_never_move_raise_no_alarm_until_one_does() {
    let mut detector = detector(3, Settings::default());
    for _ in 0..300 {
        let verdict = run(&mut detector, &[0.0, 7.0, 1e12]);
        assert_eq!((verdict.raw, verdict.over), (0.0, false));
    }
    assert_eq!(detector.constants().collect::<Vec<_>>(), [0, 1, 2]);

    let verdict = run(&mut detector, &[0.0, 8.0, 1e12]);
    let mut reasons = Vec::new();
    detector.explain(2, &mut reasons);
    let later: Vec<Episode> = (0..60).map(|_| run(&mut detector, &[0.0, 8.0, 1e12]).episode).collect();

    assert_eq!(verdict.raw, 5.0); // the weight of one constant
    assert_eq!((reasons[0].column, reasons[0].seen, reasons[0].expected, reasons.len()), (1, 8.0, 7.0, 1));
    assert_eq!(later.last(), Some(&Episode::Quiet)); // one move is an event, not a state
}

#[test]
fn rows_of_which_nothing_is_there_repeat_the_last_and_are_not_learnt() {
    let mut detector = detector(3, Settings::default());
    let mut service = Service::new(3, 4);
    for _ in 0..200 {
        let _ = run(&mut detector, &service.row());
    }
    let last = run(&mut detector, &[f64::NAN; 3]);
    let learnt = detector.counts().learnt;

    for _ in 1..20 {
        assert_eq!(run(&mut detector, &[f64::NAN; 3]).raw, last.raw);
    }

    assert_eq!(detector.counts().learnt, learnt);
    assert_eq!(detector.counts().empty_rows, 20);
}

#[test]
fn a_detector_that_sees_nothing_never_arms() {
    let mut detector = detector(3, Settings::default());

    for _ in 0..300 {
        assert_sane(run(&mut detector, &[f64::NAN, f64::INFINITY, f64::NAN]));
    }

    assert_eq!(detector.state(), State::Learning { rows: 0, needed: 120 });
}

#[test]
fn a_column_that_was_never_there_in_training_is_not_watched() {
    let mut detector = detector(3, Settings::default());
    let mut service = Service::new(3, 5);
    for _ in 0..200 {
        let row = service.row();
        let _ = run(&mut detector, &[row[0], f64::NAN, row[2]]);
    }
    assert_eq!(detector.unwatched().collect::<Vec<_>>(), [1]);

    let row = service.row();
    let verdict = run(&mut detector, &[row[0], 1e9, row[2]]);

    assert!(!verdict.over, "{verdict:?}");
}

#[test]
fn a_row_of_another_length_is_refused_and_changes_nothing() {
    let mut detector = detector(3, Settings::default());

    assert_eq!(detector.score(&[1.0]), Err(RowError::Length { found: 1, expected: 3 }));

    assert_eq!(detector.counts().rows, 0);
    assert!(detector.learn().is_none());
}

#[test]
fn no_columns_and_bad_settings_are_refused() {
    assert_eq!(Detector::new(Vec::new(), Settings::default(), 1).unwrap_err(), DetectorError::Columns(0));
    let settings = Settings { percentile: 0.0, ..Settings::default() };
    assert!(matches!(Detector::new(gauges(1), settings, 1), Err(DetectorError::Settings(_))));
}

#[test]
fn a_column_that_is_not_to_be_watched_says_nothing_whatever_it_does_and_nor_by_a_model_that_watched_it() {
    let columns = |watched| {
        let mut columns = gauges(3);
        columns[1].watched = watched;
        columns
    };
    let train = |watched| {
        let (mut detector, mut service) =
            (Detector::new(columns(watched), Settings::default(), 1).unwrap(), Service::new(3, 5));
        for _ in 0..200 {
            let _ = run(&mut detector, &service.row());
        }
        (detector, service)
    };
    let by_model = || {
        let (watching, service) = train(true);
        let model = watching.model().unwrap();
        (Detector::from_model(&model, columns(false), Settings::default(), 1).unwrap(), service)
    };
    let scores = |(mut detector, mut service): (Detector, Service), off: f64| {
        let row = |mut row: Vec<f64>| {
            row[1] += off;
            row
        };
        (0..5).map(|_| run(&mut detector, &row(service.row())).score).collect::<Vec<_>>()
    };

    assert_ne!(scores(train(true), 1e9), scores(train(true), 0.0));
    assert_eq!(scores(train(false), 1e9), scores(train(false), 0.0));
    assert_eq!(scores(by_model(), 1e9), scores(by_model(), 0.0));
    assert_eq!(train(false).0.unwatched().collect::<Vec<_>>(), [1]);
    assert_eq!(by_model().0.unwatched().collect::<Vec<_>>(), [1]);
}

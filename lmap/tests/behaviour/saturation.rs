//! Columns that say how long something waited, and are too much by themselves.

use crate::support::{Service, gauges, run};
use lmap::{Column, ColumnKind, Detector, Direction, Episode, Reason, Saturation, Settings};

const M: usize = 12;
/// The column that waits.
const WAIT: usize = M - 1;

fn detector(watched: bool) -> Detector {
    let mut columns = gauges(M);
    let rule = Saturation { least: 50.0, rows: 3 };
    columns[WAIT] = Column { watched, saturation: Some(rule), ..Column::new(ColumnKind::Increment, WAIT as u64) };
    let settings = Settings { fit_again_rows: Vec::new(), episode_margin: 1.33, ..Settings::default() };
    Detector::new(columns, settings, 1).expect("the settings are valid")
}

/// The row from 1 after which an alarm begins, once the column waits for `wait` instead of about 10, and the reasons.
fn alarm_after(detector: &mut Detector, wait: f64) -> Option<(u32, Vec<Reason>)> {
    let mut service = Service::new(M, 22);
    let mut next = |detector: &mut Detector, wait: f64| {
        let mut row = service.row();
        row[WAIT] = wait;
        run(detector, &row)
    };
    for row in 0..400 {
        let verdict = next(detector, 9.0 + f64::from(row % 3));
        assert_ne!(verdict.episode, Episode::Began);
    }
    (1..=10).find_map(|row| {
        let verdict = next(detector, wait);
        let mut reasons = Vec::new();
        detector.explain(3, &mut reasons);
        assert!(verdict.episode != Episode::Began || verdict.over, "an alarm begins at or above γ");
        (verdict.episode == Episode::Began).then_some((row, reasons))
    })
}

#[test]
fn waiting_that_lasts_is_an_alarm_that_names_it_even_in_a_column_that_is_not_watched() {
    let (rows, reasons) = alarm_after(&mut detector(false), 200.0).expect("it is an alarm");

    assert_eq!(rows, 3);
    let [first, ..] = &*reasons else { panic!("there are reasons") };
    assert_eq!((first.column, first.seen, first.direction), (WAIT, 200.0, Direction::Above));
    assert!((first.expected - 10.0).abs() < 0.1 && first.z > 6.0, "{first:?}");
    assert!(reasons[1..].iter().all(|other| other.column != WAIT), "it is named once: {reasons:?}");
}

#[test]
fn a_watched_column_that_waits_is_named_once_and_first() {
    let (_, reasons) = alarm_after(&mut detector(true), 2_000.0).expect("it is an alarm");

    assert_eq!(reasons.iter().map(|reason| reason.column).filter(|column| *column == WAIT).count(), 1, "{reasons:?}");
    assert_eq!(reasons[0].column, WAIT);
    assert!(reasons.iter().map(|reason| reason.share).sum::<f64>() <= 1.0 + 1e-9);
}

#[test]
fn waiting_below_the_least_is_no_alarm_in_a_column_that_is_not_watched() {
    assert_eq!(alarm_after(&mut detector(false), 49.0), None);
}

#[test]
fn waiting_that_is_normal_now_is_learnt_with_the_next_fit() {
    let mut detector = detector(false);
    assert!(alarm_after(&mut detector, 200.0).is_some());

    if let Some(job) = detector.fit_again() {
        detector.install(job.run());
    }

    let mut service = Service::new(M, 23);
    let began = (0..600).filter(|_| {
        let mut row = service.row();
        row[WAIT] = 200.0;
        run(&mut detector, &row).episode == Episode::Began
    });
    assert_eq!(began.count(), 0);
}

//! Columns each move of which is a fault by itself.

use crate::support::{Service, gauges, run};
use lmap::{Column, ColumnKind, Detector, Episode, Settings};

const M: usize = 12;

/// The number of rows, from 1, after which an alarm begins while the last column, which was 0, grows with each of
/// `moves` rows and stays then. `None` without an alarm in 10 rows.
fn alarm_after(indicator: bool, moves: u32) -> Option<usize> {
    let mut columns = gauges(M);
    if let Some(last) = columns.last_mut() {
        *last = Column { indicator, ..*last };
    }
    let settings = Settings { fit_again_rows: Vec::new(), episode_margin: 1.33, ..Settings::default() };
    let mut detector = Detector::new(columns, settings, 1).expect("the settings are valid");
    let mut service = Service::new(M, 22);
    let mut next = |last: f64| {
        let mut row = service.row();
        row[M - 1] = last;
        run(&mut detector, &row)
    };
    for _ in 0..400 {
        let _ = next(0.0);
    }
    let rows = (1..=10).map(|row| next(f64::from(row.min(moves))));
    rows.map(|verdict| verdict.episode).position(|episode| episode == Episode::Began).map(|at| at + 1)
}

#[test]
fn an_indicator_that_moves_twice_is_an_alarm_at_once_and_another_constant_is_not() {
    assert_eq!(alarm_after(true, 2), Some(2));
    assert!(alarm_after(false, 10).is_none_or(|rows| rows > 2));
    assert_eq!(alarm_after(false, 2), None);
}

#[test]
fn an_indicator_that_moves_once_is_no_alarm() {
    assert_eq!(alarm_after(true, 1), None);
}

#[test]
fn a_fault_that_an_indicator_has_shown_is_shown_again_after_the_next_fit() {
    let mut columns = gauges(M);
    if let Some(last) = columns.last_mut() {
        *last = Column { kind: ColumnKind::Increment, indicator: true, ..*last };
    }
    let settings = Settings { fit_again_rows: vec![600], episode_margin: 1.33, ..Settings::default() };
    let mut detector = Detector::new(columns, settings, 1).expect("the settings are valid");
    let mut service = Service::new(M, 22);
    // The process is stopped for ten rows before the second fit, and for ten after it.
    let stopped = |row: u32| (450..460).contains(&row) || (700..710).contains(&row);
    let began = (0..720).filter(|&row| {
        let mut values = service.row();
        // As long as the interval, which is never the same.
        values[M - 1] = if stopped(row) { f64::from(100 + row % 5) } else { 0.0 };
        run(&mut detector, &values).episode == Episode::Began
    });
    let began: Vec<u32> = began.collect();

    assert!(began.iter().any(|row| (450..453).contains(row)), "{began:?}");
    assert!(began.iter().any(|row| (700..703).contains(row)), "{began:?}");
}

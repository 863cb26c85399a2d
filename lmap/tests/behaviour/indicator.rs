//! Columns each move of which is a fault by itself.

use crate::support::{Service, gauges, run};
use lmap::{Column, Detector, Episode, Settings};

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

//! Rows of several lengths: what is learnt of them.

use crate::support::{Service, detector, run};
use lmap::Settings;

/// Rows that an armed detector learns in ten seconds of rows of `interval` seconds.
fn learnt_in_ten_seconds(interval: f64) -> u64 {
    let settings = Settings { fit_again_rows: Vec::new(), learning_rate: 1.0, ..Settings::live(interval) };
    let (mut detector, mut service) = (detector(6, settings), Service::new(6, 12));
    for _ in 0..200 {
        let _ = run(&mut detector, &service.row());
    }
    let before = detector.counts().learnt;
    let rows = (10.0 / interval).round() as usize;
    for _ in 0..rows {
        let _ = run(&mut detector, &service.row());
    }
    detector.counts().learnt - before
}

#[test]
fn rows_of_a_millisecond_teach_no_more_often_than_rows_of_a_tenth_of_a_second() {
    assert_eq!([1.0, 0.1, 0.01, 0.001].map(learnt_in_ten_seconds), [2, 20, 20, 20]);
}

#[test]
fn short_rows_make_longer_ones_and_pools_may_grow_for_two_seconds_if_that_is_asked_for() {
    let lasting = |interval| Settings::live(interval).lasting(interval);
    let set = |interval| (lasting(interval).long_rows, lasting(interval).pool_rows);

    assert_eq!([60.0, 1.0, 0.5].map(set), [(None, Some(3)), (None, Some(3)), (Some(2), Some(4))]);
    assert_eq!([0.667, 0.6, 0.51].map(set), [(None, Some(3)), (None, Some(3)), (None, Some(4))]);
    assert_eq!([1.0 / 3.0, 0.3, 0.11].map(|interval| set(interval).0), [Some(3), Some(3), Some(9)]);
    assert_eq!([0.1, 0.01, 0.0].map(set), [(Some(10), Some(20)), (Some(10), Some(200)), (Some(10), Some(200))]);
    for plain in [Settings::default().lasting(0.1), Settings::live(0.1)] {
        assert_eq!((plain.long_rows, plain.pool_rows, plain.load_rows), (None, None, None));
    }
}

#[test]
fn alarms_of_short_rows_only_wait_while_load_is_up() {
    let rows = |interval| Settings::live(interval).lasting(interval).load_rows;

    assert_eq!([60.0, 1.0, 0.51].map(rows), [None; 3]);
    assert_eq!([0.5, 0.1, 0.01, 0.0].map(rows), [Some(4), Some(20), Some(200), Some(200)]);
    assert!(Settings { load_rows: Some(1), ..Settings::default() }.checked().is_err());
}

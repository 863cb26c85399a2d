//! Looks between rows.

use crate::support::{Noise, Service, detector, gauges, run};
use lmap::{BetweenRow, Column, ColumnKind, Detector, Episode, InterimBuffer, Settings};

const COLUMNS: usize = 12;

fn armed(seed: u64) -> (Detector, Service) {
    let (mut detector, mut service) = (detector(COLUMNS, Settings::default()), Service::new(COLUMNS, seed));
    for _ in 0..700 {
        let _ = run(&mut detector, &service.row());
    }
    (detector, service)
}

#[test]
fn a_look_at_a_whole_row_sees_the_rows_own_score_and_changes_nothing() {
    let ((mut looked, mut service), (mut alone, _)) = (armed(3), armed(3));
    let (mut buffer, mut before) = (InterimBuffer::default(), service.row());
    let _ = (run(&mut looked, &before), run(&mut alone, &before));

    for t in 0..200 {
        let mut row = service.row();
        row[4] += if t % 50 > 40 { 30.0 } else { 0.0 };
        let look = looked.look(BetweenRow { values: &row, before: &before, part: 1.0 }, &mut buffer).unwrap();
        let _ = looked.look(BetweenRow { values: &service.row(), before: &row, part: 0.3 }, &mut buffer);

        let (verdict, expected) = (run(&mut looked, &row), run(&mut alone, &row));

        assert_eq!(verdict, expected);
        assert!((look.score - verdict.raw).abs() <= 1e-9 * verdict.raw.max(1.0), "{look:?} instead of {verdict:?}");
        before = row;
    }
}

/// Counts of independent requests: three columns, the sum of `ticks` tenths of an interval.
fn counts(noise: &mut Noise, ticks: u32) -> Vec<f64> {
    let count = |rate: f64, noise: &mut Noise| (0..ticks).map(|_| (rate + rate.sqrt() * noise.normal()).max(0.0)).sum();
    [20.0, 50.0, 90.0].iter().map(|rate| count(*rate, noise)).collect()
}

#[test]
fn a_part_of_a_healthy_row_is_over_about_as_rarely_as_a_whole_one() {
    let columns = (0..3).map(|fingerprint| Column::new(ColumnKind::Increment, fingerprint)).collect();
    let mut detector = Detector::new(columns, Settings::default(), 1).unwrap();
    let (mut noise, mut buffer) = (Noise::new(5), InterimBuffer::default());
    for _ in 0..2_500 {
        let _ = run(&mut detector, &counts(&mut noise, 10));
    }
    let before = counts(&mut noise, 10);
    let mut share_over = |tenths: u32| {
        let over = (0..4_000).filter(|_| {
            let part = f64::from(tenths) / 10.0;
            let values: Vec<f64> = counts(&mut noise, tenths).iter().map(|count| count / part).collect();
            detector.look(BetweenRow { values: &values, before: &before, part }, &mut buffer).unwrap().over
        });
        over.count() as f64 / 4_000.0
    };

    let whole = share_over(10);
    for tenths in [1, 2, 5] {
        let part = share_over(tenths);
        assert!(part <= 2.0 * whole + 0.005, "{part} of rows of {tenths} tenths, {whole} of whole ones");
    }
}

#[test]
fn a_burst_in_a_part_of_a_row_is_over_only_if_the_row_will_be() {
    let (detector, mut service) = armed(9);
    let (mut buffer, before) = (InterimBuffer::default(), service.row());
    let usual = service.row();
    // `burst` above what is usual, within `part` of a row: extrapolated, it is as many times as much.
    let mut is_over = |burst: f64, part: f64| {
        let mut values = usual.clone();
        values[5] += burst / part;
        detector.look(BetweenRow { values: &values, before: &before, part }, &mut buffer).unwrap().over
    };
    let least = (1..1000).map(f64::from).find(|burst| is_over(*burst, 1.0)).unwrap();

    for part in [0.1, 0.2, 0.5, 0.9] {
        assert!(!is_over(0.8 * least, part), "{least} within {part}");
        assert!(is_over(2.0 * least, part), "{least} within {part}");
    }
}

#[test]
fn a_gauge_that_nobody_has_read_since_the_row_is_no_further_evidence() {
    let (mut detector, mut service) = armed(11);
    let mut buffer = InterimBuffer::default();
    let mut before = service.row();
    before[5] += 300.0;
    assert!(run(&mut detector, &before).over);

    let mut look = |gauge: f64| {
        let mut values = service.row();
        values[5] = gauge;
        detector.look(BetweenRow { values: &values, before: &before, part: 0.8 }, &mut buffer).unwrap()
    };

    assert!(!look(before[5]).over, "it was judged in the row");
    assert!(look(before[5] + 1.0).begins, "it was read again, and is as far");
}

#[test]
fn an_episode_that_begins_between_rows_goes_on_is_counted_once_and_ends_by_the_rule() {
    let (mut detector, mut service) = armed(4);
    let mut buffer = InterimBuffer::default();
    let counted = detector.counts().episodes;
    let faulty = |mut row: Vec<f64>| {
        row[5] += 60.0;
        row
    };
    let before = faulty(service.row());
    let first = run(&mut detector, &before);
    assert!(first.over && first.episode == Episode::Quiet, "{first:?}");

    let healthy = detector.look(BetweenRow { values: &service.row(), before: &before, part: 0.2 }, &mut buffer);
    assert!(!healthy.unwrap().over, "what has passed is seen");
    let look = detector.look(BetweenRow { values: &faulty(service.row()), before: &before, part: 0.2 }, &mut buffer);
    assert!(look.unwrap().begins, "{look:?}");
    assert!(detector.begin_episode() && !detector.begin_episode());

    let episodes: Vec<_> = (0..8).map(|_| run(&mut detector, &service.row()).episode).collect();
    assert_eq!(detector.counts().episodes, counted + 1);
    assert!(episodes[0] == Episode::On && episodes.contains(&Episode::Ended), "{episodes:?}");
    assert!(!detector.end_episode(), "none is on");
}

#[test]
fn an_episode_that_ends_between_rows_does_not_begin_again_with_the_next() {
    let (mut detector, mut service) = armed(6);
    for _ in 0..4 {
        let mut row = service.row();
        row[5] += 60.0;
        let _ = run(&mut detector, &row);
    }
    let _ = (run(&mut detector, &service.row()), run(&mut detector, &service.row()));
    assert!(detector.is_in_episode());

    assert!(detector.end_episode());

    let episodes: Vec<_> = (0..6).map(|_| run(&mut detector, &service.row()).episode).collect();
    assert_eq!(episodes, [Episode::Quiet; 6]);
}

/// A detector of a load of 9, 10 or 11 and an indicator beside the service's columns, and a function that makes rows.
fn armed_with_load() -> (Detector, impl FnMut(f64, f64) -> Vec<f64>) {
    let mut columns = gauges(COLUMNS);
    let increment = |at: usize| Column::new(ColumnKind::Increment, at as u64);
    columns.push(Column { load: true, ..increment(COLUMNS) });
    columns.push(Column { indicator: true, ..increment(COLUMNS + 1) });
    let settings = Settings { load_rows: Some(20), ..Settings::default() };
    let mut detector = Detector::new(columns, settings, 1).expect("the settings are valid");
    let mut service = Service::new(COLUMNS, 8);
    let mut row = move |answers: f64, indicator: f64| {
        let mut row = service.row();
        row.extend([answers, indicator]);
        row
    };
    for t in 0..700 {
        let _ = run(&mut detector, &row(9.0 + f64::from(t % 3), 0.0));
    }
    (detector, row)
}

#[test]
fn what_an_indicator_shows_between_rows_of_an_overload_does_not_wait_for_its_row() {
    for indicator in [0.0, 1.0] {
        let ((mut detector, mut row), mut buffer) = (armed_with_load(), InterimBuffer::default());
        let before = row(60.0, 0.0);
        let first = run(&mut detector, &before);
        assert!(first.over && first.episode == Episode::Quiet, "{first:?}");

        let values = row(60.0, indicator);
        let look = detector.look(BetweenRow { values: &values, before: &before, part: 0.2 }, &mut buffer).unwrap();
        assert!(look.over && look.begins == (indicator > 0.0), "{look:?}");

        let began = run(&mut detector, &values).episode == Episode::Began;
        assert_eq!(began, look.begins, "as the row says then");
    }
}

#[test]
fn what_is_not_armed_or_of_another_width_is_not_judged() {
    let mut buffer = InterimBuffer::default();
    let young = detector(COLUMNS, Settings::default());
    let (armed, mut service) = armed(7);
    let row = service.row();

    assert_eq!(young.look(BetweenRow { values: &row, before: &row, part: 1.0 }, &mut buffer), None);
    assert_eq!(armed.look(BetweenRow { values: &row[1..], before: &row, part: 1.0 }, &mut buffer), None);
    for part in [0.0, -1.0, 1.1, f64::NAN] {
        assert_eq!(armed.look(BetweenRow { values: &row, before: &row, part }, &mut buffer), None);
    }
    let (mut over, _) = self::armed(7);
    let mut faulty = service.row();
    faulty[5] += 60.0;
    let _ = run(&mut over, &faulty);
    let missing: Vec<f64> = faulty.iter().enumerate().map(|(at, of)| if at == 5 { f64::NAN } else { *of }).collect();
    let look = over.look(BetweenRow { values: &missing, before: &faulty, part: 0.3 }, &mut buffer).unwrap();
    assert!(!look.over && !look.begins, "what is missing is no further evidence: {look:?}");
    let missing = [f64::NAN; COLUMNS];
    let look = armed.look(BetweenRow { values: &missing, before: &missing, part: 0.5 }, &mut buffer).unwrap();
    assert!(look.score.is_finite() && !look.over, "nothing is known: {look:?}");
}

//! How fast a service can teach its detector that something wrong is normal.
//!
//! The rate that is promised: once learning is over, rows that are ever further out in one direction may be so by at
//! most √1.05 per decomposition of the sketch, for which l + 1 rows have to be learnt, every fifth of them: less than
//! twice as far in 3,700 rows at l = 25. Who is faster is in alarm.

use crate::support::{Service, detector, run};
use lmap::{Detector, Episode, Settings};

const M: usize = 60;

/// Past its last fit, with 2,000 rows in the averages.
fn trained(seed: u64, variance_growth: f64) -> (Detector, Service) {
    let settings = Settings { variance_growth, ..Settings::default() };
    let (mut detector, mut service) = (detector(M, settings), Service::new(M, seed));
    for _ in 0..2_700 {
        let _ = run(&mut detector, &service.row());
    }
    (detector, service)
}

/// Goes out along `pattern`, from `from` to `to`, doubling every `rows` rows. Says how far it was when an episode
/// began.
fn ramp(
    detector: &mut Detector,
    service: &mut Service,
    pattern: &[f64],
    (from, to): (f64, f64),
    rows: f64,
) -> Option<f64> {
    let mut size: f64 = from;
    while size < to {
        size *= 2_f64.powf(1.0 / rows);
        let row: Vec<f64> = service.row().iter().zip(pattern).map(|(value, part)| value + size * part).collect();
        if run(detector, &row).episode == Episode::Began {
            return Some(size);
        }
    }
    None
}

/// Directions of one metric, of a few, and of all.
fn patterns() -> Vec<Vec<f64>> {
    let one = |at: usize| (0..M).map(|column| f64::from(u8::from(column == at))).collect::<Vec<_>>();
    let some = (0..M).map(|column| [0.7, -0.7, 0.0, 0.0][column % 4]).collect();
    let all = (0..M).map(|column| if column % 2 == 0 { 0.3 } else { -0.3 }).collect();
    vec![one(0), one(5), some, all]
}

#[test]
fn an_attack_faster_than_the_limit_is_in_alarm() {
    for (number, pattern) in patterns().iter().enumerate() {
        for rows in [200.0, 900.0, 1_800.0] {
            let (mut detector, mut service) = trained(1, 1.05);

            let found = ramp(&mut detector, &mut service, pattern, (0.5, 1e4), rows);

            // In no more than half of the rows that one doubling takes: before it has doubled six times.
            let size = found.unwrap_or(f64::INFINITY);
            assert!(size < 32.0, "pattern {number}, doubling in {rows}: {size}");
        }
    }
}

#[test]
fn without_the_limit_an_attack_of_some_minutes_is_learnt() {
    let learnt = |pattern: &Vec<f64>| {
        let (mut detector, mut service) = trained(1, f64::MAX);
        ramp(&mut detector, &mut service, pattern, (0.5, 1e3), 1_800.0).is_none()
    };

    assert!(patterns().iter().any(learnt), "the limit is not needed");
}

#[test]
fn a_drift_that_is_slow_enough_is_learnt_and_a_fast_one_is_an_alarm() {
    let drift = |per_thousand_rows: f64, rows: u32| {
        let (mut detector, mut service) = trained(2, 1.05);
        let mut began = |row: u32| {
            let mut values = service.row();
            values[5] += per_thousand_rows * f64::from(row) / 1_000.0;
            run(&mut detector, &values).episode == Episode::Began
        };
        (0..rows).any(&mut began)
    };

    assert!(!drift(1.0, 20_000), "by 20 deviations of its noise in 20,000 rows");
    assert!(drift(8.0, 2_000), "by 16 in 2,000");
}

#[test]
fn what_is_learnt_in_spite_of_being_far_above_gamma_is_learnt_at_the_same_rate() {
    let (mut detector, mut service) = trained(3, 1.05);
    let mut hit = || {
        let mut row = service.row();
        row[5] += 40.0;
        row
    };
    let first = run(&mut detector, &hit());
    assert!(first.raw > 3.0 * first.gamma.unwrap(), "{first:?}");

    // One of a hundred of every fifth row is let in: 30 or so.
    let scores: Vec<f64> = (0..15_000).map(|_| run(&mut detector, &hit()).raw).collect();

    assert!(detector.counts().learnt_above > 10, "{:?}", detector.counts());
    let last = scores[14_900..].iter().sum::<f64>() / 100.0;
    assert!(last > first.raw / 1.05_f64.powi(2) - 1.0, "{last} of {}", first.raw);
}

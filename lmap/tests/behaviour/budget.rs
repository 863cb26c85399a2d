//! The alarm budget in a detector: bounded, and never a way to miss something large.

use crate::support::{Service, detector, run};
use lmap::{AlarmBudget, Detector, Episode, Settings};
use proptest::prelude::*;

fn armed(budget: AlarmBudget, seed: u64) -> (Detector, Service) {
    let settings = Settings { fit_again_rows: Vec::new(), budget: Some(budget), ..Settings::default() };
    let (mut detector, mut service) = (detector(12, settings), Service::new(12, seed));
    for _ in 0..150 {
        let _ = run(&mut detector, &service.row());
    }
    (detector, service)
}

/// The next row, with `size` added to one of its columns.
fn hit(service: &mut Service, column: usize, size: f64) -> Vec<f64> {
    let mut row = service.row();
    row[column] += size;
    row
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_came_before_gamma_is_bounded_and_a_large_score_is_an_episode(
        history in prop::collection::vec((0_u8..8, 1_usize..20), 0..60), rows_per_alarm in 1.0..2_000.0, step in 0.05..3.0, seed in 1_u64..1_000,
    ) {
        let budget = AlarmBudget { step, ..AlarmBudget::one_in(rows_per_alarm) };
        let (mut detector, mut service) = armed(budget, seed);
        let first = detector.gamma().unwrap() / detector.gamma_factor();

        for (kind, rows) in history {
            let size = if kind < 4 { 0.0 } else { f64::from(kind) * 4.0 };
            for _ in 0..rows {
                let _ = run(&mut detector, &hit(&mut service, usize::from(kind), size));
                let gamma = detector.gamma().unwrap();
                prop_assert!(gamma >= first * 0.499_999 && gamma <= first * 2.000_001, "{gamma} of {first}");
            }
        }
        // Whatever goes on ends, unless the history was learnt as another normal, or the budget wants an alarm each
        // row: then one is on already, or begins with the last of these rows.
        let last = (0..100).map(|_| run(&mut detector, &service.row()).episode).last();
        let mut on = matches!(last, Some(Episode::Began | Episode::On));
        for _ in 0..3 {
            let verdict = run(&mut detector, &hit(&mut service, 11, 3_000.0));
            prop_assert!(verdict.raw > 4.0 * first, "{verdict:?} is large");
            on |= verdict.episode == Episode::Began;
        }
        prop_assert!(on, "γ is {} times what it was", detector.gamma_factor());
    }
}

#[test]
fn a_constant_that_goes_on_moving_is_an_alarm_wherever_the_budget_has_moved_gamma() {
    let budget = AlarmBudget { step: 1.0, ..AlarmBudget::one_in(1e6) };
    let (mut detector, mut service) = armed(budget, 3);
    let mut still = |value: f64| {
        let mut row = service.row();
        row[11] = value;
        row
    };
    detector.reset();
    for _ in 0..150 {
        let _ = run(&mut detector, &still(5.0));
    }
    for row in 0..40 {
        let mut row = still(if row < 20 { 5.0 } else { 5.0 + f64::from(row % 2) });
        row[3] += 80.0;
        let _ = run(&mut detector, &row);
    }
    (0..40).for_each(|_| _ = run(&mut detector, &still(5.0)));
    assert!(detector.gamma_factor() > 1.9, "{}", detector.gamma_factor());

    let began = (0..8).any(|row| run(&mut detector, &still(6.0 + f64::from(row))).episode == Episode::Began);

    assert!(began);
}

#[test]
fn in_the_long_run_there_are_about_as_many_alarms_as_the_budget_allows() {
    let count = |budget: Option<AlarmBudget>| {
        let settings = Settings { budget, ..Settings::default() };
        let (mut detector, mut service) = (detector(6, settings), Service::new(6, 31));
        for _ in 0..2_001 {
            let _ = run(&mut detector, &service.row());
        }
        let before = detector.counts().episodes;
        // Every hundredth row or so is a little out of the ordinary, for three rows.
        for row in 0..60_000 {
            let size = if row % 100 < 3 { 4.0 + f64::from(row / 100 % 7) } else { 0.0 };
            let _ = run(&mut detector, &hit(&mut service, 2, size));
        }
        detector.counts().episodes - before
    };

    let (free, tight) = (count(None), count(Some(AlarmBudget::one_in(1_000.0))));

    assert!(free > 150, "{free} without a budget");
    assert!((30..=90).contains(&tight), "{tight} with one of 60");
}

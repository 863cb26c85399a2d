//! A detector's life: learning, arming, fits, drift, gaps, jobs.

use crate::support::{Noise, Service, detector, run};
use lmap::{Episode, InstallOutcome, Job, Settings, State};

#[test]
fn it_arms_itself_and_fits_again_by_the_schedule() {
    let mut detector = detector(12, Settings::default());
    let mut service = Service::new(12, 1);

    let mut states = Vec::new();
    for _ in 0..2_100 {
        let verdict = run(&mut detector, &service.row());
        assert_eq!(verdict.gamma.is_none(), matches!(verdict.state, State::Learning { .. }));
        if states.last() != Some(&std::mem::discriminant(&verdict.state)) {
            states.push(std::mem::discriminant(&verdict.state));
        }
    }

    let expected = [State::Learning { rows: 0, needed: 0 }, State::Provisional { rows: 0, needed: 0 }, State::Armed];
    assert_eq!(states, expected.map(|state| std::mem::discriminant(&state)));
    assert_eq!(detector.counts().fits, 4); // 60, 120, 600 and 2,000 rows
    assert_eq!(detector.next_fit(), None);
}

#[test]
fn a_fault_is_an_episode_that_names_its_column() {
    let mut detector = detector(12, Settings::default());
    let mut service = Service::new(12, 2);
    for _ in 0..700 {
        let _ = run(&mut detector, &service.row());
    }
    let quiet = detector.counts().episodes;

    let mut episodes = Vec::new();
    let mut reasons = Vec::new();
    for t in 0..30 {
        let mut row = service.row();
        if t < 10 {
            row[5] += 40.0;
        }
        episodes.push(run(&mut detector, &row).episode);
        if t == 5 {
            detector.explain(3, &mut reasons);
        }
    }

    assert_eq!(episodes[1], Episode::Began);
    assert!(episodes.contains(&Episode::Ended));
    assert_eq!(detector.counts().episodes, quiet + 1);
    assert_eq!(reasons[0].column, 5);
    assert!(reasons[0].seen > reasons[0].expected && reasons[0].share > 0.3, "{reasons:?}");
}

#[test]
fn a_stale_result_is_refused_and_counted() {
    let mut detector = detector(3, Settings::default());
    let mut service = Service::new(3, 3);
    let job = loop {
        let _ = detector.score(&service.row()).unwrap();
        if let Some(job) = detector.learn() {
            break job;
        }
    };

    detector.reset();

    assert_eq!(detector.install(job.run()), InstallOutcome::Stale);
    assert_eq!(detector.counts().stale, 1);
    assert_eq!(detector.state(), State::Learning { rows: 0, needed: 120 });
}

#[test]
fn rows_that_come_while_a_job_is_out_wait_and_what_does_not_fit_is_counted() {
    let mut detector = detector(3, Settings { spare_rows: 4, ..Settings::default() });
    let mut service = Service::new(3, 4);
    let mut job = None;
    while job.is_none() {
        let _ = detector.score(&service.row()).unwrap();
        job = detector.learn();
    }

    for _ in 0..10 {
        let _ = detector.score(&service.row()).unwrap();
        assert!(detector.learn().is_none());
    }

    assert_eq!(detector.counts().lost, 6);
    assert!(matches!(job, Some(Job::Fit(_))));
    assert_eq!(detector.install(job.unwrap().run()), InstallOutcome::Taken);
}

/// Rows of the service with a fault of five columns from `first` to before `end`.
fn faulty(service: &mut Service, t: usize, first: usize, end: usize) -> Vec<f64> {
    let mut row = service.row();
    if (first..end).contains(&t) {
        row[3..8].iter_mut().for_each(|value| *value += 60.0);
    }
    row
}

#[test]
fn a_fault_during_warm_up_is_forgotten_by_the_fit_at_two_thousand_rows() {
    let (mut clean, mut poisoned) = (detector(12, Settings::default()), detector(12, Settings::default()));
    let (mut first, mut second) = (Service::new(12, 5), Service::new(12, 5));

    let (mut at_600, mut at_2000) = (0.0, 0.0);
    for t in 0..2_001 {
        let _ = run(&mut clean, &first.row());
        let _ = run(&mut poisoned, &faulty(&mut second, t, 40, 90));
        let ratio = poisoned.gamma().unwrap_or(0.0) / clean.gamma().unwrap_or(1.0);
        match t {
            700 => at_600 = ratio,
            2_000 => at_2000 = ratio,
            _ => {}
        }
    }

    assert!(at_600 > 1.5, "{at_600}"); // 50 of 120 rows were wild: it is still in the model
    assert!((0.9..1.1).contains(&at_2000), "{at_2000}");
    let verdict = run(&mut poisoned, &faulty(&mut second, 0, 0, 1));
    assert!(verdict.over && verdict.raw > 3.0 * verdict.gamma.unwrap(), "{verdict:?}");
}

#[test]
fn a_fault_while_fits_are_still_to_come_is_left_out_of_them() {
    let (mut clean, mut hit) = (detector(12, Settings::default()), detector(12, Settings::default()));
    let (mut first, mut second) = (Service::new(12, 6), Service::new(12, 6));

    for t in 0..2_001 {
        let _ = run(&mut clean, &first.row());
        let _ = run(&mut hit, &faulty(&mut second, t, 900, 1_000));
    }

    let ratio = hit.gamma().unwrap() / clean.gamma().unwrap();
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

/// A detector past its last fit, whose service has changed for good `rows` rows ago.
fn changed(settings: Settings, rows: usize) -> (lmap::Detector, impl FnMut() -> Vec<f64>) {
    let mut detector = detector(12, settings);
    let mut service = Service::new(12, 8);
    for _ in 0..2_100 {
        let _ = run(&mut detector, &service.row());
    }
    let mut next = move || {
        let mut row = service.row();
        row[3..8].iter_mut().for_each(|value| *value = 900.0 - *value);
        row
    };
    for _ in 0..rows {
        let _ = run(&mut detector, &next());
    }
    (detector, next)
}

#[test]
fn a_long_episode_is_drift_and_fitting_again_ends_it() {
    let (mut detector, mut next) = changed(Settings::default(), 650);
    assert!(matches!(detector.state(), State::Drifted { rows: 640..=650 }), "{:?}", detector.state());

    assert!(detector.fit_again().is_none()); // nothing was kept, so it collects first
    assert_eq!(detector.next_fit(), Some((0, 120)));
    for _ in 0..130 {
        let _ = run(&mut detector, &next());
    }

    assert_eq!(detector.state(), State::Armed);
    let over = (0..300).filter(|_| run(&mut detector, &next()).over).count();
    assert!(over < 30, "{over} of 300 rows");
    assert_eq!(detector.next_fit().map(|(_, needed)| needed), Some(600)); // the schedule runs again
}

#[test]
fn with_rows_kept_fitting_again_needs_no_waiting() {
    let (mut detector, mut next) = changed(Settings { rows_kept: 150, ..Settings::default() }, 650);

    let job = detector.fit_again().unwrap();
    assert_eq!(detector.install(job.run()), InstallOutcome::Taken);

    let over = (0..60).filter(|_| run(&mut detector, &next()).over).count();
    assert!(over < 6, "{over} of 60 rows");
}

#[test]
fn it_fits_again_on_its_own_if_told_to() {
    let settings = Settings { rows_kept: 150, automatic_fit_rows: Some(300), ..Settings::default() };
    let (mut detector, mut next) = changed(settings, 320);

    assert_eq!(detector.counts().fits, 5);
    let over = (0..60).filter(|_| run(&mut detector, &next()).over).count();
    assert!(over < 6, "{over} of 60 rows");
}

#[test]
fn fitting_again_while_a_fit_is_out_is_remembered() {
    let mut detector = detector(12, Settings::default());
    let mut service = Service::new(12, 9);
    let job = loop {
        let _ = detector.score(&service.row()).unwrap();
        match detector.learn() {
            Some(job) if detector.next_fit().is_some_and(|(_, needed)| needed == 2_000) => break job,
            Some(job) => drop(detector.install(job.run())),
            None => {}
        }
    };

    assert!(detector.fit_again().is_none());
    detector.install(job.run());

    let rows = (1..=200).find(|_| {
        let _ = detector.score(&service.row()).unwrap();
        match detector.learn() {
            Some(Job::Fit(_)) => true,
            Some(job) => {
                detector.install(job.run());
                false
            }
            None => false,
        }
    });
    assert_eq!(rows, Some(120), "rows from before the wish do not count");
}

#[test]
fn what_is_normal_now_is_learnt_without_what_was_normal_at_the_start() {
    let mut detector = detector(12, Settings::default());
    let mut service = Service::new(12, 8);
    for _ in 0..150 {
        let _ = run(&mut detector, &service.row());
    }
    let mut next = move || {
        let mut row = service.row();
        row[3..8].iter_mut().for_each(|value| *value = 900.0 - *value);
        row
    };
    assert!((0..20).any(|_| run(&mut detector, &next()).episode == Episode::Began));

    // The rows that it was armed by are kept, for the fit at 600.
    assert!(detector.fit_again().is_none());
    for _ in 0..130 {
        let _ = run(&mut detector, &next());
    }

    let over = (0..300).filter(|_| run(&mut detector, &next()).over).count();
    assert!(over < 30, "{over} of 300 rows");
}

#[test]
fn a_row_is_learnt_once_and_by_the_stride() {
    let mut detector = detector(6, Settings { learning_rate: 0.0, ..Settings::default() });
    let mut service = Service::new(6, 10);
    for _ in 0..120 {
        let _ = run(&mut detector, &service.row());
    }
    let before = detector.counts().learnt;

    for _ in 0..100 {
        let _ = run(&mut detector, &service.row());
        assert!(detector.learn().is_none());
    }

    let learnt = detector.counts().learnt - before;
    assert!((15..=20).contains(&learnt), "{learnt} of 20 that the stride lets through");
}

#[test]
fn a_score_is_taken_before_its_row_is_learnt() {
    let settings = Settings { learning_rate: 1.0, stride: 1, ..Settings::default() };
    let (mut judged, mut learnt) = (detector(6, settings.clone()), detector(6, settings));
    let (mut first, mut second) = (Service::new(6, 11), Service::new(6, 11));
    for _ in 0..200 {
        let _ = (run(&mut judged, &first.row()), run(&mut learnt, &second.row()));
    }

    let row: Vec<f64> = first.row().iter().map(|value| value * 3.0).collect();
    let alone = judged.score(&row).unwrap();

    assert_eq!(alone.raw, run(&mut learnt, &row).raw);
}

#[test]
fn memory_is_bounded_by_the_shape_and_by_rows_only_while_learning() {
    for columns in [8, 141, 1_000] {
        let settings = Settings { fit_again_rows: vec![200], ..Settings::default() };
        let spare = settings.spare_rows;
        let mut detector = detector(columns, settings);
        let mut service = Service::new(columns, 12);
        assert!(detector.memory_bytes() >= 200 * columns * 8);

        for _ in 0..201 {
            let _ = run(&mut detector, &service.row());
        }

        let (k, l) = detector.shape().unwrap();
        let width = columns.next_multiple_of(8);
        let rows = (2 * l + k + 9 + spare) * width * 8;
        let beside = 40 * columns + 64 * k + 512; // what is held per column, and per direction
        assert!(detector.memory_bytes() <= rows + beside, "{columns}: {} above {rows}", detector.memory_bytes());
    }
}

#[test]
fn a_level_is_explained_by_the_value_it_should_have_had() {
    let mut detector = detector(6, Settings::default());
    let mut service = Service::new(6, 13);
    let (mut resident, mut noise) = (1e9, Noise::new(1));
    let mut row = |jump: f64| {
        resident += 1e4 * noise.unit() + jump;
        let mut row = service.row();
        row[5] = resident;
        row
    };
    for _ in 0..700 {
        let _ = run(&mut detector, &row(0.0));
    }
    assert_eq!(detector.levels().collect::<Vec<_>>(), [5]);

    let seen = row(5e6);
    let _ = run(&mut detector, &seen);
    let mut reasons = Vec::new();
    detector.explain(1, &mut reasons);

    assert_eq!((reasons[0].column, reasons[0].seen), (5, seen[5]));
    let error = reasons[0].expected - (seen[5] - 5e6);
    assert!(error.abs() < 3e4, "{error}"); // increments are 5,000 ± 2,900, and up to three deviations are plausible
}

#[test]
fn a_level_that_always_grew_by_as_much_is_a_constant_until_it_does_not() {
    let mut detector = detector(1, Settings::default());
    let mut value = 0.0;
    for _ in 0..2_100 {
        value += 3.0;
        assert!(!run(&mut detector, &[value]).over);
    }
    assert_eq!((detector.levels().count(), detector.constants().count()), (1, 1));

    let verdict = run(&mut detector, &[value + 50.0]);
    let mut reasons = Vec::new();
    detector.explain(1, &mut reasons);

    assert_eq!((verdict.raw, reasons[0].seen, reasons[0].expected), (5.0, value + 50.0, value + 3.0));
}

#[test]
fn a_clock_that_is_not_quite_even_has_not_moved() {
    let (mut service, mut noise) = (Service::new(12, 25), Noise::new(3));
    let mut detector = detector(12, Settings::default());
    let mut uptime = 0.0;
    let mut next = |by: f64| {
        uptime += by + 1e-4 * noise.unit();
        let verdict = run(&mut detector, &with_last(&mut service, uptime));
        (verdict, detector.constants().collect::<Vec<_>>())
    };
    for _ in 0..2_100 {
        let _ = next(1.0);
    }

    let (on, constants): (Vec<_>, Vec<_>) = (0..50).map(|_| next(1.0)).unzip();

    assert_eq!(constants[0], [11], "the uptime is a constant");
    assert!(on.iter().all(|verdict| verdict.episode == Episode::Quiet), "{on:?}");
    assert!(
        (0..5).map(|_| next(3.0)).any(|(verdict, _)| verdict.episode == Episode::Began),
        "a clock that runs three times as fast"
    );
}

#[test]
fn after_a_gap_no_level_has_moved() {
    let mut detector = detector(6, Settings::default());
    let (mut service, mut noise, mut resident) = (Service::new(6, 14), Noise::new(2), 1e9);
    let mut row = |jump: f64| {
        resident += 1e4 * noise.unit() + jump;
        let mut row = service.row();
        row[5] = resident;
        row
    };
    for _ in 0..700 {
        let _ = run(&mut detector, &row(0.0));
    }

    detector.gap();
    let verdict = run(&mut detector, &row(1e9));
    assert!(!verdict.over, "{verdict:?}");

    let verdict = run(&mut detector, &row(1e9));
    assert!(verdict.over, "{verdict:?}"); // without a gap it has
}

/// Rows of a service whose last column is `last`.
fn with_last(service: &mut Service, last: f64) -> Vec<f64> {
    let mut row = service.row();
    *row.last_mut().expect("there are columns") = last;
    row
}

#[test]
fn a_constant_that_goes_on_moving_is_an_alarm_and_one_that_moves_once_is_none() {
    let mut service = Service::new(12, 21);
    let settings = Settings { fit_again_rows: Vec::new(), episode_margin: 1.33, ..Settings::default() };
    let mut detector = detector(12, settings);
    for _ in 0..400 {
        let _ = run(&mut detector, &with_last(&mut service, 5.0));
    }

    let once: Vec<_> =
        (0..10).map(|row| run(&mut detector, &with_last(&mut service, 5.0 + f64::from(row.min(1))))).collect();
    let on: Vec<_> = (0..10).map(|row| run(&mut detector, &with_last(&mut service, 6.0 + f64::from(row)))).collect();

    assert!(once.iter().all(|verdict| verdict.episode == Episode::Quiet), "{once:?}");
    assert!(on.iter().take(5).any(|verdict| verdict.episode == Episode::Began), "{on:?}");
}

#[test]
fn a_constant_that_returns_to_where_it_was_has_moved_once() {
    let mut service = Service::new(12, 24);
    let mut detector = detector(12, Settings { fit_again_rows: Vec::new(), ..Settings::default() });
    for _ in 0..400 {
        let _ = run(&mut detector, &with_last(&mut service, 0.0));
    }

    let burst = [0.0, 40.0, 0.0, 0.0, 0.0].map(|value| run(&mut detector, &with_last(&mut service, value)));

    let unusual = burst.map(|verdict| verdict.gamma.is_some_and(|gamma| verdict.raw >= gamma));
    assert_eq!(unusual, [false, true, false, false, false], "{burst:?}");
    assert!(burst.iter().all(|verdict| verdict.episode == Episode::Quiet), "{burst:?}");
}

/// The heap of a process of 193 MB grows by a page in the middle of training or not at all, and later by a thousandth
/// with every row.
fn heap_grows(in_training: f64, later: f64) -> bool {
    let mut service = Service::new(12, 23);
    let mut detector = detector(12, Settings { fit_again_rows: Vec::new(), ..Settings::default() });
    for row in 0..400 {
        let grown = if row < 90 { 0.0 } else { in_training };
        let _ = run(&mut detector, &with_last(&mut service, 193e6 + grown));
    }
    let mut rows = (1..8).map(|row| 193e6 + in_training + later * f64::from(row));
    rows.any(|value| run(&mut detector, &with_last(&mut service, value)).episode == Episode::Began)
}

#[test]
fn a_gauge_that_moves_by_a_thousandth_of_itself_is_no_event() {
    for in_training in [0.0, 135_168.0] {
        assert!(!heap_grows(in_training, 135_168.0), "grew by {in_training} in training");
        assert!(heap_grows(in_training, 40e6), "and 40 MB are one");
    }
}

#[test]
fn a_gauge_that_latches_is_an_alarm_that_ends_and_hides_nothing() {
    let mut service = Service::new(12, 22);
    let settings = Settings { fit_again_rows: Vec::new(), latch_rows: Some(60), ..Settings::default() };
    let mut detector = detector(12, settings);
    let mut pool = |row: u32, base: f64| with_last(&mut service, base + f64::from(row % 3));
    for row in 0..400 {
        let _ = run(&mut detector, &pool(row, 10.0));
    }

    let grown: Vec<_> = (0..120).map(|row| run(&mut detector, &pool(row, 50.0))).collect();
    let next: Vec<_> = (0..5).map(|row| run(&mut detector, &pool(row, 90.0))).collect();

    assert!(grown[..5].iter().any(|verdict| verdict.episode == Episode::Began), "the step is an alarm");
    assert!(grown[80..].iter().all(|verdict| verdict.episode == Episode::Quiet), "then it is at home there");
    assert!(next.iter().any(|verdict| verdict.episode == Episode::Began), "and the next step is an alarm again");
}

#[test]
fn rows_of_a_start_are_not_learnt() {
    let mut service = Service::new(12, 23);
    let mut detector = detector(12, Settings { settle_rows: 20, ..Settings::default() });

    for row in 0..20 {
        let _ = run(&mut detector, &with_last(&mut service, 1e6 / f64::from(1 + row)));
        assert_eq!(detector.state(), State::Learning { rows: 0, needed: 120 });
    }
    for _ in 0..120 {
        let _ = run(&mut detector, &with_last(&mut service, 5.0));
    }

    assert_eq!(detector.state(), State::Armed);
    assert_eq!(detector.constants().collect::<Vec<_>>(), [11], "the start left no trace");
}

#[test]
fn a_single_row_is_no_episode_however_wild_and_two_are() {
    for (wild, expected) in [(1, false), (2, true)] {
        let mut service = Service::new(12, 24);
        let mut detector =
            detector(12, Settings { fit_again_rows: Vec::new(), episode_margin: 1.3, ..Settings::default() });
        for _ in 0..400 {
            let row = service.row();
            let _ = run(&mut detector, &row);
        }

        let rows: Vec<_> = (0..20)
            .map(|row| service.row().iter().map(|v| if row < wild { v * 1e6 } else { *v }).collect::<Vec<_>>())
            .collect();
        let began = rows.iter().any(|row| run(&mut detector, row).episode == Episode::Began);

        assert_eq!(began, expected, "{wild} wild rows");
    }
}

#[test]
fn a_threshold_that_was_learnt_from_bursts_is_noisier_than_one_of_even_rows() {
    // A burst of 8 rows every 40 that moves half of the columns, each time by another amount, as a compiler on the same
    // machine does.
    let noise_after = |burst: f64| {
        let mut learning = detector(12, Settings { fit_again_rows: Vec::new(), ..Settings::default() });
        let mut service = Service::new(12, 5);
        assert_eq!(learning.threshold_noise(), None);
        for at in 0..150 {
            let mut row = service.row();
            if at % 40 >= 32 {
                row[..6].iter_mut().enumerate().for_each(|(column, value)| {
                    *value += burst * ((at / 40 * 7 + column * 5) % 11) as f64;
                });
            }
            let _ = run(&mut learning, &row);
        }
        learning.threshold_noise().expect("it is armed")
    };

    let (even, bursts) = (noise_after(0.0), noise_after(5.0));

    assert!(even < 4.0 && bursts > even * 1.3, "{even} {bursts}");
}

//! A detector's life: learning, arming, fits, drift, gaps, jobs.

use crate::support::{Service, detector, run};
use lmap::{Episode, Installed, Job, Settings, State};

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

    assert_eq!(detector.install(job.run()), Installed::Stale);
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
    assert_eq!(detector.install(job.unwrap().run()), Installed::Taken);
}

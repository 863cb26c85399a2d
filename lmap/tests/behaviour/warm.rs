//! Beginning with what others have learnt.

use crate::support::{Service, detector, gauges, run};
use lmap::{Column, ColumnKind, Detector, Episode, Model, Settings, State};

const M: usize = 12;

/// What a detector knows after `rows` rows of a service, whose values lie `level` higher.
fn model(rows: usize, seed: u64, level: f64) -> Model {
    let (mut detector, mut service) = (detector(M, Settings::default()), Service::new(M, seed));
    for _ in 0..rows {
        let _ = run(&mut detector, &raised(&mut service, level));
    }
    detector.model().expect("armed")
}

fn raised(service: &mut Service, level: f64) -> Vec<f64> {
    service.row().iter().map(|value| value + level).collect()
}

fn warm(models: &[&Model], settings: Settings) -> Detector {
    let merged = Model::merge(models).expect("they are alike");
    Detector::warm(&merged, gauges(M), settings, 1).expect("the columns are known")
}

fn episodes(detector: &mut Detector, rows: impl Iterator<Item = Vec<f64>>) -> usize {
    rows.filter(|row| run(detector, row).episode == Episode::Began).count()
}

#[test]
fn a_new_replica_is_judged_from_its_first_rows_on() {
    let (first, second) = (model(700, 1, 0.0), model(700, 2, 0.0));
    let mut detector = warm(&[&first, &second], Settings::default());
    assert_eq!(detector.state(), State::Armed);
    let mut service = Service::new(M, 3);

    let quiet = episodes(&mut detector, (0..40).map(|_| service.row()));
    let faulty = episodes(
        &mut detector,
        (0..5).map(|_| {
            let mut row = service.row();
            row[5] += 40.0;
            row
        }),
    );

    assert_eq!((quiet, faulty), (0, 1));
}

#[test]
fn its_start_is_neither_an_alarm_nor_learnt() {
    let known = model(700, 1, 0.0);
    let mut detector = warm(&[&known], Settings { settle_rows: 20, ..Settings::default() });
    let mut service = Service::new(M, 3);

    let start = episodes(&mut detector, (0..20).map(|row| raised(&mut service, 5e3 / f64::from(1 + row))));
    assert_eq!(detector.counts().learnt, 0);
    assert_eq!(detector.next_fit(), Some((120, 600)));
    let after = episodes(&mut detector, (0..60).map(|_| service.row()));

    assert_eq!((start, after), (0, 0));
    assert_eq!(detector.state(), State::Armed);
}

#[test]
fn after_its_own_fits_nothing_is_left_of_what_was_carried() {
    let (near, far) = (model(700, 1, 0.0), model(700, 5, 3.0));
    let settings = Settings { settle_rows: 20, ..Settings::default() };
    let (mut first, mut second) = (warm(&[&near], settings.clone()), warm(&[&far], settings));
    let (mut one, mut other) = (Service::new(M, 4), Service::new(M, 4));
    assert_ne!(first.gamma(), second.gamma());

    for _ in 0..1_901 {
        let _ = (run(&mut first, &one.row()), run(&mut second, &other.row()));
    }

    assert_eq!((first.counts().fits, first.next_fit()), (2, None));
    assert_eq!(first.gamma(), second.gamma());
    let row = one.row();
    assert_eq!(first.score(&row).unwrap().raw, second.score(&row).unwrap().raw);
}

#[test]
fn several_are_known_where_one_is_not() {
    let (low, high) = (model(700, 1, 0.0), model(700, 2, 60.0));
    let (mut alone, mut both) = (warm(&[&low], Settings::default()), warm(&[&low, &high], Settings::default()));
    let mut service = Service::new(M, 5);

    let rows: Vec<_> = (0..100).map(|_| raised(&mut service, 60.0)).collect();

    assert_eq!(episodes(&mut alone, rows.iter().cloned()), 1);
    assert_eq!(episodes(&mut both, rows.into_iter()), 0);
    let fault = (0..5).map(|_| {
        let mut row = raised(&mut service, 60.0);
        row[5] += 60.0;
        row
    });
    assert_eq!(episodes(&mut both, fault), 1, "what they have in common is still known");
}

#[test]
fn columns_that_nobody_knew_wait_for_the_first_fit_of_its_own() {
    let known = model(700, 1, 0.0);
    let mut columns = gauges(M);
    columns.push(Column::new(ColumnKind::Gauge, 99));
    let mut detector = Detector::warm(&known, columns, Settings::default(), 1).unwrap();
    let mut service = Service::new(M + 1, 3);
    assert_eq!(detector.unwatched().collect::<Vec<_>>(), [M]);

    for _ in 0..490 {
        let _ = run(&mut detector, &service.row());
    }

    assert_eq!(detector.unwatched().count(), 0);
    assert_eq!(detector.counts().fits, 1);
}

#[test]
fn a_share_of_constants_is_not_counted_twice_by_its_own_fits() {
    let settings = Settings { episode_margin: 1.5, ..Settings::default() };
    let (mut first, mut service) = (detector(M, settings.clone()), Service::new(M, 1));
    let mut still = || {
        let mut row = service.row();
        row[M - 1] = 5.0;
        row
    };
    for _ in 0..200 {
        let _ = run(&mut first, &still());
    }

    let second = Detector::warm(&first.model().unwrap(), gauges(M), settings.clone(), 1).unwrap();

    assert!((second.settings().constant_share - settings.constant_share).abs() < 1e-12);
}

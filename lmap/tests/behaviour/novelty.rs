//! What is new in an episode begins another one.

use crate::support::{Noise, Service, detector, gauges, run};
use lmap::{Column, Detector, Episode, Settings};

fn settings() -> Settings {
    Settings { novelty: true, ..Settings::default() }
}

/// A service of so many columns, and a detector that has learnt it.
fn learnt(columns: usize, seed: u64, settings: Settings) -> (Detector, Service) {
    let (mut detector, mut service) = (detector(columns, settings), Service::new(columns, seed));
    for _ in 0..700 {
        let _ = run(&mut detector, &service.row());
    }
    (detector, service)
}

/// The rows of the next `rows` with which an episode begins, each with the column that is named first.
fn begins(
    (mut detector, mut service): (Detector, Service),
    rows: u32,
    mut fault: impl FnMut(u32, &mut [f64]),
) -> Vec<(u32, usize)> {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    let before = detector.counts().episodes;
    for at in 0..rows {
        let mut row = service.row();
        fault(at, &mut row);
        if run(&mut detector, &row).episode == Episode::Began {
            detector.explain(3, &mut reasons);
            found.push((at, reasons[0].column));
        }
    }
    assert_eq!(detector.counts().episodes - before, found.len() as u64);
    found
}

/// A gauge that stays elsewhere, and another fault 20 rows later.
fn overlapping(at: u32, row: &mut [f64]) {
    row[5] += 40.0;
    if at >= 20 {
        row[8] += 40.0;
    }
}

#[test]
fn another_fault_in_an_episode_begins_another_that_names_it() {
    for seed in 1..=8 {
        let found = begins(learnt(12, seed, settings()), 60, overlapping);

        let [(first, of_first), (second, of_second)] = found[..] else { panic!("seed {seed}: {found:?}") };
        assert_eq!((first, of_first, of_second), (1, 5, 8), "seed {seed}");
        assert!((21..24).contains(&second), "seed {seed}: {found:?}");
    }
}

#[test]
fn without_it_the_first_fault_hides_the_next() {
    let hidden = Settings { novelty: false, ..settings() };

    assert_eq!(begins(learnt(12, 1, hidden), 60, overlapping), [(1, 5)]);
}

/// Second episodes in one long fault of three columns, each `strength` of a random number times as strong in each row.
fn second_episodes(strength: impl Fn(f64) -> f64) -> usize {
    let one = |seed: u64| {
        let mut noise = Noise::new(1_000 + seed);
        let found = begins(learnt(12, seed, settings()), 300, |_, row| {
            for column in [4, 5, 8] {
                row[column] += 60.0 * strength(noise.unit());
            }
        });
        found.len() - 1
    };
    (1..=20).map(one).sum()
}

#[test]
fn a_long_fault_begins_no_other_however_its_parts_change() {
    assert_eq!(second_episodes(|_| 1.0), 0, "it stays as it is");
    let fluctuating = second_episodes(|random| 0.3 + 1.4 * random);
    assert!(fluctuating <= 1, "{fluctuating} in 20 faults of 300 rows");
}

#[test]
fn what_has_left_an_episode_and_comes_back_begins_another() {
    for seed in 1..=6 {
        let found = begins(learnt(30, seed, settings()), 48, |at, row| {
            row[5] += 500.0;
            if !(10..40).contains(&at) {
                row[8] += 60.0;
                row[9] += 60.0;
            }
        });

        let at: Vec<u32> = found.iter().map(|(at, _)| *at).collect();
        assert!(matches!(at[..], [1, 41..44]), "seed {seed}: {found:?}");
    }
}

#[test]
fn an_indicator_begins_another_as_well() {
    let mut columns = gauges(13);
    columns[12] = Column { indicator: true, ..columns[12] };
    let mut detector = Detector::new(columns, settings(), 1).unwrap();
    let (mut service, mut began) = (Service::new(12, 3), Vec::new());
    let mut row = |added: f64, indicated: f64| {
        let mut row = service.row();
        row[5] += added;
        row.push(indicated);
        row
    };
    for _ in 0..700 {
        let _ = run(&mut detector, &row(0.0, 0.0));
    }

    for at in 0..30 {
        let failures = f64::from((at - 19).max(0));
        let episode = run(&mut detector, &row(500.0, failures)).episode;
        began.extend((episode == Episode::Began).then_some(at));
    }

    assert_eq!(began, [1, 21], "the first failure comes with row 20");
}

#[test]
fn episodes_begin_at_least_seven_rows_apart_whatever_comes() {
    let mut all = 0;
    for seed in 1..=10 {
        let mut noise = Noise::new(seed);
        let mut on = [false; 12];
        let found = begins(learnt(12, seed, settings()), 300, |_, row| {
            for (value, on) in row.iter_mut().zip(&mut on) {
                *on ^= noise.unit() < 0.03;
                *value += if *on { 300.0 * noise.unit() } else { 0.0 };
            }
        });

        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 7), "seed {seed}: {found:?}");
        all += found.len();
    }
    assert!(all > 10, "{all} episodes: some began within others");
}

#[test]
fn what_begins_between_two_rows_is_followed_as_well() {
    let (mut detector, mut service) = learnt(12, 4, settings());
    assert!(detector.begin_episode());
    let mut began = Vec::new();
    for at in 0..40 {
        let mut row = service.row();
        overlapping(at, &mut row);
        began.extend((run(&mut detector, &row).episode == Episode::Began).then_some(at));
    }

    assert!(matches!(began[..], [21..24]), "{began:?}");
    assert!(detector.end_episode() && !detector.is_in_episode());
}

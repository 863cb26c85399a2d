//! Two versions of a service, compared by their models.

use crate::support::{Noise, detector, run};
use lmap::{Canary, CanaryError, DifferenceKind, Model, ScoreForm, Settings, Tolerance};

const M: usize = 14;

/// A version of a service: how its rows come about.
#[derive(Clone, Copy)]
struct Version {
    load: f64,
    /// This metric lies so much higher than the load lets expect.
    moved: (usize, f64),
    /// This metric has so many times the noise.
    restless: (usize, f64),
    /// The last metric.
    last: f64,
}

const OLD: Version = Version { load: 10.0, moved: (0, 0.0), restless: (0, 1.0), last: 3.0 };

impl Version {
    fn model(self, rows: usize, seed: u64) -> Model {
        let settings = Settings { fit_again_rows: vec![rows], ..Settings::default() };
        let (mut detector, mut noise) = (detector(M, settings), Noise::new(seed));
        for tick in 0..=rows {
            let load = self.load + 2.0 * (tick as f64 / 31.0).sin() + noise.normal();
            let row: Vec<f64> = (0..M)
                .map(|column| {
                    let more = if column == self.moved.0 { self.moved.1 } else { 0.0 };
                    let spread = if column == self.restless.0 { self.restless.1 } else { 1.0 };
                    100.0 + (1 + column % 4) as f64 * load + spread * noise.normal() + more
                })
                .collect();
            let row = [&row[..M - 1], &[self.last]].concat();
            let _ = run(&mut detector, &row);
        }
        detector.model().expect("armed")
    }
}

fn compared(new: Version, seed: u64) -> Canary {
    Canary::compare(&OLD.model(900, seed), &new.model(900, seed + 100), Tolerance::default()).expect("one service")
}

#[test]
fn the_same_version_is_alike_at_any_load() {
    for seed in 1..6 {
        for load in [10.0, 10.5, 12.0, 8.0] {
            let canary = compared(Version { load, ..OLD }, seed);

            assert!(!canary.differs(), "load {load}, seed {seed}: {canary:?}");
            assert_eq!((canary.compared, canary.left_out), (M, (0, 0, 0)));
        }
        let same = compared(OLD, seed);
        assert!((same.score / same.own_score - 1.0).abs() < 0.1, "{} and {}", same.score, same.own_score);
    }
}

#[test]
fn a_metric_that_lies_elsewhere_is_named_with_what_was_expected_of_it() {
    for seed in 1..6 {
        let canary = compared(Version { moved: (5, 3.0), load: 11.0, ..OLD }, seed);

        let first = canary.differences[0];
        assert_eq!((first.fingerprint, first.kind), (5, DifferenceKind::Moved), "{canary:?}");
        assert!((first.seen - 100.0 - 2.0 * 11.0 - 3.0).abs() < 0.5, "{first:?}");
        assert!((first.seen - first.expected - 3.0).abs() < 1.0 && first.share > 0.4, "{first:?}");
    }
}

#[test]
fn a_metric_that_is_less_steady_is_named() {
    for seed in 1..6 {
        let canary = compared(Version { restless: (6, 4.0), ..OLD }, seed);

        let first = canary.differences[0];
        assert_eq!((first.fingerprint, first.kind), (6, DifferenceKind::Restless), "{canary:?}");
        assert!((2.5..5.5).contains(&first.spread), "{first:?}");
        assert!(!canary.differs(), "rare events look like this, too");
    }
}

#[test]
fn a_constant_that_is_another_one_is_named() {
    let canary = compared(Version { last: 4.0, ..OLD }, 1);

    assert_eq!(canary.differences.len(), 1, "{canary:?}");
    let difference = canary.differences[0];
    assert_eq!((difference.kind, difference.expected, difference.seen), (DifferenceKind::NoLongerConstant, 3.0, 4.0));
}

#[test]
fn few_rows_are_not_sure_of_a_small_shift() {
    let tolerance = Tolerance { shift: 0.0, ..Tolerance::default() };
    let (few, many) = (OLD.model(140, 1), OLD.model(900, 2));
    let moved = Version { moved: (5, 1.0), ..OLD }.model(900, 3);

    assert!(!Canary::compare(&many, &few, tolerance).unwrap().differs());
    let found = Canary::compare(&many, &moved, tolerance).unwrap();
    assert_eq!(found.differences.first().map(|difference| difference.fingerprint), Some(5), "{found:?}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let own = OLD.model(140, 1);
    let mut paper = detector(M, Settings::paper(ScoreForm::PaperAbsolute));
    let mut noise = Noise::new(1);
    for _ in 0..130 {
        let row: Vec<f64> = (0..M).map(|_| noise.normal()).collect();
        let _ = run(&mut paper, &row);
    }
    let paper = paper.model().unwrap();

    let refused = Canary::compare(&paper, &own, Tolerance::default());

    assert_eq!(refused, Err(CanaryError::Form(ScoreForm::PaperAbsolute)));
    assert!(Canary::compare(&own, &paper, Tolerance::default()).is_ok(), "the new one may have any form");
}

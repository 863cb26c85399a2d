//! Detectors of a node that start together take turns.

use crate::support::{Service, gauges};
use lmap::{Detector, Job, Settings};

const COLUMNS: usize = 40;

/// How many of `detectors` hand out a decomposition with the same row, for each of 600 rows after the last fit.
fn decompositions(mut detectors: Vec<Detector>) -> Vec<usize> {
    let mut service = Service::new(COLUMNS, 3);
    let mut counts = Vec::new();
    for t in 0..720 {
        let row = service.row();
        let mut count = 0;
        for detector in &mut detectors {
            let _ = detector.score(&row).expect("the row has the detector's length");
            if let Some(job) = detector.learn() {
                count += usize::from(matches!(job, Job::Shrink(_)));
                detector.install(job.run());
            }
        }
        if t >= 120 {
            counts.push(count);
        }
    }
    assert!(detectors.iter().all(|detector| detector.counts().shrinks >= 3));
    counts
}

/// Every row is learnt that the stride lets through, so that it is the place alone that makes the difference.
fn detectors(place: impl Fn(usize) -> usize) -> Vec<Detector> {
    let settings =
        Settings { learning_rate: 1.0, provisional_rows: None, fit_again_rows: Vec::new(), ..Settings::default() };
    let settings = Settings { rank: Some(12), sketch_rows: Some(25), ..settings };
    let new = |at| Detector::new(gauges(COLUMNS), settings.clone(), 1).expect("valid settings").staggered(place(at));
    (0..64).map(new).collect()
}

#[test]
fn no_row_makes_many_detectors_decompose_that_were_fitted_together() {
    let counts = decompositions(detectors(|at| at));

    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    assert!(counts[130..].iter().all(|count| *count <= 1), "{counts:?}");
}

#[test]
fn in_the_same_place_all_decompose_with_the_same_row() {
    let counts = decompositions(detectors(|_| 0));

    assert!(counts.iter().all(|count| [0, 64].contains(count)) && counts.contains(&64), "{counts:?}");
}

#[test]
fn a_place_changes_neither_what_is_found_nor_by_much_how_a_row_scores() {
    let mut service = Service::new(COLUMNS, 5);
    let mut detectors = detectors(|at| at);
    let mut most = 0.0_f64;
    for _ in 0..900 {
        let row = service.row();
        let mut scores = Vec::new();
        for detector in &mut detectors {
            let verdict = detector.score(&row).expect("the row has the detector's length");
            scores.push(verdict.raw / verdict.gamma.unwrap_or(1.0));
            if let Some(job) = detector.learn() {
                detector.install(job.run());
            }
        }
        let (least, largest) = scores.iter().fold((f64::MAX, 0.0_f64), |(a, b), score| (a.min(*score), b.max(*score)));
        most = most.max(largest - least);
    }

    assert!(most < 0.5, "scores of the same row differ by {most} γ");
    let row: Vec<f64> = service.row().iter().enumerate().map(|(at, value)| value + f64::from(at == 3) * 80.0).collect();
    assert!(detectors.iter_mut().all(|detector| detector.score(&row).is_ok_and(|verdict| verdict.over)));
}

//! The cap of γ, for services whose training had a burst.

use crate::support::{Service, detector, run};
use lmap::{Episode, Settings};

const M: usize = 12;

/// γ of a detector that saw a burst of three rows while it learnt, and whether it notices a smaller shift that lasts.
fn after_burst(gamma_cap: f64) -> (f64, bool) {
    let settings = Settings { gamma_cap, fit_again_rows: Vec::new(), ..Settings::default() };
    let (mut detector, mut service) = (detector(M, settings), Service::new(M, 31));
    let mut next = |column: usize, shift: f64| {
        let mut row = service.row();
        row[column] += shift;
        run(&mut detector, &row)
    };
    let last = (0..200).map(|row| next(3, if (90..93).contains(&row) { 200.0 } else { 0.0 })).last();
    let gamma = last.and_then(|verdict| verdict.gamma).expect("armed");
    (gamma, (0..10).any(|_| next(7, 30.0).episode == Episode::Began))
}

#[test]
fn a_burst_while_learning_does_not_hide_smaller_faults_under_a_cap() {
    let ((free, blind), (capped, sees)) = (after_burst(f64::MAX), after_burst(5.0));

    assert!(capped < free, "{capped} {free}");
    assert_eq!((blind, sees), (false, true), "γ {free}, capped {capped}");
}

#[test]
fn a_cap_beyond_what_scores_reach_changes_nothing() {
    assert_eq!(after_burst(1e9).0, after_burst(f64::MAX).0);
}

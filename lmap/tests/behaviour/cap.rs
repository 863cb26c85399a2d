//! Caps: that of γ, for services whose training had a burst, and that of a single row in an episode.

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

#[test]
fn what_lasts_is_an_episode_and_a_single_row_is_none_however_short_rows_are() {
    // Rows of a second have no margin: there, noise above half of γ can make an episode of a single one.
    for (interval, wild, expected) in [0.1, 0.01, 0.001].map(|of| [(of, 1, false), (of, 4, true)]).concat() {
        let settings = Settings { fit_again_rows: Vec::new(), ..Settings::default() }.every(interval);
        let (mut detector, mut service) = (detector(M, settings), Service::new(M, 24));
        for _ in 0..400 {
            let _ = run(&mut detector, &service.row());
        }

        let mut row = |at: usize| {
            let row = service.row();
            if at < wild { row.iter().map(|value| value * 1e6).collect() } else { row }
        };
        let began = (0..20).any(|at| run(&mut detector, &row(at)).episode == Episode::Began);

        assert_eq!(began, expected, "{wild} wild rows of {interval} s");
    }
}

//! What a reason says of the column that it names.

use crate::support::{Noise, detector, run};
use lmap::Settings;

const M: usize = 6;

#[test]
fn a_column_that_moves_along_what_was_learnt_of_it_alone_is_expected_at_its_mean() {
    // Nothing goes together, so each column is nearly a direction by itself.
    let mut detector = detector(M, Settings { fit_again_rows: Vec::new(), ..Settings::default() });
    let mut noise = Noise::new(7);
    for _ in 0..400 {
        let row: Vec<f64> = (0..M).map(|_| 100.0 + noise.normal()).collect();
        let _ = run(&mut detector, &row);
    }

    for deviations in [2.5, 4.5, 40.0] {
        let mut row = vec![100.0; M];
        row[2] += deviations;
        let _ = run(&mut detector, &row);
        let mut reasons = Vec::new();
        detector.explain(1, &mut reasons);

        let reason = reasons.first().expect("a row has a reason");
        assert_eq!((reason.column, reason.seen), (2, 100.0 + deviations));
        assert!((reason.expected - 100.0).abs() < 0.5, "{deviations}: {reason:?}");
    }
}

#[test]
fn the_columns_that_are_named_are_those_with_the_largest_shares_and_all_is_said_of_them() {
    let mut detector = detector(M, Settings { fit_again_rows: Vec::new(), ..Settings::default() });
    let mut noise = Noise::new(11);
    for _ in 0..400 {
        let row: Vec<f64> = (0..M).map(|_| 100.0 + noise.normal()).collect();
        let _ = run(&mut detector, &row);
    }

    // The larger the later, so that each gives way to the next.
    for step in [0.5, 2.0, 9.0] {
        let row: Vec<f64> = (0..M).map(|column| 100.0 + step * (column + 1) as f64).collect();
        let _ = run(&mut detector, &row);
        let (mut named, mut each) = (Vec::new(), Vec::new());
        detector.explain(3, &mut named);
        detector.explain_each(&mut each);

        each.retain(|of| of.share > 0.0);
        each.sort_by(|one, other| other.share.total_cmp(&one.share));
        each.truncate(3);
        assert!(!named.is_empty());
        assert_eq!(named, each, "{step}");
    }
}

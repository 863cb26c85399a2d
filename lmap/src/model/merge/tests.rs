//! What a merged model is, held against a model of all rows. What it does is in `tests/behaviour/warm.rs`.

use super::*;
use crate::column::{Column, ColumnKind};
use crate::detector::Detector;
use crate::random::Random;
use crate::settings::Settings;
use proptest::prelude::*;

const M: usize = 7;

/// Rows of gauges that follow one load, around `level`.
fn rows(count: usize, level: f64, random: &mut Random) -> Vec<[f64; M]> {
    let row = |_| {
        let load = random.unit();
        std::array::from_fn(|column| level + (1.0 + column as f64) * load + random.unit())
    };
    (0..count).map(row).collect()
}

/// One fit on these rows of these columns, and nothing learnt since.
fn model(rows: &[[f64; M]], columns: std::ops::Range<usize>) -> Model {
    let settings = Settings {
        warm_up_rows: rows.len(),
        provisional_rows: None,
        fit_again_rows: Vec::new(),
        deviation_floor: 0.0,
        levels: None,
        ..Settings::default()
    };
    let specs = columns.clone().map(|column| Column::new(ColumnKind::Gauge, column as u64)).collect();
    let mut detector = Detector::new(specs, settings, 1).unwrap();
    for row in rows {
        let _ = detector.score(&row[columns.clone()]).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector.model().unwrap()
}

fn total(model: &Model) -> f64 {
    model.columns.iter().map(|column| column.variance).chain(model.inside_variance.iter().copied()).sum()
}

/// The standardised rows' mean square by the merged means and deviations.
fn mean_square(model: &Model, rows: &[[f64; M]]) -> f64 {
    let z = |row: &[f64; M]| -> f64 {
        row.iter().zip(&model.columns).map(|(value, column)| ((value - column.mean) * column.inverse).powi(2)).sum()
    };
    rows.iter().map(z).sum::<f64>() / rows.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn means_deviations_and_energy_are_those_of_all_rows(
        counts in (20_usize..200, 20_usize..200, 20_usize..200), levels in prop::array::uniform3(-5.0..5.0), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let each: Vec<Vec<[f64; M]>> = [counts.0, counts.1, counts.2]
            .iter().zip(levels).map(|(count, level)| rows(*count, level, &mut random)).collect();
        let models: Vec<Model> = each.iter().map(|rows| model(rows, 0..M)).collect();

        let merged = Model::merge(&models.iter().collect::<Vec<_>>()).unwrap();

        let all = each.concat();
        for (index, column) in merged.columns.iter().enumerate() {
            let mean = all.iter().map(|row| row[index]).sum::<f64>() / all.len() as f64;
            let variance = all.iter().map(|row| (row[index] - mean).powi(2)).sum::<f64>() / all.len() as f64;
            prop_assert!((column.mean - mean).abs() < 1e-6 * variance.sqrt(), "mean {} of {mean}", column.mean);
            prop_assert!((column.inverse * variance.sqrt() - 1.0).abs() < 1e-6);
        }
        // The models know their rows' energy through V and T, which are variances: means of coordinates are left out.
        let expected = mean_square(&merged, &all);
        prop_assert!((total(&merged) - expected).abs() < 0.02 * expected, "{} of {expected}", total(&merged));
        prop_assert!(merged.gamma >= models.iter().map(|model| model.gamma).fold(0.0, f64::max));
    }

    #[test]
    fn the_order_of_the_models_makes_no_difference_beyond_what_sketches_lose(
        count in 30_usize..200, level in -3.0..3.0, seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (a, b) = (model(&rows(count, 0.0, &mut random), 0..M), model(&rows(90, level, &mut random), 0..M));

        let (first, second) = (Model::merge(&[&a, &b]).unwrap(), Model::merge(&[&b, &a]).unwrap());

        prop_assert!((total(&first) - total(&second)).abs() < 1e-9 * total(&first));
        for (one, other) in first.columns.iter().zip(&second.columns) {
            prop_assert!((one.mean - other.mean).abs() < 1e-9);
            prop_assert!((one.variance - other.variance).abs() < 1e-6, "V {} and {}", one.variance, other.variance);
        }
    }
}

#[test]
fn a_merged_model_has_the_columns_of_all_and_each_its_own_spread() {
    let mut random = Random::new(3);
    let (first, second) = (rows(200, 0.0, &mut random), rows(100, 0.0, &mut random));

    let merged = Model::merge(&[&model(&first, 0..5), &model(&second, 2..7)]).unwrap();

    assert_eq!(merged.fingerprints().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(Model::decode(&merged.encode()).unwrap(), merged, "it can be written and read");
    // Every column has about its own variance of 1, also those of a third of the rows.
    for (index, column) in merged.columns.iter().enumerate() {
        let inside: f64 =
            (0..merged.rank).map(|i| merged.basis[i * 7 + index].powi(2) * merged.inside_variance[i]).sum();
        let all = column.variance + inside;
        assert!((0.9..1.1).contains(&all), "column {index} has {all}");
    }
}

#[test]
fn constants_that_differ_are_watched_and_equal_ones_are_not() {
    let mut random = Random::new(4);
    let still = |value: f64, random: &mut Random| {
        let mut rows = rows(60, 0.0, random);
        for row in &mut rows {
            (row[0], row[1]) = (8.0, value);
        }
        model(&rows, 0..M)
    };
    let (first, second) = (still(1.0, &mut random), still(3.0, &mut random));
    assert_eq!(first.columns[1].role, Role::Constant);

    let merged = Model::merge(&[&first, &second]).unwrap();

    assert_eq!((merged.columns[0].role, merged.columns[0].mean), (Role::Constant, 8.0));
    assert_eq!(merged.columns[1].role, Role::Watched);
    // To single precision: how many rows each has learnt is known by its directions.
    assert!((merged.columns[1].mean - 2.0).abs() < 1e-6);
    assert!((merged.columns[1].inverse - 1.0).abs() < 1e-6);
}

#[test]
fn what_has_no_score_in_common_is_refused() {
    let mut random = Random::new(5);
    let own = model(&rows(60, 0.0, &mut random), 0..M);
    let mut paper = own.clone();
    paper.rule.score = ScoreForm::PaperAbsolute;
    let mut relative = own.clone();
    relative.rule.score = ScoreForm::PaperRelative;

    assert_eq!(Model::merge(&[]), Err(MergeError::Nothing));
    assert_eq!(Model::merge(&[&own]).as_ref(), Ok(&own));
    assert!(matches!(Model::merge(&[&own, &paper]), Err(MergeError::Forms { .. })));
    assert_eq!(Model::merge(&[&own, &relative]), Err(MergeError::Relative));
}

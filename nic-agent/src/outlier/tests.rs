use proptest::prelude::*;
use wire::metric::Aggregation;

use super::*;
use crate::aggregation::Aggregations;

fn method(aggregation: &str) -> Method {
    Aggregations::default().find(&Aggregation::parse(aggregation).unwrap()).unwrap()
}

/// The number of the replica that stands out, from 0 on; `each` has the usual value and the value of each.
fn outlier(combination: Combination<'_>, expected: f64, each: &[(f64, f64)]) -> Option<u32> {
    let weights = vec![1.0; each.len()];
    let seen = combination.of(each.iter().map(|(_, value)| *value), &weights, &mut Vec::new());
    let mut replicas = ReplicaValues::default();
    for (id, (usual, value)) in (0..).zip(each) {
        replicas.push(ReplicaId(id), *value, *usual, 1.0);
    }
    replicas.outlier(combination, Deviation { seen, expected }).map(|ReplicaId(id)| id)
}

fn of_sum(expected: f64, each: &[(f64, f64)]) -> Option<u32> {
    outlier(Combination::By(&method("sum")), expected, each)
}

#[test]
fn the_replica_whose_value_is_not_the_usual_one_stands_out() {
    let faulty = [(10.0, 11.0), (10.0, 9.0), (10.0, 90.0)];

    assert_eq!(of_sum(30.0, &faulty), Some(2));
    for (aggregation, expected) in [("mean", 10.0), ("max", 10.0), ("p90", 10.0), ("max - min", 1.0)] {
        assert_eq!(outlier(Combination::By(&method(aggregation)), expected, &faulty), Some(2), "{aggregation}");
    }
    assert_eq!(outlier(Combination::WeightedMean, 10.0, &faulty), Some(2));
    assert_eq!(outlier(Combination::Largest, 10.0, &faulty), Some(2));
    assert_eq!(of_sum(200.0, &[(100.0, 98.0), (100.0, 3.0)]), Some(1), "it stands out below, too");
    assert_eq!(of_sum(0.01, &[(0.0, 0.0), (0.0, 8.0)]), Some(1), "there were no errors before");
}

#[test]
fn what_happens_to_several_replicas_names_none() {
    assert_eq!(of_sum(20.0, &[(10.0, 61.0), (10.0, 58.0)]), None);
    assert_eq!(of_sum(30.0, &[(10.0, 100.0), (10.0, 98.0), (10.0, 10.0)]), None);
    assert_eq!(outlier(Combination::Largest, 10.0, &[(10.0, 100.0), (10.0, 98.0)]), None);
    assert_eq!(of_sum(60.0, &[(10.0, 20.0), (50.0, 100.0)]), None, "the large one makes most of it, and is no other");
}

#[test]
fn more_load_on_all_is_no_reason_to_name_the_one_with_most() {
    // The detector expects twice the CPU time, since there are twice the requests.
    assert_eq!(of_sum(120.0, &[(10.0, 80.0), (50.0, 100.0)]), Some(0));
    assert_eq!(of_sum(120.0, &[(10.0, 20.0), (50.0, 180.0)]), Some(1));
}

#[test]
fn the_one_replica_is_named_and_one_of_which_nothing_is_usual_is_as_the_others_are() {
    assert_eq!(of_sum(10.0, &[(f64::NAN, 90.0)]), Some(0));
    assert_eq!(of_sum(20.0, &[(10.0, 10.0), (f64::NAN, 70.0)]), Some(1), "it has come with the fault");
    assert_eq!(of_sum(20.0, &[(f64::NAN, 10.0), (f64::NAN, 70.0)]), None, "nothing is known of both");
}

#[test]
fn those_that_are_left_are_not_to_blame_for_one_that_is_gone() {
    assert_eq!(of_sum(20.0, &[(10.0, 10.0), (10.0, f64::NAN)]), None);
    assert_eq!(of_sum(20.0, &[(10.0, f64::NAN), (10.0, f64::NAN)]), None);
}

#[test]
fn of_a_mean_of_all_requests_a_replica_with_hardly_any_is_not_the_reason() {
    let mut replicas = ReplicaValues::default();
    for (id, value, weight) in [(1, 2.0, 900.0), (2, 9.0, 1.0), (3, 6.0, 900.0)] {
        replicas.push(ReplicaId(id), value, 2.0, weight);
    }
    let seen = (1_800.0 + 9.0 + 5_400.0) / 1_801.0;

    let found = replicas.outlier(Combination::WeightedMean, Deviation { seen, expected: 2.0 });

    assert_eq!(found, Some(ReplicaId(3)));
}

#[test]
fn what_is_usual_follows_ordinary_values_and_a_missing_one_changes_nothing() {
    assert_eq!(usual_after(f64::NAN, 8.0), 8.0);
    assert_eq!(usual_after(8.0, f64::NAN), 8.0);
    assert_eq!(usual_after(8.0, 16.0), 9.0);
    let usual = (0..40).fold(8.0, |usual, _| usual_after(usual, 16.0));
    assert!((15.9..16.0).contains(&usual), "{usual}");
}

/// Usual values of two to eight replicas.
fn shares() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(0.5..200.0_f64, 2..8)
}

proptest! {
    #[test]
    fn one_replica_that_does_several_times_what_it_should_is_named(
        shares in shares(), place in any::<prop::sample::Index>(), load in 0.5..3.0_f64, times in 2.5..50.0_f64
    ) {
        let faulty = place.index(shares.len());
        let value = |at: usize| if at == faulty { shares[at] * load * times } else { shares[at] * load };
        let each: Vec<_> = shares.iter().enumerate().map(|(at, usual)| (*usual, value(at))).collect();
        let expected = shares.iter().sum::<f64>() * load;

        prop_assert_eq!(of_sum(expected, &each), u32::try_from(faulty).ok());
        let mean = outlier(Combination::By(&method("mean")), expected / shares.len() as f64, &each);
        prop_assert_eq!(mean, u32::try_from(faulty).ok());
    }

    #[test]
    fn what_all_do_alike_names_none(shares in shares(), times in prop_oneof![0.0..0.9_f64, 1.1..50.0_f64]) {
        let each: Vec<_> = shares.iter().map(|usual| (*usual, usual * times)).collect();
        for aggregation in ["sum", "mean", "max", "min", "p50"] {
            let method = method(aggregation);
            let expected = method.apply(&mut shares.clone());

            prop_assert_eq!(outlier(Combination::By(&method), expected, &each), None, "{}", aggregation);
        }
    }

    #[test]
    fn whatever_replicas_say_one_that_is_named_has_said_something(
        each in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..6), expected in any::<f64>()
    ) {
        let sum = method("sum");
        for combination in [Combination::By(&sum), Combination::WeightedMean, Combination::Largest] {
            if let Some(named) = outlier(combination, expected, &each) {
                prop_assert!(each.len() == 1 || !each[named as usize].1.is_nan());
            }
        }
    }
}

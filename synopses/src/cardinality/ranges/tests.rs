use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Maximum likelihood by Newton's steps alone, with the exponential function of libm.
fn by_newton(terms: &[(f64, bool)]) -> f64 {
    let all: f64 = terms.iter().map(|(term, _)| term).sum();
    let with_items = terms.iter().filter(|(_, has_items)| *has_items).count() as f64;
    if all <= 0.0 || with_items == 0.0 {
        return 0.0;
    }
    let mut log = libm::log(with_items / all);
    for _ in 0..100 {
        let rate = libm::exp(log);
        let (mut value, mut slope) = (rate * all, rate * all);
        for (term, _) in terms.iter().filter(|(_, has_items)| *has_items) {
            let z = rate * term;
            let share = if z < 1e-12 { 1.0 } else { z / libm::expm1(z) };
            value -= share;
            slope += share * (share + z - 1.0);
        }
        let step = (value / slope).clamp(-1.0, 1.0);
        log -= step;
        if libm::fabs(step) < 1e-9 {
            break;
        }
    }
    libm::exp(log)
}

/// Registers of ages 1 to m, and their ranks.
fn terms(ages: impl Iterator<Item = f64>, ranks: &[u8]) -> Vec<(f64, bool)> {
    ages.zip(ranks).map(|(age, rank)| (age * inverse_power(*rank), *rank > 0)).collect()
}

fn is_equal(terms: &[(f64, bool)]) -> Result<(), TestCaseError> {
    let (rate, expected) = (likelihood(&terms.iter().copied()), by_newton(terms));
    prop_assert!(rate == expected || (rate / expected - 1.0).abs() < 1e-12, "{} and not {}", rate, expected);
    Ok(())
}

proptest! {
    #[test]
    fn the_likelihood_of_any_registers_is_that_by_newtons_steps(
        registers in prop::collection::vec((0_u8..=61, 0.0_f64..4e9), 0..200),
    ) {
        let (ranks, ages): (Vec<u8>, Vec<f64>) = registers.into_iter().unzip();
        is_equal(&terms(ages.into_iter(), &ranks))?;
    }

    #[test]
    fn so_is_that_of_registers_at_any_load(
        log_load in -7.0_f64..14.0,
        chances in prop::collection::vec(0.0_f64..1.0, 16..1_100),
        scale in prop::sample::select(vec![1e-9, 1.0, 1e9]),
    ) {
        // The largest rank of n items is at most r with probability exp(−n 2⁻ʳ).
        let load = libm::exp(log_load);
        let rank = |(place, chance): (usize, &f64)| {
            let items = load * (place + 1) as f64 / chances.len() as f64;
            (0..61).find(|rank| libm::exp(-items * inverse_power(*rank)) > *chance).unwrap_or(61)
        };
        let ranks: Vec<u8> = chances.iter().enumerate().map(rank).collect();
        let ages = (1..).map(|age: u32| f64::from(age) * scale);
        is_equal(&terms(ages, &ranks))?;
    }

    #[test]
    fn the_bernoulli_function_is_that_of_libm(z in prop_oneof![0.0_f64..700.0, 0.0_f64..2.0, 0.0_f64..1e-6]) {
        let expected = if z < 1e-300 { 1.0 } else { z / libm::expm1(z) };
        prop_assert!((bernoulli(z) / expected - 1.0).abs() < 2e-15, "{} of {}", bernoulli(z), z);
    }
}

#[test]
fn the_bernoulli_function_has_its_limits() {
    assert_eq!([0.0, 1e-310, 1e-18].map(bernoulli), [1.0; 3]);
    assert!(bernoulli(MAX_Z) < 1e-300 && bernoulli(MAX_Z) > 0.0);
}

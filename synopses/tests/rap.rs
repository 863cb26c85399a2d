//! Guarantees of the papers on RAP and Space-Saving.

use std::collections::HashMap;
use std::num::NonZeroU64;

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use streams::{Order, Stream};
use synopses::digest::Digest;
use synopses::rap::{
    Admission, DWayRap, HeavyHitter, HeavyHitters, Precision, Rap, Settings, SettingsError, SpaceSaving, WaySettings,
};

#[path = "rap/streams.rs"]
mod streams;

const LAWS: [Admission; 3] = [Admission::InverseOfNext, Admission::Inverse, Admission::PowerOfTwo];

fn rap(entries: usize, admission: Admission, seed: u64) -> Rap {
    Rap::new(Settings { entries, admission, seed }).expect("possible")
}

fn ways(ways: usize, rows: usize, seed: u64) -> WaySettings {
    WaySettings { ways, rows, admission: Admission::InverseOfNext, seed }
}

/// Skewed keys: few of them are most of the stream.
fn skewed() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![0_u64..4, 0_u64..40, any::<u64>()], 0..500)
}

fn frequencies(keys: &[u64]) -> HashMap<u64, u64> {
    let mut counts = HashMap::new();
    for key in keys {
        *counts.entry(*key).or_default() += 1;
    }
    counts
}

/// What each table satisfies after each key: sums, growth, and lower bounds of counts.
fn check_each_step<T: HeavyHitters>(mut table: T, keys: &[u64]) -> Result<(), TestCaseError> {
    let (mut counts, mut least, mut sum) = (HashMap::<u64, u64>::new(), 0, 0);
    for (inserted, key) in (1..).zip(keys) {
        table.insert(Digest(*key));
        *counts.entry(*key).or_default() += 1;
        let all: u64 = table.entries().map(|entry| entry.count).sum();
        prop_assert_eq!(table.tally().inserted, inserted);
        prop_assert_eq!(all + table.tally().rejected, inserted);
        prop_assert!(all >= sum && table.least() >= least, "no count decreases");
        (sum, least) = (all, table.least());
        prop_assert!(table.entries().all(|entry| 0 < entry.since && entry.since <= counts[&entry.digest.0]));
    }
    Ok(())
}

proptest! {
    #[test]
    fn counts_and_rejections_add_up_and_counts_never_decrease(keys in skewed(), entries in 1_usize..20, seed: u64) {
        for law in LAWS {
            check_each_step(rap(entries, law, seed), &keys)?;
        }
        check_each_step(SpaceSaving::new(entries, seed).expect("possible"), &keys)?;
        check_each_step(Precision::new(ways(2, entries, seed)).expect("possible"), &keys)?;
        check_each_step(DWayRap::new(ways(3, entries, seed)).expect("possible"), &keys)?;
    }

    #[test]
    fn claim_4_7_counts_are_apart_by_at_most_the_largest_frequency(keys in skewed(), entries in 1_usize..20, seed: u64) {
        for law in LAWS {
            let (mut table, mut counts) = (rap(entries, law, seed), HashMap::<u64, u64>::new());
            for key in &keys {
                table.insert(Digest(*key));
                *counts.entry(*key).or_default() += 1;
                let largest = counts.values().max().expect("a key was counted");
                prop_assert!(table.top(1)[0].count - table.least() <= *largest);
                // What was inherited was the least count at some time, and that only grows.
                prop_assert!(table.entries().all(|entry| entry.count - entry.since <= table.least()));
            }
        }
    }

    #[test]
    fn with_an_entry_for_each_key_counts_are_exact_and_no_coin_is_drawn(keys in skewed(), seed: u64) {
        let counts = frequencies(&keys);
        let mut table = rap(counts.len().max(1), Admission::InverseOfNext, seed);
        for key in &keys {
            table.insert(Digest(*key));
        }

        prop_assert_eq!(table.coins_drawn(), 0);
        prop_assert!(counts.iter().all(|(key, count)| table.estimate(Digest(*key)).is_some_and(|entry| entry.count == *count)));
        prop_assert_eq!(table.top(usize::MAX).len(), counts.len());
    }

    #[test]
    fn space_saving_is_within_its_bounds_and_stays_there_when_merged(keys in skewed(), at in 0_usize..500, entries in 1_usize..20) {
        let parts = keys.split_at(at.min(keys.len()));
        let mut tables = [parts.0, parts.1].map(|part| {
            let mut table = SpaceSaving::new(entries, 1).expect("possible");
            for key in part {
                table.insert(Digest(*key));
            }
            (table, frequencies(part))
        });
        let bounded = |table: &SpaceSaving, counts: &HashMap<u64, u64>, bound: u64| {
            table.entries().all(|entry| {
                let truth = counts.get(&entry.digest.0).copied().unwrap_or_default();
                truth <= entry.count && entry.count - truth <= bound
            }) && counts.iter().all(|(key, count)| *count <= bound || table.estimate(Digest(*key)).is_some())
        };
        let share = |part: &[u64]| (part.len() / entries) as u64;
        prop_assert!(bounded(&tables[0].0, &tables[0].1, share(parts.0)));
        prop_assert!(tables[0].0.least() <= share(parts.0));

        let (other, _) = tables[1].clone();
        tables[0].0.merge(&other).expect("one size");
        prop_assert!(bounded(&tables[0].0, &frequencies(&keys), share(&keys)));
    }

    #[test]
    fn tables_of_different_keys_merged_hold_the_largest_counts(
        keys in skewed(), at in 0_usize..500, entries in 1_usize..20, seed: u64
    ) {
        let parts = keys.split_at(at.min(keys.len()));
        let of = |part: &[u64]| {
            let mut table = rap(entries, Admission::InverseOfNext, seed);
            for key in part {
                table.insert(Digest(*key));
            }
            table
        };
        let (first, second) = (of(parts.0), of(parts.1));
        let mut merged = first.clone();
        merged.merge(&second).expect("one kind");

        let sum = |key| [&first, &second].iter().filter_map(|table| table.estimate(key)).map(|entry| entry.count).sum::<u64>();
        prop_assert!(merged.entries().all(|entry| entry.count == sum(entry.digest)));
        let stored = |table: &Rap| table.entries().map(|entry| entry.digest).collect::<Vec<_>>();
        let left_out = stored(&first).into_iter().chain(stored(&second)).filter(|key| merged.estimate(*key).is_none());
        prop_assert!(left_out.into_iter().all(|key| sum(key) <= merged.least()));
        prop_assert_eq!(merged.tally().inserted, keys.len() as u64);
        prop_assert!(merged.merge(&rap(entries + 1, Admission::InverseOfNext, seed)).is_err());
    }

    #[test]
    fn halving_keeps_the_order(keys in skewed(), entries in 1_usize..20, seed: u64) {
        let mut table = rap(entries, Admission::InverseOfNext, seed);
        for key in &keys {
            table.insert(Digest(*key));
        }
        let before: Vec<_> = table.entries().collect();
        table.halve();

        let halves = before.iter().map(|entry| (entry.digest, entry.count.div_ceil(2), entry.since / 2));
        prop_assert!(table.entries().map(|entry| (entry.digest, entry.count, entry.since)).eq(halves));
        let sum: u64 = table.entries().map(|entry| entry.count).sum();
        prop_assert_eq!((table.tally().inserted, table.tally().rejected), (sum, 0));
        table.reset();
        prop_assert!(table.entries().next().is_none() && table.least() == 0);
    }

    #[test]
    fn claim_4_2_no_key_has_more_bad_occurrences_than_the_bound(
        heavy in 1_u64..8, frequency in 2_u64..40, light in 0_u64..60, c in 2_u64..9, seed: u64
    ) {
        let stream = Stream { heavy, frequency, light };
        let keys = stream.keys(Order::Random, seed);
        for key in 0..heavy {
            let places = (0_i64..).zip(&keys).filter(|(_, other)| other.0 == key).map(|(place, _)| place);
            // An occurrence t is bad if a later one i is more than c (i − t) k places behind.
            let behind: Vec<i64> = (0_i64..).zip(places).map(|(t, place)| place - (c * heavy) as i64 * t).collect();
            let bad = (0..behind.len()).filter(|t| behind[t + 1..].iter().any(|later| *later > behind[*t])).count();
            prop_assert!(bad as u64 * c * heavy <= keys.len() as u64, "{} bad ones", bad);
        }
    }

    #[test]
    fn lemma_4_8_a_large_sum_means_many_large_counts(light in 0_u64..2_000, order in 0_usize..6, seed: u64) {
        let (heavy, frequency) = (16, 50);
        let order = Order::ALL[order];
        let mut table = rap(heavy as usize, Admission::Inverse, seed);
        for key in (Stream { heavy, frequency, light }).keys(order, seed) {
            table.insert(key);
            let sum: u64 = table.entries().map(|entry| entry.count).sum();
            for (limit, r) in [(5, 0.25), (20, 0.25), (20, 0.5)] {
                // `limit` is a ε f.
                if sum as f64 >= ((1.0 - r) * frequency as f64 + limit as f64) * heavy as f64 {
                    let large = table.entries().filter(|entry| entry.count >= limit).count();
                    prop_assert!(large as f64 >= (1.0 - r) * heavy as f64, "{} large counts", large);
                }
            }
        }
    }
}

/// Heavy keys stored at the end.
fn stored<T: HeavyHitters>(mut table: T, keys: &[Digest], heavy: u64) -> u64 {
    for key in keys {
        table.insert(*key);
    }
    table.entries().filter(|entry| entry.digest.0 < heavy).count() as u64
}

#[test]
fn theorem_4_1_two_thirds_of_the_heavy_keys_are_stored() {
    // One light key in 10.1 million: ε is below 10⁻⁷.
    let heavy = 101;
    for light in [0, 1] {
        let stream = Stream { heavy, frequency: 100_000, light };
        assert!((light as f64) < 1e-7 * (heavy * stream.frequency) as f64);
        for order in Order::ALL {
            let keys = stream.keys(order, 1);
            for (law, seed) in LAWS.into_iter().zip(0..) {
                let stored = stored(rap(heavy as usize, law, seed), &keys, heavy);
                assert!(stored as f64 >= 0.65 * heavy as f64, "{order:?}, {law:?}: {stored}");
            }
        }
    }
}

#[test]
fn with_many_more_light_keys_than_the_theorem_allows_most_heavy_keys_are_stored_unless_the_light_ones_come_last() {
    let stream = Stream { heavy: 64, frequency: 1_000, light: 32_000 };
    let runs = 12;
    let mean = |order| {
        let each = (0..runs).map(|seed| stored(rap(64, Admission::InverseOfNext, seed), &stream.keys(order, seed), 64));
        each.sum::<u64>() as f64 / runs as f64 / 64.0
    };
    let saving = |order| {
        let table = SpaceSaving::new(64, 1).expect("possible");
        stored(table, &stream.keys(order, 1), 64)
    };

    assert!(mean(Order::Random) >= 62.0 / 64.0);
    // Each light key takes over with probability 1/f.
    let last = mean(Order::LightLast);
    assert!((last - 0.5).abs() < 0.07, "{last}");
    assert!(saving(Order::Random) <= 48);
    assert_eq!(saving(Order::LightLast), 0);
}

#[test]
fn of_zipfs_law_the_top_is_found_where_space_saving_finds_half() {
    let keys = streams::zipf(100_000, 1.0, 400_000, 1);
    // The true ranks, but for neighbours of almost equal frequency.
    let recall = |top: Vec<HeavyHitter>| top.iter().filter(|entry| entry.digest.0 < 32).count();
    let (mut of_rap, mut of_saving) =
        (rap(64, Admission::InverseOfNext, 1), SpaceSaving::new(64, 1).expect("possible"));
    for key in &keys {
        of_rap.insert(*key);
        of_saving.insert(*key);
    }

    assert!(recall(of_rap.top(32)) >= 29, "{}", recall(of_rap.top(32)));
    assert!(recall(of_saving.top(32)) <= 20, "{}", recall(of_saving.top(32)));
}

/// The largest distance of two empirical distributions (Kolmogorov and Smirnov).
fn distance(first: &[u64], second: &[u64]) -> f64 {
    let below =
        |sample: &[u64], at: u64| sample.iter().filter(|value| **value <= at).count() as f64 / sample.len() as f64;
    first.iter().chain(second).map(|at| (below(first, *at) - below(second, *at)).abs()).fold(0.0, f64::max)
}

#[test]
fn precision_with_a_stage_for_each_entry_has_the_law_of_rap() {
    let (runs, heavy) = (400, 16);
    let stream = Stream { heavy, frequency: 40, light: 400 };
    let sample = |run: &dyn Fn(u64) -> u64| (0..runs).map(run).collect::<Vec<_>>();
    let keys = |seed| stream.keys(Order::Random, seed);
    let raps = sample(&|seed| stored(rap(16, Admission::InverseOfNext, seed), &keys(seed), heavy));
    let precisions =
        sample(&|seed| stored(Precision::new(ways(16, 1, seed)).expect("possible"), &keys(1_000 + seed), heavy));
    let others = sample(&|seed| stored(SpaceSaving::new(16, seed).expect("possible"), &keys(2_000 + seed), heavy));

    // The critical distance of two samples of 400 at 0.1 %.
    let critical = 1.95 * (2.0 / runs as f64).sqrt();
    assert!(distance(&raps, &precisions) < critical, "{}", distance(&raps, &precisions));
    assert!(distance(&raps, &others) > critical, "a law that admits all is told apart");
}

#[test]
fn an_unseen_key_enters_as_often_as_the_least_count_says() {
    for (law, probability) in LAWS.into_iter().zip([1.0 / 21.0, 1.0 / 20.0, 1.0 / 32.0]) {
        let mut full = rap(8, law, 5);
        (0..160).for_each(|number| full.insert(Digest(number % 8)));
        let trials = 20_000_u32;
        let entered = (0..trials).filter(|trial| {
            let mut table = rap(8, law, u64::from(*trial));
            (0..160).for_each(|number| table.insert(Digest(number % 8)));
            table.insert(Digest(99));
            table.estimate(Digest(99)).is_some_and(|entry| (entry.count, entry.since) == (21, 1))
        });
        let (entered, expected) = (entered.count() as f64, f64::from(trials) * probability);
        assert!((entered - expected).abs() < 4.0 * expected.sqrt(), "{law:?}: {entered}, expected {expected}");
    }
}

#[test]
fn results_do_not_depend_on_the_seed_beyond_chance_nor_on_crafted_keys() {
    // Keys that differ in their upper bits only, and keys in sequence: the keyed hash spreads them alike.
    let stream = Stream { heavy: 64, frequency: 500, light: 16_000 };
    let mean = |shift: u32| {
        let run = |seed: u64| {
            let keys: Vec<_> = stream.keys(Order::Random, seed).iter().map(|key| Digest(key.0 << shift)).collect();
            let mut table = DWayRap::new(ways(4, 32, seed)).expect("possible");
            for key in &keys {
                table.insert(*key);
            }
            table.entries().filter(|entry| entry.digest.0 >> shift < 64).count()
        };
        (0..20).map(run).sum::<usize>() as f64 / 20.0 / 64.0
    };

    let (low, high) = (mean(0), mean(40));
    assert!(low > 0.8 && (low - high).abs() < 0.05, "{low}, {high}");
}

#[test]
fn a_flood_of_distinct_keys_is_of_low_confidence() {
    let mut table = rap(64, Admission::InverseOfNext, 1);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    (0..100_000).for_each(|_| table.insert(Digest(random.random())));
    assert!(table.entries().all(|entry| entry.low_confidence()));

    (0..1_000).for_each(|_| table.insert(Digest(7)));
    assert!(table.top(1)[0].digest == Digest(7) && !table.top(1)[0].low_confidence());
}

#[test]
fn counts_at_their_limit_stay_there_in_every_table() {
    fn check<T: HeavyHitters + Clone>(mut table: T) {
        for key in [1, 2, 1, 2] {
            table.insert_weighted(Digest(key), NonZeroU64::MAX);
        }
        (100..1_100).for_each(|key| table.insert(Digest(key)));
        let is_full = |table: &T| table.entries().count() == 2 && table.entries().all(|entry| entry.count == u64::MAX);
        assert!(is_full(&table) && table.least() == u64::MAX && table.tally().inserted == u64::MAX);
        let same = table.clone();
        table.merge(&same).expect("one kind");
        assert!(is_full(&table));
        table.halve();
        assert!(table.entries().all(|entry| entry.count == 1 << 63 && entry.since <= entry.count));
    }

    check(rap(2, Admission::InverseOfNext, 1));
    check(SpaceSaving::new(2, 1).expect("possible"));
    check(Precision::new(ways(2, 1, 1)).expect("possible"));
    check(DWayRap::new(ways(2, 1, 1)).expect("possible"));
}

#[test]
fn equal_counts_are_listed_by_digest_and_an_empty_table_lists_nothing() {
    fn check<T: HeavyHitters>(mut table: T) {
        assert!(table.top(9).is_empty() && table.estimate(Digest(1)).is_none() && table.least() == 0);
        for key in [5, 3, 9, 3, 7, 9, 5, 7, 1] {
            table.insert(Digest(key));
        }
        let listed: Vec<u64> = table.top(9).iter().map(|entry| entry.digest.0).collect();
        assert_eq!(listed, [3, 5, 7, 9, 1]);
        assert_eq!(table.top(2).len(), 2);
    }

    // Each has a place for every key.
    check(rap(8, Admission::InverseOfNext, 1));
    check(SpaceSaving::new(8, 1).expect("possible"));
    check(Precision::new(ways(8, 1, 1)).expect("possible"));
    check(DWayRap::new(ways(8, 1, 1)).expect("possible"));
}

#[test]
fn one_entry_is_legal_and_none_is_not() {
    assert_eq!(Rap::new(Settings { entries: 0, ..Settings::default() }).err(), Some(SettingsError::Entries(0)));
    assert!(SpaceSaving::new(usize::MAX, 0).is_err());
    for (of, rows) in [(0, 1), (1, 0), (usize::MAX, 2)] {
        let error = Precision::new(ways(of, rows, 1)).err();
        assert_eq!(error, Some(SettingsError::Ways { ways: of, rows }));
    }
    let mut table = rap(1, Admission::InverseOfNext, 1);
    (0..100).for_each(|number| table.insert(Digest(number / 99)));

    assert_eq!(table.entries().count(), 1);
    assert!(table.top(0).is_empty() && table.estimate(Digest(5)).is_none());
}

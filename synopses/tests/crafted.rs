//! Whoever knows a seed can invert the mixer and craft digests, or prefixes, that collide. Seeds are keys: a synopsis
//! with another one does not notice.

use synopses::cardinality::{Cardinality, Hash, Settings, StHll, StHllSettings, TsPcsa, TsPcsaSettings};
use synopses::digest::Digest;
use synopses::disaggregated::{self, Fragment, Path};
use synopses::rap::{DWayRap, HeavyHitters as _, Layout, Precision, WaySettings, Ways};
use synopses::reordering::{self, Control, Prefix, Reordering, Segment, Split};

/// The seed that became known.
const KNOWN: u64 = 7;
/// The seed that is in use.
const SECRET: u64 = 8;
const WINDOW_NS: u64 = 1_000_000_000;

/// The word that the finaliser of SplitMix64 makes this one of.
const fn inverse(mut word: u64) -> u64 {
    word = (word ^ (word >> 31) ^ (word >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    word = (word ^ (word >> 27) ^ (word >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    word ^ (word >> 30) ^ (word >> 60)
}

/// Digests that the mixer with this constant makes those hashes of.
fn crafted(constant: u64, hashes: impl Iterator<Item = u64>) -> Vec<Digest> {
    hashes.map(|hash| Digest(inverse(hash) ^ constant)).collect()
}

/// Hashes whose upper half, which makes a place, is 0.
fn first_places(number: u64) -> impl Iterator<Item = u64> {
    1..=number
}

#[test]
fn flows_that_share_a_counter_under_one_seed_do_not_under_another() {
    let fragment = |seed| {
        let settings = disaggregated::Settings { id: 0, counters: 2_000, rows: 1, seed };
        Fragment::new(settings).expect("possible")
    };
    let constant = fragment(KNOWN).mixers().next().expect("a row");
    let flows = crafted(constant, first_places(1_000));
    let largest = |mut fragment: Fragment| {
        for flow in &flows {
            _ = fragment.insert(*flow, 1);
        }
        flows.iter().map(|flow| fragment.estimate(*flow)).max()
    };

    assert_eq!(largest(fragment(KNOWN)), Some(1_000), "the mixer is inverted");
    assert!(largest(fragment(SECRET)) < Some(10));
}

#[test]
fn items_of_one_register_and_rank_under_one_seed_are_many_under_another() {
    fn count<T: Cardinality>(mut synopsis: T, items: &[Digest]) -> f64 {
        for item in items {
            synopsis.insert(*item, 2 * WINDOW_NS);
        }
        synopsis.estimate(2 * WINDOW_NS, WINDOW_NS).expect("the window").count
    }
    // The register is in the lowest six bits, the rank follows from the bits above.
    let hashes = || (1..=4_096_u64).map(|number| number << 16 | 1 << 6);
    let common = |seed| Settings { registers: 64, window_ns: WINDOW_NS, start_ns: 0, hash: Hash::Seeded(seed) };
    let st_hll = |seed| StHll::new(StHllSettings::plain(common(seed))).expect("possible");
    let ts_pcsa = |seed| TsPcsa::new(TsPcsaSettings::plus(common(seed))).expect("possible");

    let items = crafted(st_hll(KNOWN).mixer().expect("it is seeded"), hashes());
    let counts = [KNOWN, SECRET].map(|seed| count(st_hll(seed), &items));
    assert!(counts[0] < 10.0 && counts[1] > 1_000.0, "{counts:?}");
    let items = crafted(ts_pcsa(KNOWN).mixer().expect("it is seeded"), hashes());
    let counts = [KNOWN, SECRET].map(|seed| count(ts_pcsa(seed), &items));
    assert!(counts[0] < 10.0 && counts[1] > 1_000.0, "{counts:?}");
}

/// How many of 128 keys that have the same four places under the seed that became known are stored, with that seed and
/// with the secret one.
fn stored<L: Layout>(new: impl Fn(WaySettings) -> Ways<L>) -> [usize; 2] {
    let table = |seed| new(WaySettings { ways: 4, rows: 32, seed, ..WaySettings::default() });
    let keys = crafted(table(KNOWN).mixers()[0], first_places(128));
    [KNOWN, SECRET].map(|seed| {
        let mut table = table(seed);
        for key in &keys {
            table.insert(*key);
        }
        table.entries().count()
    })
}

#[test]
fn keys_that_fight_for_one_set_or_row_under_one_seed_do_not_under_another() {
    let sets = stored(|settings| DWayRap::new(settings).expect("possible"));
    let stages = stored(|settings| Precision::new(settings).expect("possible"));

    assert!(sets[0] == 4 && sets[1] > 80, "{sets:?}");
    assert!(stages[0] == 4 && stages[1] > 80, "{stages:?}");
}

/// How many of 200 flows get a record, each of another prefix, with the seed that became known, for which the prefixes
/// were crafted, and with the secret one. `part` is that of the mixers.
fn admitted(split: Split, part: usize) -> [u64; 2] {
    let new = |seed| Reordering::new(reordering::Settings { split, seed, ..reordering::Settings::default() });
    let prefixes = crafted(new(KNOWN).expect("possible").constants().mixers[part], first_places(200));
    [KNOWN, SECRET].map(|seed| {
        let mut reordering = new(seed).expect("possible");
        for (flow, Digest(prefix)) in (1..).zip(&prefixes) {
            let (prefix, flow) = (Prefix(*prefix), Digest(flow));
            let segment = Segment { prefix, flow, sequence: 1, payload: 1, control: Control::None };
            assert_eq!(reordering.insert(&segment, 0), None);
        }
        reordering.counters().admitted
    })
}

#[test]
fn prefixes_of_one_bucket_under_one_seed_have_many_under_another() {
    let samples = admitted(Split::SamplingOnly, 0);
    assert!(samples[0] == 1 && samples[1] > 100, "{samples:?}");
    // Two places that all want change hands now and then: some 2 √200 times.
    let heavy = admitted(Split::HeavyOnly, 1);
    assert!(heavy[0] < 60 && heavy[1] > 150, "{heavy:?}");
}

#[test]
fn flows_that_all_choose_one_fragment_under_one_seed_choose_evenly_under_another() {
    let path = |seed| Path::random(&[0, 1, 2, 3], 1, seed).expect("possible");
    let constant = path(KNOWN).mixers().next().expect("a fragment");
    // The fragment with the largest mixed digest is chosen.
    let flows = crafted(constant, (1..=1_000_u64).map(|number| u64::MAX - (number << 20)));
    let chosen = [KNOWN, SECRET].map(|seed| {
        let path = path(seed);
        flows.iter().filter(|flow| path.select(**flow).contains(0)).count()
    });

    // A quarter, with five standard deviations of 14.
    assert!(chosen[0] == 1_000 && chosen[1].abs_diff(250) < 70, "{chosen:?}");
}

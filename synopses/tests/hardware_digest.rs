//! Each synopsis takes the digests, and derives values, of a pipeline of hardware as well.

use core::num::NonZeroU64;

use synopses::cardinality::{Cardinality as _, Hash, Settings as Common, StHll, StHllSettings};
use synopses::digest::{Digest, DigestKey, DigestKind};
use synopses::finecomb::{self, FineComb};
use synopses::fridge::{self, Fridge};
use synopses::rap::{HeavyHitters as _, Precision, WaySettings};

const KINDS: [DigestKind; 2] = [DigestKind::Products, DigestKind::Hardware];

fn digest(kind: DigestKind, number: u64) -> Digest {
    DigestKey::of_kind(kind, 0x5ec7_e700).digest(&number.to_be_bytes())
}

#[test]
fn a_seed_says_how_values_are_derived() {
    for kind in KINDS {
        for seed in [0, 7, u64::MAX] {
            assert_eq!(DigestKind::of_seed(kind.seed(seed)), kind);
        }
        assert_eq!(DigestKey::of_kind(kind, 1).kind(), kind);
    }
    assert_eq!(DigestKind::Products.seed(7), 7);
    assert_ne!(DigestKind::Hardware.seed(7), DigestKind::Hardware.seed(8));
    assert_eq!(DigestKey::new(1).kind(), DigestKind::Products);
}

#[test]
fn a_fridge_matches_its_requests_and_a_decoded_one_goes_on_alike() {
    for kind in KINDS {
        let settings = fridge::Settings { slots: 1 << 12, seed: kind.seed(3), ..fridge::Settings::default() };
        let mut fridge = Fridge::new(settings).expect("possible");
        (0..500).for_each(|number| fridge.insert(digest(kind, number), number << 10));
        let mut again = Fridge::decode(&fridge.encode(), usize::MAX).expect("what was encoded");
        for number in 0..500 {
            let report = fridge.match_response(digest(kind, number), (number + 100) << 10);
            assert_eq!(report, again.match_response(digest(kind, number), (number + 100) << 10));
        }
        // Of 500 in 4,096 slots, some 30 meet in a slot.
        assert!((430..=500).contains(&fridge.tally().matched), "{kind:?}: {:?}", fridge.tally());
    }
}

#[test]
fn buckets_of_finecomb_tell_sets_apart_that_a_bare_crc_cannot() {
    for kind in KINDS {
        for seed in 0..100 {
            let settings = finecomb::Settings::one_bank(1, 1.0, 0, kind.seed(seed));
            let bucket = |numbers: [u64; 2]| {
                let mut buckets = FineComb::new(&settings).expect("possible");
                for number in numbers {
                    buckets.insert(digest(kind, number), 1_000);
                }
                buckets.encode()
            };
            assert_ne!(bucket([4, 5]), bucket([8, 9]), "{kind:?}, seed {seed}");
            assert_eq!(bucket([4, 5]), bucket([5, 4]));
        }
    }
    let linear = |number: u64| crc32fast::hash(&number.to_be_bytes());
    assert_eq!(linear(4) ^ linear(5), linear(8) ^ linear(9));
}

#[test]
fn distinct_items_are_estimated_within_the_error_of_the_sketch() {
    const WINDOW_NS: u64 = 1 << 30;
    for kind in KINDS {
        let common = Common { registers: 1_024, window_ns: WINDOW_NS, start_ns: 0, hash: Hash::Seeded(kind.seed(5)) };
        let mut sketch = StHll::new(StHllSettings::plain(common)).expect("possible");
        (0..20_000).for_each(|number| sketch.insert(digest(kind, number % 10_000), 2 * WINDOW_NS));
        let count = sketch.estimate(2 * WINDOW_NS, WINDOW_NS).expect("the window").count;
        // 3.3 % is the standard error for 1,024 registers.
        assert!((count / 10_000.0 - 1.0).abs() < 0.13, "{kind:?}: {count}");
    }
}

#[test]
fn heavy_keys_are_found() {
    for kind in KINDS {
        let mut table = Precision::new(WaySettings { ways: 2, rows: 64, seed: kind.seed(9), ..WaySettings::default() })
            .expect("possible");
        for number in 0..20_000_u64 {
            let key = if number.is_multiple_of(2) { number / 2 % 4 } else { number };
            table.insert_weighted(digest(kind, key), NonZeroU64::MIN);
        }
        for key in 0..4 {
            let found = table.estimate(digest(kind, key)).map(|hitter| hitter.count);
            assert!(found.is_some_and(|count| (2_000..4_000).contains(&count)), "{kind:?}, key {key}: {found:?}");
        }
    }
}

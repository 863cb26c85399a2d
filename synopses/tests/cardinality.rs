//! Guarantees of the publications on cardinality, and what all its synopses have in common.

use proptest::prelude::*;
use synopses::cardinality::{
    Cardinality, Correction, Hash, Hll, LogLog, MergeError, Pcsa, Pruning, Rounding, Settings, SlidingHll, StHll,
    StHllSettings, Tally, TsPcsa, TsPcsaSettings,
};
use synopses::digest::Digest;

#[path = "cardinality/oracles.rs"]
mod oracles;
#[path = "cardinality/windows.rs"]
mod windows;

const SECOND: u64 = 1_000_000_000;

fn settings(registers: usize, window_ns: u64, seed: u64) -> Settings {
    Settings { registers, window_ns, start_ns: 0, hash: Hash::Seeded(seed) }
}

/// Hashes are the items themselves.
fn ready(registers: usize, window_ns: u64) -> Settings {
    Settings { hash: Hash::Ready32, ..settings(registers, window_ns, 0) }
}

fn st_hll(settings: StHllSettings) -> StHll {
    StHll::new(settings).expect("possible")
}

/// Runs a test with each synopsis, made from the same settings: one takes another's place.
macro_rules! on_every_synopsis {
    ($test:ident) => {
        $test(|settings| Hll::new(settings).expect("possible"));
        $test(|settings| LogLog::new(settings).expect("possible"));
        $test(|settings| Pcsa::new(settings).expect("possible"));
        $test(|settings| st_hll(StHllSettings::plain(settings)));
        $test(|settings| st_hll(StHllSettings::plus(settings)));
        $test(|settings| SlidingHll::new(settings).expect("possible"));
        $test(|settings| TsPcsa::new(TsPcsaSettings::plain(settings)).expect("possible"));
        $test(|settings| TsPcsa::new(TsPcsaSettings::plus(settings)).expect("possible"));
    };
}

/// An item at each multiple of 1 ms, over one and a half windows of 8.192 s that end with a bin of the baselines.
fn stream<T: Cardinality>(synopsis: &mut T, is_seen: impl Fn(u64) -> bool) {
    (4_096..16_384).filter(|item| is_seen(*item)).for_each(|item| synopsis.insert(Digest(item), item * 1_000_000));
}

const WINDOW_NS: u64 = 8_192_000_000;
const END_NS: u64 = 2 * WINDOW_NS - 1;

#[test]
fn a_window_has_as_many_items_as_it_has() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let errors = (0..20).map(|seed| {
            let mut synopsis = new(settings(256, WINDOW_NS, seed));
            stream(&mut synopsis, |_| true);
            let count = synopsis.estimate(END_NS, WINDOW_NS).expect("the window").count;
            assert!((count / 8_192.0 - 1.0).abs() < 5.0 * 1.3 / 16.0, "{count}");
            count / 8_192.0 - 1.0
        });
        let mean = errors.sum::<f64>() / 20.0;
        assert!(mean.abs() < 4.0 * 1.3 / 16.0 / 20.0_f64.sqrt(), "{mean}");
    }

    on_every_synopsis!(check);
}

#[test]
fn an_item_counts_once() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let (mut once, mut often) = (new(settings(64, WINDOW_NS, 1)), new(settings(64, WINDOW_NS, 1)));
        for item in 0..1_000 {
            once.insert(Digest(item), 5_000);
        }
        for item in 0..10_000 {
            often.insert(Digest(item % 1_000), 5_000);
        }
        assert_eq!(once.estimate(WINDOW_NS - 1, WINDOW_NS), often.estimate(WINDOW_NS - 1, WINDOW_NS));
        assert_eq!((once.tally().inserted, often.tally().inserted), (1_000, 10_000));
    }

    on_every_synopsis!(check);
}

#[test]
fn merged_synopses_say_what_one_that_saw_all_says() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let of = |is_seen: &dyn Fn(u64) -> bool| {
            let mut synopsis = new(settings(64, WINDOW_NS, 9));
            stream(&mut synopsis, is_seen);
            synopsis
        };
        let (all, early) = (of(&|_| true), of(&|item| item < 10_000));
        let (mut one, other) = (of(&|item| item % 3 != 0), of(&|item| item % 3 == 0 || item % 7 == 0));
        let count = |synopsis: &T| synopsis.estimate(END_NS, WINDOW_NS).expect("the window");

        let mut backwards = other.clone();
        one.merge(&other).expect("one kind");
        backwards.merge(&of(&|item| item % 3 != 0)).expect("one kind");
        assert_eq!((count(&one), count(&backwards)), (count(&all), count(&all)));
        // One that has heard nothing for a while, either way round.
        let (mut late, mut early) = (of(&|item| item >= 10_000), early);
        let first = early.clone();
        early.merge(&late).expect("one kind");
        late.merge(&first).expect("one kind");
        assert_eq!((count(&early), count(&late)), (count(&all), count(&all)));
        // Counts of items that both saw would be added twice by a sum.
        assert_eq!(one.tally().inserted, 12_288 + 12_288 / 7 - 12_288 / 21);
    }

    on_every_synopsis!(check);
}

#[test]
fn what_cannot_be_merged_says_why() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let mut synopsis = new(settings(64, WINDOW_NS, 9));
        let refused = synopsis.merge(&new(settings(128, WINDOW_NS, 9)));
        assert_eq!(refused, Err(MergeError::Setting { what: "registers", ours: 64, theirs: 128 }));
        let refused = synopsis.merge(&new(settings(64, 2 * WINDOW_NS, 9)));
        assert!(matches!(refused, Err(MergeError::Setting { what: "window in nanoseconds", .. })));
        assert_eq!(synopsis.merge(&new(settings(64, WINDOW_NS, 8))), Err(MergeError::Hash));
        assert_eq!(synopsis.merge(&new(ready(64, WINDOW_NS))), Err(MergeError::Hash));
    }

    on_every_synopsis!(check);
    let common = Settings { start_ns: 1_000, ..settings(64, WINDOW_NS, 9) };
    let of = |origin_ns| st_hll(StHllSettings { origin_ns, ..StHllSettings::plus(common) });
    let refused = of(0).merge(&of(1_000)).map_err(|error| error.to_string());
    assert_eq!(refused, Err("origin in nanoseconds: 0 here, 1000 there".to_owned()));
    let of = |positions| TsPcsa::new(TsPcsaSettings { positions, ..TsPcsaSettings::plus(common) }).expect("possible");
    assert!(matches!(of(8).merge(&of(9)), Err(MergeError::Setting { what: "positions", ours: 8, theirs: 9 })));
    let plus = TsPcsaSettings::plus(common);
    let (slots, up) =
        (TsPcsaSettings { slot_ns: WINDOW_NS / 4, ..plus }, TsPcsaSettings { rounding: Rounding::Up, ..plus });
    for (other, expected) in [(slots, "nanoseconds of a slot"), (up, "rounding")] {
        let refused = TsPcsa::new(plus).expect("possible").merge(&TsPcsa::new(other).expect("possible"));
        assert!(matches!(refused, Err(MergeError::Setting { what, .. }) if what == expected), "{refused:?}");
    }
}

#[test]
fn a_merged_synopsis_is_as_old_as_the_younger_of_both() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let of = |start_ns| new(Settings { start_ns, ..settings(64, WINDOW_NS, 9) });
        let (mut old, mut young) = (of(0), of(3 * WINDOW_NS));
        let first = old.clone();
        old.merge(&young).expect("one kind");
        young.merge(&first).expect("one kind");
        for merged in [old, young] {
            assert_eq!(merged.settings().start_ns, 3 * WINDOW_NS);
            let is_warm = |now_ns| merged.estimate(now_ns, WINDOW_NS).expect("the window").warm;
            assert!(!is_warm(3 * WINDOW_NS + WINDOW_NS / 2) && is_warm(6 * WINDOW_NS - 1));
        }
    }

    on_every_synopsis!(check);
}

#[test]
fn an_empty_synopsis_says_0_and_grows_warm() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let mut synopsis = new(Settings { start_ns: 3 * WINDOW_NS, ..settings(64, WINDOW_NS, 1) });
        let at = |synopsis: &T, now_ns| synopsis.estimate(now_ns, WINDOW_NS).expect("the window");
        for now_ns in [3 * WINDOW_NS, 3 * WINDOW_NS + 1, 7 * WINDOW_NS, u64::MAX] {
            let found = at(&synopsis, now_ns);
            assert_eq!((found.count, found.rate, found.saturated), (0.0, 0.0, false));
        }
        assert!(!at(&synopsis, 3 * WINDOW_NS).warm && at(&synopsis, 6 * WINDOW_NS - 1).warm);

        synopsis.insert(Digest(1), 3 * WINDOW_NS);
        let count = at(&synopsis, 3 * WINDOW_NS + WINDOW_NS / 3).count;
        // With registers that are not skipped.
        assert!((count - 1.0).abs() < 3.1, "{count}");
        synopsis.reset(9 * WINDOW_NS);
        assert_eq!((at(&synopsis, 9 * WINDOW_NS).count, synopsis.tally()), (0.0, Tally::default()));
        assert_eq!(synopsis.settings().start_ns, 9 * WINDOW_NS);
    }

    on_every_synopsis!(check);
}

#[test]
fn an_item_from_before_the_window_is_dropped_counted_and_changes_nothing() {
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let mut synopsis = new(settings(64, WINDOW_NS, 5));
        (0..1_000).for_each(|item| synopsis.insert(Digest(item), END_NS));
        let before = synopsis.estimate(END_NS, WINDOW_NS);

        (0..500).for_each(|item| synopsis.insert(Digest(10_000 + item), END_NS - WINDOW_NS - 1 - item));
        synopsis.insert(Digest(u64::MAX), 0);

        assert_eq!(synopsis.estimate(END_NS, WINDOW_NS), before);
        assert_eq!(synopsis.tally(), Tally { inserted: 1_000, dropped: 501, ..Tally::default() });
    }

    on_every_synopsis!(check);
}

#[test]
fn crafted_items_do_not_count_as_one() {
    // All of them have one register and one rank if hashes are taken as they are.
    fn check<T: Cardinality>(new: impl Fn(Settings) -> T) {
        let mut synopsis = new(settings(64, WINDOW_NS, 77));
        (0..4_096_u64).for_each(|item| synopsis.insert(Digest(item << 12 | 64), 5_000));
        let count = synopsis.estimate(5_000, WINDOW_NS).expect("the window").count;
        assert!(count > 1_000.0, "{count}");
    }

    on_every_synopsis!(check);
}

#[test]
fn memory_is_as_the_table_says() {
    let common = settings(1_024, WINDOW_NS, 1);
    assert_eq!(Hll::new(common).expect("possible").memory_bytes(), 1_024);
    assert_eq!(LogLog::new(common).expect("possible").memory_bytes(), 1_024);
    assert_eq!(Pcsa::new(common).expect("possible").memory_bytes(), 8 * 1_024);
    assert_eq!(st_hll(StHllSettings::plus(common)).memory_bytes(), 1_024);
    assert_eq!(SlidingHll::new(common).expect("possible").memory_bytes(), 296 * 1_024);
    assert_eq!(TsPcsa::new(TsPcsaSettings::plus(common)).expect("possible").memory_bytes(), 7_680 + 3);
    // The example of the specification: 64 registers of 12 positions of 6 bits.
    let small = TsPcsaSettings { positions: 12, ..TsPcsaSettings::plus(settings(64, WINDOW_NS, 1)) };
    assert_eq!(TsPcsa::new(small).expect("possible").memory_bytes(), 576 + 3);
}

/// Times that go on, stop, leap and go back.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let step = prop_oneof![6 => 0_i64..40, 2 => -60_i64..0, 1 => 0_i64..1_400, 1 => 0_i64..5_000];
    prop::collection::vec((any::<u64>(), step), 0..200).prop_map(|steps| {
        let mut now = 0_u64;
        let arrivals = steps.into_iter().map(|(item, step)| {
            now = now.saturating_add_signed(step);
            (item, now)
        });
        arrivals.collect()
    })
}

/// What every synopsis satisfies, whatever comes.
fn check_any<T: Cardinality>(mut synopsis: T, arrivals: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let window_ns = synopsis.settings().window_ns;
    for (item, at) in arrivals {
        synopsis.insert(Digest(*item), *at);
        for now_ns in [*at, at.saturating_add(window_ns / 2), u64::MAX] {
            // Time stamps that nobody prunes are the only reason not to know.
            let Ok(found) = synopsis.estimate(now_ns, window_ns) else { continue };
            prop_assert!(found.count.is_finite() && found.count >= 0.0, "{:?}", found);
            prop_assert!(found.rate.is_finite() && found.rate >= 0.0, "{:?}", found);
        }
    }
    let Tally { inserted, dropped, late, .. } = synopsis.tally();
    prop_assert_eq!(inserted + dropped, arrivals.len() as u64);
    prop_assert!(late <= inserted);
    Ok(())
}

proptest! {
    #[test]
    fn no_input_makes_a_count_that_is_no_number(arrivals in arrivals(), far: bool, seed: u64) {
        let arrivals: Vec<_> = arrivals
            .into_iter()
            .map(|(item, at)| (item, if far { (u64::MAX - 20_000).saturating_add(at) } else { at }))
            .collect();
        let common = settings(16, 1_000, seed);
        check_any(Hll::new(common).expect("possible"), &arrivals)?;
        check_any(LogLog::new(common).expect("possible"), &arrivals)?;
        check_any(Pcsa::new(ready(16, 1_000)).expect("possible"), &arrivals)?;
        check_any(SlidingHll::new(common).expect("possible"), &arrivals)?;
        for correction in
            [Correction::None, Correction::Published, Correction::Staggered, Correction::Likelihood]
        {
            check_any(st_hll(StHllSettings { correction, ..StHllSettings::plus(common) }), &arrivals)?;
            check_any(st_hll(StHllSettings { correction, ..StHllSettings::plain(ready(16, 1_000)) }), &arrivals)?;
        }
        for pruning in [Pruning::OnInsert, Pruning::ByTimer] {
            let settings = TsPcsaSettings { pruning, ..TsPcsaSettings::plus(common) };
            check_any(TsPcsa::new(settings).expect("possible"), &arrivals)?;
        }
    }
}

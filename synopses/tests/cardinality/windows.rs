//! Windows beside straw men that keep every item.

use proptest::prelude::*;
use synopses::cardinality::{
    Age, Cardinality, Correction, EstimateError, Hll, Pruning, Rounding, SlidingHll, StHllSettings, TsPcsa,
    TsPcsaSettings,
};
use synopses::digest::Digest;

use super::{SECOND, arrivals, ready, settings, st_hll};

/// Register and rank of a 32-bit hash among 16 registers.
const fn split(item: u64) -> (usize, u32) {
    let hash = item as u32;
    ((hash & 15) as usize, (hash as u64 >> 4 | 1 << 28).trailing_zeros() + 1)
}

/// The count of a plain HLL of 16 registers that saw these items only.
fn hll(items: impl Iterator<Item = u64>) -> f64 {
    let mut plain = Hll::new(ready(16, 1 << 62)).expect("possible");
    items.for_each(|item| plain.insert(Digest(item), 0));
    plain.estimate(0, 1 << 62).expect("the window").count
}

proptest! {
    #[test]
    fn sliding_hll_is_a_plain_hll_of_every_window(arrivals in arrivals(), window_ns in 1_u64..=1_000, after in 0_u64..500) {
        let mut sliding = SlidingHll::new(ready(16, 1_000)).expect("possible");
        let (mut latest, mut kept) = (0, Vec::new());
        for (item, at) in arrivals {
            latest = latest.max(at);
            // What is older than a window when it comes is dropped by both.
            if latest - at <= 1_000 {
                kept.push((item, at));
            }
            sliding.insert(Digest(item), at);
        }
        let now = latest + after;
        let inside = kept.iter().filter(|(_, at)| at + window_ns >= now).map(|(item, _)| *item);

        prop_assert_eq!(sliding.estimate(now, window_ns).expect("a possible window").count, hll(inside));
    }

    #[test]
    fn each_register_of_st_hll_has_the_items_since_its_reset(arrivals in arrivals(), after in 0_u64..500) {
        // A reset every 125 ns.
        let raw = StHllSettings { correction: Correction::None, ..StHllSettings::plain(ready(16, 1_000)) };
        let mut lazy = st_hll(raw);
        let (mut slot, mut kept) = (0, Vec::new());
        for (item, at) in arrivals {
            slot = slot.max(at / 125);
            // As late as one slot.
            if at + 125 >= 125 * slot {
                kept.push((item, at.max(125 * slot)));
            }
            lazy.insert(Digest(item), at);
        }
        let now = 125 * slot + after;
        let slot = now / 125;
        let mut sum = 0.0;
        for register in 0..16 {
            let age = (slot + 16 - register % 16) % 16;
            let reset = (slot * 125).saturating_sub(age * 125);
            let rank = kept.iter().filter(|(item, at)| *at >= reset && split(*item).0 as u64 == register);
            let rank = rank.map(|(item, _)| split(*item).1).max().unwrap_or_default();
            let lived = (now - (slot * 125) + age * 125).min(now);
            sum += lived as f64 / 16.0 * 0.5_f64.powi(rank as i32);
        }
        let count = lazy.estimate(now, 1_000).expect("the window").count;
        let expected = if sum > 0.0 { 0.673 * 16.0 / sum * 1_000.0 } else { 0.0 };
        prop_assert!((count - expected).abs() <= 1e-9 * expected, "{} {}", count, expected);
    }

    #[test]
    fn a_timer_and_lazy_resets_give_the_same(arrivals in arrivals()) {
        let settings = StHllSettings::plain(ready(16, 1_000));
        let (mut lazy, mut timed) = (st_hll(settings), st_hll(settings));
        for (item, at) in arrivals {
            timed.tick(at);
            timed.insert(Digest(item), at);
            lazy.insert(Digest(item), at);
            prop_assert_eq!(lazy.estimate(at, 1_000), timed.estimate(at, 1_000));
        }
        prop_assert_eq!(lazy.encode(), timed.encode());
    }

    #[test]
    fn ts_pcsa_is_pcsa_of_the_slots_of_every_window(
        arrivals in arrivals(), slots in 4_u64..=8, after in 0_u64..1_200, offsets: bool, rounding in 0_usize..3
    ) {
        let rounding = [Rounding::Closest, Rounding::Down, Rounding::Up][rounding];
        let plus = TsPcsaSettings { offsets, rounding, positions: 12, ..TsPcsaSettings::plus(ready(16, 1_000)) };
        let mut stamped = TsPcsa::new(plus).expect("possible");
        let (mut latest, mut kept) = (0, Vec::new());
        for (item, at) in arrivals {
            latest = latest.max(at);
            if latest - at <= 1_000 {
                kept.push((item, at));
            }
            stamped.insert(Digest(item), at);
        }
        let (now, window) = (latest + after, 125 * slots);
        let mut runs = 0_u32;
        for register in 0..16_i64 {
            let is_valid = |at: u64| {
                let slot = match rounding {
                    Rounding::Closest => (2 * at + 125) / 250,
                    Rounding::Down => at / 125,
                    Rounding::Up => at.div_ceil(125),
                };
                // T + τ j/(m − 1) − τ/2 is not before t − w.
                let offset = if offsets { 125 * (2 * register - 15) } else { 0 };
                30 * (125 * slot as i64 - now as i64 + window as i64) + offset >= 0
            };
            let mut bits = 0_u32;
            for (item, at) in kept.iter().filter(|(item, at)| split(*item).0 as i64 == register && is_valid(*at)) {
                prop_assert!(*at <= latest);
                bits |= 1 << (split(*item).1.min(12) - 1);
            }
            runs += bits.trailing_ones();
        }
        let found = stamped.estimate(now, window).expect("a possible window");
        let (raw, few) = (16.0 / 0.773_51 * (f64::from(runs) / 16.0).exp2(), found.range == synopses::cardinality::Range::Small);
        prop_assert!(few || (found.count - raw).abs() < 1e-9 * raw, "{} {}", found.count, raw);
        prop_assert!(!few || found.count <= 48.0);
    }

    #[test]
    fn the_fewest_bits_are_as_good_as_many(arrivals in arrivals(), by_timer: bool, prune_ns in 1_u64..2_000, slots in 2_u32..6) {
        let pruning = if by_timer { Pruning::ByTimer } else { Pruning::OnInsert };
        let slot_ns = 1_024 >> slots;
        let wide = TsPcsaSettings { pruning, prune_ns, slot_ns, bits: 24, ..TsPcsaSettings::plus(ready(16, 1_024)) };
        let narrow = TsPcsaSettings { bits: wide.least_bits().expect("slots are not 0"), ..wide };
        let [mut wide, mut narrow] = [wide, narrow].map(|settings| TsPcsa::new(settings).expect("possible"));
        for (item, at) in arrivals {
            if by_timer && item % 3 == 0 {
                wide.prune(at);
                narrow.prune(at);
            }
            wide.insert(Digest(item), at);
            narrow.insert(Digest(item), at);
            for now in [at, at + 300, at + 1_100] {
                prop_assert_eq!(wide.estimate(now, 1_024), narrow.estimate(now, 1_024));
            }
        }
        prop_assert_eq!(wide.tally(), narrow.tally());
    }
}

#[test]
fn windows_that_cannot_be_answered_are_refused() {
    let common = settings(64, SECOND, 1);
    let sliding = SlidingHll::new(common).expect("possible");
    let stamped = TsPcsa::new(TsPcsaSettings::plus(common)).expect("possible");
    let staggered = st_hll(StHllSettings::plus(common));

    let (long, most_ns) = (SECOND + 1, SECOND);
    assert_eq!(sliding.estimate(0, long), Err(EstimateError::WindowTooLong { asked_ns: long, most_ns }));
    assert_eq!(stamped.estimate(0, long), Err(EstimateError::WindowTooLong { asked_ns: long, most_ns }));
    assert_eq!(sliding.estimate(0, 0), Err(EstimateError::WindowTooShort { asked_ns: 0, least_ns: 1 }));
    let (asked_ns, least_ns) = (SECOND / 2 - 1, SECOND / 2);
    assert_eq!(stamped.estimate(0, asked_ns), Err(EstimateError::WindowTooShort { asked_ns, least_ns }));
    assert!(stamped.estimate(0, least_ns).is_ok());
    let refused = EstimateError::FixedWindow { asked_ns: least_ns, only_ns: SECOND };
    assert_eq!(staggered.estimate(0, least_ns), Err(refused));
}

#[test]
fn a_window_that_registers_do_not_divide_is_rounded_up_and_said() {
    let odd = st_hll(StHllSettings::plus(settings(512, 1_000, 1)));

    assert_eq!(odd.effective_window_ns(), 1_024);
    assert!(odd.estimate(0, 1_000).is_ok() && odd.estimate(0, 1_024).is_ok());
}

#[test]
fn time_that_goes_back_by_a_slot_is_taken_and_by_more_is_not() {
    // A slot is 125 ns.
    let mut staggered = st_hll(StHllSettings::plain(settings(16, 1_000, 1)));
    for at in [2_000, 1_999, 1_875, 1_874, 0] {
        staggered.insert(Digest(at), at);
    }

    let tally = staggered.tally();
    assert_eq!((tally.inserted, tally.late, tally.dropped), (3, 2, 2));
}

#[test]
fn a_pause_of_two_windows_forgets_everything() {
    let mut staggered = st_hll(StHllSettings::plain(settings(64, SECOND, 1)));
    let mut sliding = SlidingHll::new(settings(64, SECOND, 1)).expect("possible");
    let mut stamped = TsPcsa::new(TsPcsaSettings::plus(settings(64, SECOND, 1))).expect("possible");
    for item in 0..10_000 {
        staggered.insert(Digest(item), item * 100_000);
        sliding.insert(Digest(item), item * 100_000);
        stamped.insert(Digest(item), item * 100_000);
    }

    for now in [3 * SECOND, 100 * SECOND] {
        assert_eq!(staggered.estimate(now, SECOND).expect("the window").count, 0.0);
        assert_eq!(sliding.estimate(now, SECOND).expect("the window").count, 0.0);
        assert_eq!(stamped.estimate(now, SECOND).expect("the window").count, 0.0);
    }
}

#[test]
fn a_timer_that_does_not_prune_is_found_out() {
    let plus = TsPcsaSettings::plus(settings(64, SECOND, 1));
    let mut stamped = TsPcsa::new(TsPcsaSettings { pruning: Pruning::ByTimer, ..plus }).expect("possible");
    (0..1_000).for_each(|item| stamped.insert(Digest(item), item));

    assert!(stamped.estimate(SECOND / 2, SECOND).expect("in time").count > 500.0);
    let late = Err(EstimateError::Overdue { since_ns: SECOND / 2 + 1, most_ns: SECOND / 2 });
    assert_eq!(stamped.estimate(SECOND / 2 + 1, SECOND), late);
    stamped.prune(SECOND / 2 + 1);
    assert_eq!(stamped.tally().overdue, 1);
    assert_eq!(stamped.estimate(SECOND / 2 + 1, SECOND).expect("in time").count, 0.0);
}

#[test]
fn lists_of_sliding_hll_have_half_an_entry_per_doubling() {
    // Mean entries at n items per register, as measured by an independent implementation.
    for (load, entries) in [(16, 2.69), (64, 3.66), (256, 4.66), (1_024, 5.69)] {
        let mut sliding = SlidingHll::new(settings(1_024, SECOND, load)).expect("possible");
        (0..load * 1_024).for_each(|item| sliding.insert(Digest(item), item));
        let found = sliding.entries() as f64 / 1_024.0;
        assert!((found - entries).abs() < 0.2, "{load}: {found}, expected {entries}");
    }
}

#[test]
fn at_the_end_of_a_slot_all_ages_are_whole() {
    let raw = StHllSettings { correction: Correction::None, ..StHllSettings::plain(settings(64, 64_000, 5)) };
    let of = |age| {
        let mut found = st_hll(StHllSettings { age, ..raw });
        (0..100_000).for_each(|item| found.insert(Digest(item), item * 2));
        found
    };
    let count = |age, now| of(age).estimate(now, 64_000).expect("the window").count;

    // One nanosecond before the reset, and in the middle.
    assert!((count(Age::Exact, 201_999) / count(Age::EndOfSlot, 201_999) - 1.0).abs() < 1e-3);
    assert!((count(Age::Exact, 201_000) / count(Age::MidSlot, 201_000) - 1.0).abs() < 1e-9);
}

//! Golden vectors of an independent implementation: SHA-1 of `flow-0` to `flow-19999`, one item every 100 µs.

use alloc::format;
use alloc::vec::Vec;

use super::{
    Age, Cardinality, Correction, Hash, Hll, Pruning, Rounding, Settings, SlidingHll, StHll, StHllSettings, TsPcsa,
    TsPcsaSettings,
};
use crate::digest::Digest;

const WINDOW_NS: u64 = 512_000_000;
const STEP_NS: u64 = 100_000;
/// φ of the vectors, which is that of a figure of the text.
const FIGURES_PHI: f64 = 0.775;

/// First four bytes of SHA-1 (FIPS 180-4) of at most 55 bytes, which fit in one block.
fn sha1(message: &[u8]) -> u32 {
    let mut block = [0_u8; 64];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());
    let mut words = [0_u32; 80];
    for (word, four) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*four);
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let start = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let [mut a, mut b, mut c, mut d, mut e] = start;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
    }
    start[0].wrapping_add(a)
}

fn items() -> Vec<(Digest, u64)> {
    (0..20_000_u64).map(|item| (Digest(sha1(format!("flow-{item}").as_bytes()).into()), item * STEP_NS)).collect()
}

fn settings(registers: usize) -> Settings {
    Settings { registers, window_ns: WINDOW_NS, start_ns: 0, hash: Hash::Ready32 }
}

/// Inserts the items up to a time.
fn filled<T: Cardinality>(mut synopsis: T, until_ns: u64) -> T {
    items().into_iter().filter(|(_, at)| *at <= until_ns).for_each(|(item, at)| synopsis.insert(item, at));
    synopsis
}

fn assert_close(found: f64, golden: f64) {
    // Six digits after the point are given, and a relative precision of 1e-9.
    assert!((found - golden).abs() < (1e-9 * golden).max(6e-7), "{found}, golden {golden}");
}

const fn ms(milliseconds: u64) -> u64 {
    milliseconds * 1_000_000
}

#[test]
fn hashes_and_their_splits() {
    assert_eq!([b"flow-0".as_slice(), b"flow-1", b""].map(sha1), [0x3fd5_d2e5, 0xc397_ff8d, 0xda39_a3ee]);

    let splitter = super::hash::Splitter::new(&settings(64));
    let splits: Vec<_> = items().iter().take(6).map(|(item, _)| splitter.split(*item)).collect();
    assert_eq!(splits, [(37, 1), (13, 2), (62, 1), (25, 2), (6, 1), (28, 1)]);
}

#[test]
fn hll_of_all_items() {
    for (registers, sum, count) in [
        (16, 181, 17_697.596_188),
        (64, 635, 24_859.030_604),
        (256, 1_917, 18_254.617_255),
        (1_024, 5_783, 19_758.778_938),
    ] {
        let all = Settings { window_ns: super::MAX_WINDOW_NS, ..settings(registers) };
        let hll = filled(Hll::new(all).expect("possible"), ms(2_000));

        assert_eq!(hll.registers.iter().map(|rank| u64::from(*rank)).sum::<u64>(), sum);
        assert_close(hll.estimate(ms(2_000), all.window_ns).expect("the window").count, count);
    }
}

/// Registers, time in milliseconds, slot, sum of ranks, empty registers; counts at the end of the slot and at exact
/// ages, of ST-HLL and of ST-HLL+.
type StHllVector = (usize, u64, u64, u64, usize, [f64; 4]);

#[test]
fn st_hll() {
    let vectors: [StHllVector; 4] = [
        (64, 1_999, 124, 462, 0, [4_658.387_201, 4_685.593_099, 5_072.282_595, 5_084.201_778]),
        (64, 1_500, 93, 478, 0, [5_802.063_526, 5_895.636_862, 5_656.179_335, 5_707.477_768]),
        (256, 1_999, 499, 1_315, 6, [4_862.194_551, 4_883.755_585, 4_809.044_354, 4_819.774_559]),
        (256, 1_500, 375, 1_318, 7, [4_574.586_039, 4_655.120_384, 4_489.194_722, 4_530.808_526]),
    ];
    for (registers, at, slot, sum, empty, counts) in vectors {
        let kinds =
            [(0, Age::EndOfSlot), (0, Age::Exact), (registers / 8, Age::EndOfSlot), (registers / 8, Age::Exact)];
        for ((skipped, age), count) in kinds.into_iter().zip(counts) {
            let plain = StHllSettings::plain(settings(registers));
            let raw = StHllSettings { skipped, age, correction: Correction::None, ..plain };
            let mut found = filled(StHll::new(raw).expect("possible"), ms(at));
            assert_close(found.estimate(ms(at), WINDOW_NS).expect("the window").count, count);

            found.tick(ms(at));
            let ranks = found.registers.iter().map(|rank| u64::from(*rank));
            assert_eq!((found.slot, ranks.clone().sum()), (slot, sum));
            assert_eq!(ranks.filter(|rank| *rank == 0).count(), empty);
            assert_close(found.estimate(ms(at), WINDOW_NS).expect("the window").count, count);
        }
    }
}

#[test]
fn likelihood_of_st_hll() {
    for (registers, count) in [(64, 4_769.454_491), (256, 4_813.793_840)] {
        let found = filled(StHll::new(StHllSettings::plain(settings(registers))).expect("possible"), ms(1_999));
        assert_close(found.estimate(ms(1_999), WINDOW_NS).expect("the window").count, count);
    }
}

#[test]
fn sliding_hll() {
    let found = filled(SlidingHll::new(settings(64)).expect("possible"), ms(1_999));

    for (window, sum, count) in [(512, 484, 4_772.335_464), (128, 362, 1_319.033_726), (32, 228, 313.142_899)] {
        let ranks = found.ranks(ms(1_999 - window)).map(u64::from);
        assert_eq!(ranks.sum::<u64>(), sum);
        assert_close(found.estimate(ms(1_999), ms(window)).expect("a possible window").count, count);
    }
    // Stale entries leave a list only when something comes to its register.
    let fresh =
        found.lists.iter().flat_map(super::sliding::Maxima::iter).filter(|(time, _)| *time >= ms(1_999 - 512)).count();
    assert_eq!(fresh, 248);
}

/// The sum of runs, and the count with it, of a TS-PCSA with four slots per window.
fn ts_pcsa(registers: usize, at_ms: u64, rounding: Rounding, offsets: bool) -> (u64, f64) {
    let settings = TsPcsaSettings {
        common: settings(registers),
        positions: 16,
        slot_ns: ms(128),
        bits: 24,
        offsets,
        rounding,
        pruning: Pruning::OnInsert,
        prune_ns: ms(256),
    };
    let found = filled(TsPcsa::new(settings).expect("possible"), ms(at_ms));
    let count = found.estimate(ms(at_ms), WINDOW_NS).expect("a possible window").count;
    (found.runs(ms(at_ms), WINDOW_NS).0, count)
}

#[test]
fn ts_pcsa_by_rounding() {
    let sums = |registers, at| {
        let both = |rounding| [false, true].map(|offsets| ts_pcsa(registers, at, rounding, offsets).0);
        [Rounding::Down, Rounding::Up, Rounding::Closest].map(both)
    };

    assert_eq!(sums(64, 1_935), [[363, 368], [393, 400], [372, 383]]);
    assert_eq!(sums(256, 1_935), [[895, 941], [1_008, 1_040], [940, 972]]);
    assert_eq!(sums(64, 1_985), [[373, 373], [399, 399], [378, 378]]);
    for (registers, offsets, count) in
        [(64, false, 4_641.038_0), (64, true, 5_228.229_6), (256, false, 4_210.006_6), (256, true, 4_591.044_8)]
    {
        let found = ts_pcsa(registers, 1_935, Rounding::Closest, offsets).1 * super::ranges::PHI / FIGURES_PHI;
        // Four digits after the point are given.
        assert!((found - count).abs() < 6e-5, "{found}, golden {count}");
    }
}

#[test]
fn fewer_bits_give_the_same() {
    for (pruning, bits) in [(Pruning::OnInsert, 5), (Pruning::ByTimer, 5)] {
        let wide = TsPcsaSettings {
            slot_ns: ms(128),
            bits: 24,
            positions: 16,
            prune_ns: ms(256),
            pruning,
            ..TsPcsaSettings::plus(settings(64))
        };
        let narrow = TsPcsaSettings { bits, ..wide };
        assert!(narrow.least_bits().is_some_and(|least| least <= bits));
        let [mut wide, mut narrow] = [wide, narrow].map(|settings| TsPcsa::new(settings).expect("possible"));
        for (item, at) in items() {
            if at.is_multiple_of(ms(256)) {
                wide.prune(at);
                narrow.prune(at);
            }
            wide.insert(item, at);
            narrow.insert(item, at);
            if at.is_multiple_of(ms(5)) {
                assert_eq!(wide.runs(at, WINDOW_NS), narrow.runs(at, WINDOW_NS), "at {at}");
            }
        }
    }
}

//! From registers to counts: constants, estimators and range corrections.

use core::f64::consts::{LN_2, PI};

use super::distinct::Range;
use super::settings::{Hash, Settings};

/// φ, the bias of PCSA.
pub(super) const PHI: f64 = 0.773_51;
/// Number of hashes of 32 bits.
const HASHES: f64 = 4_294_967_296.0;

/// A count and how it came about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Count {
    pub(super) items: f64,
    pub(super) range: Range,
    pub(super) saturated: bool,
}

impl Count {
    pub(super) const fn of(items: f64, range: Range) -> Self {
        Self { items, range, saturated: false }
    }

    pub(super) const NONE: Self = Self::of(0.0, Range::Small);
}

/// α, the bias of the harmonic mean of m registers.
pub(super) fn alpha(registers: usize) -> f64 {
    match registers {
        ..=16 => 0.673,
        32 => 0.697,
        64 => 0.709,
        _ => 0.721_3 / (1.0 + 1.079 / registers as f64),
    }
}

/// 2⁻ʳ for a rank.
#[inline]
pub(super) const fn inverse_power(rank: u8) -> f64 {
    f64::from_bits((1_023 - rank as u64) << 52)
}

/// Linear counting: m registers, of which `empty` are.
pub(super) fn linear(registers: usize, kept: usize, empty: usize) -> f64 {
    registers as f64 * libm::log(kept as f64 / empty as f64)
}

/// HyperLogLog's estimate from its registers.
pub(super) fn hyper_log_log(ranks: impl Iterator<Item = u8>, settings: &Settings) -> Count {
    let (mut sum, mut empty) = (0.0, 0);
    for rank in ranks {
        sum += inverse_power(rank);
        empty += usize::from(rank == 0);
    }
    let registers = settings.registers as f64;
    published(alpha(settings.registers) * registers * registers / sum, settings, settings.registers, empty)
}

/// The published corrections of a raw count: linear counting for few items, coinciding hashes of 32 bits for many.
/// `empty` of `kept` registers are empty.
pub(super) fn published(raw: f64, settings: &Settings, kept: usize, empty: usize) -> Count {
    if raw <= 2.5 * settings.registers as f64 && empty > 0 {
        return Count::of(linear(settings.registers, kept, empty), Range::Small);
    }
    if settings.hash == Hash::Ready32 && raw > HASHES / 30.0 {
        let items = -HASHES * libm::log1p(-raw.min(HASHES - 1.0) / HASHES);
        return Count { items, range: Range::Large, saturated: raw >= HASHES };
    }
    Count::of(raw, Range::Middle)
}

/// LogLog's estimate from the sum of all ranks.
pub(super) fn log_log(sum: u64, registers: usize, empty: usize) -> Count {
    let size = registers as f64;
    // The correction for finite m that is published with it, from 64 registers on.
    let bias = 0.397_01 - (2.0 * PI * PI + LN_2 * LN_2) / (48.0 * size);
    let raw = bias * size * libm::exp2(sum as f64 / size);
    if empty > 0 {
        let few = linear(registers, registers, empty);
        if few <= 2.5 * size {
            return Count::of(few, Range::Small);
        }
    }
    Count::of(raw, Range::Middle)
}

/// PCSA's estimate from the sum of the runs of ones of all registers, of which `empty` have no position at all.
pub(super) fn probabilistic(runs: u64, registers: usize, empty: usize) -> Count {
    let size = registers as f64;
    if empty > 0 {
        let few = linear(registers, registers, empty);
        if few <= 3.0 * size {
            return Count::of(few, Range::Small);
        }
    }
    Count::of(size / PHI * libm::exp2(runs as f64 / size), Range::Middle)
}

/// Linear counting of registers of different ages: the rate λ for which as many registers are expected to be empty as
/// `empty` says, which is above 0 and below their number. `shares` are the registers' ages by m.
pub(super) fn staggered(shares: &(impl Iterator<Item = f64> + Clone), empty: usize) -> f64 {
    // The expected number falls and is convex: from 0 on Newton's steps never go too far.
    let mut rate = 0.0;
    for _ in 0..100 {
        let (mut value, mut slope) = (-(empty as f64), 0.0);
        for share in shares.clone() {
            let chance = libm::exp(-rate * share);
            value += chance;
            slope += share * chance;
        }
        let step = value / slope;
        // A register of age 0 is empty for every rate: if there are no others, there is no slope.
        if step.is_nan() || step <= 1e-12 * rate {
            break;
        }
        rate += step;
    }
    rate
}

/// Maximum likelihood of registers of different ages. `terms` are each register's age by m, times 2⁻ʳᵃⁿᵏ, and whether
/// it has an item at all. The rate λ solves λ Σ a = Σ z/(eᶻ − 1) with z = λ a, the latter sum over those with items.
pub(super) fn likelihood(terms: &(impl Iterator<Item = (f64, bool)> + Clone)) -> f64 {
    let (mut all, mut with_items) = (0.0, 0.0);
    for (term, has_items) in terms.clone() {
        all += term;
        with_items += f64::from(u8::from(has_items));
    }
    if all <= 0.0 || with_items == 0.0 {
        return 0.0;
    }
    let mut log = libm::log(with_items / all);
    for _ in 0..100 {
        let rate = libm::exp(log);
        let (mut value, mut slope) = (rate * all, rate * all);
        for (term, _) in terms.clone().filter(|(_, has_items)| *has_items) {
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

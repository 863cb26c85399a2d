//! From registers to counts: constants, estimators and range corrections.

use core::f64::consts::{LN_2, LOG2_E, PI};

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
///
/// Each register has an age of its own, and so a term of its own: counts of equal ranks would not do.
pub(super) fn likelihood(terms: &(impl Iterator<Item = (f64, bool)> + Clone)) -> f64 {
    let (mut all, mut with_items, mut kept) = (0.0, 0_u32, 0_u32);
    for (term, has_items) in terms.clone() {
        all += term;
        with_items += u32::from(has_items);
        kept += 1;
    }
    if all <= 0.0 || with_items == 0 {
        return 0.0;
    }
    // λ Σ a is between the number of registers with items, if these are few, and 0.7213 times that, if all have many.
    // What is between was fitted, and is at most some hundredths off: two steps are enough.
    let share = f64::from(with_items) / f64::from(kept);
    let mut log = libm::log(f64::from(with_items) * (1.0 - (0.2 + 0.078_7 * share) * share) / all);
    for _ in 0..100 {
        let rate = libm::exp(log);
        let expected = rate * all;
        let [value, slope, bend] = bernoulli_sums(terms.clone(), rate).map(|sum| expected - sum);
        // Halley's step, unless it is far: Newton's is sound everywhere.
        let (newton, turn) = (value / slope, 1.0 - value * bend / (2.0 * slope * slope));
        let step = if turn > 0.5 { newton / turn } else { newton };
        log -= step.clamp(-1.0, 1.0);
        // An error e becomes some e³/10, and some 10 e³ for registers that no stream of items leaves behind.
        if libm::fabs(step) < 1e-5 {
            break;
        }
    }
    libm::exp(log)
}

/// Terms that are summed side by side, which lets the compiler use vectors.
const LANES: usize = 8;
/// More than this is as good as infinite: its Bernoulli function is 10⁻³⁰¹.
const MAX_Z: f64 = 700.0;

/// Sums of the Bernoulli function of z = λ a, over the terms with items, and of its first two derivatives by ln λ.
fn bernoulli_sums(terms: impl Iterator<Item = (f64, bool)>, rate: f64) -> [f64; 3] {
    // Without a branch: registers with and without items come in no order.
    let mut products = terms.map(|(term, has_items)| if has_items { rate * term } else { f64::INFINITY });
    let (mut values, mut slopes, mut bends) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    loop {
        let (mut block, mut filled) = ([f64::INFINITY; LANES], 0);
        for (place, product) in block.iter_mut().zip(&mut products) {
            *place = product;
            filled += 1;
        }
        let lanes = block.iter().zip(&mut values).zip(&mut slopes).zip(&mut bends);
        for (((product, all_values), all_slopes), all_bends) in lanes {
            let z = if *product < MAX_Z { *product } else { MAX_Z };
            let value = bernoulli(z);
            let rest = 1.0 - z - value;
            let slope = value * rest;
            *all_values += value;
            *all_slopes += slope;
            *all_bends += slope * (rest - value) - value * z;
        }
        if filled < LANES {
            break;
        }
    }
    [values, slopes, bends].map(|lanes| lanes.iter().sum())
}

/// Numbers of 1/k! in the series of eˣ.
const FACTORIALS: usize = 11;
/// 1/2!, 1/3! … 1/12!.
const INVERSE_FACTORIALS: [f64; FACTORIALS] = inverse_factorials();
/// The next one, 1/13!, of the series.
const LAST_INVERSE: f64 = 1.0 / 6_227_020_800.0;
/// Adding this rounds to a whole number, which the lowest bits of the sum are.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts: a multiple of the first one is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

const fn inverse_factorials() -> [f64; FACTORIALS] {
    let mut inverses = [0.0; FACTORIALS];
    let (mut at, mut factorial) = (0, 1.0);
    while at < FACTORIALS {
        factorial *= (at + 2) as f64;
        inverses[at] = 1.0 / factorial;
        at += 1;
    }
    inverses
}

/// The Bernoulli function z/(eᶻ − 1) for z from 0 to [`MAX_Z`], up to 2⁻⁵¹ of itself. By additions and
/// multiplications alone, without a branch or a table: a compiler can do several at once, and the result is the same on
/// every machine.
#[inline]
fn bernoulli(z: f64) -> f64 {
    // Its value at 0 is its limit.
    let z = if z > f64::MIN_POSITIVE { z } else { f64::MIN_POSITIVE };
    // e⁻ᶻ is 2⁻ⁿ eˣ with −0.35 < x < 0.35.
    let rounded = ROUND - z * LOG2_E;
    let power = ROUND - rounded;
    let x = power * LN_2_HIGH - z + power * LN_2_LOW;
    let series = INVERSE_FACTORIALS.iter().rev().fold(LAST_INVERSE, |sum, inverse| sum * x + inverse);
    // eˣ − 1 has no 1 in which a small x would drown.
    let above_one = x + x * x * series;
    let scale = f64::from_bits(rounded.to_bits().wrapping_add(1_023) << 52);
    let product = scale * above_one;
    z * (scale + product) / ((1.0 - scale) - product)
}

#[cfg(test)]
mod tests;

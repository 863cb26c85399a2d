//! The inner loops over slots of one word, which run in every tick. Plain loops over slices, without branches, which
//! the compiler vectorises.

/// 2^52: from here on, neighbouring integers are not all exact as an f64.
const EXACT: u64 = 1 << 52;
/// The bits of 2^52 as an f64. A smaller integer in the mantissa gives the sum of 2^52 and that integer.
const EXACT_BITS: u64 = 0x4330_0000_0000_0000;
const SIGN: u64 = 1 << 63;
/// The lowest bit of the exponent. The bits of the mantissa are below it.
const EXPONENT_STEP: u64 = 1 << 52;

/// Combined check of counters: below 2^52 if none of them fell, none grew by 2^52 or more, and none was at 2^63 or
/// above.
pub(super) fn growth(words: &[u64], before: &[u64]) -> u64 {
    let bits = |(word, before): (&u64, &u64)| word.wrapping_sub(*before) | before >> 11;
    words.iter().zip(before).map(bits).fold(0, core::ops::BitOr::bitor)
}

/// Whether [`increments`] may be called for counters with this [`growth`].
pub(super) fn is_usual(growth: u64) -> bool {
    growth < EXACT
}

/// Writes the increase of counters since `before`, and stores their values there. Their [`growth`] must be usual.
pub(super) fn increments(words: &[u64], before: &mut [u64], out: &mut [f64]) {
    for ((word, before), out) in words.iter().zip(before).zip(out) {
        *out = f64::from_bits(word.wrapping_sub(*before) | EXACT_BITS) - EXACT as f64;
        *before = *word;
    }
}

/// Whether all words are finite f64 values.
pub(super) fn are_finite(words: &[u64]) -> bool {
    let carry = |word: &u64| (word & !SIGN).wrapping_add(EXPONENT_STEP);
    words.iter().map(carry).fold(0, core::ops::BitOr::bitor) < SIGN
}

/// Copies gauges from words to values.
pub(super) fn gauges(words: &[u64], out: &mut [f64]) {
    for (word, out) in words.iter().zip(out) {
        *out = f64::from_bits(*word);
    }
}

/// Converts up-down counters from words to values.
pub(super) fn steps(words: &[u64], out: &mut [f64]) {
    for (word, out) in words.iter().zip(out) {
        *out = word.cast_signed() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_counters_do_rarely_is_seen_wherever_it_is() {
        for columns in [1, 2, 7, 64] {
            for at in 0..columns {
                for (word, before) in [(4, 5), (0, u64::MAX), (EXACT, 0), (SIGN, SIGN), (u64::MAX, SIGN - 1)] {
                    let (mut words, mut befores) = (vec![EXACT + 7; columns], vec![8; columns]);
                    assert!(is_usual(growth(&words, &befores)));
                    (words[at], befores[at]) = (word, before);

                    assert!(!is_usual(growth(&words, &befores)), "{word} after {before}");
                }
            }
        }
    }

    #[test]
    fn one_gauge_that_is_no_number_is_seen_wherever_it_is() {
        for at in 0..9 {
            for wrong in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut gauges = [f64::MAX, f64::MIN, 0.0, -0.0, 5e-324, -1.0, 2.5, f64::MIN_POSITIVE, 1e300];
                assert!(are_finite(&gauges.map(f64::to_bits)));
                gauges[at] = wrong;

                assert!(!are_finite(&gauges.map(f64::to_bits)), "{wrong} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn usual_increments_are_exact(pairs in prop::collection::vec((0..SIGN - EXACT, 0..EXACT), 0..40)) {
            let words: Vec<u64> = pairs.iter().map(|(before, added)| before + added).collect();
            let mut before: Vec<u64> = pairs.iter().map(|(before, _)| *before).collect();
            prop_assert!(is_usual(growth(&words, &before)));

            let mut out = vec![f64::NAN; words.len()];
            increments(&words, &mut before, &mut out);

            prop_assert_eq!(&before, &words);
            for (out, (_, added)) in out.iter().zip(&pairs) {
                prop_assert_eq!(*out, *added as f64);
            }
        }
    }
}

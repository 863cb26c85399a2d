//! Whole numbers of any size, as the reference switch computes with them: in expressions nothing is cut off, and
//! negative numbers have endless ones in front. Most fit into 128 bits and need no memory of their own.

use core::cmp::Ordering;
use core::ops::{BitAnd, BitOr, BitXor};

use num_bigint::{BigInt, Sign};

/// Shifts beyond this many bits are refused: no field is so wide.
pub(crate) const MAX_SHIFT: u32 = 1 << 14;

/// A whole number. Small ones are always `Small`, so that equal numbers have one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// One that fits.
    Small(i128),
    /// Any other one.
    Big(BigInt),
}

impl Default for Number {
    fn default() -> Self {
        Self::Small(0)
    }
}

impl From<BigInt> for Number {
    fn from(big: BigInt) -> Self {
        i128::try_from(&big).map_or(Self::Big(big), Self::Small)
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Small(i128::from(number))
    }
}

impl Number {
    /// A number from big-endian bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() < 16 {
            return Self::Small(bytes.iter().fold(0, |number, byte| number << 8 | i128::from(*byte)));
        }
        BigInt::from_bytes_be(Sign::Plus, bytes).into()
    }

    /// The lowest `count` bytes, big-endian. The number is not negative.
    pub(crate) fn to_bytes(&self, count: usize) -> Vec<u8> {
        let (_, bytes) = self.big().to_bytes_be();
        let kept = &bytes[bytes.len().saturating_sub(count)..];
        let mut padded = vec![0; count - kept.len()];
        padded.extend(kept);
        padded
    }

    /// Parses what compilers write: `0x1f`, `-0x1f`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (sign, digits) = text.strip_prefix('-').map_or((Sign::Plus, text), |rest| (Sign::Minus, rest));
        let big = BigInt::parse_bytes(digits.strip_prefix("0x")?.as_bytes(), 16)?;
        Some(if sign == Sign::Minus { -big } else { big }.into())
    }

    /// The number, if it fits.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        match self {
            Self::Small(small) => u64::try_from(*small).ok(),
            Self::Big(_) => None,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::Small(0)
    }

    fn big(&self) -> BigInt {
        match self {
            Self::Small(small) => BigInt::from(*small),
            Self::Big(big) => big.clone(),
        }
    }

    /// Both as small numbers, or the operation on big ones.
    fn either(&self, other: &Self, small: fn(i128, i128) -> Option<i128>, big: fn(BigInt, BigInt) -> BigInt) -> Self {
        if let (Self::Small(left), Self::Small(right)) = (self, other)
            && let Some(result) = small(*left, *right)
        {
            return Self::Small(result);
        }
        big(self.big(), other.big()).into()
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.either(other, i128::checked_add, |left, right| left + right)
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.either(other, i128::checked_sub, |left, right| left - right)
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        self.either(other, i128::checked_mul, |left, right| left * right)
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        self.either(other, |left, right| Some(left & right), BigInt::bitand)
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        self.either(other, |left, right| Some(left | right), BigInt::bitor)
    }

    pub(crate) fn xor(&self, other: &Self) -> Self {
        self.either(other, |left, right| Some(left ^ right), BigInt::bitxor)
    }

    /// All bits inverted.
    pub(crate) fn inverted(&self) -> Self {
        Self::Small(-1).minus(self)
    }

    pub(crate) fn shifted_left(&self, bits: u32) -> Self {
        match self {
            // One bit more than the sign's is free.
            Self::Small(small) if bits < small.unsigned_abs().leading_zeros() => Self::Small(small << bits),
            _ => (self.big() << bits).into(),
        }
    }

    pub(crate) fn shifted_right(&self, bits: u32) -> Self {
        match self {
            Self::Small(small) => Self::Small(small >> bits.min(127)),
            Self::Big(big) => (big >> bits).into(),
        }
    }

    /// The lowest `bits` bits, not negative.
    pub(crate) fn truncated(&self, bits: u32) -> Self {
        match self {
            Self::Small(small) if *small >= 0 && u128::BITS - small.unsigned_abs().leading_zeros() <= bits => {
                self.clone()
            }
            Self::Small(small) if bits < 127 => Self::Small(small & ((1 << bits) - 1)),
            _ => Self::from(self.big() & ((BigInt::from(1) << bits) - BigInt::from(1))),
        }
    }

    pub(crate) fn compared(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Small(left), Self::Small(right)) => left.cmp(right),
            _ => self.big().cmp(&other.big()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = BigInt> {
        prop_oneof![
            any::<i128>().prop_map(BigInt::from),
            any::<i16>().prop_map(BigInt::from),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes)),
        ]
    }

    proptest! {
        #[test]
        fn small_and_big_numbers_compute_alike(left in number(), right in number(), bits in 0_u32..300) {
            let (a, b) = (Number::from(left.clone()), Number::from(right.clone()));

            prop_assert_eq!(a.plus(&b), (&left + &right).into());
            prop_assert_eq!(a.minus(&b), (&left - &right).into());
            prop_assert_eq!(a.times(&b), (&left * &right).into());
            prop_assert_eq!(a.and(&b), (&left & &right).into());
            prop_assert_eq!(a.or(&b), (&left | &right).into());
            prop_assert_eq!(a.xor(&b), (&left ^ &right).into());
            prop_assert_eq!(a.inverted(), (!&left).into());
            prop_assert_eq!(a.shifted_left(bits), (&left << bits).into());
            prop_assert_eq!(a.shifted_right(bits), (&left >> bits).into());
            let kept = &left & &((BigInt::from(1) << bits) - BigInt::from(1));
            prop_assert_eq!(a.truncated(bits), kept.into());
            prop_assert_eq!(a.compared(&b), left.cmp(&right));
        }

        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Number::from_bytes(&bytes).to_bytes(bytes.len()), bytes);
        }
    }

    #[test]
    fn numbers_of_compilers_are_read() {
        assert_eq!(Number::parse("0x1f"), Some(Number::Small(31)));
        assert_eq!(Number::parse("-0x01"), Some(Number::Small(-1)));
        assert_eq!(Number::parse("31"), None);
        assert_eq!(Number::parse("0xx"), None);
    }
}

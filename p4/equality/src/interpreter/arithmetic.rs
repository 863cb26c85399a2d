//! What the reference switch computes of numbers. Truths are 1 and 0.

use core::cmp::Ordering;

use super::number::{MAX_SHIFT, Number};
use super::program::{Binary, Unary};

pub(super) fn truth(truth: bool) -> Number {
    Number::from(u64::from(truth))
}

pub(super) fn unary(operation: Unary, operand: &Number) -> Number {
    match operation {
        Unary::Invert => operand.inverted(),
        Unary::Negate => Number::default().minus(operand),
        Unary::Not => truth(operand.is_zero()),
        Unary::Truth => truth(!operand.is_zero()),
        Unary::Same => operand.clone(),
    }
}

/// `None` for a shift that no field is wide enough for.
pub(super) fn binary(operation: Binary, left: &Number, right: &Number) -> Option<Number> {
    let bits = || right.to_u64().and_then(|bits| u32::try_from(bits).ok()).filter(|bits| *bits <= MAX_SHIFT);
    let order = || left.compared(right);
    Some(match operation {
        Binary::Plus => left.plus(right),
        Binary::Minus => left.minus(right),
        Binary::Times => left.times(right),
        Binary::Left => left.shifted_left(bits()?),
        Binary::Right => left.shifted_right(bits()?),
        Binary::BitAnd => left.and(right),
        Binary::BitOr => left.or(right),
        Binary::BitXor => left.xor(right),
        Binary::Equal => truth(order() == Ordering::Equal),
        Binary::Unequal => truth(order() != Ordering::Equal),
        Binary::Less => truth(order() == Ordering::Less),
        Binary::LessOrEqual => truth(order() != Ordering::Greater),
        Binary::Greater => truth(order() == Ordering::Greater),
        Binary::GreaterOrEqual => truth(order() != Ordering::Less),
        Binary::And => truth(!left.is_zero() && !right.is_zero()),
        Binary::Or => truth(!left.is_zero() || !right.is_zero()),
    })
}

//! Encodes scalar values from JSON.

use super::fields::{Integer, Kind};

/// A scalar in JSON.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar<'a> {
    Integer(i128),
    Double(f64),
    Bool(bool),
    Text(&'a str),
}

/// Writes a variable-length number (varint).
pub(super) fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Wire type of a value of `kind`: the lower bits of a tag.
pub(super) const fn wire_type(kind: Kind) -> u32 {
    match kind {
        Kind::Text | Kind::Hex | Kind::Base64 | Kind::Message(_) => 2,
        Kind::Double | Kind::Integer(Integer::Fixed64 | Integer::Sfixed64) => 1,
        Kind::Integer(Integer::Fixed32) => 5,
        Kind::Bool | Kind::Integer(_) => 0,
    }
}

/// Writes `scalar` as a value of `kind`, without a tag. `None` if it is not a valid value.
pub(super) fn write(scalar: Scalar<'_>, kind: Kind, into: &mut Vec<u8>) -> Option<()> {
    match (kind, scalar) {
        (Kind::Text, Scalar::Text(text)) => bytes(text.as_bytes(), into),
        (Kind::Hex, Scalar::Text(text)) => bytes(&hexadecimal(text)?, into),
        (Kind::Base64, Scalar::Text(text)) => bytes(&base64(text)?, into),
        (Kind::Bool, Scalar::Bool(value)) => into.push(value.into()),
        (Kind::Double, value) => into.extend_from_slice(&double(value)?.to_le_bytes()),
        (Kind::Integer(how), value) => whole(number(value)?, how, into)?,
        _ => return None,
    }
    Some(())
}

fn bytes(bytes: &[u8], into: &mut Vec<u8>) {
    varint(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

fn double(value: Scalar<'_>) -> Option<f64> {
    match value {
        Scalar::Double(value) => Some(value),
        Scalar::Integer(value) => Some(value as f64),
        Scalar::Text("NaN") => Some(f64::NAN),
        Scalar::Text("Infinity") => Some(f64::INFINITY),
        Scalar::Text("-Infinity") => Some(f64::NEG_INFINITY),
        Scalar::Text(text) => text.parse().ok().filter(|value: &f64| value.is_finite()),
        Scalar::Bool(_) => None,
    }
}

/// JSON has 64-bit numbers as text, since doubles would round them; both forms are accepted.
fn number(value: Scalar<'_>) -> Option<i128> {
    match value {
        Scalar::Integer(value) => Some(value),
        // 1e3 is an integer.
        Scalar::Double(value) => (value.fract() == 0.0).then_some(value as i128),
        Scalar::Text(text) => text.parse().ok(),
        Scalar::Bool(_) => None,
    }
}

fn whole(value: i128, how: Integer, into: &mut Vec<u8>) -> Option<()> {
    match how {
        // A negative number takes as many bytes as one of 64 bits.
        Integer::Int32 => varint(i64::from(i32::try_from(value).ok()?) as u64, into),
        Integer::Int64 => varint(i64::try_from(value).ok()? as u64, into),
        Integer::Uint32 => varint(u32::try_from(value).ok()?.into(), into),
        Integer::Uint64 => varint(u64::try_from(value).ok()?, into),
        Integer::Sint32 => {
            let value = i32::try_from(value).ok()?;
            varint(u64::from((value << 1 ^ value >> 31) as u32), into);
        }
        Integer::Fixed32 => into.extend_from_slice(&u32::try_from(value).ok()?.to_le_bytes()),
        Integer::Fixed64 => into.extend_from_slice(&u64::try_from(value).ok()?.to_le_bytes()),
        Integer::Sfixed64 => into.extend_from_slice(&i64::try_from(value).ok()?.to_le_bytes()),
    }
    Some(())
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// Base64 of either alphabet, with or without `=` at its end (RFC 4648).
fn base64(text: &str) -> Option<Vec<u8>> {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut group = 0_u32;
        for &byte in four {
            group = group << 6 | u32::from(sextet(byte)?);
        }
        group <<= 6 * (4 - four.len());
        let there = match four.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bytes.extend_from_slice(&group.to_be_bytes()[1..=there]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_in_both_alphabets() {
        for (text, expected) in
            [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64(text).as_deref(), Some(expected.as_bytes()), "{text}");
        }
        assert_eq!(base64("+/-_"), Some(vec![0xfb, 0xff, 0xbf]));
        assert_eq!(base64("Z"), None);
        assert_eq!(base64("Zm 9"), None);
    }

    #[test]
    fn numbers_are_taken_as_text_too_and_only_in_their_range() {
        let written = |scalar, how| {
            let mut into = Vec::new();
            write(scalar, Kind::Integer(how), &mut into).map(|()| into)
        };

        assert_eq!(written(Scalar::Text("300"), Integer::Uint32), Some(vec![0xac, 2]));
        assert_eq!(written(Scalar::Double(1e3), Integer::Fixed32), Some(vec![0xe8, 3, 0, 0]));
        assert_eq!(written(Scalar::Integer(-1), Integer::Sint32), Some(vec![1]));
        assert_eq!(written(Scalar::Integer(-1), Integer::Int64).map(|bytes| bytes.len()), Some(10));
        assert_eq!(written(Scalar::Text("18446744073709551615"), Integer::Fixed64), Some(vec![255; 8]));

        assert_eq!(written(Scalar::Text("18446744073709551616"), Integer::Fixed64), None);
        assert_eq!(written(Scalar::Integer(-1), Integer::Uint64), None);
        assert_eq!(written(Scalar::Double(0.5), Integer::Int64), None);
        assert_eq!(written(Scalar::Double(f64::NAN), Integer::Int64), None);
        assert_eq!(written(Scalar::Bool(true), Integer::Int64), None);
    }
}

//! Fields of a message of protobuf, one by one and in place.

use prost::encoding::{WireType, decode_key, decode_varint};

/// A field of a message: its number and what it holds.
pub(crate) enum Value<'b> {
    Number(u64),
    Double(f64),
    Bytes(&'b [u8]),
    /// A fixed-width number of 4 bytes, which no field that is read has.
    Other,
}

type Field<'b> = (u32, Value<'b>);

/// Takes the next field off `bytes`; `None` at the end.
fn field<'b>(bytes: &mut &'b [u8]) -> Result<Option<Field<'b>>, &'static str> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (number, wire) = decode_key(bytes).map_err(|_| "a field has no number")?;
    let value = match wire {
        WireType::Varint => Value::Number(varint(bytes)?),
        WireType::SixtyFourBit => {
            let taken: [u8; 8] = take(bytes, 8)?.try_into().map_err(|_| "a number is cut")?;
            Value::Double(f64::from_le_bytes(taken))
        }
        WireType::ThirtyTwoBit => {
            take(bytes, 4)?;
            Value::Other
        }
        WireType::LengthDelimited => {
            let length = varint(bytes)?;
            Value::Bytes(take(bytes, length)?)
        }
        WireType::StartGroup | WireType::EndGroup => return Err("it has groups"),
    };
    Ok(Some((number, value)))
}

/// Takes the next `length` bytes off `bytes`.
fn take<'b>(bytes: &mut &'b [u8], length: u64) -> Result<&'b [u8], &'static str> {
    let split = usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length));
    let (taken, rest) = split.ok_or("a field is longer than its message")?;
    *bytes = rest;
    Ok(taken)
}

/// Takes the next number off `bytes`.
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    decode_varint(bytes).map_err(|_| "a number is cut")
}

/// Calls `take` with each field of `message`.
pub(crate) fn fields<'b>(
    mut message: &'b [u8],
    mut take: impl FnMut(u32, Value<'b>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    while let Some((number, value)) = field(&mut message)? {
        take(number, value)?;
    }
    Ok(())
}

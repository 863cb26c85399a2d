//! The Protocol Buffers wire format: fields one after the other, each with a number and a type. Copies nothing and does
//! not recurse.

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A length points beyond the end of the message.
    #[error("a field ends {0} bytes beyond the message")]
    Truncated(usize),
    /// A varint does not end, or exceeds 64 bits.
    #[error("a variable-length number is longer than 64 bits or does not end")]
    Number,
    /// An unknown wire type: a group, which is deprecated, or an invalid one.
    #[error("field {field} has wire type {kind}")]
    Type {
        /// Field number in the tag.
        field: u64,
        /// Wire type in the tag, 0 to 7.
        kind: u64,
    },
    /// The field has a wire type other than OTLP's for it.
    #[error("field {0} is not a message")]
    Shape(u32),
}

/// Value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
    /// The field with its tag, as in the message.
    pub(super) record: &'a [u8],
}

impl<'a> Field<'a> {
    /// The content of a field that has to be a message.
    pub(super) const fn message(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::Shape(self.number)),
        }
    }
}

/// The fields of a message, in order. The iterator ends after an error.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for (place, &byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return Err(WireError::Number);
            }
            number |= bits << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok(number);
            }
        }
        Err(WireError::Number)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let Some((bytes, rest)) = self.0.split_at_checked(length) else {
            return Err(WireError::Truncated(length - self.0.len()));
        };
        self.0 = rest;
        Ok(bytes)
    }

    fn fixed(&mut self) -> Result<u64, WireError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.bytes(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let before = self.0;
        let tag = self.number()?;
        let (field, kind) = (tag >> 3, tag & 7);
        let number = u32::try_from(field).ok().filter(|number| *number > 0).ok_or(WireError::Type { field, kind })?;
        let value = match kind {
            0 => Value::Number(self.number()?),
            1 => Value::Fixed64(self.fixed()?),
            2 => {
                let length = self.number()?;
                Value::Bytes(self.bytes(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                self.bytes(4)?;
                Value::Fixed32
            }
            _ => return Err(WireError::Type { field, kind }),
        };
        Ok(Field { number, value, record: &before[..before.len() - self.0.len()] })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The text of an `AnyValue` of OTLP that is a string.
pub(super) fn string_of(value: &[u8]) -> Option<&str> {
    let texts = Fields::of(value).map_while(Result::ok).filter(|field| field.number == 1);
    texts.last().and_then(|field| str::from_utf8(field.message().ok()?).ok())
}

/// A message without its fields of one number: the resource or scope around spans. The remaining bytes are a valid
/// message again.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    message: &'a [u8],
    without: u32,
}

impl<'a> Envelope<'a> {
    pub(super) const fn new(message: &'a [u8], without: u32) -> Self {
        Self { message, without }
    }

    pub(super) fn fields(self) -> impl Iterator<Item = Field<'a>> {
        Fields::of(self.message).map_while(Result::ok).filter(move |field| field.number != self.without)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self.message, other.message)
    }

    /// The remaining bytes in pieces, mostly one or two.
    pub fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        self.fields().map(|field| field.record)
    }

    /// Writes the remaining bytes to `into`, replacing its content.
    pub fn copy(self, into: &mut Vec<u8>) {
        into.clear();
        self.pieces().for_each(|piece| into.extend_from_slice(piece));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, WireError> {
        Fields::of(message).map(|field| field.map(|field| (field.number, field.value))).collect()
    }

    #[test]
    fn fields_are_read_in_place_and_what_is_none_is_named() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 0, 0, 0, 0, 0, 0, 0];
        let expected =
            vec![(1, Value::Number(150)), (2, Value::Bytes(b"hi")), (3, Value::Fixed32), (4, Value::Fixed64(1))];
        assert_eq!(all(&message), Ok(expected));

        assert_eq!(all(&[0x12, 5, b'h']), Err(WireError::Truncated(4)));
        assert_eq!(all(&[0x08]), Err(WireError::Number));
        assert_eq!(all(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]), Err(WireError::Number));
        assert_eq!(all(&[0x0b]), Err(WireError::Type { field: 1, kind: 3 }));
        assert_eq!(all(&[0x00, 0x00]), Err(WireError::Type { field: 0, kind: 0 }));
        assert!(all(&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).is_err());
    }

    proptest! {
        #[test]
        fn records_put_together_are_the_message(message in proptest::collection::vec(any::<u8>(), 0..60)) {
            let fields: Vec<_> = Fields::of(&message).collect();
            let read: Vec<u8> = fields.iter().flatten().flat_map(|field| field.record).copied().collect();

            prop_assert!(message.starts_with(&read));
            prop_assert_eq!(read.len() == message.len(), fields.iter().all(Result::is_ok));
            prop_assert!(fields.iter().rev().skip(1).all(Result::is_ok));
        }
    }
}

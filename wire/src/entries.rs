//! Counts the entries of repeated fields in an encoded message, before anything is decoded: an empty entry has two
//! bytes on the wire, and a hundred times as many in memory.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// How often the field at the end of `path` occurs in `message`; `path` are field numbers, from the outside in. All but
/// the last have to be messages. One pass over the bytes, no memory.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are no protocol buffer at one of these levels.
pub(crate) fn count(message: &[u8], path: &[u32]) -> Result<usize, DecodeError> {
    let Some((&field, inner)) = path.split_first() else { return Ok(1) };
    let mut rest = message;
    let mut found = 0;
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest)?;
        if tag != field || (!inner.is_empty() && wire_type != WireType::LengthDelimited) {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
        } else if inner.is_empty() {
            found += 1;
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
        } else {
            let length = usize::try_from(decode_varint(&mut rest)?).unwrap_or(usize::MAX);
            // What is cut off is refused when it is decoded.
            let (entry, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            found += count(entry, inner)?;
            rest = after;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::registration::service_message::Message;
    use crate::proto::registration::{AddSeries, Label, Series, ServiceMessage};

    #[test]
    fn entries_are_counted_at_each_level() {
        let series = |labels| Series { labels: vec![Label::default(); labels], ..Series::default() };
        let message = Message::AddSeries(AddSeries { series: vec![series(2), series(0), series(5)] });
        let bytes = ServiceMessage { message: Some(message) }.encode_to_vec();

        assert_eq!(count(&bytes, &[3, 1]).unwrap(), 3);
        assert_eq!(count(&bytes, &[3, 1, 2]).unwrap(), 7);
        assert_eq!(count(&bytes, &[1, 4]).unwrap(), 0);
        assert_eq!(count(&[], &[3, 1]).unwrap(), 0);
        assert!(count(&[0x80], &[3]).is_err());
    }
}

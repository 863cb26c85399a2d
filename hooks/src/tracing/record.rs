//! How a waiting span lies in its trace's chain: an index of 48 bytes, then the span as it came.

use crate::id::{OperationId, OriginId, ServiceId};
use crate::time::UnixNanos;
use crate::tracing::blocks::Reader;
use crate::tracing::span::{SpanId, SpanIndex, SpanKind};

/// Bytes of an index.
pub(super) const INDEX: usize = 48;
/// No span is longer: its length shares a word with kind and error.
pub(super) const LONGEST: usize = (1 << LENGTH_BITS) - 1;
const LENGTH_BITS: u32 = 28;
const ERROR: u32 = 1 << 31;

/// The index and the length of the span that follows it.
pub(super) fn encode(index: &SpanIndex, length: usize) -> [u8; INDEX] {
    debug_assert!(length <= LONGEST, "the caller keeps to the limit");
    let error = if index.error { ERROR } else { 0 };
    let flags = error | ((index.kind as u32) << LENGTH_BITS) | length as u32;
    let mut bytes = [0; INDEX];
    bytes[..8].copy_from_slice(&index.id.bytes());
    bytes[8..16].copy_from_slice(&index.parent.map_or([0; 8], SpanId::bytes));
    bytes[16..24].copy_from_slice(&index.start.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&index.end.0.to_le_bytes());
    let words = [index.service.0, index.operation.0, index.origin.0, flags];
    for (place, word) in bytes[32..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

/// The next index and the length of its span; the reader stands at the span then. `None` at the end.
pub(super) fn next(reader: &mut Reader<'_>) -> Option<(SpanIndex, usize)> {
    let id = SpanId::new(reader.array()?)?;
    let parent = SpanId::new(reader.array()?);
    let start = UnixNanos(u64::from_le_bytes(reader.array()?));
    let end = UnixNanos(u64::from_le_bytes(reader.array()?));
    let mut word = || reader.array().map(u32::from_le_bytes);
    let (service, operation, origin) = (ServiceId(word()?), OperationId(word()?), OriginId(word()?));
    let flags = word()?;
    let kind = SpanKind::from_number(u64::from((flags >> LENGTH_BITS) & 7));
    let index = SpanIndex { id, parent, kind, service, operation, origin, start, end, error: flags & ERROR != 0 };
    Some((index, (flags as usize) & LONGEST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tracing::blocks::{Blocks, Chain};

    proptest! {
        #[test]
        fn an_index_reads_back_as_it_was_written(
            ids in (1..=u64::MAX, any::<u64>()), times in any::<(u64, u64)>(), words in any::<(u32, u32, u32)>(),
            kind in 0..6_u64, error: bool, length in 0..LONGEST, before in 0..200_usize,
        ) {
            let index = SpanIndex {
                id: SpanId::new(ids.0.to_be_bytes()).unwrap(),
                parent: SpanId::new(ids.1.to_be_bytes()),
                kind: SpanKind::from_number(kind),
                service: ServiceId(words.0),
                operation: OperationId(words.1),
                origin: OriginId(words.2),
                start: UnixNanos(times.0),
                end: UnixNanos(times.1),
                error,
            };
            let (mut blocks, mut chain) = (Blocks::new(8).unwrap(), Chain::EMPTY);
            blocks.append(&mut chain, &vec![9; before]);
            blocks.append(&mut chain, &encode(&index, length));

            let mut reader = blocks.read(chain);
            reader.skip(before);

            prop_assert_eq!(next(&mut reader), Some((index, length)));
            prop_assert_eq!(next(&mut reader), None);
        }
    }
}

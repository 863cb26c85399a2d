//! Format of a buffered span in its trace's chain: an index, then the encoded span without the fields that repeat the
//! index. Encoders write the fields of a span in the order of their numbers, so ids, kind and times can be cut out and
//! put back, byte for byte. A span that is written in another order stays whole.

use crate::id::{OperationId, OriginId, ServiceId};
use crate::tracing::blocks::Reader;
use crate::tracing::span::{Span, SpanId, SpanIndex, SpanKind, TraceId};
use wire::time::UnixNanos;

/// Bytes of the longest index: flags, length, two ids, start, duration, and three numbers.
const MAX: usize = 1 + 5 + 8 + 8 + 8 + 10 + 3 * 5;
/// Largest span: a trace counts its spans and their bytes in 28 bits.
pub(super) const LONGEST: usize = (1 << 28) - 1;

// The first byte: three bits of kind, then one bit each.
const KIND: u8 = 7;
const ERROR: u8 = 1 << 3;
/// It has a parent.
const CHILD: u8 = 1 << 4;
/// The ids of trace and span were cut out, at the beginning.
const IDS: u8 = 1 << 5;
/// The parent's id was cut out, right after them.
const PARENT: u8 = 1 << 6;
/// Kind and times were cut out, right after those and the name.
const TIMES: u8 = 1 << 7;

/// A few bytes without an allocation.
#[derive(Clone, Copy, Debug)]
struct InlineBytes<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> InlineBytes<N> {
    const EMPTY: Self = Self { bytes: [0; N], used: 0 };

    /// Appends `bytes`. There are never more than `N`.
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    fn put_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.put(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.put(&[number as u8]);
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Bytes of both ids' fields.
const IDS_BYTES: usize = 28;

/// Fields 1 and 2 of a span: both ids.
fn ids(trace: TraceId, span: SpanId) -> InlineBytes<IDS_BYTES> {
    let mut field = InlineBytes::EMPTY;
    field.put(&[0x0a, 16]);
    field.put(&trace.bytes());
    field.put(&[0x12, 8]);
    field.put(&span.bytes());
    field
}

/// Field 4 of a span: the parent's id.
fn parent(id: SpanId) -> InlineBytes<10> {
    let mut field = InlineBytes::EMPTY;
    field.put(&[0x22, 8]);
    field.put(&id.bytes());
    field
}

/// Fields 6, 7 and 8 of a span: kind, start and end.
fn times(index: &SpanIndex) -> InlineBytes<20> {
    let mut fields = InlineBytes::EMPTY;
    if index.kind != SpanKind::Unspecified {
        fields.put(&[0x30, index.kind as u8]);
    }
    fields.put(&[0x39]);
    fields.put(&index.start.0.to_le_bytes());
    fields.put(&[0x41]);
    fields.put(&index.end.0.to_le_bytes());
    fields
}

/// Length of field 5 (the name), if `bytes` begin with it; else 0.
fn name(bytes: &[u8]) -> usize {
    let [0x2a, after @ ..] = bytes else { return 0 };
    let mut after = after;
    let Some(length) = number(&mut after) else { return 0 };
    let field = (bytes.len() - after.len()).saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
    if field <= bytes.len() { field } else { 0 }
}

/// Takes the varint with which `bytes` begin.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

const fn zigzag(signed: i64) -> u64 {
    ((signed << 1) ^ (signed >> 63)) as u64
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// A span to be written into a chain.
#[derive(Debug)]
pub(super) struct Record<'a> {
    index: InlineBytes<MAX>,
    /// What stays of the encoded span.
    rest: [&'a [u8]; 2],
}

impl<'a> Record<'a> {
    pub(super) fn of(span: &Span<'a>) -> Self {
        let index = &span.index;
        let error = if index.error { ERROR } else { 0 };
        let child = if index.parent.is_some() { CHILD } else { 0 };
        let (cut, rest) = cut(span);
        let mut head = InlineBytes::EMPTY;
        head.put(&[error | child | cut | index.kind as u8]);
        head.put_number((rest[0].len() + rest[1].len()) as u64);
        head.put(&index.id.bytes());
        if let Some(parent) = index.parent {
            head.put(&parent.bytes());
        }
        head.put(&index.start.0.to_le_bytes());
        head.put_number(zigzag(index.end.0.wrapping_sub(index.start.0) as i64));
        for id in [index.service.0, index.operation.0, index.origin.0] {
            head.put_number(id.into());
        }
        Self { index: head, rest }
    }

    /// Bytes that it takes in a chain.
    pub(super) const fn size(&self) -> usize {
        self.index.used + self.rest[0].len() + self.rest[1].len()
    }

    /// The bytes to write, in order.
    pub(super) fn pieces(&self) -> [&[u8]; 3] {
        [self.index.get(), self.rest[0], self.rest[1]]
    }
}

/// What stays of a span, in two pieces, and which of its fields were cut out.
fn cut<'a>(span: &Span<'a>) -> (u8, [&'a [u8]; 2]) {
    let Some(mut rest) = span.encoded.strip_prefix(ids(span.trace, span.index.id).get()) else {
        return (0, [span.encoded, &[]]);
    };
    let mut cut = IDS;
    if let Some(id) = span.index.parent {
        let Some(behind) = rest.strip_prefix(parent(id).get()) else { return (cut, [rest, &[]]) };
        (rest, cut) = (behind, cut | PARENT);
    }
    let (own_name, behind) = rest.split_at(name(rest));
    match behind.strip_prefix(times(&span.index).get()) {
        // A name behind the times would be taken for one before them when they are put back.
        Some(behind) if !own_name.is_empty() || name(behind) == 0 => (cut | TIMES, [own_name, behind]),
        _ => (cut, [rest, &[]]),
    }
}

/// A span read from a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredSpan {
    pub(super) index: SpanIndex,
    /// Bytes after the index.
    pub(super) length: usize,
    flags: u8,
}

impl StoredSpan {
    /// Length of the span as received.
    pub(super) fn encoded(&self) -> usize {
        let if_cut = |flag: u8, bytes: usize| if self.flags & flag == 0 { 0 } else { bytes };
        let cut_parent = self.index.parent.map_or(0, |id| parent(id).get().len());
        self.length
            + if_cut(IDS, IDS_BYTES)
            + if_cut(PARENT, cut_parent)
            + if_cut(TIMES, times(&self.index).get().len())
    }

    /// Restores the span as received, and replaces what `into` held. `reader` is at the end of the index, and moves to
    /// the end of the span.
    pub(super) fn restore(&self, trace: TraceId, reader: &mut Reader<'_>, into: &mut Vec<u8>) {
        into.clear();
        if self.flags & IDS != 0 {
            into.extend_from_slice(ids(trace, self.index.id).get());
        }
        if let Some(id) = self.index.parent.filter(|_| self.flags & PARENT != 0) {
            into.extend_from_slice(parent(id).get());
        }
        let cut = into.len();
        reader.copy(self.length, into);
        if self.flags & TIMES != 0 {
            let place = cut + name(&into[cut..]);
            let times = times(&self.index);
            into.splice(place..place, times.get().iter().copied());
        }
    }
}

/// Reads the next index and moves behind it; `None` at the end.
pub(super) fn next(reader: &mut Reader<'_>) -> Option<StoredSpan> {
    let (bytes, filled) = reader.peek::<MAX>();
    let mut left = &bytes[..filled];
    let stored = parse(&mut left)?;
    let index = filled - left.len();
    reader.skip(index);
    Some(stored)
}

fn parse(bytes: &mut &[u8]) -> Option<StoredSpan> {
    let [flags] = array(bytes)?;
    let length = number(bytes)? as usize;
    let id = SpanId::new(array(bytes)?)?;
    let parent = if flags & CHILD == 0 { None } else { SpanId::new(array(bytes)?) };
    let start = u64::from_le_bytes(array(bytes)?);
    let end = UnixNanos(start.wrapping_add_signed(unzigzag(number(bytes)?)));
    let mut word = || number(bytes).map(|number| number as u32);
    let (service, operation, origin) = (ServiceId(word()?), OperationId(word()?), OriginId(word()?));
    let (kind, error) = (SpanKind::from_number(u64::from(flags & KIND)), flags & ERROR != 0);
    let index = SpanIndex { id, parent, kind, service, operation, origin, start: UnixNanos(start), end, error };
    Some(StoredSpan { index, length, flags })
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::SenderId;
    use crate::tracing::blocks::{Blocks, Chain};

    const TRACE: TraceId = TraceId::new([0xab; 16]).unwrap();

    fn span(index: SpanIndex, encoded: &[u8]) -> Span<'_> {
        let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
        Span { trace: TRACE, index, sender, entry: false, trigger, randomness, threshold, encoded }
    }

    /// The encoding of `index`: up to `fields` of the five that can be cut, and `behind` after them.
    fn encoded(index: &SpanIndex, fields: usize, name: &[u8], behind: &[u8]) -> Vec<u8> {
        let mut name_field = InlineBytes::<12>::EMPTY;
        name_field.put(&[0x2a]);
        name_field.put_number(name.len() as u64);
        let own = ids(TRACE, index.id);
        let parent = index.parent.map_or(InlineBytes::EMPTY, parent);
        let times = times(index);
        let all = [own.get(), parent.get(), name_field.get(), name, times.get()];
        [&all[..fields].concat(), behind].concat()
    }

    /// Writes a span after `before` bytes and reads it back. Also returns how many bytes it took.
    fn back(index: SpanIndex, encoded: &[u8], before: usize) -> (SpanIndex, Vec<u8>, usize) {
        let (mut blocks, mut chain) = (Blocks::new(100).unwrap(), Chain::EMPTY);
        blocks.append(&mut chain, &vec![9; before]);
        let span = span(index, encoded);
        let record = Record::of(&span);
        for piece in record.pieces() {
            blocks.append(&mut chain, piece);
        }
        assert_eq!(chain.bytes(), before + record.size());
        let mut reader = blocks.read(chain);
        reader.skip(before);
        let mut restored = vec![3; 5];
        let stored = next(&mut reader).unwrap();
        stored.restore(TRACE, &mut reader, &mut restored);
        assert_eq!(stored.encoded(), restored.len());
        assert_eq!(next(&mut reader), None);
        (stored.index, restored, record.size())
    }

    fn indexes() -> impl Strategy<Value = SpanIndex> {
        let ids = (1..=u64::MAX, any::<u64>(), any::<bool>());
        (ids, any::<(u64, u64)>(), any::<(u32, u32, u32)>(), 0..6_u64, any::<bool>()).prop_map(
            |((id, parent, root), (start, end), (service, operation, origin), kind, error)| SpanIndex {
                id: SpanId::new(id.to_be_bytes()).unwrap(),
                parent: if root { None } else { SpanId::new(parent.to_be_bytes()) },
                kind: SpanKind::from_number(kind),
                service: ServiceId(service),
                operation: OperationId(operation),
                origin: OriginId(origin),
                start: UnixNanos(start),
                end: UnixNanos(end),
                error,
            },
        )
    }

    proptest! {
        #[test]
        fn a_span_comes_back_as_it_came_however_it_was_written(
            index in indexes(), other in indexes(), same: bool, fields in 0..=5_usize,
            name in proptest::collection::vec(any::<u8>(), 0..200), behind in proptest::collection::vec(any::<u8>(), 0..300),
            before in 0..200_usize,
        ) {
            let encoded_index = if same { index } else { SpanIndex { id: index.id, parent: index.parent, ..other } };
            let encoded = encoded(&encoded_index, fields, &name, &behind);

            let (found, restored, _) = back(index, &encoded, before);

            prop_assert_eq!(found, index);
            prop_assert_eq!(restored, encoded);
        }
    }

    #[test]
    fn a_name_that_stands_behind_the_times_stays_there() {
        let index = SpanIndex {
            id: SpanId::new([1; 8]).unwrap(),
            parent: None,
            kind: SpanKind::Server,
            service: ServiceId(1),
            operation: OperationId(2),
            origin: OriginId(3),
            start: UnixNanos(5),
            end: UnixNanos(9),
            error: false,
        };
        let named = [0x2a, 3, b'p', b'a', b'y'];
        let late = [ids(TRACE, index.id).get(), times(&index).get(), &named, &[0x50, 1]].concat();

        assert_eq!(back(index, &late, 0).1, late);
    }

    #[test]
    fn what_the_index_says_is_not_stored_twice() {
        let index = SpanIndex {
            id: SpanId::new([1; 8]).unwrap(),
            parent: SpanId::new([2; 8]),
            kind: SpanKind::Server,
            service: ServiceId(3),
            operation: OperationId(4),
            origin: OriginId(5),
            start: UnixNanos(1_700_000_000_000_000_000),
            end: UnixNanos(1_700_000_000_020_000_000),
            error: true,
        };
        let size = |index: SpanIndex| back(index, &encoded(&index, 5, b"GET /", b"rest"), 0).2;

        // Flags, length, three times eight bytes, four for 20 ms, three numbers, a name with its field, the rest.
        assert_eq!(size(index), 1 + 1 + 24 + 4 + 3 + 7 + 4);
        assert_eq!(size(SpanIndex { parent: None, ..index }), 1 + 1 + 16 + 4 + 3 + 7 + 4);
        // Cut off amid a name: nothing is taken for one.
        assert_eq!(name(&[0x2a, 9, b'a']), 0);
        assert_eq!(name(&[0x2a]), 0);
    }
}

//! Memory of a buffered span: at most 1.3 times its encoded bytes and 64, by the buffer's own count, by the
//! allocator's, and by the process's resident memory. Alone in its process.

#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::tracing::{Limits, OfferOutcome, OrderKey, Span, SpanId, SpanIndex, SpanKind, TailBuffer, TraceId};
use wire::time::{Nanos, UnixNanos};

const MIB: usize = 1 << 20;
const START: u64 = 1_700_000_000_000_000_000;
const END: u64 = START + 20_000_000;

/// The memory that this process has at present.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A span of exactly so many bytes, as encoders write it: its fields in the order of their numbers.
fn encoded(length: usize, root: bool) -> Vec<u8> {
    let ids = [&[0x0a, 16][..], &[1; 16], &[0x12, 8], &[1; 8]].concat();
    let parent = if root { Vec::new() } else { [&[0x22, 8][..], &[1; 8]].concat() };
    let times = [&[0x30, 2, 0x39][..], &START.to_le_bytes(), &[0x41], &END.to_le_bytes()].concat();
    let left = length - ids.len() - parent.len() - times.len() - 5;
    // What is left is an attribute, less what makes the name a little longer.
    let (name, attribute) = (3 + left % 16, left - left % 16);
    let name = [&[0x2a, name as u8][..], &vec![b'x'; name]].concat();
    let attribute = match attribute.checked_sub(3) {
        Some(bytes) => [&[0x4a, bytes as u8 | 0x80, (bytes >> 7) as u8][..], &vec![b'x'; bytes]].concat(),
        None => Vec::new(),
    };
    let span = [ids, parent, name, times, attribute].concat();
    assert_eq!(span.len(), length);
    span
}

/// Fills a buffer of 64 MiB with traces of `per_trace` spans. Bytes per span by the buffer's count, those that were
/// asked of the allocator in all, those that the process has grown by per span.
fn taken(length: usize, per_trace: u64) -> (f64, usize, f64) {
    let (mut root, mut child) = (encoded(length, true), encoded(length, false));
    let limits = Limits { bytes: 64 * MIB, decisions: 1 << 10, ..Limits::default() };
    let mut buffer = TailBuffer::new(limits, OrderKey::new(7), Nanos::ZERO).unwrap();
    let (before, mut spans, requested) = (resident(), 0, allocations::asked());
    while buffer.memory() < limits.bytes - limits.bytes / 20 {
        let (trace, first) = (u128::from(spans / per_trace + 1).to_be_bytes(), spans.is_multiple_of(per_trace));
        let own = (spans + 1).to_be_bytes();
        let encoded = if first { &mut root } else { &mut child };
        encoded[2..18].copy_from_slice(&trace);
        encoded[20..28].copy_from_slice(&own);
        let index = SpanIndex {
            id: SpanId::new(own).unwrap(),
            parent: if first { None } else { SpanId::new([1; 8]) },
            kind: SpanKind::Server,
            service: ServiceId(100),
            operation: OperationId(1_000),
            origin: OriginId(1_000),
            start: UnixNanos(START),
            end: UnixNanos(END),
            error: false,
        };
        let trace = TraceId::new(trace).unwrap();
        let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
        let span = Span { trace, index, sender, entry: first, trigger, randomness, threshold, encoded };
        assert!(matches!(buffer.offer(&span, Nanos::ZERO), OfferOutcome::Buffered(_)));
        spans += 1;
    }
    let requested = allocations::asked() - requested;
    let grown = resident() - before;
    // It is stored and not only counted.
    assert_eq!(buffer.account().waiting.bytes, spans * length as u64);
    (buffer.in_use() as f64 / spans as f64, requested, grown as f64 / spans as f64)
}

#[test]
fn a_waiting_span_takes_no_more_than_1_3_times_its_bytes_and_64() {
    for length in [63, 278, 1_000] {
        for per_trace in [1, 8, 100] {
            let (counted, requested, resident) = taken(length, per_trace);

            let bound = 1.3 * length as f64 + 64.0;
            let what =
                format!("{per_trace} spans of {length} bytes a trace: {counted:.1}, {resident:.1} by the process");
            assert!(counted <= bound, "{what}, {bound:.1} were allowed");
            assert_eq!(requested, 0, "what waits lies where the buffer counts it");
            // Huge pages are whole ones: one more for each of blocks, traces and buckets, in 64 MiB.
            assert!(resident <= bound * 1.2, "{what}, {bound:.1} were allowed");
            assert!(resident >= counted * 0.8, "{what}: it says more than it has");
        }
    }
}

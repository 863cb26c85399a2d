//! The ring buffer of finished spans, and its announcement to the agent.

use std::hash::{BuildHasher as _, RandomState};
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use region::OwnedRegion;
use region::ring::{RingWriter, size_for};
use wire::layout::VERSION;
use wire::registration::ServiceMessage;
use wire::span_record::{Head, Notes, Tag};

use crate::problem::shortened;
use crate::spans::context::{SpanId, TraceId};

/// The odd number next to 2^64 divided by the golden ratio: steps of it visit every number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The writer's end of the ring of finished spans.
#[derive(Debug)]
pub(crate) struct SpanRing {
    writer: RingWriter,
    /// Seeds of trace and span ids. A forked child has the same seeds but draws other numbers from the ring.
    seeds: [u64; 3],
}

impl SpanRing {
    /// Creates a ring of `spans` records, at most 16,384; or says why that failed.
    pub(crate) fn create(service: &str, spans: u32) -> Result<Arc<Self>, String> {
        let size = size_for(spans.min(16_384)).map_err(|error| error.to_string())?;
        let name = format!("uview-spans:{}", shortened(service, 128).replace('\0', ""));
        let writer = RingWriter::create(&name, size).map_err(|error| format!("{error}: {}", error.cause))?;
        // The keys of std's hash tables are the only random numbers that std offers.
        let seeds = [1, 2, 3].map(|n: u64| RandomState::new().hash_one(n));
        Ok(Arc::new(Self { writer, seeds }))
    }

    /// Writes a finished span.
    pub(crate) fn push(&self, head: &Head, notes: &Notes) {
        // If the writer had to give up, the reader counts the record as lost.
        let _written = self.writer.push_with(|words| notes.span(head, words));
    }

    /// Writes a request to keep `trace`.
    pub(crate) fn keep(&self, trace: TraceId, reason: &str) {
        let mut notes = Notes::default();
        notes.text(Tag::Name, "", reason);
        let _written = self.writer.push_with(|words| notes.keep(trace.0, words));
    }

    /// Counts a span that was not recorded because too many are open.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "the layer's"))]
    pub(crate) fn count_dropped(&self) {
        self.writer.count_dropped();
    }

    /// Reserves numbers of ids, unique in this process and its forked children. Returns the first of `count`.
    pub(crate) fn reserve_ids(&self, count: u64) -> u64 {
        self.writer.reserve_ids(count)
    }

    /// The id of the trace that begins with the span of this number.
    pub(crate) fn trace_id(&self, number: u64) -> TraceId {
        let [_, high, low] = self.seeds.map(|seed| drawn(seed, number));
        let trace = (u128::from(high) << 64) | u128::from(low);
        TraceId(NonZeroU128::new(trace).unwrap_or(NonZeroU128::MAX))
    }

    /// The id of the span of this number.
    pub(crate) fn span_id(&self, number: u64) -> SpanId {
        SpanId(NonZeroU64::new(drawn(self.seeds[0], number)).unwrap_or(NonZeroU64::MAX))
    }
}

/// The random number of this number from `seed`.
const fn drawn(seed: u64, number: u64) -> u64 {
    mixed(seed.wrapping_add(number.wrapping_mul(STEP)))
}

/// The last step of SplitMix64 (Steele, Lea, Flood 2014): a bijection, so that different numbers stay different.
const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The ring, if it exists, and whether it is announced to the agent.
#[derive(Debug, Default)]
pub(crate) struct RingState {
    ring: Option<Arc<SpanRing>>,
    /// Whether the ring is announced on the open connection; `None` without one.
    announced: Option<bool>,
    /// The next agent reads from this ticket on; earlier records were for the previous agent.
    first_ticket: u64,
}

impl RingState {
    pub(crate) fn add(&mut self, ring: &Arc<SpanRing>) {
        self.ring = Some(Arc::clone(ring));
    }

    /// A connection was established.
    pub(crate) const fn opened(&mut self) {
        self.announced = Some(false);
    }

    /// The connection was lost. Records from now on are for the next agent.
    pub(crate) fn closed(&mut self) {
        if let (Some(true), Some(ring)) = (self.announced, &self.ring) {
            self.first_ticket = ring.writer.written();
        }
        self.announced = None;
    }

    pub(crate) fn beat(&self) {
        if let Some(ring) = &self.ring {
            ring.writer.region().beat();
        }
    }

    pub(crate) const fn is_synced(&self) -> bool {
        self.ring.is_none() || matches!(self.announced, Some(true))
    }

    /// The announcement of the ring, once per connection.
    pub(crate) fn next_message(&mut self) -> Option<(ServiceMessage, Option<Arc<OwnedRegion>>)> {
        let (Some(ring), Some(announced @ false)) = (&self.ring, &mut self.announced) else { return None };
        *announced = true;
        let (region, first_ticket) = (ring.writer.region(), self.first_ticket);
        let message = ServiceMessage::AddSpanRing { size: region.size(), layout_version: VERSION, first_ticket };
        Some((message, Some(Arc::clone(region))))
    }
}

#[cfg(test)]
#[cfg(not(miri))] // Needs memfd, which Miri does not have.
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_agent_is_told_once_and_the_next_one_from_where_the_last_one_was_lost() {
        let ring = SpanRing::create("payment", 8).unwrap();
        let mut rings = RingState::default();
        assert!(rings.is_synced());
        rings.add(&ring);
        let first = |rings: &mut RingState| match rings.next_message() {
            Some((ServiceMessage::AddSpanRing { first_ticket, .. }, Some(_))) => Some(first_ticket),
            _ => None,
        };
        assert_eq!(first(&mut rings), None, "there is no connection");

        let keep = || ring.keep(TraceId::from_bytes([1; 16]).unwrap(), "why");
        keep();
        rings.opened();
        assert!(!rings.is_synced());
        assert_eq!(first(&mut rings), Some(0));
        assert_eq!(first(&mut rings), None);
        assert!(rings.is_synced());
        keep();
        rings.closed();
        keep();
        rings.opened();
        assert_eq!(first(&mut rings), Some(2));
    }

    #[test]
    fn ids_differ() {
        let ring = SpanRing::create("payment", 8).unwrap();
        let ids = |ring: &SpanRing| {
            let number = ring.reserve_ids(1);
            (ring.trace_id(number), ring.span_id(number))
        };
        let all: HashSet<_> = (0..10_000).map(|_| ids(&ring)).collect();
        let other = SpanRing::create("payment", 8).unwrap();

        assert_eq!(all.iter().map(|(_, span)| *span).collect::<HashSet<_>>().len(), 10_000);
        assert_eq!(all.iter().map(|(trace, _)| *trace).collect::<HashSet<_>>().len(), 10_000);
        assert!(!all.contains(&ids(&other)));
    }
}

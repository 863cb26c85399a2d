//! The ring of one replica.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use hooks::tracing::TraceId;
use otlp::Edge;
use region::ring::{LostRecords, RingReader};
use region::{AcceptedRegion, FreedMemory, MapError, ReadMapping};
use wire::id::Owner;
use wire::name::{InstanceName, ServiceName};
use wire::span_record::{Record, Subject};

use super::encode::SpanRequest;
use crate::edge_counts::EdgeCounts;

/// Spans per request, about 300 KiB.
const SPANS_PER_REQUEST: usize = 1_024;

/// One replica's ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Arc<AcceptedRegion>,
    reader: RingReader,
    records: u64,
    /// Whose share of the endpoint its spans are of.
    owner: Owner,
    request: SpanRequest,
    /// The service's latest count of unrecorded spans.
    unrecorded: u64,
}

impl Ring {
    /// The ring in `memory`, whose records are read from `first_ticket` on.
    ///
    /// # Errors
    ///
    /// [`MapError`] if it cannot be mapped.
    pub(super) fn new(
        (service, instance, owner): (&ServiceName, &InstanceName, Owner),
        memory: Arc<AcceptedRegion>,
        first_ticket: u64,
    ) -> Result<Self, MapError> {
        let reader = RingReader::new(ReadMapping::map(memory.as_fd(), memory.size())?, first_ticket);
        let request = SpanRequest::new(service.as_str(), instance.as_str());
        Ok(Self { memory, records: reader.records().max(1), reader, owner, request, unrecorded: 0 })
    }

    /// Reads it no more. Returns how many of its records were not finished.
    pub(super) fn give_up(&mut self) -> u64 {
        self.reader.give_up()
    }

    /// Reads what was written since the last read. Returns its share of the ring.
    ///
    /// # Errors
    ///
    /// [`FreedMemory`], and nothing is read: each load from a page that is free would allocate it, in the memory cgroup
    /// of this agent. What is freed while it reads is noticed at the next read.
    pub(super) fn read_new(&mut self, edge: &Edge, counts: &EdgeCounts) -> Result<f64, FreedMemory> {
        let Self { memory, reader, owner, request, .. } = self;
        memory.freed().map_or(Ok(()), Err)?;
        let mut triggers = Vec::new();
        let polled = reader.poll(|words| match Record::decode(words) {
            Ok(record) => match record.subject {
                Subject::Span(head) => {
                    request.add(&head, &record);
                    if request.spans() == SPANS_PER_REQUEST {
                        send(request, *owner, edge, counts);
                    }
                }
                Subject::Keep(trace) => triggers.push((trace, record.name().to_owned())),
            },
            Err(error) => {
                counts.malformed_ring_records.one_more();
                tracing::debug!(%error, "malformed record in a span ring");
            }
        });
        send(request, *owner, edge, counts);
        // After the spans, so that those of the trace are kept now, and charged to the budget.
        for (trace, why) in triggers {
            let granted = TraceId::new(trace.get().to_be_bytes()).is_some_and(|trace| edge.trigger(trace, &why));
            counts.triggered_traces.one_more();
            counts.refused_triggers.add(u64::from(!granted));
        }
        let LostRecords { overwritten, unfinished } = polled.lost;
        counts.overwritten_ring_records.add(overwritten);
        counts.unfinished_ring_records.add(unfinished);
        let unrecorded = self.reader.dropped();
        counts.unrecorded_ring_spans.add(unrecorded.saturating_sub(self.unrecorded));
        self.unrecorded = unrecorded;
        Ok(polled.read.saturating_add(overwritten) as f64 / self.records as f64)
    }
}

fn send(request: &mut SpanRequest, owner: Owner, edge: &Edge, counts: &EdgeCounts) {
    let spans = request.spans() as u64;
    if spans == 0 {
        return;
    }
    counts.ring_spans.add(spans);
    if let Err(error) = edge.ingest_spans(request.take(), owner) {
        counts.refused_ring_spans.add(spans);
        tracing::debug!(%error, spans, "spans of a ring refused");
    }
}

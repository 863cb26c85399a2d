//! Span rings: finished spans of services that link the client library and no exporter. The agent reads them from a
//! ring in shared memory per replica, and passes them to the OTLP endpoint.
//!
//! The replica's identity was checked at registration, so its spans get its own name, whatever they say. The ring's
//! contents are untrusted: each record is copied, decoded within bounds and encoded again, so that nothing malformed is
//! forwarded.

mod encode;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use hooks::tracing::TraceId;
use otlp::Edge;
use region::ring::{LostRecords, RingReader};
use region::{AcceptedRegion, FreedMemory, ReadMapping};
use tokio::sync::mpsc;
use wire::name::{InstanceName, ServiceName};
use wire::span_record::{Record, Subject};

use crate::control_plane::ConnectionId;
use crate::edge_counts::EdgeCounts;
use crate::node::Node;
use encode::SpanRequest;

/// Pause between reads while a ring fills quickly.
const MIN_PAUSE: Duration = Duration::from_millis(5);
/// Pause between reads while little comes; delays the decision about a span by as much.
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// Spans per request, about 300 KiB.
const SPANS_PER_REQUEST: usize = 1_024;

/// Memory of one ring's reader: names, pending records, and what it keeps of its buffer between two requests.
pub(crate) const READER_BYTES: usize = encode::KEPT_BYTES + (8 << 10);

/// A request to the reader of span rings.
#[derive(Debug)]
enum RingRequest {
    Read(ConnectionId, Box<Ring>),
    End(ConnectionId),
}

/// Sends requests to the reader.
#[derive(Clone, Debug)]
pub struct RequestSender(mpsc::UnboundedSender<RingRequest>);

/// Pending requests: at most two per connection of a service.
#[derive(Debug)]
pub struct Inbox(mpsc::UnboundedReceiver<RingRequest>);

/// A channel for requests.
#[must_use]
pub fn channel() -> (RequestSender, Inbox) {
    let (left, waiting) = mpsc::unbounded_channel();
    (RequestSender(left), Inbox(waiting))
}

impl RequestSender {
    /// The replica's connection ended: its ring is read once more. The ring's memory outlives the replica.
    pub(crate) fn end(&self, connection: ConnectionId) {
        // Without a reader there is nothing to end.
        _ = self.0.send(RingRequest::End(connection));
    }
}

/// Starts reading the ring of a replica. The error says why not, for the operator of the service.
pub(crate) fn begin(
    requests: Option<&RequestSender>,
    connection: ConnectionId,
    (service, instance): (&ServiceName, &InstanceName),
    ring: Arc<AcceptedRegion>,
    first_ticket: u64,
) -> Result<(), String> {
    let requests =
        requests.ok_or("spans cannot be forwarded: otlp.upstream is not set in the host agent's configuration")?;
    let memory = ReadMapping::map(ring.as_fd(), ring.size()).map_err(|error| error.to_string())?;
    let reader = RingReader::new(memory, first_ticket);
    let request = SpanRequest::new(service.as_str(), instance.as_str());
    let ring = Ring { memory: ring, records: reader.records().max(1), reader, request, unrecorded: 0 };
    requests.0.send(RingRequest::Read(connection, Box::new(ring))).map_err(|_| "the agent is shutting down".to_owned())
}

/// One replica's ring.
#[derive(Debug)]
struct Ring {
    memory: Arc<AcceptedRegion>,
    reader: RingReader,
    records: u64,
    request: SpanRequest,
    /// The service's latest count of unrecorded spans.
    unrecorded: u64,
}

/// Reads rings until the channel closes, on shutdown; then once more.
pub(crate) async fn run(edge: Arc<Edge>, node: Arc<Node>, Inbox(mut requests): Inbox) {
    let mut rings = BTreeMap::new();
    let mut pause = MAX_PAUSE;
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(RingRequest::Read(connection, ring)) => _ = rings.insert(connection, ring),
                Some(RingRequest::End(connection)) => {
                    if let Some(mut ring) = rings.remove(&connection) {
                        _ = ring.read_new(&edge, &node.counts);
                        node.counts.unfinished_ring_records.add(ring.reader.give_up());
                    }
                }
                None => break,
            },
            () = tokio::time::sleep(pause), if !rings.is_empty() => {
                let (mut fullest, mut given_up) = (0.0_f64, Vec::new());
                for (&connection, ring) in &mut rings {
                    match ring.read_new(&edge, &node.counts) {
                        Ok(share) => fullest = fullest.max(share),
                        Err(freed) => given_up.push((connection, freed)),
                    }
                    // A ring that is always full must not occupy the thread.
                    tokio::task::yield_now().await;
                }
                for (connection, freed) in given_up {
                    give_up(&node, connection, rings.remove(&connection), freed);
                }
                pause = next_pause(pause, fullest);
            }
        }
    }
    for ring in rings.values_mut() {
        _ = ring.read_new(&edge, &node.counts);
    }
}

/// Reads a ring no more, unmaps it, and says so. Its service could make this agent pay for its memory.
fn give_up(node: &Node, connection: ConnectionId, ring: Option<Box<Ring>>, freed: FreedMemory) {
    if let Some(mut ring) = ring {
        node.counts.unfinished_ring_records.add(ring.reader.give_up());
    }
    node.counts.freed_span_rings.one_more();
    tracing::warn!(connection = connection.0, %freed, "span ring not read any more");
    node.plane(|plane, _| plane.ring_given_up(connection, &freed));
}

/// The next pause. `fullest` is the share by which the fullest ring grew since the last read; the target is an eighth.
fn next_pause(pause: Duration, fullest: f64) -> Duration {
    if fullest > 0.125 { (pause / 2).max(MIN_PAUSE) } else { (pause * 2).min(MAX_PAUSE) }
}

impl Ring {
    /// Reads what was written since the last read. Returns its share of the ring.
    ///
    /// # Errors
    ///
    /// [`FreedMemory`], and nothing is read: each load from a page that is free would allocate it, in the memory cgroup
    /// of this agent. What is freed while it reads is noticed at the next read.
    fn read_new(&mut self, edge: &Edge, counts: &EdgeCounts) -> Result<f64, FreedMemory> {
        let Self { memory, reader, request, .. } = self;
        memory.freed().map_or(Ok(()), Err)?;
        let mut triggers = Vec::new();
        let polled = reader.poll(|words| match Record::decode(words) {
            Ok(record) => match record.subject {
                Subject::Span(head) => {
                    request.add(&head, &record);
                    if request.spans() == SPANS_PER_REQUEST {
                        send(request, edge, counts);
                    }
                }
                Subject::Keep(trace) => triggers.push((trace, record.name().to_owned())),
            },
            Err(error) => {
                counts.malformed_ring_records.one_more();
                tracing::debug!(%error, "malformed record in a span ring");
            }
        });
        send(request, edge, counts);
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

fn send(request: &mut SpanRequest, edge: &Edge, counts: &EdgeCounts) {
    let spans = request.spans() as u64;
    if spans == 0 {
        return;
    }
    counts.ring_spans.add(spans);
    if let Err(error) = edge.ingest_spans(request.take()) {
        counts.refused_ring_spans.add(spans);
        tracing::debug!(%error, spans, "spans of a ring refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_fills_quickly_is_looked_at_more_often() {
        let mut pause = MAX_PAUSE;
        for _ in 0..10 {
            pause = next_pause(pause, 0.5);
        }
        assert_eq!(pause, MIN_PAUSE);
        for _ in 0..10 {
            pause = next_pause(pause, 0.01);
        }
        assert_eq!(pause, MAX_PAUSE);
    }
}

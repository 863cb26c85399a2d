//! Finished spans of services that link the client and nothing else: read from a ring of shared memory of each replica, and given to the OTLP
//! endpoint as if they had come to it.
//!
//! Who a replica is was checked when it registered, so that its spans carry its own name whatever they say. What lies in a ring is taken for
//! bytes: a record is copied, decoded within bounds, and encoded anew, so that nothing malformed can go upstream.

mod encode;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use hooks::tracing::TraceId;
use otlp::Edge;
use region::ring::{Lost, RingReader};
use region::{AcceptedRegion, ReadMapping};
use tokio::sync::mpsc;
use wire::name::{InstanceName, ServiceName};
use wire::span_record::{About, Record};

use crate::control_plane::ConnectionId;
use crate::edge_counts::EdgeCounts;
use crate::node::Node;
use encode::Request;

/// Between two looks at rings of which one fills quickly.
const SHORTEST: Duration = Duration::from_millis(5);
/// Between two looks while little comes: what a span waits before its trace can be kept.
const LONGEST: Duration = Duration::from_millis(50);
/// Spans of one request: some 300 KiB.
const SPANS_AT_ONCE: usize = 1_024;

/// What whoever reads rings is told.
#[derive(Debug)]
enum Order {
    Read(ConnectionId, Box<Ring>),
    End(ConnectionId),
}

/// Where orders are left.
#[derive(Clone, Debug)]
pub struct Orders(mpsc::UnboundedSender<Order>);

/// Where orders wait: at most two for each connection of a service.
#[derive(Debug)]
pub struct Inbox(mpsc::UnboundedReceiver<Order>);

/// Orders, and their inbox.
#[must_use]
pub fn orders() -> (Orders, Inbox) {
    let (left, waiting) = mpsc::unbounded_channel();
    (Orders(left), Inbox(waiting))
}

impl Orders {
    /// The replica of this connection is gone: what it has written is read, and then no more. Its memory outlives it.
    pub(crate) fn end(&self, connection: ConnectionId) {
        // Without a reader there is nothing to end.
        _ = self.0.send(Order::End(connection));
    }
}

/// Reads `ring` from now on, of a replica of this service and name. Else why not, for whoever runs the service.
pub(crate) fn begin(
    orders: Option<&Orders>,
    connection: ConnectionId,
    (service, instance): (&ServiceName, &InstanceName),
    ring: &AcceptedRegion,
    first_ticket: u64,
) -> Result<(), String> {
    let orders = orders.ok_or("the agent has no otlp.upstream, so that spans would go nowhere")?;
    let memory = ReadMapping::map(ring.as_fd(), ring.size()).map_err(|error| error.to_string())?;
    let reader = RingReader::new(memory, first_ticket);
    let request = Request::new(service.as_str(), instance.as_str());
    let ring = Ring { records: reader.records().max(1), reader, request, unmade: 0 };
    orders.0.send(Order::Read(connection, Box::new(ring))).map_err(|_| "the agent is about to end".to_owned())
}

/// One replica's ring.
#[derive(Debug)]
struct Ring {
    reader: RingReader,
    records: u64,
    request: Request,
    /// As its service said last.
    unmade: u64,
}

/// Reads rings until orders end, which they do when the agent does: then once more.
pub(crate) async fn run(edge: Arc<Edge>, node: Arc<Node>, Inbox(mut orders): Inbox) {
    let mut rings = BTreeMap::new();
    let mut pause = LONGEST;
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Read(connection, ring)) => _ = rings.insert(connection, ring),
                Some(Order::End(connection)) => {
                    if let Some(mut ring) = rings.remove(&connection) {
                        ring.look(&edge, &node.counts);
                        node.counts.unfinished_ring_records.more(ring.reader.give_up());
                    }
                }
                None => break,
            },
            () = tokio::time::sleep(pause), if !rings.is_empty() => {
                let mut fullest = 0.0_f64;
                for ring in rings.values_mut() {
                    fullest = fullest.max(ring.look(&edge, &node.counts));
                    // A ring that is always full must not keep others from the thread.
                    tokio::task::yield_now().await;
                }
                pause = next_pause(pause, fullest);
            }
        }
    }
    for ring in rings.values_mut() {
        ring.look(&edge, &node.counts);
    }
}

/// The pause after a look that found the fullest ring filled by so much since the one before: an eighth is aimed at.
fn next_pause(pause: Duration, fullest: f64) -> Duration {
    if fullest > 0.125 { (pause / 2).max(SHORTEST) } else { (pause * 2).min(LONGEST) }
}

impl Ring {
    /// Takes what was written since the last look. Which share of the ring that was.
    fn look(&mut self, edge: &Edge, counts: &EdgeCounts) -> f64 {
        let Self { reader, request, .. } = self;
        let mut asked = Vec::new();
        let polled = reader.poll(|words| match Record::decode(words) {
            Ok(record) => match record.about {
                About::Span(head) => {
                    request.add(&head, &record);
                    if request.spans() == SPANS_AT_ONCE {
                        send(request, edge, counts);
                    }
                }
                About::Keep(trace) => asked.push((trace, record.name().to_owned())),
            },
            Err(error) => {
                counts.malformed_ring_records.one_more();
                tracing::debug!(%error, "a record of a span ring");
            }
        });
        send(request, edge, counts);
        // After the spans: what of the trace came with the wish is kept now, and charged.
        for (trace, why) in asked {
            let granted = TraceId::new(trace.get().to_be_bytes()).is_some_and(|trace| edge.ask(trace, &why));
            counts.asked_traces.one_more();
            counts.refused_asks.more(u64::from(!granted));
        }
        let Lost { overwritten, unfinished } = polled.lost;
        counts.overwritten_ring_records.more(overwritten);
        counts.unfinished_ring_records.more(unfinished);
        let unmade = self.reader.unmade();
        counts.unmade_ring_spans.more(unmade.saturating_sub(self.unmade));
        self.unmade = unmade;
        polled.read.saturating_add(overwritten) as f64 / self.records as f64
    }
}

fn send(request: &mut Request, edge: &Edge, counts: &EdgeCounts) {
    let spans = request.spans() as u64;
    if spans == 0 {
        return;
    }
    counts.ring_spans.more(spans);
    if let Err(error) = edge.spans(request.take()) {
        counts.refused_ring_spans.more(spans);
        tracing::debug!(%error, spans, "spans of a ring");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_fills_quickly_is_looked_at_more_often() {
        let mut pause = LONGEST;
        for _ in 0..10 {
            pause = next_pause(pause, 0.5);
        }
        assert_eq!(pause, SHORTEST);
        for _ in 0..10 {
            pause = next_pause(pause, 0.01);
        }
        assert_eq!(pause, LONGEST);
    }
}

//! Span rings: finished spans of services that link the client library and no exporter. The agent reads them from a
//! ring in shared memory per replica, and passes them to the OTLP endpoint.
//!
//! The replica's identity was checked at registration, so its spans get its own name, whatever they say. The ring's
//! contents are untrusted: each record is copied, decoded within bounds and encoded again, so that nothing malformed is
//! forwarded.

mod encode;
mod requests;
mod ring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use otlp::Edge;
use region::FreedMemory;

use self::requests::RingRequest;
pub(crate) use self::requests::read_ring;
pub use self::requests::{Inbox, RequestSender, channel};
use self::ring::Ring;
use crate::control_plane::ConnectionId;
use crate::node::Node;

/// Pause between reads while a ring fills quickly.
const MIN_PAUSE: Duration = Duration::from_millis(5);
/// Pause between reads while little comes; delays the decision about a span by as much.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// Memory of one ring's reader: names, pending records, and what it keeps of its buffer between two requests.
pub(crate) const READER_BYTES: usize = encode::KEPT_BYTES + (8 << 10);

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
                        node.counts.unfinished_ring_records.add(ring.give_up());
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
        node.counts.unfinished_ring_records.add(ring.give_up());
    }
    node.counts.freed_span_rings.one_more();
    tracing::warn!(connection = connection.0, %freed, "span ring not read any more");
    node.plane(|plane, _| plane.ring_given_up(connection, &freed));
}

/// The next pause. `fullest` is the share by which the fullest ring grew since the last read; the target is an eighth.
fn next_pause(pause: Duration, fullest: f64) -> Duration {
    if fullest > 0.125 { (pause / 2).max(MIN_PAUSE) } else { (pause * 2).min(MAX_PAUSE) }
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

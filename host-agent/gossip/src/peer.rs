//! Calls one peer, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hooks::coherence::{GossipMessage, MAX_MESSAGE_BYTES};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::transport::{Channel, Endpoint};
use wire::proto::gossip::gossip_client::GossipClient;

use crate::exchange::Counts;
use crate::local_node::LocalNode;

/// How often the task checks whether a message is due.
const TICK: Duration = Duration::from_millis(100);
/// Deadline of a call. The next call repeats what was lost.
const REPLY_WITHIN: Duration = Duration::from_secs(1);
/// Longest back-off after failed calls, in ticks.
const MAX_BACKOFF_TICKS: u32 = 20;
/// Deadline of the last message on shutdown.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);

/// Whether a peer is still called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Called at every tick.
    Active,
    /// This node shuts down.
    Leaving,
    /// The address left the cluster.
    Removed,
}

/// Calls the peer at `address` until `stop` changes. Returns at once if the peer is this node itself.
pub(crate) async fn call<L: LocalNode>(
    endpoint: Endpoint,
    address: SocketAddr,
    local: Arc<L>,
    counts: Arc<Counts>,
    mut stop: watch::Receiver<PeerState>,
) {
    let client = GossipClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let mut peer = Peer { client, local, counts, name: None, last: None, failures: 0, backoff: 0 };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while *stop.borrow() == PeerState::Active {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|until| *until != PeerState::Active) => break,
        }
        if peer.turn(address).await == Identity::ThisNode {
            return;
        }
    }
    let gone = *stop.borrow() == PeerState::Removed;
    match &peer.name {
        Some(name) if gone => peer.local.forget_peer(name),
        // A node that shuts down announces it, so that no peer waits for its acknowledgements.
        _ => _ = timeout(LEAVE_WITHIN, peer.exchange()).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    Other,
    ThisNode,
}

struct Peer<L> {
    client: GossipClient<Channel>,
    local: Arc<L>,
    counts: Arc<Counts>,
    /// The peer's name, known from its first reply.
    name: Option<Arc<str>>,
    last: Option<wire::time::Nanos>,
    failures: u32,
    backoff: u32,
}

impl<L: LocalNode> Peer<L> {
    async fn turn(&mut self, address: SocketAddr) -> Identity {
        if self.backoff > 0 {
            self.backoff -= 1;
            return Identity::Other;
        }
        if !self.local.is_due(self.name.as_deref(), self.last) {
            return Identity::Other;
        }
        match self.exchange().await {
            Ok(identity) => {
                if self.failures > 0 {
                    tracing::info!(%address, node = self.name.as_deref(), "peer replies again");
                }
                (self.failures, self.backoff) = (0, 0);
                identity
            }
            Err(why) => {
                self.counts.failed.add(1);
                if self.failures == 0 {
                    tracing::warn!(%address, node = self.name.as_deref(), why, "peer does not reply; retrying");
                }
                self.failures = self.failures.saturating_add(1);
                self.backoff =
                    1_u32.checked_shl(self.failures.min(5)).unwrap_or(MAX_BACKOFF_TICKS).min(MAX_BACKOFF_TICKS);
                Identity::Other
            }
        }
    }

    async fn exchange(&mut self) -> Result<Identity, String> {
        let Some(message) = self.local.message(self.name.as_deref()) else { return Ok(Identity::Other) };
        self.last = Some(self.local.time());
        self.counts.sent.add(1);
        let reply = timeout(REPLY_WITHIN, self.client.exchange(message.encode())).await;
        let reply = reply.map_err(|_| "no reply within 1 s".to_owned())?;
        let reply = reply.map_err(|status| status.message().to_owned())?.into_inner();
        let reply = GossipMessage::decode(&reply).map_err(|error| error.to_string())?;
        if reply.run == message.run {
            return Ok(Identity::ThisNode);
        }
        self.name = Some(Arc::clone(&reply.run.node));
        self.local.receive(reply).map_err(|error| error.to_string())?;
        Ok(Identity::Other)
    }
}

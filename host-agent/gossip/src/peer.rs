//! Calls one peer, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Access;
use agent_runtime::connect::Connector;
use agent_runtime::reload::Reloadable;
use agent_runtime::ticks::ticks;
use hooks::coherence::MAX_MESSAGE_BYTES;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use wire::backoff::Backoff;
use wire::proto::gossip::gossip_client::GossipClient;
use wire::time::Nanos;

use crate::calls::{Calls, Responder};
use crate::connected_peer::take;
use crate::counts::Counts;
use crate::local_node::LocalNode;

/// How often the task checks whether a message is due.
const TICK: Duration = Duration::from_millis(100);
/// Deadline of a call. The next call repeats what was lost.
const REPLY_WITHIN: Duration = Duration::from_secs(1);
/// Back-off after failed calls. Each peer has its own, so that no jitter is needed.
const BACKOFF: Backoff = Backoff::new(Nanos::from_millis(200), Nanos::from_secs(2));
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

/// What all calls share.
pub(crate) struct Shared<L> {
    pub(crate) local: Arc<L>,
    pub(crate) access: Reloadable<Access>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) calls: Arc<Calls>,
}

impl<L> Clone for Shared<L> {
    fn clone(&self) -> Self {
        let Self { local, access, counts, calls } = self;
        let (local, counts, calls) = (Arc::clone(local), Arc::clone(counts), Arc::clone(calls));
        Self { local, access: access.clone(), counts, calls }
    }
}

/// Calls the peer at `address` until `stop` changes. Returns at once if the peer is this node itself.
pub(crate) async fn call<L: LocalNode>(
    (endpoint, connector): (Endpoint, Connector),
    address: SocketAddr,
    shared: Shared<L>,
    mut stop: watch::Receiver<PeerState>,
) {
    let channel = endpoint.connect_with_connector_lazy(connector.clone());
    let client = GossipClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let mut peer =
        Peer { client, connector, shared, name: None, last: None, backoff: BACKOFF, not_before: Nanos::ZERO };
    let mut ticks = ticks(TICK);
    while *stop.borrow() == PeerState::Active {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|until| *until != PeerState::Active) => break,
        }
        if peer.turn(address).await == Answer::ThisNode {
            return;
        }
    }
    let gone = *stop.borrow() == PeerState::Removed;
    match &peer.name {
        Some(name) if gone => peer.shared.local.forget_peer(name),
        // A node that shuts down announces it, so that no peer waits for its acknowledgements.
        _ => _ = timeout(LEAVE_WITHIN, peer.exchange()).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Other,
    ThisNode,
}

struct Peer<L> {
    client: GossipClient<Channel>,
    /// Knows who answered: the channel has one connection at a time, and waits for each reply.
    connector: Connector,
    shared: Shared<L>,
    /// The peer's name, known from its first reply.
    name: Option<Arc<str>>,
    last: Option<Nanos>,
    backoff: Backoff,
    /// End of the pause after a failed call.
    not_before: Nanos,
}

impl<L: LocalNode> Peer<L> {
    async fn turn(&mut self, address: SocketAddr) -> Answer {
        if self.shared.local.time() < self.not_before {
            return Answer::Other;
        }
        if !self.shared.local.is_due(self.name.as_deref(), self.last) {
            return Answer::Other;
        }
        let before = self.name.clone();
        match self.exchange().await {
            Ok(answer) => {
                if self.backoff.failures() > 0 || before != self.name || answer == Answer::ThisNode {
                    let who = match answer {
                        Answer::ThisNode => Responder::ThisNode,
                        Answer::Other => self.name.clone().map_or(Responder::Nobody, Responder::Node),
                    };
                    self.shared.calls.replied(address, who);
                }
                if self.backoff.failures() > 0 {
                    tracing::info!(%address, node = self.name.as_deref(), "peer replies again");
                }
                self.backoff.reset();
                answer
            }
            Err(why) => {
                self.shared.counts.failed.add(1);
                self.shared.calls.failed(address, &why);
                if self.backoff.failures() == 0 {
                    tracing::warn!(%address, node = self.name.as_deref(), why, "peer does not reply; retrying");
                }
                self.not_before = self.shared.local.time().plus(self.backoff.pause(0.0));
                Answer::Other
            }
        }
    }

    async fn exchange(&mut self) -> Result<Answer, String> {
        let Some(message) = self.shared.local.message(self.name.as_deref()) else { return Ok(Answer::Other) };
        self.last = Some(self.shared.local.time());
        self.shared.counts.sent.add(1);
        let reply = timeout(REPLY_WITHIN, self.client.exchange(message.encode())).await;
        let reply = reply.map_err(|_| "no reply within 1 s".to_owned())?;
        let reply = reply.map_err(|status| status.message().to_owned())?.into_inner();
        let identity = self.connector.answered().ok_or("no connection")?;
        let Shared { local, access, .. } = &self.shared;
        let run = take(&reply, &identity, &access.load(), &**local).map_err(|error| error.to_string())?;
        if run == message.run {
            return Ok(Answer::ThisNode);
        }
        self.name = Some(run.node);
        Ok(Answer::Other)
    }
}

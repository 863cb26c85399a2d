//! This endpoint among the other nodes: who joins, what is received, what is sent. The crate `gossip` carries the
//! messages.

use std::sync::MutexGuard;

use hooks::coherence::{GossipMessage, Member, ReceiveError, Refusal, Run, RunId, Speaker};
use wire::time::{Nanos, Timestamp};

use super::Edge;
use crate::tail::{CoherenceSettings, TailSampler};
use crate::tenants::DEFAULT;

impl Edge {
    /// Joins the other nodes as the node `name`, with the random `id` of this run: from now on they keep the same
    /// traces. Where spans pass through, only verdicts and paths are exchanged, if [`Settings::observed`] is set.
    ///
    /// [`Settings::observed`]: crate::Settings::observed
    pub fn join(&self, name: &str, id: RunId, settings: CoherenceSettings) {
        let (now, run) = (self.clock.timestamp(), Run { node: name.into(), id });
        if let Some(mut tail) = self.tail(DEFAULT) {
            tail.join(run, settings, now);
        } else if let Some(mut observer) = self.observer() {
            observer.join_as_observer(run, settings, now);
        }
    }

    /// What takes part in gossip: the default tenant's tail sampler, or the one that keeps nothing.
    fn gossiping(&self) -> Option<MutexGuard<'_, TailSampler>> {
        self.tail(DEFAULT).or_else(|| self.observer())
    }

    /// Calls `look` with the gossip member and the time; `None` if this node is alone.
    pub fn with_member<R>(&self, look: impl FnOnce(&Member, Timestamp) -> R) -> Option<R> {
        Some(look(self.gossiping()?.member()?, self.clock.timestamp()))
    }

    /// Receives a gossip message over a connection of `speaker`. It is carried out before this returns, and so before
    /// the reply.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`] if the message is not accepted.
    pub fn receive(&self, message: GossipMessage, speaker: Speaker<'_>) -> Result<(), ReceiveError> {
        let now = self.clock.timestamp();
        if let Some(mut tail) = self.tail(DEFAULT) {
            let received = tail.receive(message, speaker, now);
            self.queue_kept(DEFAULT, tail);
            return received;
        }
        self.observer().map_or(Ok(()), |mut observer| observer.receive(message, speaker, now))
    }

    /// A gossip message of `who` was refused before it could be received.
    pub fn refuse_message(&self, who: &str, why: Refusal) {
        let now = self.now();
        if let Some(member) = self.gossiping().as_mut().and_then(|tail| tail.member_mut()) {
            member.refuse(who, why, now);
        }
    }

    /// Gossip that was refused in the last ten minutes, in words.
    #[must_use]
    pub fn refused_gossip(&self) -> Vec<String> {
        let (tail, now) = (self.gossiping(), self.now());
        let member = tail.as_ref().and_then(|tail| tail.member());
        member.map(|member| member.refusals().lines(now).collect()).unwrap_or_default()
    }

    /// The gossip message for the node `peer`, or for a node of unknown name; `None` if this node is alone.
    #[must_use]
    pub fn message_for(&self, peer: Option<&str>) -> Option<GossipMessage> {
        let tail = self.gossiping()?;
        Some(tail.member()?.message(peer, self.now()))
    }

    /// Whether a message to `peer` is due, when the last one was sent at `last`.
    #[must_use]
    pub fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool {
        let now = self.now();
        self.gossiping().is_some_and(|tail| tail.member().is_some_and(|member| member.is_due(peer, last, now)))
    }

    /// The node `peer` is no longer in the cluster.
    pub fn forget_peer(&self, peer: &str) {
        if let Some(member) = self.gossiping().as_mut().and_then(|tail| tail.member_mut()) {
            member.forget(peer);
        }
    }

    /// This node is about to end: no node needs to wait for it.
    pub fn leave(&self) {
        if let Some(member) = self.gossiping().as_mut().and_then(|tail| tail.member_mut()) {
            member.leave();
        }
    }
}

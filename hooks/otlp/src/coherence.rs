//! This endpoint's end of coherence: what it sends to other nodes about the traces that it keeps, and what it does when
//! they send something. [`hooks::coherence`] has the protocol; the crate `gossip` carries its messages.

use std::sync::{Arc, MutexGuard};

use hooks::coherence::{
    Effect, Export, GossipMessage, Member, MemberSettings, PathJoin, ReceiveError, Refusal, Run, RunId, ServiceVerdict,
    Speaker, TenantTraces,
};
use hooks::tracing::Verdict;
use wire::time::{Nanos, Timestamp};

use crate::edge::Edge;
use crate::tail::TailSampler;
use crate::tenants::DEFAULT;

/// Maximum number of traces for which only one half of the path is known.
const PENDING_PATHS: usize = 4_096;

/// How this node takes part in coherence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoherenceSettings {
    /// Time-outs and limits towards other nodes.
    pub member: MemberSettings,
    /// A node of this name ran before, and may have had spans of traces that are not finished.
    pub successor: bool,
}

/// The gossip member of this node, and its state.
#[derive(Debug)]
pub(crate) struct Coherence {
    member: Member,
    pieces: PathJoin,
    tenant: Arc<str>,
    /// It keeps no traces: verdicts and paths are exchanged, decisions of others are acknowledged and not carried out.
    observes: bool,
}

impl TailSampler {
    /// Joins the other nodes as `run`, which begins now: from now on they keep the same traces.
    pub fn join(&mut self, run: Run, settings: CoherenceSettings, now: Timestamp) {
        let CoherenceSettings { member, successor } = settings;
        self.keeper.join(successor.then_some(now.wall), now.monotonic.plus(member.remember));
        let (member, pieces) = (Member::new(run, member), PathJoin::new(PENDING_PATHS));
        self.coherence = Some(Coherence { member, pieces, tenant: "".into(), observes: false });
    }

    /// Like [`join`](Self::join), for a tail sampler that keeps nothing: it exchanges verdicts and paths with the other
    /// nodes, and carries out none of their decisions. What it evicts does not count: it has nothing that others keep.
    pub fn join_as_observer(&mut self, run: Run, settings: CoherenceSettings, now: Timestamp) {
        self.join(run, settings, now);
        if let Some(coherence) = &mut self.coherence {
            coherence.observes = true;
        }
    }

    /// Receives a gossip message over a connection of `speaker`, and carries it out.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]; then nothing was carried out.
    pub fn receive(
        &mut self,
        message: GossipMessage,
        speaker: Speaker<'_>,
        now: Timestamp,
    ) -> Result<(), ReceiveError> {
        if let Some(coherence) = &mut self.coherence {
            coherence.member.receive(message, speaker, now.monotonic, now.wall)?;
            self.carry_out(now);
        }
        Ok(())
    }

    /// The gossip member; `None` if this node is alone.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        self.coherence.as_ref().map(|coherence| &coherence.member)
    }

    /// The gossip member for changes; `None` if this node is alone.
    pub fn member_mut(&mut self) -> Option<&mut Member> {
        self.coherence.as_mut().map(|coherence| &mut coherence.member)
    }

    /// Announces what was decided and seen, and carries out what is due. Returns `false` if this node is alone.
    pub(crate) fn exchange(&mut self, now: Timestamp) -> bool {
        let Self { keeper, names, paths, coherence, .. } = self;
        let Some(Coherence { member, pieces, tenant, observes }) = coherence else { return false };
        member.set_eviction_level(keeper.buffer().level(now.monotonic).filter(|_| !*observes));
        TenantTraces { tenant, keeper, names, paths, pieces }.announce(member, now.monotonic, now.wall);
        member.tick(now.monotonic, now.wall);
        self.carry_out(now);
        true
    }

    /// Announces a verdict of an LMAP of this node.
    pub(crate) fn announce_verdict(&mut self, service: &str, verdict: &Verdict, now: Timestamp) {
        if let Some(coherence) = &mut self.coherence {
            let Verdict { from, at, weight, breakdown, reason, .. } = verdict.clone();
            let verdict = ServiceVerdict { service: service.into(), from, at, weight, breakdown, reason };
            coherence.member.verdict(verdict, now.monotonic, now.wall);
        }
    }

    fn carry_out(&mut self, now: Timestamp) {
        let Self { keeper, names, paths, origins, export_buffer, coherence, first_verdict, .. } = self;
        let Some(Coherence { member, pieces, tenant, observes }) = coherence else { return };
        for effect in member.effects() {
            let is_decision = matches!(effect, Effect::Keep(..) | Effect::Release(_) | Effect::Unacknowledged(..));
            if *observes && is_decision {
                continue;
            }
            if matches!(effect, Effect::Verdict(_)) {
                first_verdict.get_or_insert(now.monotonic);
            }
            let mut traces = TenantTraces { tenant, keeper, names, paths, pieces };
            // A tenant that only another node has, has no traces here.
            let is_other_tenant = matches!(&effect, Effect::Keep(decision, _) if decision.tenant != *tenant);
            if is_other_tenant {
                continue;
            }
            traces.carry_out(&effect, now.monotonic, now.wall, |export| match export {
                Export::Span(span) => export_buffer.add(&span, origins),
                Export::Mark { trace, reason, completeness, node } => {
                    export_buffer.mark(trace, reason, completeness, node, now.wall);
                }
            });
        }
    }
}

impl Edge {
    /// Joins the other nodes as the node `name`, with the random `id` of this run: from now on they keep the same
    /// traces. Where spans pass through, only verdicts and paths are exchanged, if [`Settings::observed`] is set.
    ///
    /// [`Settings::observed`]: crate::Settings::observed
    pub fn join(&self, name: &str, id: RunId, settings: CoherenceSettings) {
        let (now, run) = (self.timestamp(), Run { node: name.into(), id });
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
        Some(look(self.gossiping()?.member()?, self.timestamp()))
    }

    /// Receives a gossip message over a connection of `speaker`. It is carried out before this returns, and so before
    /// the reply.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`] if the message is not accepted.
    pub fn receive(&self, message: GossipMessage, speaker: Speaker<'_>) -> Result<(), ReceiveError> {
        let now = self.timestamp();
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

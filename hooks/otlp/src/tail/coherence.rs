//! A tail sampler's end of coherence: what it announces to other nodes about the traces that it keeps, and what it does
//! when they announce something. [`hooks::coherence`] has the protocol.

use std::sync::Arc;

use hooks::coherence::{
    Effect, Export, GossipMessage, Member, MemberSettings, PathJoin, ReceiveError, Run, ServiceVerdict, Speaker,
    TenantTraces,
};
use hooks::tracing::Verdict;
use wire::time::Timestamp;

use super::TailSampler;

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
pub(super) struct Coherence {
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
    pub(super) fn exchange(&mut self, now: Timestamp) -> bool {
        let Self { keeper, names, paths, coherence, .. } = self;
        let Some(Coherence { member, pieces, tenant, observes }) = coherence else { return false };
        member.set_eviction_level(keeper.buffer().level(now.monotonic).filter(|_| !*observes));
        TenantTraces { tenant, keeper, names, paths, pieces }.announce(member, now.monotonic, now.wall);
        member.tick(now.monotonic, now.wall);
        self.carry_out(now);
        true
    }

    /// Announces a verdict of an LMAP of this node.
    pub(super) fn announce_verdict(&mut self, service: &str, verdict: &Verdict, now: Timestamp) {
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
            if matches!(effect, Effect::Verdict(..)) {
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

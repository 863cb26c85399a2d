//! What this endpoint says to those of other nodes about the traces that it keeps, and what comes of what they say.

use std::sync::Arc;

use hooks::coherence::{Effect, HearError, Here, Member, MemberSettings, Output, Pieces, Run, Sent, Words};
use hooks::tracing::Verdict;
use wire::time::Nanos;

use crate::edge::Edge;
use crate::tail::{Moment, Tail};
use crate::tenants::DEFAULT;

/// Traces of which one half of the path is known.
const PIECES: usize = 4_096;

/// How this node is one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TogetherSettings {
    /// How it deals with the others.
    pub member: MemberSettings,
    /// A node of this name was here before and may have had spans of traces that still go on.
    pub successor: bool,
}

/// A member, and what it needs.
#[derive(Debug)]
pub(crate) struct Together {
    member: Member,
    pieces: Pieces,
    tenant: Arc<str>,
}

impl Tail {
    /// From now on this node keeps traces together with others, as the run `run`.
    pub fn join(&mut self, run: Run, settings: TogetherSettings, now: Moment) {
        let TogetherSettings { member, successor } = settings;
        self.keeper.join(successor.then_some(run.began), now.own.plus(member.remember));
        let (member, pieces) = (Member::new(run, member), Pieces::new(PIECES));
        self.together = Some(Together { member, pieces, tenant: "".into() });
    }

    /// Another node spoke: what it says is done.
    ///
    /// # Errors
    ///
    /// [`HearError`]; nothing was done then.
    pub fn hear(&mut self, words: Words, now: Moment) -> Result<(), HearError> {
        if let Some(together) = &mut self.together {
            together.member.hear(words, now.own, now.day)?;
            self.carry_out(now);
        }
        Ok(())
    }

    /// How this node stands with others; `None` if it is alone.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        self.together.as_ref().map(|together| &together.member)
    }

    /// Like [`member`](Self::member), to be told something.
    pub fn member_mut(&mut self) -> Option<&mut Member> {
        self.together.as_mut().map(|together| &mut together.member)
    }

    /// Says what was decided and seen, does what may be done by now. Returns whether there is anybody to say it to.
    pub(crate) fn tell_others(&mut self, now: Moment) -> bool {
        let Self { keeper, names, paths, together, .. } = self;
        let Some(Together { member, pieces, tenant }) = together else { return false };
        member.yields_below(keeper.buffer().level(now.own));
        Here { tenant, keeper, names, paths, pieces }.tell(member, now.own, now.day);
        member.tick(now.own, now.day);
        self.carry_out(now);
        true
    }

    /// Tells others of what an LMAP of this node found.
    pub(crate) fn tell_verdict(&mut self, service: &str, verdict: &Verdict, now: Moment) {
        if let Some(together) = &mut self.together {
            let Verdict { from, at, weight, parts, reason, .. } = verdict.clone();
            let output = Output { service: service.into(), from, at, weight, parts, reason };
            together.member.output(output, now.own, now.day);
        }
    }

    fn carry_out(&mut self, now: Moment) {
        let Self { keeper, names, paths, origins, outgoing, together, .. } = self;
        let Some(Together { member, pieces, tenant }) = together else { return };
        for effect in member.effects() {
            let mut here = Here { tenant, keeper, names, paths, pieces };
            // A tenant of another node that is none here has no traces here.
            let foreign = matches!(&effect, Effect::Keep(decision, _) if decision.tenant != *tenant);
            if foreign {
                continue;
            }
            here.carry_out(&effect, now.own, now.day, |sent| match sent {
                Sent::Span(given) => outgoing.add(&given, origins),
                Sent::Mark { trace, reason, part, node } => outgoing.mark(trace, reason, part, node, now.day),
            });
        }
    }
}

impl Edge {
    /// From now on this endpoint keeps traces together with those of other nodes, as the node `name`. Nothing where spans pass through.
    pub fn join(&self, name: &str, settings: TogetherSettings) {
        let now = self.moment();
        if let Some(mut tail) = self.tail(DEFAULT) {
            tail.join(Run { node: name.into(), began: now.day }, settings, now);
        }
    }

    /// Another node spoke: what it says is done, before anything is answered.
    ///
    /// # Errors
    ///
    /// [`HearError`], if it cannot be heard.
    pub fn hear(&self, words: Words) -> Result<(), HearError> {
        let Some(mut tail) = self.tail(DEFAULT) else { return Ok(()) };
        let heard = tail.hear(words, self.moment());
        self.send_kept(DEFAULT, tail);
        heard
    }

    /// What there is to say to the node `peer`, or to one whose name is not known; `None` if this node is alone.
    #[must_use]
    pub fn words(&self, peer: Option<&str>) -> Option<Words> {
        let tail = self.tail(DEFAULT)?;
        Some(tail.member()?.words(peer, self.now()))
    }

    /// Whether there is something to say to `peer`, to which this node spoke last at `last`.
    #[must_use]
    pub fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool {
        let now = self.now();
        self.tail(DEFAULT).is_some_and(|tail| tail.member().is_some_and(|member| member.is_due(peer, last, now)))
    }

    /// Time by the clock of this endpoint.
    #[must_use]
    pub fn time(&self) -> Nanos {
        self.now()
    }

    /// The node `peer` is no longer one of the cluster.
    pub fn forget_peer(&self, peer: &str) {
        if let Some(member) = self.tail(DEFAULT).as_mut().and_then(|tail| tail.member_mut()) {
            member.forget(peer);
        }
    }

    /// This node is about to end: nobody need wait for it.
    pub fn leave(&self) {
        if let Some(member) = self.tail(DEFAULT).as_mut().and_then(|tail| tail.member_mut()) {
            member.leave();
        }
    }
}

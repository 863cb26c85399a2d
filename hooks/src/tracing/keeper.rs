//! One tenant's traces on one node, from span to decision: the buffer, the triggers and the policies put together.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::time::UnixNanos;
use crate::tracing::buffer::TailBuffer;
use crate::tracing::decisions::Fate;
use crate::tracing::outcome::{Kept, Offered, Part};
use crate::tracing::policies::{Known, Policies};
use crate::tracing::reason::Reason;
use crate::tracing::span::{Span, SpanIndex, TraceId};
use crate::tracing::triggers::{Triggers, Verdict};

/// Paths are learnt from one trace in so many, the same ones on every node, so that what nodes learn of one trace can be put together.
const PATHS_FROM: u64 = 16;

/// A span that is to be sent on.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Its trace.
    pub trace: TraceId,
    /// What it says about itself.
    pub index: &'a SpanIndex,
    /// As it came.
    pub encoded: &'a [u8],
    /// Why. A root span carries it.
    pub reason: &'a Reason,
    /// How much of its trace this node has; a span that comes after the decision has [`Part::Whole`].
    pub part: Part,
}

/// What waits, what decides, and what was decided.
#[derive(Debug)]
pub struct Keeper {
    buffer: TailBuffer,
    triggers: Triggers,
    policies: Policies,
    /// A second is on that was not when waiting traces were last looked through.
    due: bool,
    decided: Vec<(TraceId, Arc<Reason>)>,
    passed: BTreeSet<(OperationId, ServiceId)>,
}

impl Keeper {
    /// Puts them together.
    #[must_use]
    pub const fn new(buffer: TailBuffer, triggers: Triggers, policies: Policies) -> Self {
        Self { buffer, triggers, policies, due: false, decided: Vec::new(), passed: BTreeSet::new() }
    }

    /// A span came at `now`. What is to be sent on goes to `sink`: the whole trace, if it is wanted now.
    pub fn span(&mut self, span: &Span<'_>, known: &Known<'_>, now: Nanos, mut sink: impl FnMut(Given<'_>)) {
        // Decided from its id alone, it need not wait, and cannot be lost for want of memory.
        if let Some(reason) = self.policies.floor(span) {
            self.buffer.pass(span.trace, reason, now);
        }
        match self.buffer.offer(span, now) {
            Offered::Waits(waiting) => {
                if let Some(reason) = self.policies.judge(span, &waiting, &mut self.triggers, known, now) {
                    self.release(span.trace, reason, now, sink);
                }
            }
            Offered::Follows(Fate::Kept(reason)) => {
                self.policies.follow(reason.policy(), span.encoded.len(), now);
                let (trace, index, encoded) = (span.trace, &span.index, span.encoded);
                sink(Given { trace, index, encoded, reason: &reason, part: Part::Whole });
            }
            Offered::Follows(Fate::Dropped { .. } | Fate::Evicted { .. }) | Offered::Lost(_) => {}
        }
    }

    /// An LMAP found its service out of the ordinary; `now` is the time of day. Waiting traces are looked through at the next
    /// [`tick`](Self::tick).
    pub fn verdict(&mut self, verdict: &Verdict, now: UnixNanos) {
        self.due |= self.triggers.take(verdict, now);
    }

    /// Ten times a second or so: keeps what waits and is wanted by now, then drops what waited long enough.
    pub fn tick(&mut self, known: &Known<'_>, now: Nanos, mut sink: impl FnMut(Given<'_>)) {
        if core::mem::take(&mut self.due) {
            let (policies, triggers) = (&mut self.policies, &mut self.triggers);
            let waiting = self.buffer.waiting();
            let wanted =
                waiting.filter_map(|waiting| Some((waiting.trace, policies.lmap(&waiting, triggers, known, now)?)));
            let wanted: Vec<_> = wanted.collect();
            for (trace, reason) in wanted {
                self.release(trace, reason, now, &mut sink);
            }
        }
        let (passed, buffer) = (&mut self.passed, &mut self.buffer);
        buffer.expire(now, |waiting, rank, spans| {
            if let Some(operation) = waiting.operation.filter(|_| rank.teaches()) {
                passed.extend(spans.map(|span| (operation, span.service)));
            }
        });
    }

    /// Another node decided to keep `trace`. Its bytes are charged to the tenant, and never refused: a trace is kept everywhere or nowhere.
    pub fn keep(&mut self, trace: TraceId, reason: &Arc<Reason>, now: Nanos, sink: impl FnMut(Given<'_>)) -> Kept {
        let kept = self.give(trace, reason, now, sink);
        if let Kept::Released { tally, .. } = kept {
            self.policies.charge(tally.bytes, now);
        }
        kept
    }

    /// Takes what this node decided to keep since the last call, to be announced to the others: at every [`tick`](Self::tick). Not the floor's
    /// traces, which every node finds by itself.
    pub fn decided(&mut self) -> Vec<(TraceId, Arc<Reason>)> {
        core::mem::take(&mut self.decided)
    }

    /// Takes which services were passed by which operations, as seen since the last call in a sixteenth of the traces.
    pub fn passed(&mut self) -> BTreeSet<(OperationId, ServiceId)> {
        core::mem::take(&mut self.passed)
    }

    /// What waits, and the books.
    #[must_use]
    pub const fn buffer(&self) -> &TailBuffer {
        &self.buffer
    }

    /// What was kept by whom.
    #[must_use]
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// So many bytes came that are no span, or one without a trace.
    pub fn malformed(&mut self, bytes: usize) {
        self.buffer.malformed(bytes);
    }

    /// Drops what is kept of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.triggers.forget(operation);
    }

    fn release(&mut self, trace: TraceId, reason: Arc<Reason>, now: Nanos, sink: impl FnMut(Given<'_>)) {
        // Judged and granted a moment ago: it waits.
        let _released = self.give(trace, &reason, now, sink);
        self.decided.push((trace, reason));
    }

    fn give(&mut self, trace: TraceId, reason: &Arc<Reason>, now: Nanos, mut sink: impl FnMut(Given<'_>)) -> Kept {
        let part = self.buffer.part(trace, now).unwrap_or(Part::Whole);
        let operation = self.buffer.get(trace).and_then(|waiting| waiting.operation);
        let teaches = operation.filter(|_| self.buffer.rank(trace).teaches());
        let passed = &mut self.passed;
        self.buffer.keep(trace, reason, now, |index, encoded| {
            passed.extend(teaches.map(|operation| (operation, index.service)));
            sink(Given { trace, index, encoded, reason, part });
        })
    }
}

impl crate::tracing::order::Rank {
    /// Whether paths are learnt from a trace of this rank.
    const fn teaches(self) -> bool {
        self.0.is_multiple_of(PATHS_FROM)
    }
}

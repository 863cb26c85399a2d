//! What the tail buffer reports: about a buffered trace, about a span that arrived, about a request to keep a trace.

use wire::time::{Nanos, UnixNanos};

use crate::id::OperationId;
use crate::tracing::account::{LossReason, Tally};
use crate::tracing::decisions::StickyDecision;
use crate::tracing::order::Rank;
use crate::tracing::span::TraceId;
use crate::tracing::traces::{Flag, Trace};

/// A buffered trace, as far as this node has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferedTrace {
    /// Id of the trace.
    pub trace: TraceId,
    /// Operation that was requested at the frontend; `None` while no entry span has arrived, or where another node has
    /// it.
    pub operation: Option<OperationId>,
    /// Earliest start of its spans.
    pub start: UnixNanos,
    /// Latest end of its spans.
    pub end: UnixNanos,
    /// When its first span arrived, by the monotonic clock.
    pub arrived: Nanos,
    /// Number of buffered spans.
    pub spans: u32,
    /// Encoded bytes of these spans, as received.
    pub bytes: u64,
    /// Number of spans that did not fit; 65,535 stands for any number above.
    pub lost: u32,
    /// Whether a span of it has status error.
    pub error: bool,
    /// Whether the span without a parent is here: then nothing of the trace began before `start`, on any node.
    pub rooted: bool,
    /// Its position in the order of eviction.
    pub rank: Rank,
}

impl BufferedTrace {
    /// Whether some of it happened from `from` to `to`, both included. Times of arrival do not matter.
    #[must_use]
    pub fn overlaps(&self, from: UnixNanos, to: UnixNanos) -> bool {
        self.start <= to && from <= self.end
    }

    pub(super) fn of(trace: &Trace, rank: Rank) -> Self {
        Self {
            trace: trace.id,
            operation: trace.operation(),
            start: trace.start,
            end: trace.end,
            arrived: trace.arrived,
            spans: trace.spans(),
            bytes: trace.encoded.into(),
            lost: trace.lost(),
            error: trace.is(Flag::Error),
            rooted: trace.is(Flag::Root),
            rank,
        }
    }

    pub(super) const fn tally(&self) -> Tally {
        Tally { spans: self.spans as u64, bytes: self.bytes }
    }
}

/// What became of a span that was offered to the buffer.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a span that follows a kept trace is to be sent on"]
pub enum OfferOutcome {
    /// It is buffered; its trace with this span.
    Buffered(BufferedTrace),
    /// Its trace is decided: export the span if the trace is kept; it is counted if not.
    Follows(StickyDecision),
    /// It is lost.
    Lost(LossReason),
}

/// How much of a trace a node has exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completeness {
    /// All spans that arrived here.
    Complete,
    /// Some spans are missing: the trace is to be marked as incomplete.
    Missing {
        /// Number of missing spans; 65,535 stands for any number above.
        spans: u32,
    },
    /// More spans may have arrived than are remembered: the trace is to be marked as incomplete.
    Unknown,
}

/// What became of a request to keep a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a trace that is not whole has to be marked"]
pub enum KeepOutcome {
    /// Its spans were exported; later ones follow.
    Released {
        /// Spans and bytes that were exported.
        tally: Tally,
        /// Whether that is all that arrived here.
        completeness: Completeness,
    },
    /// It was kept before, for another reason.
    Already,
    /// It was dropped or evicted before. Later spans follow that decision, so that no half of the trace appears.
    Gone(Completeness),
    /// No span of it has arrived; later ones are kept.
    Unseen(Completeness),
}

/// How far back a trigger reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookBack {
    /// Traces that arrived earlier are gone.
    pub reach: Nanos,
    /// Share of traces that are buffered, 0 to 1. The others were evicted, the same ones on every node that is as short
    /// of memory.
    pub share: f64,
}

//! What the tail buffer says: about a waiting trace, about a span that came, about a wish to keep a trace.

use wire::time::Nanos;

use crate::id::OperationId;
use crate::time::UnixNanos;
use crate::tracing::account::{Loss, Tally};
use crate::tracing::decisions::Fate;
use crate::tracing::order::Rank;
use crate::tracing::span::TraceId;
use crate::tracing::traces::{Flag, Trace};

/// A waiting trace, as far as this node has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub trace: TraceId,
    /// What was asked for at the frontend; `None` while no entry span has come, or where another node has it.
    pub operation: Option<OperationId>,
    /// The earliest start of its spans.
    pub start: UnixNanos,
    /// The latest end of its spans.
    pub end: UnixNanos,
    /// When its first span came, by one's own clock.
    pub arrived: Nanos,
    /// Spans that wait.
    pub spans: u32,
    /// Their encoded bytes.
    pub bytes: u64,
    /// Spans that did not fit.
    pub lost: u32,
    /// Whether a span of it is in error.
    pub error: bool,
    /// Whether the span without a parent is here: nothing of the trace began before `start`, wherever it is.
    pub rooted: bool,
    /// Its place in the order in which traces give way.
    pub rank: Rank,
}

impl Waiting {
    /// Whether something of it happened from `from` to `to`, both included. When its spans came does not matter.
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
            lost: trace.lost,
            error: trace.is(Flag::Error),
            rooted: trace.is(Flag::Root),
            rank,
        }
    }

    pub(super) const fn tally(&self) -> Tally {
        Tally { spans: self.spans as u64, bytes: self.bytes }
    }
}

/// What became of a span that was offered.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a span that follows a kept trace is to be sent on"]
pub enum Offered {
    /// It waits, and this is what its trace looks like with it.
    Waits(Waiting),
    /// Its trace is decided: to be sent on if it is kept, counted if not.
    Follows(Fate),
    /// There is no room for it.
    Lost(Loss),
}

/// How much of a trace a node has given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All that came here.
    Whole,
    /// So many spans are missing: the trace is to be marked as incomplete.
    Lacks {
        /// How many; 65,535 stands for any number above.
        spans: u32,
    },
    /// More may have come than is remembered: the trace is to be marked as incomplete.
    Unknown,
}

/// What came of a wish to keep a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a trace that is not whole has to be marked"]
pub enum Kept {
    /// Its spans were given out; those to come follow.
    Released {
        /// How much was given out.
        tally: Tally,
        /// Whether it is all that came here.
        part: Part,
    },
    /// It was kept before, for the reason of then.
    Already,
    /// It was dropped or evicted before; spans to come follow that decision, so that no half of it appears.
    Gone(Part),
    /// Nothing of it has come; spans to come are kept.
    Unseen(Part),
}

/// How far back a trigger reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookBack {
    /// Traces that came earlier are gone.
    pub reach: Nanos,
    /// The share of traces that are there; the others gave way, the same ones on every node that is as short of memory.
    pub share: f64,
}

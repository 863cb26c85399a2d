//! A span that has begun and not ended.

use core::num::{NonZeroU64, NonZeroU128};

use wire::span_record::{Head, Notes, Status, Tag};
use wire::time::UnixNanos;

use crate::spans::context::{SpanId, TraceContext, TraceId};
use crate::spans::ring::SpanRing;
use crate::spans::span::SpanKind;

/// A span that has begun.
#[derive(Clone, Debug)]
pub(crate) struct BegunSpan {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<SpanId>,
    pub(crate) kind: u8,
    pub(crate) status: Status,
    pub(crate) start: UnixNanos,
    pub(crate) notes: Notes,
}

impl BegunSpan {
    /// A span named `name` with an id from `ring`: in the trace of `parent`, or in a new one. It begins when `start` is
    /// set.
    pub(crate) fn new(ring: &SpanRing, name: &str, parent: Option<&TraceContext>) -> Self {
        let mut span = Self::blank();
        span.begin(ring, ring.reserve_ids(1), parent);
        span.notes.text(Tag::Name, "", name);
        span
    }

    /// Nobody's, for one to begin in it.
    pub(crate) fn blank() -> Self {
        let (trace, span) = (TraceId(NonZeroU128::MAX), SpanId(NonZeroU64::MAX));
        Self {
            context: TraceContext::new(trace, span),
            parent: None,
            kind: SpanKind::Internal as u8,
            status: Status::Unset,
            start: UnixNanos::default(),
            notes: Notes::default(),
        }
    }

    /// A span with the ids of `number` from `ring` begins in place of the one that was here: in the trace of `parent`,
    /// or in a new one. It has no notes, and begins when `start` is set.
    pub(crate) fn begin(&mut self, ring: &SpanRing, number: u64, parent: Option<&TraceContext>) {
        self.context.span = ring.span_id(number);
        if let Some(parent) = parent {
            self.follow(parent);
        } else {
            self.context.trace = ring.trace_id(number);
            self.context.state.clear();
            self.parent = None;
        }
        (self.kind, self.status) = (SpanKind::Internal as u8, Status::Unset);
        self.notes.clear();
    }

    /// Continues the trace of `parent`, with the id that the span has.
    pub(crate) const fn follow(&mut self, parent: &TraceContext) {
        self.context = TraceContext { span: self.context.span, ..*parent };
        self.parent = Some(parent.span);
    }

    /// Sets its status to error. The first message stays.
    pub(crate) fn fail(&mut self, message: &str) {
        if self.status == Status::Error {
            return;
        }
        self.status = Status::Error;
        if !message.is_empty() {
            self.notes.text(Tag::Message, "", message);
        }
    }

    /// Writes its record to `ring`, as of a span that ends at `end`.
    pub(crate) fn end(&mut self, ring: &SpanRing, end: UnixNanos) {
        let state = &self.context.state;
        if !state.is_empty() {
            self.notes.text(Tag::State, "", state.as_str());
        }
        ring.push(&self.head(end), &self.notes);
    }

    /// The fixed part of its record, if it ends at `end`.
    fn head(&self, end: UnixNanos) -> Head {
        Head {
            trace: self.context.trace.0,
            span: self.context.span.0,
            parent: self.parent.map(|parent| parent.0),
            kind: self.kind,
            status: self.status,
            start: self.start,
            end,
        }
    }
}

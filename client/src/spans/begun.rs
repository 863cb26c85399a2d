//! A span that has begun and not ended.

use wire::span_record::{Head, Notes, Status, Tag};
use wire::time::UnixNanos;

use crate::clock;
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
    pub(crate) fn new(ring: &SpanRing, name: &str, parent: Option<TraceContext>) -> Self {
        let (trace, span): (TraceId, SpanId) = ring.ids();
        let mut notes = Notes::default();
        notes.text(Tag::Name, "", name);
        Self {
            context: parent.map_or_else(|| TraceContext::new(trace, span), |parent| TraceContext { span, ..parent }),
            parent: parent.map(|parent| parent.span),
            kind: SpanKind::Internal as u8,
            status: Status::Unset,
            start: UnixNanos::default(),
            notes,
        }
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

    /// Writes its record to `ring`, as of a span that ends now.
    pub(crate) fn end(&mut self, ring: &SpanRing) {
        let end = clock::unix_now();
        let state = self.context.state;
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

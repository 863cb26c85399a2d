//! Spans that a program begins and ends itself.

use std::sync::Arc;

use wire::span_record::Tag;

use crate::spans::begun::BegunSpan;
use crate::spans::context::TraceContext;
use crate::spans::current::{self, EnteredSpan};
use crate::spans::ring::SpanRing;
use crate::spans::span_event::SpanEvent;
use crate::{clock, environment};

/// What a span is for, numbered as in OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SpanKind {
    /// Work within the service.
    #[default]
    Internal = 1,
    /// A request that the service answers.
    Server = 2,
    /// A request that the service makes.
    Client = 3,
    /// A message that the service sends.
    Producer = 4,
    /// A message that the service receives.
    Consumer = 5,
}

impl SpanKind {
    /// The kind called `internal`, `server`, `client`, `producer` or `consumer`, in letters of either case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let names = [
            ("internal", Self::Internal),
            ("server", Self::Server),
            ("client", Self::Client),
            ("producer", Self::Producer),
            ("consumer", Self::Consumer),
        ];
        names.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| kind)
    }
}

/// A span that a program begins with [`Client::span`](crate::Client::span), and ends by dropping it: then its record
/// goes into the client's ring. For programs that do not use the crate `tracing`; those do better with
/// `Client::span_layer`.
///
/// ```
/// let uview = uview::connect(uview::Service::new("payment"));
/// let mut span = uview.span("POST /pay");
/// span.set_kind(uview::SpanKind::Server);
/// span.set_integer("amount", 12);
/// span.event("retried").set_integer("attempt", 2).set_text("why", "timeout");
/// let mut inner = uview.span("GET /stock");
/// if let Some(context) = span.context() {
///     inner.set_parent(&context);
///     context.inject(|name, value| println!("{name}: {value}"));
/// }
/// inner.fail("no stock");
/// drop(inner);
/// let within = span.enter();
/// drop(uview.span("render")); // within `span`, too
/// drop(within);
/// ```
///
/// Beginning takes a clock's reading and two atomic operations; the client's first span creates the ring. Ending takes
/// a clock's reading and a copy of at most 512 bytes. Both ask the system for the number of the process. Neither
/// allocates nor waits (`cargo bench -p uview --features tracing --bench spans`). Nothing is written where a forked
/// child drops a span that its parent began: the parent writes it.
#[derive(Debug)]
#[must_use = "a span that is dropped at once has no duration"]
pub struct Span {
    recorded: Option<RecordedSpan>,
    /// Without a record: the context to pass on as it came.
    passed_on: Option<TraceContext>,
}

#[derive(Debug)]
struct RecordedSpan {
    ring: Arc<SpanRing>,
    process: u32,
    span: BegunSpan,
}

impl Span {
    /// A span that begins now, within the one in which this thread works, or of a new trace; without a ring it is not
    /// recorded.
    pub(crate) fn begin(ring: Option<Arc<SpanRing>>, name: &str) -> Self {
        let above = current::context();
        let recorded = ring.map(|ring| {
            let mut span = BegunSpan::new(&ring, name, above.as_ref());
            span.start = clock::unix_now();
            RecordedSpan { ring, process: environment::process(), span }
        });
        let passed_on = if recorded.is_some() { None } else { above };
        Self { recorded, passed_on }
    }

    /// Whether it will be recorded. If not, there is no shared memory for it: [`Client::status`](crate::Client::status)
    /// says why.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// What the span is for; [`SpanKind::Internal`] if nobody says.
    pub const fn set_kind(&mut self, kind: SpanKind) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.kind = kind as u8;
        }
    }

    /// Continues the trace of `parent`: a caller's ([`TraceContext::extract`]), or that of another span
    /// ([`Self::context`]). Call it before the context is passed on.
    pub const fn set_parent(&mut self, parent: &TraceContext) {
        match &mut self.recorded {
            Some(recorded) => recorded.span.follow(parent),
            None => self.passed_on = Some(*parent),
        }
    }

    /// Adds an attribute. Of `value`, up to 160 bytes are kept; what does not fit is left out and counted in the span.
    pub fn set_text(&mut self, key: &str, value: &str) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.notes.text(Tag::Text, key, value);
        }
    }

    /// Adds an attribute with an integer.
    pub fn set_integer(&mut self, key: &str, value: i64) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.notes.integer(key, value);
        }
    }

    /// Adds an attribute with a floating-point number.
    pub fn set_float(&mut self, key: &str, value: f64) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.notes.float(key, value);
        }
    }

    /// Adds an attribute with a truth value.
    pub fn set_bool(&mut self, key: &str, value: bool) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.notes.bool(key, value);
        }
    }

    /// Says that something happened now, and gives that event, to which attributes may be added. Of `name`, up to 160
    /// bytes are kept. Events and their attributes take at most half of the record, and the last ones give way to the
    /// status message and the tracestate; what does not fit is left out and counted in the span, an event with all that
    /// would have been added to it.
    pub fn event(&mut self, name: &str) -> SpanEvent<'_> {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.notes.event(name, clock::unix_now());
        }
        self.last_event()
    }

    /// The event that happened last, to which attributes may be added as to what [`Self::event`] gives.
    pub fn last_event(&mut self) -> SpanEvent<'_> {
        SpanEvent::new(self.recorded.as_mut().and_then(|recorded| recorded.span.notes.last_event()))
    }

    /// Sets its status to error. The first message stays.
    pub fn fail(&mut self, message: &str) {
        if let Some(recorded) = &mut self.recorded {
            recorded.span.fail(message);
        }
    }

    /// Asks the agent to keep the span's trace, as [`Client::trigger`](crate::Client::trigger) does.
    pub fn keep(&self, reason: &str) {
        if let Some(recorded) = &self.recorded {
            recorded.ring.keep(recorded.span.context.trace, reason);
        }
    }

    /// Ends the span without a record, as if it had never begun.
    pub fn discard(mut self) {
        self.recorded = None;
    }

    /// This thread works in the span until what is returned is dropped: spans that it begins meanwhile are within this
    /// one, unless they are given another parent ([`Self::set_parent`]). Its context at this moment counts, also when
    /// it ends before it is left. Allocates when a thread enters more spans at a time than before.
    pub fn enter(&self) -> EnteredSpan {
        EnteredSpan::new(self.context())
    }

    /// The context of the span, to be sent in the headers of requests made within it. Where it is not recorded: that of
    /// its parent, so that the trace goes on, and `None` without one.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.recorded.as_ref().map(|recorded| recorded.span.context).or(self.passed_on)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(RecordedSpan { ring, process, span }) = &mut self.recorded
            && *process == environment::process()
        {
            span.end(ring, clock::unix_now());
        }
    }
}

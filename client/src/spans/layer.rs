//! The `tracing_subscriber` layer that records spans.

use std::num::NonZeroU64;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use wire::span_record::{Notes, Status, Tag};

use crate::spans::begun::BegunSpan;
use crate::spans::context::TraceContext;
use crate::spans::fields::{EventFields, Fields, FixedFields};
use crate::spans::open::OpenSpans;
use crate::spans::reserved_ids::ReservedIds;
use crate::spans::ring::SpanRing;
use crate::{clock, fork};

/// The attribute with the module that created the span.
const TARGET: &str = "target";

/// Writes every finished span into the client's ring ([`Client::span_layer`](crate::Client::span_layer)).
///
/// Cost per span on the service's thread: two clock reads, two atomic operations, two locks (a third to find the span
/// around it), and a copy of what is recorded, at most 512 bytes, twice if it has fields: a few hundred nanoseconds at
/// most (`cargo bench -p uview --features tracing --bench spans`). A thread's spans are under locks of their own, but
/// for chance, and for spans that end on another thread. No system call. Memory is allocated only when more spans are
/// open than ever before. An event within a span takes a clock read, two locks, and what printing its message and its
/// fields takes; one lock if its span is not recorded, or has no room for it.
#[derive(Debug)]
pub struct SpanLayer {
    recorder: Option<Recorder>,
    /// The most verbose events that are recorded.
    events: LevelFilter,
}

#[derive(Debug)]
struct Recorder {
    ring: Arc<SpanRing>,
    open: OpenSpans<SpanPlace>,
}

/// Where spans are recorded, one after the other.
#[derive(Debug)]
struct SpanPlace {
    ids: ReservedIds,
    span: BegunSpan,
}

impl SpanLayer {
    /// A layer that writes to `ring`; without a ring it does nothing.
    pub(crate) fn new(ring: Option<Arc<SpanRing>>) -> Self {
        let recorder = ring.map(|ring| Recorder { ring, open: OpenSpans::new() });
        Self { recorder, events: LevelFilter::INFO }
    }

    /// Records events within spans up to this level, [`LevelFilter::INFO`] if nobody says: their message as the name,
    /// or where they are in the program, and their level and fields as attributes. An event of level ERROR sets the
    /// status of its span, whatever is said here. After one that does not fit, further ones of the span are not tried,
    /// but for the first of level ERROR.
    #[must_use]
    pub fn with_events(mut self, most_verbose: LevelFilter) -> Self {
        self.events = most_verbose;
        self
    }

    /// The context of the span `id`, if it is open and recorded.
    fn context(&self, id: &Id) -> Option<TraceContext> {
        self.recorder.as_ref()?.with(id.into_non_zero_u64(), |span| span.context)
    }

    /// The nearest enclosing span that this layer records: a filter may hide some spans from the layer.
    fn parent<S>(&self, attributes: &Attributes<'_>, context: &Context<'_, S>) -> Option<TraceContext>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if attributes.is_root() {
            return None;
        }
        let current = context.current_span();
        let nearest = attributes.parent().or_else(|| current.id())?;
        self.context(nearest).or_else(|| context.span_scope(nearest)?.find_map(|span| self.context(&span.id())))
    }
}

impl Recorder {
    fn begin(&self, id: NonZeroU64, parent: Option<&TraceContext>, attributes: &Attributes<'_>) {
        // Beside the lock, as in `on_record`. Without fields nothing is printed, and the notes are written in place.
        let described = (!attributes.is_empty()).then(|| {
            let mut notes = Notes::default();
            let fixed = describe(&mut notes, attributes);
            (notes, fixed)
        });
        let (start, generation) = (clock::unix_now(), fork::generation());
        let begin = |place: &mut Option<SpanPlace>| {
            let SpanPlace { ids, span } =
                place.get_or_insert_with(|| SpanPlace { ids: ReservedIds::default(), span: BegunSpan::blank() });
            span.begin(&self.ring, ids.draw(&self.ring, generation), parent);
            if let Some((notes, fixed)) = &described {
                span.notes.copy_from(notes);
                fixed.set(span);
            } else {
                _ = describe(&mut span.notes, attributes);
            }
            span.start = start;
        };
        if !self.open.begin(id, begin) {
            self.ring.count_dropped();
        }
    }

    /// Applies `change` to the span `id`, with a lock held; `None` if it is not open.
    fn with<R>(&self, id: NonZeroU64, change: impl FnOnce(&mut BegunSpan) -> R) -> Option<R> {
        self.open.with(id, |place| change(&mut place.span))
    }

    fn end(&self, id: NonZeroU64) {
        let end = clock::unix_now();
        self.open.end(id, |place| place.span.end(&self.ring, end));
    }
}

/// Notes of a span that begins: its name, its fields, and where it is in the program. Returns what fields say besides.
fn describe(notes: &mut Notes, attributes: &Attributes<'_>) -> FixedFields {
    let metadata = attributes.metadata();
    notes.text(Tag::Name, "", metadata.name());
    let mut fields = Fields::new(notes);
    attributes.record(&mut fields);
    let fixed = fields.fixed;
    notes.text(Tag::Text, TARGET, metadata.target());
    fixed
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(recorder) = &self.recorder {
            let parent = self.parent(attributes, &context);
            recorder.begin(id.into_non_zero_u64(), parent.as_ref(), attributes);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        let Some(recorder) = &self.recorder else { return };
        // Before the lock: whatever a value's `Debug` does, such as recording an event, it does not meet the lock.
        let mut notes = Notes::default();
        let mut fields = Fields::new(&mut notes);
        values.record(&mut fields);
        let fixed = fields.fixed;
        let change = |open: &mut BegunSpan| {
            fixed.set(open);
            open.notes.add_all(&notes);
        };
        _ = recorder.with(id.into_non_zero_u64(), change);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let (is_error, is_recorded) = (*metadata.level() == Level::ERROR, *metadata.level() <= self.events);
        if !(is_error || is_recorded) {
            return;
        }
        let Some(recorder) = &self.recorder else { return };
        let Some(id) = context.event_span(event).map(|span| span.id().into_non_zero_u64()) else { return };
        if recorder.with(id, |open| is_wanted(open, is_error, is_recorded)) != Some(true) {
            return;
        }
        // Beside the lock: whatever a value's `Debug` does, it does not meet the lock.
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let at = clock::unix_now();
        let change = |open: &mut BegunSpan| {
            if is_error {
                open.fail(fields.message());
            }
            if is_recorded {
                fields.add_to(&mut open.notes, metadata, at);
            }
        };
        _ = recorder.with(id, change);
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        if let Some(recorder) = &self.recorder {
            recorder.end(id.into_non_zero_u64());
        }
    }
}

/// Whether an event is worth what it takes to print it: it makes `open` fail, or there may be room for it. One that is
/// left out is counted.
fn is_wanted(open: &mut BegunSpan, is_error: bool, is_recorded: bool) -> bool {
    let fails = is_error && open.status != Status::Error;
    let is_kept = is_recorded && !open.notes.is_full();
    if is_recorded && !fails && !is_kept {
        open.notes.leave_out_event();
    }
    fails || is_kept
}

/// Continues the caller's trace: makes `parent`, from [`TraceContext::extract`], the parent of `span`.
///
/// Call it before spans are created within `span`: existing ones keep their trace. Returns `false` if `span` is not
/// open, or not recorded by a [`SpanLayer`].
pub fn set_parent(span: &Span, parent: &TraceContext) -> bool {
    with_open(span, |open| open.follow(parent)).is_some()
}

/// The context of `span`, to be sent in the headers of requests made within it. `None` if `span` is not open, or not
/// recorded by a [`SpanLayer`].
#[must_use]
pub fn context(span: &Span) -> Option<TraceContext> {
    with_open(span, |open| open.context)
}

fn with_open<R>(span: &Span, change: impl FnOnce(&mut BegunSpan) -> R) -> Option<R> {
    let found = span.with_subscriber(|(id, dispatch)| {
        let recorder = dispatch.downcast_ref::<SpanLayer>()?.recorder.as_ref()?;
        recorder.with(id.into_non_zero_u64(), change)
    });
    found.flatten()
}

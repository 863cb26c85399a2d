//! Converts fields of a `tracing` span and of its events to notes of its record.

use core::fmt;

use tracing::Metadata;
use tracing::field::{Field, Visit};
use wire::span_record::{Note, Notes, ShortText, Status, Tag};
use wire::time::UnixNanos;

use crate::spans::begun::BegunSpan;
use crate::spans::span::SpanKind;

/// The attribute of an event with its level.
const LEVEL: &str = "level";
/// Fields that `tracing-log` adds to each record of the facade `log`: where in the program it is. They would fill the
/// room of events.
const ORIGIN: [&str; 4] = ["log.target", "log.module_path", "log.file", "log.line"];

/// Adds the visited fields of a span to notes; `fixed` is what they say besides.
pub(crate) struct Fields<'a> {
    notes: &'a mut Notes,
    pub(crate) fixed: FixedFields,
}

/// What fields say of the fixed part of a span's record.
#[derive(Clone, Copy, Default)]
pub(crate) struct FixedFields {
    kind: Option<SpanKind>,
    status: Option<Status>,
}

impl<'a> Fields<'a> {
    /// Those of a span, before the first one is visited.
    pub(crate) fn new(notes: &'a mut Notes) -> Self {
        Self { notes, fixed: FixedFields::default() }
    }
}

impl FixedFields {
    /// Changes what they speak of.
    pub(crate) fn set(self, span: &mut BegunSpan) {
        span.kind = self.kind.map_or(span.kind, |kind| kind as u8);
        span.status = self.status.unwrap_or(span.status);
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "otel.name" => self.notes.text(Tag::Name, "", value),
            "otel.kind" => self.fixed.kind = Some(SpanKind::named(value).unwrap_or_default()),
            "otel.status_code" => self.fixed.status = Some(status(value)),
            "otel.status_message" | "otel.status_description" => self.notes.text(Tag::Message, "", value),
            // `uview.trigger` is recorded as an attribute: the agent looks for it.
            name => self.notes.text(Tag::Text, name, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.notes.integer(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        unsigned(self.notes, field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.notes.float(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.notes.bool(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, ShortText::of(format_args!("{value:?}")).as_str());
    }
}

/// What an event says: its message, and its other fields.
#[derive(Default)]
pub(crate) struct EventFields {
    message: ShortText,
    others: Notes,
    /// One of the others is called as the attribute with the level.
    has_level: bool,
}

impl EventFields {
    /// The message; empty if there is none.
    pub(crate) fn message(&self) -> &str {
        self.message.as_str()
    }

    /// Adds the event to those of a span, as of `at`. Without a message its name says where in the program it is. A
    /// field of its own that is called `level` is in place of its level.
    pub(crate) fn add_to(&self, notes: &mut Notes, metadata: &Metadata<'_>, at: UnixNanos) {
        notes.event(if self.message.is_empty() { metadata.name() } else { self.message() }, at);
        if let Some(mut event) = notes.last_event() {
            if !self.has_level {
                event.add(Note::Text(LEVEL, metadata.level().as_str()));
            }
            event.add_all(&self.others);
        }
    }

    /// Where the value of `field` goes; `None` if it is left out.
    fn attributes(&mut self, field: &Field) -> Option<&mut Notes> {
        self.has_level |= field.name() == LEVEL;
        (!ORIGIN.contains(&field.name())).then_some(&mut self.others)
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = ShortText::of(format_args!("{value}"));
        } else if let Some(attributes) = self.attributes(field) {
            attributes.text(Tag::Text, field.name(), value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Some(attributes) = self.attributes(field) {
            attributes.integer(field.name(), value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if let Some(attributes) = self.attributes(field) {
            unsigned(attributes, field.name(), value);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if let Some(attributes) = self.attributes(field) {
            attributes.float(field.name(), value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if let Some(attributes) = self.attributes(field) {
            attributes.bool(field.name(), value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, ShortText::of(format_args!("{value:?}")).as_str());
    }
}

/// Adds an attribute with an unsigned integer. Those of OTLP are signed 64-bit: a larger one is a text.
fn unsigned(notes: &mut Notes, key: &str, value: u64) {
    match i64::try_from(value) {
        Ok(value) => notes.integer(key, value),
        Err(_) => notes.display(Tag::Text, key, format_args!("{value}")),
    }
}

fn status(name: &str) -> Status {
    if name.eq_ignore_ascii_case("error") {
        Status::Error
    } else if name.eq_ignore_ascii_case("ok") {
        Status::Ok
    } else {
        Status::Unset
    }
}

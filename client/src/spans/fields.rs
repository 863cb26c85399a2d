//! Converts fields of a `tracing` span to notes of its record.

use core::fmt;

use tracing::field::{Field, Visit};
use wire::span_record::{ShortText, Status, Tag};

use crate::spans::begun::BegunSpan;
use crate::spans::span::SpanKind;

/// Adds each visited field to a span.
pub(crate) struct Fields<'a>(pub(crate) &'a mut BegunSpan);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let open = &mut *self.0;
        match field.name() {
            "otel.name" => open.notes.text(Tag::Name, "", value),
            "otel.kind" => open.kind = SpanKind::named(value).unwrap_or_default() as u8,
            "otel.status_code" => open.status = status(value),
            "otel.status_message" | "otel.status_description" => open.notes.text(Tag::Message, "", value),
            // `uview.trigger` is recorded as an attribute: the agent looks for it.
            name => open.notes.text(Tag::Text, name, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.notes.integer(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.0.notes.integer(field.name(), value),
            // OTLP integers are signed 64-bit.
            Err(_) => self.0.notes.display(Tag::Text, field.name(), format_args!("{value}")),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.notes.float(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.notes.bool(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, ShortText::of(format_args!("{value:?}")).as_str());
    }
}

/// Takes the message of an ERROR event as the span's status message.
pub(crate) struct Failure<'a>(pub(crate) &'a mut BegunSpan);

impl Visit for Failure<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.notes.display(Tag::Message, "", format_args!("{value:?}"));
        }
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

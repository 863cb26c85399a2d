//! Converts fields of a `tracing` span to notes of its record.

use core::fmt;

use tracing::field::{Field, Visit};
use wire::span_record::{ShortText, Status, Tag};

use crate::spans::open::OpenSpan;

/// Adds each visited field to a span.
pub(crate) struct Fields<'a>(pub(crate) &'a mut OpenSpan);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let open = &mut *self.0;
        match field.name() {
            "otel.name" => open.notes.text(Tag::Name, "", value),
            "otel.kind" => open.kind = kind(value),
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
pub(crate) struct Failure<'a>(pub(crate) &'a mut OpenSpan);

impl Visit for Failure<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.notes.display(Tag::Message, "", format_args!("{value:?}"));
        }
    }
}

/// The OTLP number of a span kind; INTERNAL for an unknown name.
fn kind(name: &str) -> u8 {
    let names = ["server", "client", "producer", "consumer"];
    (2..).zip(names).find(|(_, known)| known.eq_ignore_ascii_case(name)).map_or(INTERNAL, |(number, _)| number)
}

/// The OTLP span kind of work within a service.
pub(crate) const INTERNAL: u8 = 1;

fn status(name: &str) -> Status {
    if name.eq_ignore_ascii_case("error") {
        Status::Error
    } else if name.eq_ignore_ascii_case("ok") {
        Status::Ok
    } else {
        Status::Unset
    }
}

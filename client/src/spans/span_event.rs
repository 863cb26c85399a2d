//! Events of spans that a program begins itself.

use wire::span_record::{EventNotes, Note};

/// An event of a span ([`Span::event`](crate::Span::event)), to which attributes are added. It takes them and does
/// nothing if the event was left out, or if the span is not recorded.
#[derive(Debug)]
pub struct SpanEvent<'span>(Option<EventNotes<'span>>);

impl<'span> SpanEvent<'span> {
    pub(crate) const fn new(notes: Option<EventNotes<'span>>) -> Self {
        Self(notes)
    }

    fn add(&mut self, attribute: Note<'_>) -> &mut Self {
        if let Some(notes) = &mut self.0 {
            notes.add(attribute);
        }
        self
    }

    /// Adds an attribute. Of `value`, up to 160 bytes are kept; what does not fit is left out and counted in the span.
    pub fn set_text(&mut self, key: &str, value: &str) -> &mut Self {
        self.add(Note::Text(key, value))
    }

    /// Adds an attribute with an integer.
    pub fn set_integer(&mut self, key: &str, value: i64) -> &mut Self {
        self.add(Note::Integer(key, value))
    }

    /// Adds an attribute with a floating-point number.
    pub fn set_float(&mut self, key: &str, value: f64) -> &mut Self {
        self.add(Note::Float(key, value))
    }

    /// Adds an attribute with a truth value.
    pub fn set_bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.add(Note::Bool(key, value))
    }
}

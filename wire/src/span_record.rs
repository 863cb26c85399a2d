//! Format of a finished span in a span ring: a record of fixed size, written without allocation. The writer is
//! untrusted: any words decode to a record or to an error.
//!
//! ```text
//! word 0   kind of record, kind of span, status, words of events (a byte each), bytes of notes (u16),
//!          notes and events left out (u16)
//!      1   trace id, first half        2   second half
//!      3   span id                     4   id of the parent, 0: none
//!      5   start, ns since 1970        6   end
//!      7   notes: tag (u8), bytes of key (u8), bytes of value (u16), key, value; one after the other
//!      then, from a whole word on, events: bytes of name (u8), ns since 1970 (u64), name; one after the other.
//!          The byte at the end of their last word, if it is no event's: words of their attributes
//!      then, from a whole word on, attributes of events: number of the event (u8), tag (u8), bytes of key (u8), bytes
//!          of value (u8), key, value; one after the other, up to the end or the tag 0
//! ```
//!
//! Ids are as in W3C Trace Context, the first byte on top. Numbers in notes are little endian. A record that requests a
//! trace to be kept has its trace id and one note with the reason. A reader that does not know events reads the rest;
//! so does one that does not know their attributes, since fewer bytes than an event's are passed over.

mod events;
mod short_text;

use core::fmt;
use core::num::{NonZeroU64, NonZeroU128};

pub use self::events::{Event, EventNotes};
pub use self::short_text::ShortText;
use crate::time::UnixNanos;

/// Words of a record.
pub const RECORD_WORDS: usize = 63;
/// Words before the notes.
const HEAD_WORDS: usize = 7;
/// Bytes for name, attributes and events together, with 4 for each note or attribute, and 9 for each event.
pub const NOTES_BYTES: usize = (RECORD_WORDS - HEAD_WORDS) * 8;
/// A longer text is cut, at a character, so that one attribute does not take all the space.
pub const TEXT_BYTES: usize = 160;
/// An attribute with a longer key is left out.
pub const KEY_BYTES: usize = 64;
/// Bytes for events and their attributes, so that they leave room for those of the span.
pub const EVENTS_BYTES: usize = NOTES_BYTES / 2;
/// Bytes of a note besides key and value.
const NOTE_HEAD: usize = 4;

/// Kind of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// Name of the span; in a request to keep a trace, the reason.
    Name = 0,
    /// An attribute with a text.
    Text = 1,
    /// An attribute with an i64.
    Integer = 2,
    /// An attribute with an f64.
    Float = 3,
    /// An attribute with 0 or 1.
    Bool = 4,
    /// The status message.
    Message = 5,
    /// The tracestate (W3C Trace Context).
    State = 6,
}

/// A note of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "as in Tag")]
pub enum Note<'a> {
    Name(&'a str),
    Text(&'a str, &'a str),
    Integer(&'a str, i64),
    Float(&'a str, f64),
    Bool(&'a str, bool),
    Message(&'a str),
    State(&'a str),
}

/// Status of a span, numbered as in OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The service has not set it.
    #[default]
    Unset = 0,
    /// Success, as the service stated.
    Ok = 1,
    /// The span ended in an error.
    Error = 2,
}

/// The fixed-size fields of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Id of its trace.
    pub trace: NonZeroU128,
    /// Id within the trace.
    pub span: NonZeroU64,
    /// Id of the parent.
    pub parent: Option<NonZeroU64>,
    /// SERVER, CLIENT and so on, numbered as in OTLP: 0 to 5.
    pub kind: u8,
    /// Status of the span.
    pub status: Status,
    /// When it began.
    pub start: UnixNanos,
    /// When it ended.
    pub end: UnixNanos,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A finished span, with its fixed-size fields.
    Span(Head),
    /// A request to keep this trace; the name is the reason.
    Keep(NonZeroU128),
}

/// Why words are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Of a later release, or no record.
    #[error("kind of record {0}, kind of span {1}, status {2}: unknown to this release")]
    Kind(u8, u8, u8),
    /// An id of zeroes.
    #[error("a trace id or a span id is zero")]
    Id,
    /// More notes than fit.
    #[error("{0} bytes of notes, at most {NOTES_BYTES} fit")]
    Length(usize),
    /// A note that reaches beyond the others, is no text, or has a length that its kind does not have.
    #[error("the note at byte {0} is invalid")]
    Note(usize),
}

const SPAN: u8 = 1;
const KEEP: u8 = 2;
const KINDS: u8 = 6;

/// Name, attributes and events of a record that is being written. 458 bytes; adding to it does not allocate.
#[derive(Clone)]
pub struct Notes {
    /// Notes at the begin; events at the end, and after these their attributes.
    bytes: [u8; NOTES_BYTES],
    length: u16,
    /// Bytes of events.
    events: u16,
    /// Bytes of attributes of events.
    attributes: u16,
    left_out: u16,
    /// How many events there are.
    count: u8,
    last: LastEvent,
}

/// The event that came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastEvent {
    /// None has come.
    #[default]
    None,
    /// It is the last of those that are kept.
    Kept,
    /// It was left out.
    LeftOut,
}

impl Default for Notes {
    fn default() -> Self {
        let bytes = [0; NOTES_BYTES];
        Self { bytes, length: 0, events: 0, attributes: 0, left_out: 0, count: 0, last: LastEvent::None }
    }
}

/// Whether so many bytes of notes, of events and of their attributes fit into one record, each from a whole word on.
#[inline]
const fn fit(notes: usize, events: usize, attributes: usize) -> bool {
    let words = notes.div_ceil(8) + events::words(events, attributes) + attributes.div_ceil(8);
    events + attributes <= EVENTS_BYTES && words <= NOTES_BYTES / 8
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes")
            .field("bytes", &self.length)
            .field("bytes_of_events", &(self.events + self.attributes))
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}

impl Notes {
    /// Removes all notes.
    pub const fn clear(&mut self) {
        (self.length, self.events, self.attributes, self.left_out) = (0, 0, 0, 0);
        (self.count, self.last) = (0, LastEvent::None);
    }

    /// Has all that `other` has in place of its own. Copies no more than that is: 458 bytes at most.
    pub fn copy_from(&mut self, other: &Self) {
        let (notes, events) = (usize::from(other.length), NOTES_BYTES - usize::from(other.events + other.attributes));
        self.bytes[..notes].copy_from_slice(&other.bytes[..notes]);
        self.bytes[events..].copy_from_slice(&other.bytes[events..]);
        (self.length, self.events, self.attributes) = (other.length, other.events, other.attributes);
        (self.left_out, self.count, self.last) = (other.left_out, other.count, other.last);
    }

    /// Adds a text, cut to [`TEXT_BYTES`]. If it does not fit, it is left out and counted; but the last events give way
    /// to a name, a message and a state. `key` is empty but for attributes.
    #[inline]
    pub fn text(&mut self, tag: Tag, key: &str, text: &str) {
        self.add(tag, key, cut(text).as_bytes());
    }

    /// Adds an attribute with an integer.
    pub fn integer(&mut self, key: &str, value: i64) {
        self.add(Tag::Integer, key, &value.to_le_bytes());
    }

    /// Adds an attribute with a floating-point number.
    pub fn float(&mut self, key: &str, value: f64) {
        self.add(Tag::Float, key, &value.to_le_bytes());
    }

    /// Adds an attribute with a truth value.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.add(Tag::Bool, key, &[u8::from(value)]);
    }

    /// Adds the formatted `value`, cut as by [`Notes::text`].
    pub fn display(&mut self, tag: Tag, key: &str, value: fmt::Arguments<'_>) {
        self.text(tag, key, ShortText::of(value).as_str());
    }

    /// Adds all of `others` but their events, and counts those that did not fit there.
    pub fn add_all(&mut self, others: &Self) {
        for note in others.notes() {
            match note {
                Note::Name(name) => self.text(Tag::Name, "", name),
                Note::Text(key, text) => self.text(Tag::Text, key, text),
                Note::Integer(key, value) => self.integer(key, value),
                Note::Float(key, value) => self.float(key, value),
                Note::Bool(key, value) => self.bool(key, value),
                Note::Message(message) => self.text(Tag::Message, "", message),
                Note::State(state) => self.text(Tag::State, "", state),
            }
        }
        self.leave_out(others.left_out);
    }

    /// Attributes and events that were left out for lack of space.
    #[must_use]
    pub const fn left_out(&self) -> u16 {
        self.left_out
    }

    /// The notes so far, in order.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        let mut rest = &self.bytes[..usize::from(self.length)];
        core::iter::from_fn(move || {
            let (note, left) = split(rest)?;
            rest = left;
            Some(note)
        })
    }

    /// Counts what was left out.
    const fn leave_out(&mut self, count: u16) {
        self.left_out = self.left_out.saturating_add(count);
    }

    // Inlined, so that tags and keys that are known cost nothing.
    #[inline]
    fn add(&mut self, tag: Tag, key: &str, value: &[u8]) {
        let (from, size) = (usize::from(self.length), NOTE_HEAD + key.len() + value.len());
        let is_key = key.len() <= KEY_BYTES;
        let mut fits = is_key && fit(from + size, self.events.into(), self.attributes.into());
        if !fits && is_key && matches!(tag, Tag::Name | Tag::Message | Tag::State) {
            fits = self.make_room(from + size);
        }
        if !fits {
            self.leave_out(1);
            return;
        }
        let place = &mut self.bytes[from..from + size];
        let [low, high] = (value.len() as u16).to_le_bytes();
        place[..NOTE_HEAD].copy_from_slice(&[tag as u8, key.len() as u8, low, high]);
        place[NOTE_HEAD..NOTE_HEAD + key.len()].copy_from_slice(key.as_bytes());
        place[NOTE_HEAD + key.len()..].copy_from_slice(value);
        self.length += size as u16;
    }

    /// Writes the record of a span to `words` and returns how many of them it took; the others mean nothing.
    pub fn span(&self, head: &Head, words: &mut [u64; RECORD_WORDS]) -> usize {
        let kinds = [SPAN, head.kind.min(KINDS - 1), head.status as u8];
        let ids = [head.span.get(), head.parent.map_or(0, NonZeroU64::get), head.start.0, head.end.0];
        self.record(kinds, head.trace, ids, words)
    }

    /// Writes a request to keep `trace`; the name is the reason.
    pub fn keep(&self, trace: NonZeroU128, words: &mut [u64; RECORD_WORDS]) -> usize {
        self.record([KEEP, 0, 0], trace, [0; 4], words)
    }

    fn record(&self, [a, b, c]: [u8; 3], trace: NonZeroU128, rest: [u64; 4], words: &mut [u64; RECORD_WORDS]) -> usize {
        let ([low, high], [few, many]) = (self.length.to_le_bytes(), self.left_out.to_le_bytes());
        let used = usize::from(self.length).div_ceil(8);
        let (event_words, further_words) = self.write_events(&mut words[HEAD_WORDS + used..]);
        words[0] = u64::from_le_bytes([a, b, c, event_words as u8, low, high, few, many]);
        (words[1], words[2]) = ((trace.get() >> 64) as u64, trace.get() as u64);
        words[3..HEAD_WORDS].copy_from_slice(&rest);
        let (eights, _) = self.bytes.as_chunks::<8>();
        for (word, eight) in words[HEAD_WORDS..].iter_mut().zip(&eights[..used]) {
            *word = u64::from_le_bytes(*eight);
        }
        HEAD_WORDS + used + event_words + further_words
    }
}

/// As much of `text` as is kept.
#[inline]
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES)]
}

/// A decoded record; every note is valid.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the record is about.
    pub subject: Subject,
    /// As they were written, with events after the last word of notes, and their attributes after the last of these.
    notes: Notes,
}

impl Record {
    /// Decodes a record. O(notes), at most a few hundred nanoseconds.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if it is none: nothing of it can be believed then.
    pub fn decode(words: &[u64; RECORD_WORDS]) -> Result<Self, RecordError> {
        let [kind, span_kind, status, event_words, low, high, few, many] = words[0].to_le_bytes();
        let unknown = RecordError::Kind(kind, span_kind, status);
        let status = match status {
            0 => Status::Unset,
            1 => Status::Ok,
            2 => Status::Error,
            _ => return Err(unknown),
        };
        let trace = (u128::from(words[1]) << 64) | u128::from(words[2]);
        let trace = NonZeroU128::new(trace).ok_or(RecordError::Id)?;
        let subject = match kind {
            SPAN if span_kind < KINDS => Subject::Span(Head {
                trace,
                span: NonZeroU64::new(words[3]).ok_or(RecordError::Id)?,
                parent: NonZeroU64::new(words[4]),
                kind: span_kind,
                status,
                start: UnixNanos(words[5]),
                end: UnixNanos(words[6]),
            }),
            KEEP => Subject::Keep(trace),
            _ => return Err(unknown),
        };
        let (length, left_out) = (u16::from_le_bytes([low, high]), u16::from_le_bytes([few, many]));
        if usize::from(length) > NOTES_BYTES {
            return Err(RecordError::Length(length.into()));
        }
        let events = 8 * usize::from(event_words);
        let begin = usize::from(length).next_multiple_of(8);
        if begin + events > NOTES_BYTES {
            return Err(RecordError::Length(begin + events));
        }
        let mut notes = Notes { length, events: events as u16, left_out, ..Notes::default() };
        for (eight, word) in notes.bytes.chunks_exact_mut(8).zip(&words[HEAD_WORDS..]) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        let mut rest = &notes.bytes[..usize::from(length)];
        while !rest.is_empty() {
            let at = usize::from(length) - rest.len();
            (_, rest) = split(rest).ok_or(RecordError::Note(at))?;
        }
        notes.attributes = events::check(&notes.bytes, begin, events)?;
        Ok(Self { subject, notes })
    }

    /// Its notes, in order.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        self.notes.notes()
    }

    /// Its name: the last note of that kind, or empty.
    #[must_use]
    pub fn name(&self) -> &str {
        let names = self.notes().filter_map(|note| if let Note::Name(name) = note { Some(name) } else { None });
        names.last().unwrap_or_default()
    }

    /// Attributes and events that its writer left out.
    #[must_use]
    pub const fn left_out(&self) -> u16 {
        self.notes.left_out
    }
}

/// Splits off the first note of `bytes`.
fn split(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let (&[tag, key, low, high], rest) = bytes.split_first_chunk::<NOTE_HEAD>()?;
    let (key, rest) = rest.split_at_checked(key.into())?;
    let (value, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
    Some((note(tag, str::from_utf8(key).ok()?, value)?, rest))
}

/// The note with this tag, key and value.
fn note<'a>(tag: u8, key: &'a str, value: &'a [u8]) -> Option<Note<'a>> {
    let text = || str::from_utf8(value).ok();
    Some(match tag {
        0 => Note::Name(text()?),
        1 => Note::Text(key, text()?),
        2 => Note::Integer(key, i64::from_le_bytes(value.try_into().ok()?)),
        3 => Note::Float(key, f64::from_le_bytes(value.try_into().ok()?)),
        4 => Note::Bool(key, *value.first().filter(|_| value.len() == 1)? != 0),
        5 => Note::Message(text()?),
        6 => Note::State(text()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

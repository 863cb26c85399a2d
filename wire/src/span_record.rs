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
//!      then, from a whole word on, events: bytes of name (u8), ns since 1970 (u64), name; one after the other
//! ```
//!
//! Ids are as in W3C Trace Context, the first byte on top. Numbers in notes are little endian. A record that requests a
//! trace to be kept has its trace id and one note with the reason. A reader that does not know events reads the rest.

use core::fmt;
use core::num::{NonZeroU64, NonZeroU128};

use crate::time::UnixNanos;

/// Words of a record.
pub const RECORD_WORDS: usize = 63;
/// Words before the notes.
const HEAD_WORDS: usize = 7;
/// Bytes for name, attributes and events together, with 4 for each of the first, and 9 for each event.
pub const NOTES_BYTES: usize = (RECORD_WORDS - HEAD_WORDS) * 8;
/// A longer text is cut, at a character, so that one attribute does not take all the space.
pub const TEXT_BYTES: usize = 160;
/// An attribute with a longer key is left out.
pub const KEY_BYTES: usize = 64;
/// Bytes for events, so that they leave room for attributes.
pub const EVENTS_BYTES: usize = NOTES_BYTES / 2;
/// Bytes of a note besides key and value.
const NOTE_HEAD: usize = 4;
/// Bytes of an event besides its name: more than are left at the end of a word.
const EVENT_HEAD: usize = 9;

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

/// Something that happened within a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it happened.
    pub at: UnixNanos,
    /// What it is called.
    pub name: &'a str,
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

/// Name, attributes and events of a record that is being written. 454 bytes; adding to it does not allocate.
#[derive(Clone)]
pub struct Notes {
    /// Notes at the begin, events at the end.
    bytes: [u8; NOTES_BYTES],
    length: u16,
    /// Bytes of events.
    events: u16,
    left_out: u16,
}

impl Default for Notes {
    fn default() -> Self {
        Self { bytes: [0; NOTES_BYTES], length: 0, events: 0, left_out: 0 }
    }
}

/// Whether so many bytes of notes and of events fit into one record, each from a whole word on.
const fn fit(notes: usize, events: usize) -> bool {
    events <= EVENTS_BYTES && notes.div_ceil(8) + events.div_ceil(8) <= NOTES_BYTES / 8
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes")
            .field("bytes", &self.length)
            .field("bytes_of_events", &self.events)
            .field("left_out", &self.left_out)
            .finish()
    }
}

impl Notes {
    /// Removes all notes.
    pub const fn clear(&mut self) {
        (self.length, self.events, self.left_out) = (0, 0, 0);
    }

    /// Adds a text, cut to [`TEXT_BYTES`]. If it does not fit, it is left out and counted. `key` is empty but for
    /// attributes.
    pub fn text(&mut self, tag: Tag, key: &str, text: &str) {
        let cut = &text[..text.floor_char_boundary(TEXT_BYTES)];
        self.add(tag, key, cut.as_bytes());
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

    /// Attributes and events that were left out for lack of space.
    #[must_use]
    pub const fn left_out(&self) -> u16 {
        self.left_out
    }

    fn add(&mut self, tag: Tag, key: &str, value: &[u8]) {
        let (from, size) = (usize::from(self.length), NOTE_HEAD + key.len() + value.len());
        if key.len() > KEY_BYTES || !fit(from + size, self.events.into()) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let place = &mut self.bytes[from..from + size];
        let [low, high] = (value.len() as u16).to_le_bytes();
        place[..NOTE_HEAD].copy_from_slice(&[tag as u8, key.len() as u8, low, high]);
        place[NOTE_HEAD..NOTE_HEAD + key.len()].copy_from_slice(key.as_bytes());
        place[NOTE_HEAD + key.len()..].copy_from_slice(value);
        self.length += size as u16;
    }

    /// Adds that `name` happened at `at`. A name is cut as a text is; what does not fit is left out and counted.
    pub fn event(&mut self, name: &str, at: UnixNanos) {
        let name = &name.as_bytes()[..name.floor_char_boundary(TEXT_BYTES)];
        let (events, size) = (usize::from(self.events), EVENT_HEAD + name.len());
        if !fit(self.length.into(), events + size) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        // In the order in which they come, at the end.
        let first = NOTES_BYTES - events;
        self.bytes.copy_within(first.., first - size);
        let place = &mut self.bytes[NOTES_BYTES - size..];
        place[0] = name.len() as u8;
        place[1..EVENT_HEAD].copy_from_slice(&at.0.to_le_bytes());
        place[EVENT_HEAD..].copy_from_slice(name);
        self.events += size as u16;
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
        let events = &self.bytes[NOTES_BYTES - usize::from(self.events)..];
        let event_words = events.len().div_ceil(8);
        words[0] = u64::from_le_bytes([a, b, c, event_words as u8, low, high, few, many]);
        (words[1], words[2]) = ((trace.get() >> 64) as u64, trace.get() as u64);
        words[3..HEAD_WORDS].copy_from_slice(&rest);
        let (eights, _) = self.bytes.as_chunks::<8>();
        let used = usize::from(self.length).div_ceil(8);
        for (word, eight) in words[HEAD_WORDS..].iter_mut().zip(&eights[..used]) {
            *word = u64::from_le_bytes(*eight);
        }
        for (word, bytes) in words[HEAD_WORDS + used..].iter_mut().zip(events.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        HEAD_WORDS + used + event_words
    }
}

/// A text of at most [`TEXT_BYTES`], without an allocation. The excess is cut at a character.
#[derive(Clone, Copy)]
pub struct ShortText {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self { bytes: [0; TEXT_BYTES], length: 0 }
    }
}

impl ShortText {
    /// The formatted `value`, as far as it fits.
    #[must_use]
    pub fn of(value: fmt::Arguments<'_>) -> Self {
        let mut line = Self::default();
        // An error is the line's own: it is full.
        _ = fmt::Write::write_fmt(&mut line, value);
        line
    }

    /// The text as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = &text[..text.floor_char_boundary(TEXT_BYTES - self.length)];
        self.bytes[self.length..self.length + fits.len()].copy_from_slice(fits.as_bytes());
        self.length += fits.len();
        if fits.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// A decoded record; every note is valid.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the record is about.
    pub subject: Subject,
    /// As they were written, with events after the last word of notes.
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
        let mut rest = &notes.bytes[begin..begin + events];
        while rest.len() >= EVENT_HEAD {
            let at = begin + events - rest.len();
            (_, rest) = split_event(rest).ok_or(RecordError::Note(at))?;
        }
        Ok(Self { subject, notes })
    }

    /// What happened within the span, in order.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let begin = usize::from(self.notes.length).next_multiple_of(8);
        let mut rest = &self.notes.bytes[begin..begin + usize::from(self.notes.events)];
        core::iter::from_fn(move || {
            let (event, left) = split_event(rest)?;
            rest = left;
            Some(event)
        })
    }

    /// Its notes, in order.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        let mut rest = &self.notes.bytes[..usize::from(self.notes.length)];
        core::iter::from_fn(move || {
            let (note, left) = split(rest)?;
            rest = left;
            Some(note)
        })
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
    let key = str::from_utf8(key).ok()?;
    let text = || str::from_utf8(value).ok();
    let note = match tag {
        0 => Note::Name(text()?),
        1 => Note::Text(key, text()?),
        2 => Note::Integer(key, i64::from_le_bytes(value.try_into().ok()?)),
        3 => Note::Float(key, f64::from_le_bytes(value.try_into().ok()?)),
        4 => Note::Bool(key, *value.first().filter(|_| value.len() == 1)? != 0),
        5 => Note::Message(text()?),
        6 => Note::State(text()?),
        _ => return None,
    };
    Some((note, rest))
}

/// Splits off the first event of `bytes`; `None` at the end, too.
fn split_event(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let (&[length, at @ ..], rest) = bytes.split_first_chunk::<EVENT_HEAD>()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    let event = Event { at: UnixNanos(u64::from_le_bytes(at)), name: str::from_utf8(name).ok()? };
    Some((event, rest))
}

#[cfg(test)]
mod tests;

//! What happened within a span: events, and their attributes.

use crate::time::UnixNanos;

use super::{EVENTS_BYTES, KEY_BYTES, LastEvent, NOTES_BYTES, Note, Notes, Record, RecordError, Tag, cut, fit, note};

/// Bytes of an event besides its name: more than are left at the end of a word.
pub(super) const EVENT_HEAD: usize = 9;
/// Bytes of an event's attribute besides key and value.
const ATTRIBUTE_HEAD: usize = 4;

// The number of an event, and the words of all attributes, are a byte each.
const _: () = assert!(EVENTS_BYTES / EVENT_HEAD <= 256 && EVENTS_BYTES / 8 <= 255);

/// Something that happened within a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it happened.
    pub at: UnixNanos,
    /// What it is called.
    pub name: &'a str,
}

/// Adds attributes to the event that came last ([`Notes::last_event`]).
#[derive(Debug)]
pub struct EventNotes<'a>(&'a mut Notes);

/// Words of so many bytes of events. If they have attributes, they end in a byte that says how many words those take.
#[inline]
pub(super) const fn words(events: usize, attributes: usize) -> usize {
    let bytes = if attributes > 0 { events + 1 } else { events };
    bytes.div_ceil(8)
}

impl Notes {
    /// Adds that `name` happened at `at`. A name is cut as a text is; what does not fit is left out and counted.
    pub fn event(&mut self, name: &str, at: UnixNanos) {
        let name = cut(name).as_bytes();
        let (events, attributes) = (usize::from(self.events), usize::from(self.attributes));
        let size = EVENT_HEAD + name.len();
        if !fit(self.length.into(), events + size, attributes) {
            self.leave_out_event();
            return;
        }
        self.last = LastEvent::Kept;
        // In the order in which they come, before the attributes of all.
        let end = NOTES_BYTES - attributes;
        let first = end - events;
        self.bytes.copy_within(first..end, first - size);
        let place = &mut self.bytes[end - size..end];
        place[0] = name.len() as u8;
        place[1..EVENT_HEAD].copy_from_slice(&at.0.to_le_bytes());
        place[EVENT_HEAD..].copy_from_slice(name);
        self.events += size as u16;
        self.count += 1;
    }

    /// Counts an event that is left out.
    pub const fn leave_out_event(&mut self) {
        self.last = LastEvent::LeftOut;
        self.leave_out(1);
    }

    /// Whether the event that came last was left out. The next one is then likely to be left out, too.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.last, LastEvent::LeftOut)
    }

    /// Leaves out the events that came last, until there is room for so many bytes of notes. They stay if even that
    /// would not do: then it is `false`. O(events²), of at most 24.
    pub(super) fn make_room(&mut self, notes: usize) -> bool {
        if !fit(notes, 0, 0) {
            return false;
        }
        while !fit(notes, self.events.into(), self.attributes.into()) {
            self.leave_out_last();
        }
        true
    }

    /// Leaves out the event that came last, with its attributes, and counts them.
    fn leave_out_last(&mut self) {
        let (events, attributes) = (usize::from(self.events), usize::from(self.attributes));
        let end = NOTES_BYTES - attributes;
        let first = end - events;
        let last = self.count.saturating_sub(1);
        let mut rest = &self.bytes[first..end];
        for _ in 0..last {
            rest = split_event(rest).map(|(_, further)| further).unwrap_or_default();
        }
        let kept_events = events - rest.len();
        let (mut of_last, mut rest) = (0, &self.bytes[end..]);
        while let Some(((event, _), further)) = split_attribute(rest) {
            if event == last {
                break;
            }
            rest = further;
        }
        let kept_attributes = attributes - rest.len();
        while let Some((_, further)) = split_attribute(rest) {
            (of_last, rest) = (of_last + 1, further);
        }
        // What is kept goes to the end again.
        let end_of_kept = NOTES_BYTES - kept_attributes;
        self.bytes.copy_within(end..end + kept_attributes, end_of_kept);
        self.bytes.copy_within(first..first + kept_events, end_of_kept - kept_events);
        (self.events, self.attributes) = (kept_events as u16, kept_attributes as u16);
        self.count = last;
        self.leave_out_event();
        self.leave_out(of_last);
    }

    /// The event that came last, for its attributes; `None` before the first one, and if it was left out.
    pub const fn last_event(&mut self) -> Option<EventNotes<'_>> {
        if matches!(self.last, LastEvent::Kept) { Some(EventNotes(self)) } else { None }
    }

    /// Writes events and their attributes to the first of `words`. Returns how many words each of both took.
    pub(super) fn write_events(&self, words: &mut [u64]) -> (usize, usize) {
        if self.events == 0 {
            return (0, 0);
        }
        let end = NOTES_BYTES - usize::from(self.attributes);
        let (events, attributes) = (&self.bytes[end - usize::from(self.events)..end], &self.bytes[end..]);
        let (event_words, attribute_words) =
            (self::words(events.len(), attributes.len()), attributes.len().div_ceil(8));
        let (of_events, of_attributes) = words.split_at_mut(event_words);
        write(events, of_events);
        if let Some(last) = of_events.last_mut() {
            *last |= (attribute_words as u64) << 56;
        }
        write(attributes, &mut of_attributes[..attribute_words]);
        (event_words, attribute_words)
    }
}

/// Writes `bytes` to `words`, little endian, and zeros after the last one.
fn write(bytes: &[u8], words: &mut [u64]) {
    words.fill(0);
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
}

impl EventNotes<'_> {
    /// Adds an attribute. A text is cut as that of a span is; what does not fit is left out and counted. Names, status
    /// messages and tracestates are no attributes: they are passed over.
    pub fn add(&mut self, attribute: Note<'_>) {
        match attribute {
            Note::Text(key, text) => self.value(Tag::Text, key, cut(text).as_bytes()),
            Note::Integer(key, value) => self.value(Tag::Integer, key, &value.to_le_bytes()),
            Note::Float(key, value) => self.value(Tag::Float, key, &value.to_le_bytes()),
            Note::Bool(key, value) => self.value(Tag::Bool, key, &[u8::from(value)]),
            Note::Name(_) | Note::Message(_) | Note::State(_) => {}
        }
    }

    /// Adds all attributes among `notes`, and counts those that did not fit there.
    pub fn add_all(&mut self, notes: &Notes) {
        notes.notes().for_each(|note| self.add(note));
        self.0.leave_out(notes.left_out);
    }

    fn value(&mut self, tag: Tag, key: &str, value: &[u8]) {
        let notes = &mut *self.0;
        let (events, attributes) = (usize::from(notes.events), usize::from(notes.attributes));
        let size = ATTRIBUTE_HEAD + key.len() + value.len();
        if key.len() > KEY_BYTES || !fit(notes.length.into(), events, attributes + size) {
            notes.leave_out(1);
            return;
        }
        // After all others, at the end.
        let first = NOTES_BYTES - events - attributes;
        notes.bytes.copy_within(first.., first - size);
        let (head, rest) = notes.bytes[NOTES_BYTES - size..].split_at_mut(ATTRIBUTE_HEAD);
        head.copy_from_slice(&[notes.count - 1, tag as u8, key.len() as u8, value.len() as u8]);
        let (place_of_key, place_of_value) = rest.split_at_mut(key.len());
        place_of_key.copy_from_slice(key.as_bytes());
        place_of_value.copy_from_slice(value);
        notes.attributes += size as u16;
    }
}

impl Record {
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

    /// Attributes of the event of this number, counted from 0 on, in order. O(attributes of all events).
    pub fn event_attributes(&self, event: usize) -> impl Iterator<Item = Note<'_>> {
        let begin = usize::from(self.notes.length).next_multiple_of(8) + usize::from(self.notes.events);
        let mut rest = &self.notes.bytes[begin..begin + usize::from(self.notes.attributes)];
        let all = core::iter::from_fn(move || {
            let (attribute, left) = split_attribute(rest)?;
            rest = left;
            Some(attribute)
        });
        all.filter(move |(of, _)| usize::from(*of) == event).map(|(_, note)| note)
    }
}

/// Checks the events, which take so many bytes of `bytes` from `begin` on, and the attributes after them. Returns the
/// bytes of the attributes.
pub(super) fn check(bytes: &[u8; NOTES_BYTES], begin: usize, events: usize) -> Result<u16, RecordError> {
    let end = begin + events;
    let mut rest = &bytes[begin..end];
    while rest.len() >= EVENT_HEAD {
        let at = end - rest.len();
        (_, rest) = split_event(rest).ok_or(RecordError::Note(at))?;
    }
    let attributes = 8 * rest.last().map_or(0, |words| usize::from(*words));
    let mut rest = bytes.get(end..end + attributes).ok_or(RecordError::Length(end + attributes))?;
    while !is_over(rest) {
        let at = end + attributes - rest.len();
        (_, rest) = split_attribute(rest).ok_or(RecordError::Note(at))?;
    }
    Ok(attributes as u16)
}

/// Splits off the first event of `bytes`; `None` at the end, too.
fn split_event(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let (&[length, at @ ..], rest) = bytes.split_first_chunk::<EVENT_HEAD>()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    let event = Event { at: UnixNanos(u64::from_le_bytes(at)), name: str::from_utf8(name).ok()? };
    Some((event, rest))
}

/// Whether no attribute begins with `bytes`: what is left of a word is zeros, and no attribute has their tag.
fn is_over(bytes: &[u8]) -> bool {
    bytes.len() < ATTRIBUTE_HEAD || bytes[1] == Tag::Name as u8
}

/// Splits off the first attribute of `bytes`, with the number of its event; `None` at the end, too.
fn split_attribute(bytes: &[u8]) -> Option<((u8, Note<'_>), &[u8])> {
    let (&[event, tag, key, length], rest) = bytes.split_first_chunk::<ATTRIBUTE_HEAD>()?;
    let (key, rest) = rest.split_at_checked(key.into())?;
    let (value, rest) = rest.split_at_checked(length.into())?;
    let attribute = note(tag, str::from_utf8(key).ok()?, value)?;
    let is_attribute = !matches!(attribute, Note::Name(_) | Note::Message(_) | Note::State(_));
    is_attribute.then_some(((event, attribute), rest))
}

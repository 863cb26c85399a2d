//! What the agent finds in the ring of spans.

use std::os::fd::AsFd as _;

use region::ReadMapping;
use region::ring::RingReader;
use wire::span_record::{Head, Note, Record, Subject};

use crate::agent::AgentState;

/// All records of the ring, from its first on; none without a ring.
fn records(state: &AgentState) -> Vec<Record> {
    let mut records = Vec::new();
    let mapping = state.ring.as_ref().and_then(|ring| ReadMapping::map(ring.as_fd(), ring.size()).ok());
    if let Some(mapping) = mapping {
        RingReader::new(mapping, 0).poll(|words| records.extend(Record::decode(words)));
    }
    records
}

const fn head(record: &Record) -> Option<Head> {
    match record.subject {
        Subject::Span(head) => Some(head),
        Subject::Keep(_) => None,
    }
}

/// The heads of all spans of this name.
fn named<'a>(records: &'a [Record], name: &'a str) -> impl Iterator<Item = (Head, &'a Record)> {
    let spans = records.iter().filter_map(|record| Some((head(record)?, record)));
    spans.filter(move |(_, record)| record.name() == name)
}

/// How many spans have ended.
pub(crate) fn ended(state: &AgentState) -> usize {
    records(state).iter().filter_map(head).count()
}

/// Whether `note` is the attribute `key` of the value `value`, or the message or the tracestate, which `key` names.
fn is(note: Note<'_>, key: &str, value: &str) -> bool {
    match note {
        Note::Text(of, text) => (of, text) == (key, value),
        Note::Integer(of, number) => of == key && number.to_string() == value,
        Note::Float(of, number) => of == key && number.to_string() == value,
        Note::Bool(of, is_true) => of == key && is_true.to_string() == value,
        Note::Message(text) => ("message", text) == (key, value),
        Note::State(text) => ("state", text) == (key, value),
        Note::Name(_) => false,
    }
}

/// Whether an event of this name has the attribute `key` of the value `value`.
fn has_event(record: &Record, name: &str, key: &str, value: &str) -> bool {
    let named = record.events().enumerate().filter(|(_, event)| event.name == name);
    named.map(|(number, _)| number).any(|event| record.event_attributes(event).any(|note| is(note, key, value)))
}

/// Whether a span named `name` has ended whose `field` is `value`.
pub(crate) fn has(state: &AgentState, name: &str, field: &str, value: &str) -> bool {
    let records = records(state);
    named(&records, name).any(|(head, record)| match field {
        "kind" => head.kind.to_string() == value,
        "status" => (head.status as u8).to_string() == value,
        "event" => record.events().any(|event| event.name == value && (head.start..=head.end).contains(&event.at)),
        "trace" => format!("{:032x}", head.trace) == value,
        "parent" => match head.parent {
            None => value == "-",
            Some(parent) => {
                format!("{parent:016x}") == value
                    || named(&records, value).any(|(above, _)| (above.span, above.trace) == (parent, head.trace))
            }
        },
        _ => match field.split_once(':') {
            Some((event, key)) => has_event(record, event, key, value),
            None => record.notes().any(|note| is(note, field, value)),
        },
    })
}

/// Whether the agent is asked to keep a trace for this reason: that with this id, or that of the span of this name.
pub(crate) fn is_kept(state: &AgentState, trace: &str, reason: &str) -> bool {
    let records = records(state);
    let is_meant = |id| format!("{id:032x}") == trace || named(&records, trace).any(|(head, _)| head.trace == id);
    records.iter().any(|record| match record.subject {
        Subject::Keep(id) => record.name() == reason && is_meant(id),
        Subject::Span(_) => false,
    })
}

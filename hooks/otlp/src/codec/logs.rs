//! Finds log records in an encoded `ExportLogsServiceRequest`, and adds to one why it is kept. Requests of logs have
//! the shape of those of traces, and [`Export`](crate::codec::Export) puts them together again.

use hooks::id::{OriginId, ServiceId};
use hooks::tracing::{LogReason, LogRecord, Severity, TraceId};
use wire::time::UnixNanos;

use crate::codec::annotate::attribute_of;
use crate::codec::export;
use crate::codec::fields::{Fields, Value, WireError};
use crate::codec::scan::{Group, each_item, text_of};

/// Field number in `LogRecord`.
const ATTRIBUTES: u8 = 6;
const BODY: u32 = 5;

/// A log record as encoded in a request.
#[derive(Clone, Copy, Debug)]
pub struct RawLog<'a> {
    /// The trace that it was written in; `None` without a valid id.
    pub trace: Option<TraceId>,
    /// How severe it is; not stated if the number is out of range.
    pub severity: Severity,
    /// When it was written, as the client sent it, else when it was observed; 0 without either.
    pub at: UnixNanos,
    /// The whole encoded record.
    pub encoded: &'a [u8],
}

impl<'a> RawLog<'a> {
    /// Reads a `LogRecord`; `None` if it is malformed. O(fields): the content of body and attributes is not read.
    #[must_use]
    pub fn read(encoded: &'a [u8]) -> Option<Self> {
        let (mut trace, mut severity, mut at, mut observed) = (None, Severity::default(), 0, 0);
        for field in Fields::of(encoded) {
            let field = field.ok()?;
            match (field.number, field.value) {
                (1, Value::Fixed64(nanos)) => at = nanos,
                (2, Value::Number(number)) => severity = Severity::from_number(number),
                (9, Value::Bytes(bytes)) => trace = TraceId::from_slice(bytes),
                (11, Value::Fixed64(nanos)) => observed = nanos,
                _ => {}
            }
        }
        let at = UnixNanos(if at == 0 { observed } else { at });
        Some(Self { trace, severity, at, encoded })
    }

    /// Its text: the body, if that is a string. Bytes that are not UTF-8 are replaced. At most `limit` bytes are read.
    #[must_use]
    pub fn body(&self, limit: usize) -> Option<String> {
        let bodies = Fields::of(self.encoded).map_while(Result::ok).filter(|field| field.number == BODY);
        let value = bodies.last()?.message().ok()?;
        let texts = Fields::of(value).map_while(Result::ok).filter(|field| field.number == 1);
        let text = texts.last()?.message().ok()?;
        Some(String::from_utf8_lossy(&text[..text.len().min(limit)]).into_owned())
    }

    /// Text value of its last attribute `key`; `None` without one. O(bytes).
    #[must_use]
    pub fn text(&self, key: &[u8]) -> Option<&'a str> {
        let attributes = Fields::of(self.encoded).map_while(Result::ok);
        let attributes = attributes.filter(|field| field.number == u32::from(ATTRIBUTES));
        attributes.filter_map(|field| text_of(field.message().ok()?, key)).last()
    }

    /// The record as input for a [`Keeper`](hooks::tracing::Keeper), written `at` this time.
    #[must_use]
    pub const fn record(&self, service: ServiceId, origin: OriginId, at: UnixNanos) -> LogRecord<'a> {
        let Self { trace, severity, encoded, .. } = *self;
        LogRecord { trace, service, origin, severity, at, encoded }
    }
}

/// Calls `visit` with every log record of `request` and its group, or with the bytes of a malformed one. O(bytes) at
/// worst; of a record only the heads of its fields are read.
///
/// # Errors
///
/// [`WireError`] if the request is malformed above its records. `visit` was not called then: a client that retries
/// sends no record twice.
pub fn scan_logs<'a>(
    request: &'a [u8],
    mut visit: impl FnMut(&Group<'a>, Result<RawLog<'a>, &'a [u8]>),
) -> Result<(), WireError> {
    each_item(request, |group, record| visit(group, RawLog::read(record).ok_or(record)))
}

/// Writes the record as exported to `into`, replacing its content: the received record with annotations appended.
///
/// | attribute | what |
/// | --- | --- |
/// | `uview.policy` | trace, error, lmap, floor |
/// | `uview.reason` | the reason as text, with units |
/// | `uview.incident` | the incident's address: node, slash, id; only if it is known |
pub fn annotate_log(encoded: &[u8], reason: &LogReason, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(encoded);
    text("uview.policy", reason.policy().name(), into);
    text("uview.reason", &reason.to_string(), into);
    if !reason.incident().is_empty() {
        text("uview.incident", reason.incident(), into);
    }
}

fn text(key: &str, value: &str, into: &mut Vec<u8>) {
    let mut any = Vec::with_capacity(value.len() + 6);
    export::bytes(1, value.as_bytes(), &mut any);
    attribute_of(ATTRIBUTES, key, &any, into);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord as Record;
    use proptest::prelude::*;
    use prost::Message as _;
    use support::otlp::{string, text};

    use super::*;

    fn record() -> Record {
        Record {
            time_unix_nano: 7,
            observed_time_unix_nano: 9,
            severity_number: 17,
            severity_text: "error".to_owned(),
            body: Some(string("card refused")),
            attributes: vec![text("card", "visa")],
            trace_id: vec![0xab; 16],
            span_id: vec![1; 8],
            flags: 1,
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_read_by_the_heads_of_its_fields() {
        let encoded = record().encode_to_vec();

        let raw = RawLog::read(&encoded).unwrap();

        assert_eq!((raw.trace, raw.at, raw.severity.number()), (TraceId::new([0xab; 16]), UnixNanos(7), 17));
        assert_eq!((raw.body(100).as_deref(), raw.body(4).as_deref()), (Some("card refused"), Some("card")));
        assert_eq!((raw.text(b"card"), raw.text(b"other")), (Some("visa"), None));
    }

    #[test]
    fn what_is_missing_or_out_of_range_is_not_stated() {
        let read = |record: &Record| {
            let encoded = record.encode_to_vec();
            let raw = RawLog::read(&encoded).unwrap();
            (raw.trace, raw.at.0, raw.severity.number(), raw.body(9))
        };

        assert_eq!(read(&Record::default()), (None, 0, 0, None));
        let observed = Record { time_unix_nano: 0, severity_number: 25, trace_id: vec![1; 15], ..record() };
        assert_eq!(read(&Record { body: None, ..observed }), (None, 9, 0, None));
        assert_eq!(
            read(&Record { severity_number: -1, trace_id: vec![0; 16], body: None, ..record() }),
            (None, 7, 0, None)
        );
    }

    #[test]
    fn what_is_cut_short_is_malformed_and_broken_text_is_replaced() {
        let encoded = record().encode_to_vec();
        assert!(RawLog::read(&encoded[..encoded.len() - 1]).is_none());

        let mut broken = Vec::new();
        let mut any = Vec::new();
        export::bytes(1, b"caf\xe9 \xff", &mut any);
        export::bytes(5, &any, &mut broken);
        assert_eq!(RawLog::read(&broken).unwrap().body(100).unwrap(), "caf\u{fffd} \u{fffd}");
    }

    #[test]
    fn the_reason_is_appended_and_nothing_else_is_touched() {
        let (encoded, mut into) = (record().encode_to_vec(), vec![9; 3]);

        annotate_log(&encoded, &LogReason::Error(Severity::ERROR), &mut into);

        assert!(into.starts_with(&encoded));
        let mut kept = Record::decode(&into[..]).unwrap();
        let added: Vec<_> = kept.attributes.drain(1..).map(|pair| (pair.key, pair.value)).collect();
        assert_eq!(
            added,
            [
                ("uview.policy".to_owned(), Some(string("error"))),
                ("uview.reason".to_owned(), Some(string("severity ERROR")))
            ]
        );
        assert_eq!(kept, record());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(raw) = RawLog::read(&bytes) {
                let _ = (raw.body(10), raw.text(b"key"));
                let mut into = Vec::new();
                annotate_log(&bytes, &LogReason::Error(Severity::ERROR), &mut into);
                prop_assert!(into.starts_with(&bytes) && RawLog::read(&into).is_some());
            }
        }
    }
}

//! Log records that were kept, compared with those that clients sent: byte by byte, and trace by trace.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Context as _, Result, ensure};
use otlp::Signal;
use otlp::codec::{scan, scan_logs};

use super::receiver::Message;

/// The first attribute that uview appends, as it begins in a record: field 6 of some length, with this key.
const APPENDED: &[u8] = b"\x0a\x0cuview.policy";
/// Services whose SDKs send log records.
const WRITERS: [&str; 4] = ["frontend", "catalog", "payment", "stock"];

type TraceBytes = [u8; 16];

/// Encoded log records by their trace, if they have one, with their services.
#[derive(Debug, Default)]
struct Records {
    of_traces: BTreeMap<TraceBytes, HashSet<Vec<u8>>>,
    all: HashSet<Vec<u8>>,
    services: BTreeSet<String>,
}

impl Records {
    fn of(messages: &[Message], read: impl Fn(&[u8]) -> Result<Vec<u8>>) -> Result<Self> {
        let mut records = Self::default();
        for message in messages.iter().filter(|message| message.signal == Signal::Logs) {
            let mut problem = Ok(());
            scan_logs(&message.bytes, |group, log| {
                let Ok(log) = log else { return };
                match read(log.encoded) {
                    Ok(encoded) => {
                        records.services.extend(group.service_name().map(str::to_owned));
                        if let Some(trace) = log.trace {
                            records.of_traces.entry(trace.bytes()).or_default().insert(encoded.clone());
                        }
                        records.all.insert(encoded);
                    }
                    Err(error) => problem = Err(error),
                }
            })
            .context("a request of logs")?;
            problem?;
        }
        Ok(records)
    }
}

/// A kept record without what uview has appended.
fn without_reason(encoded: &[u8]) -> Result<Vec<u8>> {
    let place = encoded.windows(APPENDED.len()).rposition(|part| part == APPENDED);
    // Before the key are the tag of the attribute and its length, one byte each.
    let end = place.and_then(|place| place.checked_sub(2)).context("a record came without its reason")?;
    Ok(encoded[..end].to_vec())
}

/// Checks what `came` of the log records in `sent`, of which not all are wanted: each is as it was sent, those of the
/// traces that came are complete, and there are some of each service. Returns how many.
///
/// # Errors
///
/// A record is changed, missing or too many.
pub fn as_sent(came: &[Message], sent: &[Message]) -> Result<String> {
    let (came_logs, sent_logs) = (Records::of(came, without_reason)?, Records::of(sent, |log| Ok(log.to_vec()))?);
    let changed = came_logs.all.difference(&sent_logs.all).count();
    ensure!(changed == 0, "{changed} of {} records came that were not sent so", came_logs.all.len());
    let (kept, all) = (came_logs.all.len(), sent_logs.all.len());
    ensure!(kept < all, "all of {all} records came");
    let mut traces = BTreeSet::new();
    for message in came.iter().filter(|message| message.signal == Signal::Traces) {
        scan(&message.bytes, |_, span| traces.extend(span.ok().map(|span| span.trace.bytes())))?;
    }
    for trace in &traces {
        let of = |records: &Records| records.of_traces.get(trace).map_or(0, HashSet::len);
        let (came, sent) = (of(&came_logs), of(&sent_logs));
        ensure!(came == sent, "of a trace that came {came} of {sent} records came");
    }
    let silent: Vec<_> = WRITERS.iter().filter(|service| !came_logs.services.contains(**service)).collect();
    ensure!(silent.is_empty(), "no record of {silent:?} came");
    let bytes = |records: &Records| records.all.iter().map(Vec::len).sum::<usize>();
    Ok(format!(
        "{kept} of {all} log records, {} of {} bytes, byte for byte but for the reason, all of {} traces",
        bytes(&came_logs),
        bytes(&sent_logs),
        traces.len()
    ))
}

#[cfg(test)]
mod tests {
    use hooks::tracing::{LogReason, Severity};
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use otlp::codec::annotate_log;
    use prost::Message as _;

    use super::*;

    /// A record of each service, number `number`.
    fn message(number: u64, kept: bool) -> Message {
        let resource = |service: &str| {
            let mut record = LogRecord { time_unix_nano: number, severity_number: 9, ..LogRecord::default() };
            if kept {
                let mut annotated = Vec::new();
                annotate_log(&record.encode_to_vec(), &LogReason::Error(Severity::ERROR), &mut annotated);
                record = LogRecord::decode(&annotated[..]).unwrap();
            }
            support::otlp::logs(service, vec![record]).resource_logs.remove(0)
        };
        let resource_logs = WRITERS.map(resource).to_vec();
        Message { signal: Signal::Logs, bytes: ExportLogsServiceRequest { resource_logs }.encode_to_vec().into() }
    }

    #[test]
    fn kept_records_are_those_that_were_sent_but_for_the_reason() {
        let sent = [message(1, false), message(2, false)];

        assert!(as_sent(&[message(1, true)], &sent).unwrap().starts_with("1 of 2 log records"));
        let error = |came: &[Message]| as_sent(came, &sent).unwrap_err().to_string();
        assert!(error(&[message(3, true)]).contains("not sent so"));
        assert!(error(&[message(1, false)]).contains("without its reason"));
        assert!(error(&[message(1, true), message(2, true)]).contains("all of 2"));
    }
}

//! What an agent says, made printable where it arrives: each text of a reply becomes a [`printable::line`], so that
//! whatever is done with it later, it neither changes the terminal nor passes for a line of its own.
//!
//! Each message is taken apart field by field. One that gets another field does not compile until somebody has decided
//! about it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use tonic::Streaming;
use wire::printable;
use wire::proto::operators::{
    Detector, GroupShare, HookEvent, Incident, IncidentChange, IncidentFigure, IncidentLog, IncidentProfile,
    IncidentReply, IncidentService, IncidentSpan, IncidentStream, IncidentSummary, IncidentTrace, IncidentsReply,
    Label, ListReply, LmapChange, LmapInfo, LmapMember, LmapStatus, MetricInfo, OpenPageReply, PathOperation,
    PathService, PathsReply, PendingMetric, Reason, ReceiptDay, ReceiptLine, ReceiptLogs, ReceiptReply, ReceiptRun,
    ReplicaInfo, RowEvent, SetModelReply, SourceFamily, SourceTarget, SourcesReply, StatusReply, WorkerStatus,
};

/// A message with texts that others have chosen.
pub trait Message {
    /// Makes every text of it printable, in one line.
    fn make_printable(&mut self);
}

/// `message` with its texts printable.
pub fn printable<M: Message>(mut message: M) -> M {
    message.make_printable();
    message
}

/// Messages of an agent that follow one another.
#[derive(Debug)]
pub struct Messages<M>(Streaming<M>);

impl<M: Message> Messages<M> {
    /// The messages of `stream`.
    pub(crate) const fn of(stream: Streaming<M>) -> Self {
        Self(stream)
    }

    /// The next message; `None` if the agent has ended the stream.
    ///
    /// # Errors
    ///
    /// What the agent or the connection said, in one line.
    pub async fn next(&mut self) -> Result<Option<M>, String> {
        match self.0.message().await {
            Ok(message) => Ok(message.map(printable)),
            Err(status) => Err(text(&status)),
        }
    }
}

/// What an agent says about a refused call, in one line.
#[must_use]
pub fn text(status: &tonic::Status) -> String {
    printable::line(status.message()).into_owned()
}

impl Message for String {
    fn make_printable(&mut self) {
        if let Cow::Owned(line) = printable::line(self) {
            *self = line;
        }
    }
}

impl<M: Message> Message for Vec<M> {
    fn make_printable(&mut self) {
        self.iter_mut().for_each(Message::make_printable);
    }
}

impl<M: Message> Message for Option<M> {
    fn make_printable(&mut self) {
        self.iter_mut().for_each(Message::make_printable);
    }
}

impl<S: BuildHasher> Message for HashMap<String, u64, S> {
    fn make_printable(&mut self) {
        if self.keys().any(|name| matches!(printable::line(name), Cow::Owned(_))) {
            let all: Vec<_> = self.drain().map(|(name, value)| (printable(name), value)).collect();
            self.extend(all);
        }
    }
}

/// Implements [`Message`]: the fields with texts of others, then those without.
macro_rules! messages {
    ($($message:ident { $($text:ident),* $(; $($other:ident),+)? })+) => {$(
        impl Message for $message {
            fn make_printable(&mut self) {
                let Self { $($text,)* $($($other: _),+)? } = self;
                $($text.make_printable();)*
            }
        }
    )+};
}

messages! {
    StatusReply { version, workers, lmaps, counters, problems, warnings, notes; incarnation, uptime_ms }
    WorkerStatus {
        transport, drained_by;
        worker, connected, epoch, acknowledged_epoch, ticks, late_ticks, failed_regions, cpu_ns, lost_verdicts,
        failed_batches, connections, revoked_regions, lmaps
    }
    LmapStatus {
        service, state, silent_replicas, reasons, points_at, detector, groups, members, interval_by, model_by;
        lmap, rows, rows_needed, gamma, scores, samples, discarded, columns, unwatched, replicas, alarm, alarms,
        at_unix_ns, rank, incident_unix_ns, alarms_per_day, gamma_factor, threshold_noise, worker, interval_us,
        judged_us, fetch_us, fastest_us, learning_rows, learning_needed, model_unused
    }
    Detector { score; rank, sketch_rows, stride, percentile, learning_rate, margin, alarms_per_day, rows_kept }
    Reason { column, group, unit, about, metric, statistic, labels, replica; share, seen, expected, since_us }
    Label { key, value }
    GroupShare { group; share }
    OpenPageReply { url; lifetime_ms }
    SetModelReply { examples; columns, unknown, running }
    IncidentsReply { node, incidents; in_memory }
    IncidentSummary { id, cause, services; began_unix_ns, ended_unix_ns, kept_traces, kept_logs }
    IncidentReply { incident }
    Incident {
        id, node, services, changes, traces, profiles, cause, logs, streams;
        began_unix_ns, ended_unix_ns, further_services, kept_traces, cut_short, kept_logs
    }
    IncidentService {
        service, points_at, metrics, silent_replicas;
        rank, began_unix_ns, ended_unix_ns, alarms, peak, peak_unix_ns, usual, usual_maximum, usual_seconds,
        ratios_from_s, ratio_step_s, ratios
    }
    IncidentChange { service, kind, text; at_unix_ns, precedes_alarm }
    IncidentTrace { id, policy, reason, spans; began_unix_ns, took_ns, further_spans }
    IncidentProfile {
        service, event, names, problem;
        began_unix_ns, frequency_hz, samples, lost, left_out, further_threads, stacks
    }
    IncidentSpan { service, name, side; id, parent, after_ns, took_ns, failed }
    IncidentStream { service, figures; at_unix_ns }
    IncidentFigure { metric, unit; largest, largest_unix_ns, expected, last }
    IncidentLog { service, text, trace, policy, reason, level; at_unix_ns, severity }
    HookEvent {
        service, state, episode, reasons, silent_replicas, points_at, groups, columns, change, concerned;
        hook, sequence, lost, lmap, at_unix_ns, score, gamma, rank, features, epoch
    }
    RowEvent { columns, change; at_unix_ns, score, values, lost, lmap }
    LmapChange { reason; deleted, successor, last }
    PendingMetric { metric; for_ms }
    ListReply { lmaps }
    LmapInfo { service, replicas, metrics, pending, members; lmap, interval_us, worker }
    LmapMember { service; replicas, metrics, missing_for_ms }
    ReplicaInfo { instance; replica, pid, regions, bytes }
    MetricInfo { name, labels, kind, unit, group, aggregation, decided_by, about; metric, every, derived }
    ReceiptReply { days, node, runs, waiting_spans, waiting_logs; since_unix_ns, in_memory }
    ReceiptRun {; began_unix_ns, written_unix_ns, ended_in_order }
    ReceiptDay { services, grown; day }
    ReceiptLine {
        service, kept_bytes_by_policy, dropped_spans, lost_spans, logs;
        seen_spans, seen_bytes, kept_spans, kept_bytes, requests, failed_requests, kept_requests,
        kept_failed_requests, alarms, alarm_ms, head_share
    }
    ReceiptLogs { kept_bytes_by_policy, dropped, lost; seen, seen_bytes, kept, kept_bytes }
    PathsReply { operations }
    PathOperation { tenant, service, operation, services; requests }
    PathService { service, operations; age_ms }
    SourcesReply { targets }
    SourceTarget {
        service, url, state, problem, format, families;
        interval_us, took_us, scrapes, failed_scrapes, learned, needed, samples, bytes, refused_samples, exposed,
        watched, summed, columns, restarts
    }
    SourceFamily { name, kind, why; exposed, watched }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "cart\nall is well\u{1b}[2J\u{202e}";
    const LINE: &str = "cart\\u{a}all is well\\u{1b}[2J\\u{202e}";

    #[test]
    fn each_text_of_a_reply_is_a_printable_line_however_deep_it_lies() {
        let hostile = || HOSTILE.to_owned();
        let labels = vec![Label { key: hostile(), value: hostile() }];
        let (column, metric, replica) = (hostile(), hostile(), hostile());
        let reason = Reason { column, metric, labels, replica, ..Reason::default() };
        let lmap = LmapStatus { service: hostile(), reasons: vec![reason], ..LmapStatus::default() };
        let status = StatusReply { lmaps: vec![lmap], counters: [(hostile(), 7)].into(), ..StatusReply::default() };

        let status = printable(status);

        assert_eq!((status.lmaps[0].service.as_str(), status.lmaps[0].reasons[0].column.as_str()), (LINE, LINE));
        let reason = &status.lmaps[0].reasons[0];
        assert_eq!((&*reason.metric, &*reason.labels[0].key, &*reason.labels[0].value), (LINE, LINE, LINE));
        assert_eq!(reason.replica, LINE);
        assert_eq!(status.counters, [(LINE.to_owned(), 7)].into());
        assert_eq!(printable(vec!["π\u{2009}µs".to_owned()]), ["π\u{2009}µs"]);
    }

    #[test]
    fn a_refusal_is_one_line() {
        assert_eq!(text(&tonic::Status::not_found(HOSTILE)), LINE);
    }
}

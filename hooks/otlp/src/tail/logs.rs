//! Tail sampling of log records: requests in, requests with kept records out. They wait beside the spans of their
//! tenant, in a buffer of their own.

use std::borrow::Cow;

use hooks::receipt::DailyLedger;
use hooks::tracing::{
    Account, DiscardReason, KeptLog, LogLimitsError, LogPolicy, LogRule, LossReason, ServiceCatalog, Tally,
};
use wire::time::{Nanos, Timestamp, UnixNanos};

use super::{IngestCounts, LONGEST_REQUEST, Source, TailSampler};
use crate::codec::{Group, RawLog, WireError, annotate_log, scan_logs};
use crate::export_buffer::{BATCH, Batch};
use crate::forwarded_headers::ForwardedHeaders;
use crate::grouped::GroupedItems;
use crate::holders::Holder;
use crate::origins::{Delivery, Origins};
use crate::senders::{SenderCheck, UNKNOWN, UNVERIFIED};

/// Settings of tail sampling of log records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSettings {
    /// Which records are kept beside those of kept traces.
    pub rule: LogRule,
    /// Memory for records that wait, in bytes, for each tenant. 64 MiB by default.
    pub memory_bytes: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { rule: LogRule::default(), memory_bytes: 64 << 20 }
    }
}

/// Kept records that are not yet queued.
#[derive(Debug, Default)]
pub(super) struct KeptLogs {
    scratch: Vec<u8>,
    records: GroupedItems,
    ready: Vec<Batch>,
}

impl KeptLogs {
    /// Adds a kept record with its annotations.
    fn add(&mut self, log: &KeptLog<'_>, origins: &Origins, ledger: &mut DailyLedger) {
        annotate_log(log.encoded, log.reason, &mut self.scratch);
        ledger.log_kept(log.service, log.reason.policy(), log.encoded.len());
        self.records.add(log.origin, &self.scratch, origins);
        if self.records.bytes() >= BATCH {
            self.seal();
        }
        // One long record must not hold its bytes for ever.
        self.scratch.shrink_to(64 << 10);
    }

    fn seal(&mut self) {
        self.ready.extend(self.records.drain(&[], &[]));
    }
}

impl TailSampler {
    /// From now on log records are sampled, too.
    ///
    /// # Errors
    ///
    /// [`LogLimitsError`] if the memory is too little, too much, or cannot be reserved.
    pub fn keep_logs(&mut self, settings: &LogSettings) -> Result<(), LogLimitsError> {
        self.keeper.keep_logs(settings.rule, settings.memory_bytes)
    }

    /// Whether log records are sampled.
    #[must_use]
    pub const fn keeps_logs(&self) -> bool {
        self.keeper.keeps_logs()
    }

    /// Ingests an `ExportLogsServiceRequest`.
    ///
    /// # Errors
    ///
    /// [`WireError`] if it is malformed; then nothing of it was ingested.
    pub fn ingest_logs(&mut self, request: &[u8], now: Timestamp) -> Result<IngestCounts, WireError> {
        self.ingest_logs_of(request, &ForwardedHeaders::default(), None, now)
    }

    /// As [`ingest_logs`](Self::ingest_logs), with the client's forwarded headers. What `check` does not let its sender
    /// send is of the service [`UNVERIFIED`].
    pub(crate) fn ingest_logs_of(
        &mut self,
        request: &[u8],
        forwarded: &ForwardedHeaders,
        mut check: Option<&mut SenderCheck<'_>>,
        now: Timestamp,
    ) -> Result<IngestCounts, WireError> {
        let mut counts = IngestCounts::default();
        let own = check.as_ref().and_then(|check| check.service()).map(Cow::into_owned);
        let pod = check.as_ref().and_then(|check| check.sender.pod()).cloned();
        let holder = check.as_ref().map_or(Holder::AGENT, |check| check.sender.holder());
        let delivery = Delivery { forwarded, pod: pod.as_deref(), holder: &holder };
        let mut last: Option<(Group<'_>, Option<&str>, Source)> = None;
        scan_logs(request, |group, log| {
            let context = last.take().filter(|(known, ..)| known.is(group)).unwrap_or_else(|| {
                let claimed = group.service_name().unwrap_or(UNKNOWN);
                let service = own.as_deref().unwrap_or(claimed);
                let is_verified = own.is_some() || check.as_ref().is_none_or(|check| check.may_send(service));
                let counted = if is_verified { service } else { UNVERIFIED };
                let source = self.source(counted, group, &delivery, now.monotonic);
                (*group, (!is_verified).then_some(claimed), source)
            });
            if let (Some(claimed), Some(check)) = (context.1, &mut check) {
                check.refuse(claimed);
            }
            self.ingest_log(&log, context.2, &mut counts, now);
            last = Some(context);
        })?;
        self.record_discarded_logs();
        Ok(counts)
    }

    fn ingest_log(
        &mut self,
        log: &Result<RawLog<'_>, &[u8]>,
        source: Source,
        counts: &mut IngestCounts,
        now: Timestamp,
    ) {
        let Self { keeper, names, paths, latencies, origins, export_buffer, kept_logs, .. } = self;
        let (service, ledger) = (source.service, &mut export_buffer.ledger);
        let bytes = log.as_ref().map_or_else(|bytes| bytes.len(), |log| log.encoded.len());
        ledger.turn(now.wall);
        ledger.log_seen(service, names.service_name(service), bytes);
        match (log, source.origin) {
            (Ok(log), Some(origin)) => {
                counts.accepted += 1;
                let record = log.record(service, origin, plausible(log.at, now.wall));
                let known = ServiceCatalog { names, paths, latencies };
                keeper.log(&record, &known, now.monotonic, |log| kept_logs.add(&log, origins, ledger));
            }
            (Err(_), _) => {
                keeper.malformed_log(bytes);
                ledger.log_gone(service, DiscardReason::Lost(LossReason::Malformed), Tally::one(bytes));
                counts.malformed += 1;
            }
            (Ok(_), None) => {
                keeper.over_limit_log(bytes);
                ledger.log_gone(service, DiscardReason::Lost(LossReason::OverLimit), Tally::one(bytes));
                counts.over_limit += 1;
            }
        }
    }

    /// Keeps the records of traces and alarms that were decided by now, and drops those that waited long enough.
    pub(super) fn tick_logs(&mut self, now: Nanos) {
        let Self { keeper, names, paths, latencies, origins, export_buffer, kept_logs, .. } = self;
        let known = ServiceCatalog { names, paths, latencies };
        let ledger = &mut export_buffer.ledger;
        keeper.tick_logs(&known, now, |log| kept_logs.add(&log, origins, ledger));
        self.record_discarded_logs();
    }

    fn record_discarded_logs(&mut self) {
        for (service, why, tally) in self.keeper.discarded_logs() {
            self.export_buffer.ledger.log_gone(service, why, tally);
        }
    }

    /// Drains the requests with kept log records.
    pub fn take_log_batches(&mut self) -> Vec<Batch> {
        self.kept_logs.seal();
        core::mem::take(&mut self.kept_logs.ready)
    }

    /// Account of all log records: seen = waiting + kept + dropped + lost. `None` if they are not sampled.
    #[must_use]
    pub fn log_account(&self) -> Option<&Account> {
        self.keeper.log_account()
    }

    /// How many times `policy` wanted a log record and had no budget.
    #[must_use]
    pub fn yielded_logs(&self, policy: LogPolicy) -> u64 {
        self.keeper.yielded_logs(policy)
    }

    /// Memory of waiting log records, in bytes.
    #[must_use]
    pub fn log_memory(&self) -> usize {
        self.keeper.log_memory()
    }
}

/// The time of a record, as far as it can be: without one, and of another age, it is of the present.
fn plausible(at: UnixNanos, now: UnixNanos) -> UnixNanos {
    if at.0 == 0 { now } else { at.clamp(now.minus(LONGEST_REQUEST), now.plus(Nanos::from_secs(10))) }
}

//! What a [`Keeper`] does with log records. They share its budget, its decisions about traces and its verdicts.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::id::{OriginId, ServiceId};
use crate::tracing::account::{Account, DiscardReason, DiscardedSpans, DropReason, LossReason, Tally};
use crate::tracing::budget::Payer;
use crate::tracing::decisions::StickyDecision;
use crate::tracing::keeper::Keeper;
pub use crate::tracing::logs::buffer::LogLimitsError;
use crate::tracing::logs::buffer::{LogBuffer, WaitingLog};
use crate::tracing::logs::record::{LogPolicy, LogReason, LogRecord};
use crate::tracing::policies::{Policies, ServiceCatalog};
use crate::tracing::reason::{Policy, Reason};
use crate::tracing::span::TraceId;
use crate::tracing::threshold::{Randomness, Threshold};
use crate::tracing::triggers::{Origin, Triggers};

/// Shortest interval between searches of waiting records.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);

/// Which log records are kept beside those of kept traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRule {
    /// Share of records that is always kept: by trace, else by a hash of the record. The same on all nodes.
    pub floor: Option<Threshold>,
    /// Whether errors and worse are kept.
    pub error: bool,
    /// Whether what a service in alarm wrote is kept.
    pub lmap: bool,
}

impl Default for LogRule {
    /// All on, the floor at 1 %.
    fn default() -> Self {
        Self { floor: Threshold::keeping(0.01).ok(), error: true, lmap: true }
    }
}

/// A log record to export.
#[derive(Clone, Copy, Debug)]
pub struct KeptLog<'a> {
    /// The trace that it was written in; `None` outside of one.
    pub trace: Option<TraceId>,
    /// The service that wrote it.
    pub service: ServiceId,
    /// Resource and scope with which it is exported.
    pub origin: OriginId,
    /// The encoded record, as received.
    pub encoded: &'a [u8],
    /// Why it is kept.
    pub reason: &'a LogReason,
}

/// Waiting log records and their account: a part of a [`Keeper`].
#[derive(Debug)]
pub(in crate::tracing) struct LogKeeper {
    rule: LogRule,
    buffer: LogBuffer,
    account: Account,
    discarded: DiscardedSpans,
    over_budget: [u64; LogPolicy::ALL.len()],
    /// Traces with waiting records that were decided since the last call of [`Keeper::tick_logs`].
    decided: Vec<(TraceId, Arc<Reason>, Payer)>,
    /// Services with verdicts since the last search, and when that was.
    alarmed: BTreeSet<ServiceId>,
    looked: Option<Nanos>,
}

impl LogKeeper {
    /// `trace` is kept for `reason`, and `payer` pays for what follows.
    pub(in crate::tracing) fn follow(&mut self, trace: TraceId, reason: &Arc<Reason>, payer: Payer) {
        if self.buffer.has(trace) {
            self.decided.push((trace, Arc::clone(reason), payer));
        }
    }

    /// There is a verdict about `service`.
    pub(in crate::tracing) fn verdict(&mut self, service: ServiceId) {
        self.alarmed.insert(service);
    }

    fn lose(&mut self, service: ServiceId, why: LossReason, tally: Tally) {
        self.account.add_lost(why, tally);
        self.discarded.add(service, DiscardReason::Lost(why), tally);
    }

    /// Lets `record` wait.
    fn wait(&mut self, record: &LogRecord<'_>, now: Nanos) {
        let tally = Tally::one(record.encoded.len());
        let Self { buffer, account, discarded, .. } = self;
        let has_room = buffer.offer(record, now, |service, evicted| {
            account.waiting -= evicted;
            account.add_lost(LossReason::Evicted, evicted);
            discarded.add(service, DiscardReason::Lost(LossReason::Evicted), evicted);
        });
        if has_room {
            self.account.waiting += tally;
        } else {
            self.lose(record.service, LossReason::Refused, tally);
        }
    }
}

/// The reason for keeping a record of `service` that was written `at` this moment and has so many bytes: it was in
/// alarm then. `Err`: it was, and there is no budget.
fn alarmed(
    (rule, triggers, policies): (&LogRule, &Triggers, &mut Policies),
    (service, name): (ServiceId, &str),
    (at, bytes): (UnixNanos, usize),
    now: Nanos,
) -> Option<Result<LogReason, LogPolicy>> {
    let is_on = rule.lmap && !policies.services().is_off(name, Policy::Lmap);
    let (reason, origin) = triggers.alarm_of(service, at).filter(|_| is_on)?;
    let payer = match origin {
        Origin::Here => Payer::Own(Policy::Lmap),
        Origin::Elsewhere(peers) => Payer::Others(peers),
    };
    let is_paid = policies.pays_for_log(payer, bytes, now);
    Some(if is_paid { Ok(LogReason::Lmap(reason)) } else { Err(LogPolicy::Lmap) })
}

impl Keeper {
    /// From now on it takes log records, too, which may take `bytes` of memory while they wait.
    ///
    /// # Errors
    ///
    /// [`LogLimitsError`] if the memory is too little, too much, or cannot be reserved.
    pub fn keep_logs(&mut self, rule: LogRule, bytes: usize) -> Result<(), LogLimitsError> {
        self.logs = Some(LogKeeper {
            rule,
            buffer: LogBuffer::new(bytes, self.buffer.key)?,
            account: Account::default(),
            discarded: DiscardedSpans::new(),
            over_budget: [0; LogPolicy::ALL.len()],
            decided: Vec::new(),
            alarmed: BTreeSet::new(),
            looked: None,
        });
        Ok(())
    }

    /// Takes a log record that arrived at `now`. `sink` takes it if it is kept at once. Does nothing without
    /// [`keep_logs`](Self::keep_logs).
    pub fn log(
        &mut self,
        record: &LogRecord<'_>,
        catalog: &ServiceCatalog<'_>,
        now: Nanos,
        sink: impl FnOnce(KeptLog<'_>),
    ) {
        if self.logs.is_none() {
            return;
        }
        let tally = Tally::one(record.encoded.len());
        let decided = self.decide_log(record, catalog, now);
        let Some(logs) = &mut self.logs else { return };
        logs.account.seen += tally;
        match decided {
            LogDecision::Keep(reason) => {
                logs.account.kept += tally;
                let LogRecord { trace, service, origin, encoded, .. } = *record;
                sink(KeptLog { trace, service, origin, encoded, reason: &reason });
            }
            LogDecision::Cut => logs.lose(record.service, LossReason::OverBudget, tally),
            LogDecision::Wait => logs.wait(record, now),
        }
    }

    fn decide_log(&mut self, record: &LogRecord<'_>, catalog: &ServiceCatalog<'_>, now: Nanos) -> LogDecision {
        let Self { buffer, policies, triggers, logs, .. } = self;
        let Some(LogKeeper { rule, over_budget, .. }) = logs else { return LogDecision::Wait };
        let bytes = record.encoded.len();
        let decision = record.trace.and_then(|trace| buffer.decision(trace));
        if let Some(StickyDecision::Kept { reason, own }) = decision {
            return if policies.pays_for_log_of(reason.policy(), own, bytes, now) {
                LogDecision::Keep(LogReason::Trace(reason))
            } else {
                LogDecision::Cut
            };
        }
        let randomness = record.trace.map_or_else(|| buffer.key.randomness(record.encoded), Randomness::of);
        // Its spans come later, and all nodes know that they are kept.
        let of_traces = policies.switches().floor.filter(|floor| record.trace.is_some() && floor.keeps(randomness));
        let floor = of_traces.map(|threshold| LogReason::Trace(Arc::new(Reason::Floor { threshold })));
        let own = || rule.floor.filter(|floor| floor.keeps(randomness)).map(LogReason::Floor);
        if let Some(reason) = floor.or_else(own) {
            let _always = policies.pays_for_log(Payer::Own(Policy::Floor), bytes, now);
            return LogDecision::Keep(reason);
        }
        let name = catalog.names.service_name(record.service);
        if rule.error && record.severity.is_error() && !policies.services().is_off(name, Policy::Error) {
            if policies.pays_for_log(Payer::Own(Policy::Error), bytes, now) {
                return LogDecision::Keep(LogReason::Error(record.severity));
            }
            over_budget[LogPolicy::Error as usize] += 1;
        }
        match alarmed((&*rule, &*triggers, policies), (record.service, name), (record.at, bytes), now) {
            Some(Ok(reason)) => LogDecision::Keep(reason),
            Some(Err(policy)) => {
                over_budget[policy as usize] += 1;
                LogDecision::Wait
            }
            None => LogDecision::Wait,
        }
    }

    /// To be called after each [`tick`](Self::tick), and where spans were kept: `sink` takes the waiting records of
    /// traces that were decided, and of services that were found in alarm since the last call. Drops those that have
    /// waited as long as spans do.
    pub fn tick_logs(&mut self, catalog: &ServiceCatalog<'_>, now: Nanos, mut sink: impl FnMut(KeptLog<'_>)) {
        let Self { buffer: spans, policies, triggers, logs: Some(logs), .. } = self else { return };
        let LogKeeper { rule, buffer, account, discarded, over_budget, decided, alarmed: services, looked } = logs;
        let mut keep = |account: &mut Account, log: &WaitingLog, reason: &LogReason, encoded: &[u8]| {
            account.waiting -= Tally::one(encoded.len());
            account.kept += Tally::one(encoded.len());
            let WaitingLog { trace, service, origin, .. } = *log;
            sink(KeptLog { trace, service, origin, encoded, reason });
        };
        for (trace, reason, payer) in decided.drain(..) {
            let reason = LogReason::Trace(reason);
            buffer.take_trace(trace, |log, encoded| {
                if policies.late(payer, encoded.len(), now) {
                    keep(account, log, &reason, encoded);
                } else {
                    account.waiting -= Tally::one(encoded.len());
                    account.add_lost(LossReason::OverBudget, Tally::one(encoded.len()));
                    let why = DiscardReason::Lost(LossReason::OverBudget);
                    discarded.add(log.service, why, Tally::one(encoded.len()));
                }
            });
        }
        if looked.is_none_or(|looked| now.since(looked).is_some_and(|rest| rest >= LOOK_EVERY)) {
            *looked = Some(now);
            for service in core::mem::take(services) {
                let name = catalog.names.service_name(service);
                let wanted = |log: &WaitingLog, bytes: usize| {
                    let found = alarmed((&*rule, &*triggers, &mut *policies), (service, name), (log.at, bytes), now)?;
                    found.map_err(|policy| over_budget[policy as usize] += 1).ok()
                };
                buffer.take_if(service, wanted, |log, reason, encoded| keep(account, log, &reason, encoded));
            }
        }
        buffer.expire(spans.limits.age, now, |service, tally| {
            account.waiting -= tally;
            account.add_dropped(DropReason::Aged, tally);
            discarded.add(service, DiscardReason::Dropped(DropReason::Aged), tally);
        });
    }

    /// Counts `bytes` that are no valid log record.
    pub fn malformed_log(&mut self, bytes: usize) {
        self.lost_log(LossReason::Malformed, bytes);
    }

    /// Counts a log record of `bytes` that has a new resource while there are too many resources.
    pub fn over_limit_log(&mut self, bytes: usize) {
        self.lost_log(LossReason::OverLimit, bytes);
    }

    fn lost_log(&mut self, why: LossReason, bytes: usize) {
        if let Some(logs) = &mut self.logs {
            logs.account.seen += Tally::one(bytes);
            logs.account.add_lost(why, Tally::one(bytes));
        }
    }

    /// Whether it takes log records.
    #[must_use]
    pub const fn keeps_logs(&self) -> bool {
        self.logs.is_some()
    }

    /// Account of all log records: seen = waiting + kept + dropped + lost. `None` if it takes none.
    #[must_use]
    pub fn log_account(&self) -> Option<&Account> {
        self.logs.as_ref().map(|logs| &logs.account)
    }

    /// How many times `policy` wanted a log record and had no budget.
    #[must_use]
    pub fn yielded_logs(&self, policy: LogPolicy) -> u64 {
        self.logs.as_ref().map_or(0, |logs| logs.over_budget[policy as usize])
    }

    /// Bytes of memory committed for waiting log records.
    #[must_use]
    pub fn log_memory(&self) -> usize {
        self.logs.as_ref().map_or(0, |logs| logs.buffer.memory())
    }

    /// Takes the log records that were dropped and lost since the last call, by service.
    pub fn discarded_logs(&mut self) -> impl Iterator<Item = (ServiceId, DiscardReason, Tally)> {
        self.logs.as_mut().map(|logs| logs.discarded.take()).into_iter().flatten()
    }
}

/// What becomes of a record that has just arrived.
enum LogDecision {
    Keep(LogReason),
    /// Its trace is kept, and there is no budget for what follows it.
    Cut,
    Wait,
}

//! What workers say about LMAPs: taken only if it is about the present configuration.

use hooks::tracing::Parts;
use wire::control::{Episode, Verdict};
use wire::id::{Epoch, LmapId, WorkerId};
use wire::proto::control as proto;
use wire::time::Nanos;

use super::incidents::Said;
use super::lmap::{Lmap, Told};
use super::{Action, ControlPlane, Event, NamedReason, RowBatch};

/// The most reasons of one verdict that are kept.
const REASONS: usize = 16;
/// The most scores of one summary that are kept.
const SCORES: usize = 16;

/// Why something about an LMAP is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    /// The worker does not have it.
    Foreign,
    /// It is about another configuration.
    Stale,
}

/// The reasons of `verdict` by name.
pub(super) fn named<'a>(told: &Told, reasons: impl Iterator<Item = &'a wire::control::Reason>) -> Vec<NamedReason> {
    reasons
        .filter_map(|reason| {
            let series = &told.metric(reason.metric)?.series;
            Some(NamedReason {
                column: series.column_title(reason.statistic),
                group: series.group,
                unit: series.column_unit(reason.statistic).to_owned(),
                share: reason.share,
                seen: reason.seen,
                expected: reason.expected,
                since: reason.since,
            })
        })
        .take(REASONS)
        .collect()
}

impl ControlPlane {
    pub(super) fn verdicts(&mut self, worker: WorkerId, message: &proto::Verdicts) {
        for verdict in &message.verdicts {
            let Some(mut verdict) = Verdict::decode(verdict) else {
                self.counters.malformed_verdicts += 1;
                continue;
            };
            verdict.reasons.truncate(REASONS);
            match self.present(worker, verdict.lmap, verdict.epoch) {
                Err(Dropped::Foreign) => self.counters.foreign_verdicts += 1,
                Err(Dropped::Stale) => self.counters.stale_verdicts += 1,
                Ok(()) => {
                    self.counters.verdicts += 1;
                    self.take_verdict(worker, message.at_unix_ns, verdict);
                }
            }
        }
    }

    pub(super) fn summary(&mut self, worker: WorkerId, message: proto::Summary) {
        for mut summary in message.lmaps {
            let id = LmapId(summary.lmap);
            if self.present(worker, id, Epoch(summary.epoch)).is_err() {
                self.counters.stale_summaries += 1;
                continue;
            }
            summary.scores.truncate(SCORES);
            summary.reasons.truncate(REASONS);
            summary.silent_replicas.truncate(wire::control::MAX_REPLICAS);
            if let Some(lmap) = self.lmaps.get_mut(&id) {
                lmap.health.at_unix_ns = message.at_unix_ns;
                lmap.health.summary = Some(summary);
            }
        }
        if let Some(session) = self.workers.get_mut(&worker).and_then(|worker| worker.session.as_mut()) {
            session.counters = message.counters.unwrap_or(session.counters);
        }
    }

    pub(super) fn rows(&mut self, worker: WorkerId, message: proto::Rows) {
        let (lmap, epoch) = (LmapId(message.lmap), Epoch(message.epoch));
        let count = message.rows.len() as u64;
        let told = self.lmaps.get(&lmap).and_then(|lmap| lmap.told.as_ref());
        let (Ok(()), Some(told)) = (self.present(worker, lmap, epoch), told) else {
            self.counters.stale_rows += count;
            return;
        };
        let columns = std::sync::Arc::clone(&told.columns);
        let mut rows = message.rows;
        rows.retain(|row| row.values.len() == columns.len());
        self.counters.stale_rows += count - rows.len() as u64;
        self.counters.rows += rows.len() as u64;
        if !rows.is_empty() {
            self.actions.push(Action::Rows(Box::new(RowBatch { lmap, epoch, columns, rows })));
        }
    }

    /// Whether something that `worker` says about `lmap` in `epoch` is about its present configuration.
    fn present(&self, worker: WorkerId, lmap: LmapId, epoch: Epoch) -> Result<(), Dropped> {
        let lmap: &Lmap = self.lmaps.get(&lmap).ok_or(Dropped::Foreign)?;
        let told = lmap.told.as_ref().filter(|_| lmap.worker == Some(worker)).ok_or(Dropped::Foreign)?;
        let last = self.workers.get(&worker).map_or(Epoch::NONE, |worker| worker.epoch);
        if told.epoch <= epoch && epoch <= last { Ok(()) } else { Err(Dropped::Stale) }
    }

    /// From now on services in alarm are ranked by who calls whom in `calls`.
    pub fn know_calls(&mut self, calls: ranking::Calls) {
        self.incidents.know(calls);
    }

    fn take_verdict(&mut self, worker: WorkerId, at_unix_ns: u64, verdict: Verdict) {
        let Some(lmap) = self.lmaps.get_mut(&verdict.lmap) else {
            return;
        };
        let alarm = matches!(verdict.episode, Episode::Began | Episode::On);
        let begins = alarm && !lmap.health.alarm;
        lmap.health.alarms += u64::from(begins);
        lmap.health.alarm = alarm;
        let Some(told) = &lmap.told else {
            return;
        };
        let silent = verdict.silent.iter().filter_map(|replica| told.replicas.get(replica).cloned()).collect();
        let reasons = named(told, verdict.reasons.iter());
        let series = |metric| told.metric(metric).map(|metric| &metric.series);
        let row = verdict.row.as_ref().zip(verdict.gamma).filter(|_| verdict.silent.is_empty());
        let parts = row.map(|(row, gamma)| Parts::of(row, gamma, series));
        let (id, service, interval) = (verdict.lmap, lmap.service.clone(), lmap.interval);
        if alarm {
            let said = Said {
                lmap: id,
                service: &service,
                interval,
                at: Nanos(at_unix_ns),
                begins,
                ratio: verdict.gamma.map_or(0.0, |gamma| verdict.score / gamma),
                silent: !verdict.silent.is_empty(),
                reasons: &reasons,
            };
            let lmaps = &self.lmaps;
            self.incidents.heard(&said, |id| lmaps.get(&id).is_some_and(|lmap| lmap.health.alarm));
        }
        let suspicion = if alarm { self.incidents.suspicion(id) } else { None };
        let event = Event { worker, service, at_unix_ns, verdict, reasons, parts, silent, suspicion };
        self.actions.push(Action::Dispatch(Box::new(event)));
    }
}

//! Messages of workers about LMAPs. Those about an outdated configuration are dropped.

use std::collections::BTreeMap;

use hooks::tracing::ScoreBreakdown;
use wire::control::{Episode, Verdict};
use wire::id::{Epoch, LmapId, WorkerId};
use wire::name::MetricName;
use wire::proto::control as proto;
use wire::time::{Nanos, UnixNanos};

use super::action::{Action, Event, RowBatch};
use super::incidents::AlarmVerdict;
use super::lmap::Lmap;
use super::memory_accounts::bounded;
use super::named_reason::NamedReason;
use super::replica::Replica;
use super::sent_config::SentConfig;
use super::state::ControlPlane;

/// Reasons kept of one verdict.
const REASONS: usize = 16;
/// Scores kept of one summary.
const SCORES: usize = 16;

/// What the values of metrics are about.
pub(super) type Subjects<'a> = BTreeMap<&'a MetricName, &'a str>;

/// Why a message about an LMAP is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DropReason {
    /// The worker does not run the LMAP.
    Unexpected,
    /// The message is about another configuration.
    Stale,
}

/// The reasons by name, without metrics that are unknown.
pub(super) fn named<'a>(
    sent: &SentConfig,
    subjects: &Subjects<'_>,
    reasons: impl Iterator<Item = &'a wire::control::Reason>,
) -> Vec<NamedReason> {
    reasons.filter_map(|reason| named_one(sent, subjects, reason)).take(REASONS).collect()
}

/// A reason by name; `None` if its metric is unknown.
pub(super) fn named_one(
    sent: &SentConfig,
    subjects: &Subjects<'_>,
    reason: &wire::control::Reason,
) -> Option<NamedReason> {
    let series = sent.metric(reason.metric)?.series.clone();
    let about = subjects.get(&series.name).copied().unwrap_or_default().to_owned();
    let replica = reason.replica.and_then(|replica| sent.replica_name(replica)).unwrap_or_default();
    Some(NamedReason::new(series, reason, about, replica.to_owned()))
}

impl ControlPlane {
    /// What the values of metrics of a service are about at present, as the first of its replicas says that says
    /// anything; nothing for an LMAP over several services. O(replicas).
    pub(super) fn subjects(&self, lmap: &Lmap) -> Subjects<'_> {
        let service = self.services.get(&lmap.service).filter(|_| lmap.members.is_none());
        let replicas = service.into_iter().flat_map(|service| self.connections.replicas_of(&service.replicas));
        let mut subjects = Subjects::new();
        for (metric, subject) in replicas.flat_map(Replica::subjects) {
            subjects.entry(metric).or_insert(subject);
        }
        subjects
    }

    pub(super) fn verdicts(&mut self, worker: WorkerId, message: &proto::Verdicts) {
        for verdict in &message.verdicts {
            let Some(mut verdict) = Verdict::decode(verdict) else {
                self.counters.malformed_verdicts += 1;
                continue;
            };
            verdict.reasons.truncate(REASONS);
            match self.present(worker, verdict.lmap, verdict.epoch) {
                Err(DropReason::Unexpected) => self.counters.unexpected_verdicts += 1,
                Err(DropReason::Stale) => self.counters.stale_verdicts += 1,
                Ok(()) => {
                    self.counters.verdicts += 1;
                    self.hurry(worker, &verdict);
                    self.take_verdict(worker, UnixNanos(message.at_unix_ns), verdict);
                }
            }
        }
    }

    pub(super) fn summary(&mut self, worker: WorkerId, message: proto::Summary, now: Nanos) {
        for mut summary in message.lmaps {
            let id = LmapId(summary.lmap);
            self.finish_move(worker, id, &summary, now);
            if self.present(worker, id, Epoch(summary.epoch)).is_err() {
                self.counters.stale_summaries += 1;
                continue;
            }
            summary.scores.truncate(SCORES);
            summary.reasons.truncate(REASONS);
            summary.silent_replicas.truncate(wire::control::MAX_REPLICAS);
            self.take_pace(worker, &summary);
            if let Some(lmap) = self.lmaps.get_mut(&id) {
                let columns = lmap.sent.as_ref().map_or(0, |sent| sent.columns.len());
                summary.each.truncate(if lmap.looked_at { columns } else { 0 });
                lmap.health.at = UnixNanos(message.at_unix_ns);
                let before = lmap.health.last_score.filter(|_| summary.state() != proto::State::Learning);
                lmap.health.last_score = summary.scores.last().copied().or(before);
                lmap.health.summary = Some(summary);
            }
        }
        if let Some(session) = self.workers.get_mut(&worker).and_then(|worker| worker.session.as_mut()) {
            session.counters = message.counters.unwrap_or(session.counters);
            session.account = message.account.map(bounded).or_else(|| session.account.take());
        }
    }

    pub(super) fn rows(&mut self, worker: WorkerId, message: proto::Rows) {
        let (lmap, epoch) = (LmapId(message.lmap), Epoch(message.epoch));
        let count = message.rows.len() as u64;
        let sent = self.lmaps.get(&lmap).and_then(|lmap| lmap.sent.as_ref());
        let (Ok(()), Some(sent)) = (self.present(worker, lmap, epoch), sent) else {
            self.counters.stale_rows += count;
            return;
        };
        let columns = std::sync::Arc::clone(&sent.columns);
        let mut rows = message.rows;
        rows.retain(|row| row.values.len() == columns.len());
        self.counters.stale_rows += count - rows.len() as u64;
        self.counters.rows += rows.len() as u64;
        if !rows.is_empty() {
            self.actions.push(Action::Rows(Box::new(RowBatch { lmap, epoch, columns, rows })));
        }
    }

    /// Whether a message of `worker` about `lmap` in `epoch` is about the current configuration.
    fn present(&self, worker: WorkerId, lmap: LmapId, epoch: Epoch) -> Result<(), DropReason> {
        let lmap: &Lmap = self.lmaps.get(&lmap).ok_or(DropReason::Unexpected)?;
        let sent = lmap.sent.as_ref().filter(|_| lmap.worker == Some(worker)).ok_or(DropReason::Unexpected)?;
        let last = self.workers.get(&worker).map_or(Epoch::NONE, |worker| worker.epoch);
        if sent.epoch <= epoch && epoch <= last { Ok(()) } else { Err(DropReason::Stale) }
    }

    /// Ranks services in alarm by the call graph `calls` from now on.
    pub fn set_calls(&mut self, calls: hooks::suspects::Calls) {
        self.incidents.set_calls(calls);
    }

    /// Incidents with their services by suspicion.
    #[must_use]
    pub fn incident_rankings(&self) -> Vec<::incidents::recorder::Ranking> {
        self.incidents.rankings(|id| self.lmaps.get(&id).is_some_and(|lmap| lmap.health.alarm))
    }

    fn take_verdict(&mut self, worker: WorkerId, at: UnixNanos, mut verdict: Verdict) {
        let Some(lmap) = self.lmaps.get_mut(&verdict.lmap) else {
            return;
        };
        let alarm = matches!(verdict.episode, Episode::Began | Episode::On);
        let begins = alarm && !lmap.health.alarm;
        let another = !begins && verdict.episode == Episode::Began;
        lmap.health.alarms += u64::from(begins || another);
        lmap.health.alarm = alarm;
        let Some(lmap) = self.lmaps.get(&verdict.lmap) else {
            return;
        };
        let Some(sent) = &lmap.sent else {
            return;
        };
        verdict.features = verdict.features.filter(|features| features.has(sent.columns.len()));
        let columns = verdict.features.as_ref().map(|_| std::sync::Arc::clone(&sent.columns));
        let silent = verdict.silent.iter().filter_map(|replica| sent.replicas.get(replica).cloned()).collect();
        let reasons = named(sent, &self.subjects(lmap), verdict.reasons.iter());
        let series = |metric| sent.metric(metric).map(|metric| &metric.series);
        let row = verdict.row.as_ref().zip(verdict.gamma).filter(|_| verdict.silent.is_empty());
        // Operations of one service are not those of another.
        let row = row.filter(|_| lmap.members.is_none());
        let breakdown = row.map(|(row, gamma)| ScoreBreakdown::of(row, gamma, series));
        let (id, service, interval) = (verdict.lmap, lmap.service.clone(), lmap.interval);
        let concerned = if alarm { lmap.concerned(&verdict.reasons) } else { Vec::new() };
        // It is no service that could be the cause.
        let is_ranked = alarm && lmap.members.is_none();
        if is_ranked {
            let alarm_verdict = AlarmVerdict {
                lmap: id,
                service: &service,
                interval,
                at,
                begins,
                ratio: verdict.gamma.map_or(0.0, |gamma| verdict.score / gamma),
                silent: !verdict.silent.is_empty(),
                reasons: &reasons,
            };
            let lmaps = &self.lmaps;
            self.incidents.add(&alarm_verdict, |id| lmaps.get(&id).is_some_and(|lmap| lmap.health.alarm));
        }
        let suspicion = if is_ranked { self.incidents.suspicion(id) } else { None };
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.health.concerned.clone_from(&concerned);
        }
        let event = Event { worker, service, at, verdict, reasons, breakdown, silent, suspicion, columns, concerned };
        self.actions.push(Action::Dispatch(Box::new(event)));
    }
}

//! Replies to operators: the list of LMAPs and the status.

use wire::control::{GroupShare, MetricSpec, Reason};
use wire::id::{Epoch, LmapId, ReplicaId, WorkerId};
use wire::metric::{Aggregation, Series};
use wire::proto::{control, operators as proto};
use wire::time::{Nanos, UnixNanos};

use super::incidents::Suspicion;
use super::lmap::Lmap;
use super::members::{MemberState, Members};
use super::named_reason::NamedReason;
use super::replica::Replica;
use super::selection::WatchRule;
use super::sent_config::SentConfig;
use super::state::ControlPlane;
use super::verdicts::{Subjects, named, named_one};
use super::worker::Worker;

/// Lines of the status about what replicas declare differently, at most.
const MAX_DISAGREEMENTS: usize = 16;

impl From<&NamedReason> for proto::Reason {
    fn from(reason: &NamedReason) -> Self {
        let label = |(key, value): (&str, &str)| proto::Label { key: key.to_owned(), value: value.to_owned() };
        Self {
            column: reason.column(),
            group: reason.series.group.name().to_owned(),
            unit: reason.unit().to_owned(),
            share: reason.share,
            seen: reason.seen,
            expected: reason.expected,
            since_us: reason.since.0 / 1000,
            about: reason.about.clone(),
            metric: reason.series.name.to_string(),
            statistic: reason.statistic.name().to_owned(),
            labels: reason.series.labels.iter().map(label).collect(),
            replica: reason.replica.clone(),
        }
    }
}

/// Numbers of workers by which readiness is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReadiness {
    /// Those that are connected.
    pub connected: usize,
    /// Those of them on which LMAPs may be placed: neither drained nor about to end.
    pub taking: usize,
    /// Those of these that have acknowledged a configuration, or were sent none.
    pub configured: usize,
}

impl ControlPlane {
    /// LMAPs with their services, replicas and metrics.
    #[must_use]
    pub fn list(&self) -> proto::ListReply {
        proto::ListReply { lmaps: self.lmaps.values().map(|lmap| self.lmap_info(lmap)).collect() }
    }

    /// Chosen metrics of `lmap` that no replica has registered, and for how long.
    #[must_use]
    pub fn pending(&self, lmap: LmapId, now: Nanos) -> Vec<proto::PendingMetric> {
        let pending = self.lmaps.get(&lmap).into_iter().flat_map(|lmap| lmap.selection.pending());
        let age = |since: Nanos| now.since(since).map_or(0, Nanos::as_millis);
        pending.map(|(name, since)| proto::PendingMetric { metric: name.to_string(), for_ms: age(*since) }).collect()
    }

    /// The services of `lmap` if it is over several, and for how long those without any watched series have been
    /// missing.
    #[must_use]
    pub fn members(&self, lmap: LmapId, now: Nanos) -> Vec<proto::LmapMember> {
        let age = |since: Nanos| now.since(since).map_or(0, Nanos::as_millis);
        let member = |(state, replicas): (MemberState, usize)| proto::LmapMember {
            service: state.service.to_string(),
            replicas: replicas as u32,
            metrics: state.series as u32,
            missing_for_ms: state.missing_since.map(age),
        };
        self.member_states(lmap).map(member).collect()
    }

    /// Workers, the latest state of each LMAP, counters and problems. The edge fills in version and uptime.
    #[must_use]
    pub fn status(&self) -> proto::StatusReply {
        let suspicions = self.incidents.suspicions(|id| self.lmaps.get(&id).is_some_and(|lmap| lmap.health.alarm));
        let lmap_status = |lmap: &Lmap| self.lmap_status(lmap, suspicions.get(&lmap.id));
        proto::StatusReply {
            version: String::new(),
            incarnation: self.settings.incarnation.0,
            uptime_ms: 0,
            workers: self.workers.iter().map(|(&id, worker)| self.worker_status(id, worker)).collect(),
            lmaps: self.lmaps.values().map(lmap_status).collect(),
            counters: self.counters.iter().map(|(name, _, value)| (name.to_owned(), value)).collect(),
            problems: self
                .drained_problem()
                .into_iter()
                .chain(self.unfenced())
                .chain(self.unreadable())
                .chain(self.shares.lines())
                .chain(self.disagreements())
                .chain(self.left_out())
                .chain(self.problems.lines())
                .collect(),
            warnings: self.warnings(),
            notes: Vec::new(),
        }
    }

    /// Of the LMAPs of the [status](Self::status), what a history of scores takes: number, service, time, γ and scores,
    /// alarm and rank. Reasons only of scores from γ on: to name them takes most of the time that a status takes. Of
    /// one whose number and time are not new, as `is_new` says, these alone: nothing is allocated for it.
    #[must_use]
    pub fn scored(&self, is_new: impl Fn(u32, u64) -> bool) -> Vec<proto::LmapStatus> {
        let suspicions = self.incidents.suspicions(|id| self.lmaps.get(&id).is_some_and(|lmap| lmap.health.alarm));
        let scored = |lmap: &Lmap| {
            let of_a_summary = lmap.health.summary.as_ref().zip(lmap.sent.as_ref());
            let (number, at) = (lmap.id.0, of_a_summary.map_or(0, |_| lmap.health.at.0));
            if is_new(number, at) {
                return self.scored_lmap(lmap, suspicions.get(&lmap.id));
            }
            proto::LmapStatus { lmap: number, at_unix_ns: at, ..proto::LmapStatus::default() }
        };
        self.lmaps.values().map(scored).collect()
    }

    fn scored_lmap(&self, lmap: &Lmap, suspicion: Option<&Suspicion>) -> proto::LmapStatus {
        let points_at = suspicion.and_then(|suspicion| suspicion.points_at.as_ref());
        let status = proto::LmapStatus {
            lmap: lmap.id.0,
            service: lmap.service.to_string(),
            alarm: lmap.health.alarm,
            rank: suspicion.map_or(0, |suspicion| suspicion.rank),
            points_at: points_at.map(ToString::to_string).unwrap_or_default(),
            ..proto::LmapStatus::default()
        };
        let (Some(summary), Some(sent)) = (&lmap.health.summary, &lmap.sent) else { return status };
        // Whoever compares in single precision may see more of them at γ.
        let gamma = summary.gamma.min(f64::from(summary.gamma as f32));
        let is_above = gamma > 0.0 && summary.scores.iter().any(|score| f64::from(*score) >= gamma);
        proto::LmapStatus {
            at_unix_ns: lmap.health.at.0,
            gamma: summary.gamma,
            scores: summary.scores.clone(),
            reasons: if is_above { reasons(summary, sent, &self.subjects(lmap)) } else { Vec::new() },
            ..status
        }
    }

    /// What the agent's configuration leaves open, and that of each connected worker, in words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let connected = self.workers.iter().filter(|(_, worker)| worker.is_connected());
        let of_workers = connected.flat_map(|(id, worker)| {
            let of = worker.session.iter().flat_map(|session| &session.warnings);
            of.map(move |warning| format!("{id}: {warning}"))
        });
        self.settings.warnings.iter().cloned().chain(of_workers).collect()
    }

    /// Numbers of workers by which readiness is judged.
    #[must_use]
    pub fn worker_readiness(&self) -> WorkerReadiness {
        let connected = self.workers.values().filter(|worker| worker.is_connected());
        let taking = connected.clone().filter(|worker| worker.takes_lmaps());
        let is_configured = |worker: &&Worker| {
            worker.session.as_ref().is_some_and(|session| {
                // Later changes are acknowledged within a tick: they do not make it unready.
                session.acknowledged > Epoch::NONE || session.lmaps_sent.is_empty()
            })
        };
        WorkerReadiness {
            connected: connected.count(),
            taking: taking.clone().count(),
            configured: taking.filter(is_configured).count(),
        }
    }

    /// The LMAP's column titles; `None` if there is no such LMAP. Empty while no worker runs it.
    #[must_use]
    pub fn columns(&self, id: LmapId) -> Option<std::sync::Arc<[String]>> {
        let lmap = self.lmaps.get(&id)?;
        Some(lmap.sent.as_ref().map_or_else(Default::default, |sent| std::sync::Arc::clone(&sent.columns)))
    }

    /// When the row was scored last, and its columns, if somebody looks at `id` ([`Self::look_at`]); `None` if there is
    /// no such LMAP. Empty until its worker has sent them.
    #[must_use]
    pub fn each_column(&self, id: LmapId) -> Option<(UnixNanos, Vec<proto::Reason>)> {
        let lmap = self.lmaps.get(&id)?;
        let (Some(summary), Some(sent)) = (&lmap.health.summary, &lmap.sent) else {
            return Some((UnixNanos(0), Vec::new()));
        };
        let subjects = self.subjects(lmap);
        let each =
            summary.each.iter().filter_map(Reason::decode).filter_map(|reason| named_one(sent, &subjects, &reason));
        Some((lmap.health.at, each.map(|reason| proto::Reason::from(&reason)).collect()))
    }

    /// Sizes by metric name: services, replicas, LMAPs, LMAPs without a worker, regions that are unreadable by RDMA,
    /// workers that are not fenced, bytes of models that are kept, workers that operators drain, and bytes of series.
    #[must_use]
    pub fn sizes(&self) -> [(&'static str, usize); 9] {
        let replicas = self.services.values().map(|service| service.replicas.len()).sum();
        let services = self.services.values().filter(|service| !service.replicas.is_empty()).count();
        let unplaced = self.lmaps.values().filter(|lmap| lmap.worker.is_none()).count();
        let unreadable = self.rdma.unregistered();
        [
            ("services", services),
            ("replicas", replicas),
            ("lmaps", self.lmaps.len()),
            ("unplaced_lmaps", unplaced),
            ("unreadable_regions", unreadable),
            ("unfenced_workers", self.rdma.unfenced()),
            ("kept_model_bytes", self.kept.bytes()),
            ("drained_workers", self.drained_workers().count()),
            ("series_bytes", self.series_bytes()),
        ]
    }

    /// Bytes of series, as they were asked for: in catalogues, in replicas, in LMAPs and what workers were sent of
    /// them. O(services + replicas).
    fn series_bytes(&self) -> usize {
        let catalogues: usize = self.services.values().map(|service| service.catalogue.kept_bytes()).sum();
        let replicas: usize = self.connections.replicas().map(Replica::kept_bytes).sum();
        let lmaps: usize = self.lmaps.values().map(Lmap::kept_bytes).sum();
        catalogues + replicas + lmaps
    }

    /// Bytes of all that is counted in bytes here: series, what operators chose, and models of detectors and of
    /// operators.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.series_bytes() + self.choice_bytes() + self.kept.bytes() + self.model_bytes() as usize
    }

    fn lmap_info(&self, lmap: &Lmap) -> proto::LmapInfo {
        let service = self.services.get(&lmap.service).filter(|_| lmap.members.is_none());
        let members = lmap.members.iter().flat_map(Members::names).filter_map(|name| self.services.get(name));
        let connections = service.into_iter().chain(members).flat_map(|service| &service.replicas);
        let replicas = connections.filter_map(|c| {
            let connection = self.connections.get(*c)?;
            let replica = connection.replica()?;
            Some(proto::ReplicaInfo {
                replica: replica.id.0,
                instance: replica.instance.to_string(),
                pid: connection.peer.pid,
                regions: replica.regions().count() as u64,
                bytes: replica.regions().map(|(_, region)| region.size.bytes() as u64).sum(),
            })
        });
        let subjects = self.subjects(lmap);
        let info = |metric: u32, series: &Series, watch: &WatchRule| proto::MetricInfo {
            metric,
            name: series.name.to_string(),
            labels: series.labels.to_string(),
            kind: series.kind.to_string(),
            unit: series.unit.as_ref().map(ToString::to_string).unwrap_or_default(),
            group: series.group.name().to_owned(),
            aggregation: watch.aggregation.to_string(),
            every: watch.every.get(),
            decided_by: watch.decided_by.to_owned(),
            derived: matches!(watch.aggregation, Aggregation::Derived(_)),
            about: subjects.get(&series.name).copied().unwrap_or_default().to_owned(),
        };
        let metrics = lmap.numbers().iter().filter_map(|(key, number)| {
            let catalogue = &service?.catalogue;
            let series = catalogue.get(key).filter(|series| lmap.selection.watches(series))?;
            Some(info(number.0, series, &lmap.watch(key, series, catalogue, &self.settings)))
        });
        let of_members = lmap
            .members
            .iter()
            .flat_map(Members::series)
            .filter_map(|(key, of)| Some(info(lmap.numbers().get(key)?.0, &of.series, &of.watch)));
        let derived = lmap.derived().map(|MetricSpec { id, series, aggregation, every }| {
            info(id.0, &series, &WatchRule { aggregation, every, decided_by: "operator" })
        });
        proto::LmapInfo {
            lmap: lmap.id.0,
            service: lmap.service.to_string(),
            interval_us: lmap.interval.length().0 / 1000,
            worker: lmap.worker.map_or(u32::MAX, |worker| worker.0),
            replicas: replicas.collect(),
            metrics: metrics.chain(of_members).chain(derived).collect(),
            pending: Vec::new(),
            members: Vec::new(),
        }
    }

    fn lmap_status(&self, lmap: &Lmap, suspicion: Option<&Suspicion>) -> proto::LmapStatus {
        let points_at = suspicion.and_then(|suspicion| suspicion.points_at.as_ref());
        let replicas = match &lmap.members {
            None => self.replicas_of(&lmap.service).count(),
            Some(members) => members.names().map(|service| self.replicas_of(service).count()).sum(),
        };
        let status = proto::LmapStatus {
            lmap: lmap.id.0,
            service: lmap.service.to_string(),
            state: if lmap.worker.is_none() { "waiting" } else { "starting" }.to_owned(),
            replicas: replicas as u32,
            alarm: lmap.health.alarm,
            alarms: lmap.health.alarms,
            rank: suspicion.map_or(0, |suspicion| suspicion.rank),
            points_at: points_at.map(ToString::to_string).unwrap_or_default(),
            incident_unix_ns: suspicion.map_or(0, |suspicion| suspicion.incident.0),
            detector: (!lmap.detector.is_default()).then(|| (&lmap.detector).into()),
            worker: lmap.worker.map(|worker| worker.0),
            interval_us: lmap.interval.length().0 / 1000,
            interval_by: lmap.interval_by.clone(),
            fastest_us: self.fastest_of(lmap).map_or(0, |of| of.length().0 / 1000),
            model_by: if lmap.model.is_empty() { String::new() } else { lmap.model_by.clone() },
            model_unused: !lmap.model.is_empty() && lmap.model_in_use().is_none(),
            ..proto::LmapStatus::default()
        };
        match (&lmap.health.summary, &lmap.sent) {
            (Some(summary), Some(sent)) => {
                let status = with_summary(status, lmap.health.at, summary, sent, &self.subjects(lmap));
                // It may be newer than the summary.
                let fetch_us = lmap.pace.map_or(status.fetch_us, |pace| pace.length().0 / 1000);
                proto::LmapStatus { fetch_us, ..status }
            }
            _ => status,
        }
    }

    fn worker_status(&self, id: WorkerId, worker: &Worker) -> proto::WorkerStatus {
        let session = worker.session.as_ref();
        let counters = session.map(|session| session.counters).unwrap_or_default();
        proto::WorkerStatus {
            worker: id.0,
            connected: worker.is_connected(),
            transport: session.map(|session| session.transport.clone()).unwrap_or_default(),
            epoch: worker.epoch.0,
            acknowledged_epoch: session.map_or(0, |session| session.acknowledged.0),
            ticks: counters.ticks,
            late_ticks: counters.late_ticks,
            failed_regions: counters.failed_regions,
            cpu_ns: counters.cpu_ns,
            lost_verdicts: counters.lost_verdicts,
            failed_batches: counters.failed_batches,
            connections: counters.connections,
            revoked_regions: counters.revoked_regions,
            drained_by: worker.drain.as_ref().map(|drain| drain.by.clone()),
            lmaps: self.lmaps_on(id) as u32,
        }
    }

    /// Series about which replicas declare different things, and what is in effect.
    fn disagreements(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let watched = self.lmaps.iter().filter_map(|(id, lmap)| Some((self.services.get(&lmap.service)?, *id)));
        for (service, id) in watched {
            for key in service.catalogue.disagreeing() {
                let (Some(lmap), Some(series)) = (self.lmaps.get(&id), service.catalogue.get(key)) else { continue };
                let Some(declared) = service.catalogue.declared(key) else { continue };
                if lines.len() == MAX_DISAGREEMENTS {
                    lines.push("replicas of more services declare different aggregations".to_owned());
                    return lines;
                }
                let watch = lmap.watch(key, series, &service.catalogue, &self.settings);
                lines.push(format!(
                    "{}: replicas declare {} differently: {}; in effect: {} ({}), every {}",
                    lmap.service,
                    series.title(),
                    declared.described(),
                    watch.aggregation,
                    watch.decided_by,
                    Nanos(lmap.interval.length().0.saturating_mul(u64::from(watch.every.get()))),
                ));
            }
        }
        lines
    }
}

/// Shares of a score by metric group.
pub(crate) fn group_shares(shares: &[GroupShare]) -> Vec<proto::GroupShare> {
    shares.iter().map(|share| proto::GroupShare { group: share.group.name().to_owned(), share: share.share }).collect()
}

fn with_summary(
    status: proto::LmapStatus,
    at: UnixNanos,
    summary: &control::LmapSummary,
    sent: &SentConfig,
    subjects: &Subjects<'_>,
) -> proto::LmapStatus {
    let silent = summary.silent_replicas.iter().filter_map(|&replica| sent.replicas.get(&ReplicaId(replica)));
    proto::LmapStatus {
        state: wire::control::State::from(summary.state()).name().to_owned(),
        rows: summary.rows,
        rows_needed: summary.rows_needed,
        gamma: summary.gamma,
        scores: summary.scores.clone(),
        samples: summary.samples,
        discarded: summary.discarded_generation + summary.discarded_header + summary.discarded_unread,
        columns: summary.columns,
        unwatched: summary.unwatched,
        alarms_per_day: summary.alarms_per_day,
        gamma_factor: summary.gamma_factor,
        threshold_noise: summary.threshold_noise,
        silent_replicas: silent.map(ToString::to_string).collect(),
        reasons: reasons(summary, sent, subjects),
        groups: group_shares(&GroupShare::decode_all(&summary.groups)),
        judged_us: summary.interval_us,
        fetch_us: summary.fetch_us,
        learning_rows: summary.learning_rows,
        learning_needed: summary.learning_needed,
        at_unix_ns: at.0,
        ..status
    }
}

/// What explains the scores of a summary.
fn reasons(summary: &control::LmapSummary, sent: &SentConfig, subjects: &Subjects<'_>) -> Vec<proto::Reason> {
    let decoded: Vec<Reason> = summary.reasons.iter().filter_map(Reason::decode).collect();
    named(sent, subjects, decoded.iter()).iter().map(proto::Reason::from).collect()
}

//! The status as JSON.

use serde::Serialize;
use wire::proto::operators::{Detector, LmapMember, LmapStatus, Reason, StatusReply, WorkerStatus};

/// The status as JSON. Field names are part of the command's interface; NaN is null.
#[derive(Serialize)]
pub(super) struct View<'a> {
    version: &'a str,
    incarnation: u64,
    uptime_ms: u64,
    workers: Vec<WorkerView<'a>>,
    lmaps: Vec<LmapView<'a>>,
    counters: std::collections::BTreeMap<&'a str, u64>,
    problems: &'a [String],
    /// What the agent's configuration leaves open.
    warnings: &'a [String],
    /// What is to be known though nothing is wrong.
    notes: &'a [String],
}

#[derive(Serialize)]
struct WorkerView<'a> {
    worker: u32,
    connected: bool,
    transport: &'a str,
    epoch: u64,
    acknowledged_epoch: u64,
    ticks: u64,
    late_ticks: u64,
    failed_regions: u64,
    cpu_ns: u64,
    lost_verdicts: u64,
    failed_batches: u64,
    connections: u64,
    revoked_regions: u64,
    /// The operator who drains it; null: it is not drained.
    drained_by: Option<&'a str>,
    lmaps: u32,
}

#[derive(Serialize)]
struct LmapView<'a> {
    lmap: u32,
    service: &'a str,
    state: &'a str,
    alarm: bool,
    alarms: u64,
    rows: u32,
    rows_needed: u32,
    gamma: f64,
    alarms_per_day: f64,
    gamma_factor: f64,
    /// γ as a multiple of the usual score of the training rows; 0 while learning.
    threshold_noise: f64,
    scores: &'a [f32],
    samples: u64,
    discarded: u64,
    columns: u32,
    unwatched: u32,
    replicas: u32,
    silent_replicas: &'a [String],
    reasons: Vec<ReasonView<'a>>,
    groups: std::collections::BTreeMap<&'a str, f64>,
    at_unix_ns: u64,
    rank: u32,
    points_at: &'a str,
    incident_unix_ns: u64,
    /// The worker that runs it; null: none does.
    worker: Option<u32>,
    detector: Option<DetectorView<'a>>,
    /// Services of an LMAP over several.
    members: Vec<MemberView<'a>>,
    interval_us: u64,
    /// The operator who set the interval; empty: nobody did.
    interval_by: &'a str,
    /// The interval at which rows are judged, another one as long as `interval_us` is learnt.
    judged_us: u64,
    /// Time between two fetches now.
    fetch_us: u64,
    fastest_us: u64,
    learning_rows: u32,
    learning_needed: u32,
    /// The operator who gave it a trained model; empty: it has none.
    model_by: &'a str,
    /// That model is of rows at another interval.
    model_unused: bool,
}

#[derive(Serialize)]
struct MemberView<'a> {
    service: &'a str,
    replicas: u32,
    /// Null: it is there.
    missing_for_ms: Option<u64>,
}

/// Detector settings of an operator; null means that the worker's configuration applies.
#[derive(Serialize)]
struct DetectorView<'a> {
    score: Option<&'a str>,
    rank: Option<u32>,
    sketch_rows: Option<u32>,
    stride: Option<u32>,
    percentile: Option<f64>,
    learning_rate: Option<f64>,
    margin: Option<f64>,
    alarms_per_day: Option<f64>,
    rows_kept: Option<u32>,
}

#[derive(Serialize)]
struct ReasonView<'a> {
    /// Metric, statistic and labels in one title. Its parts are empty from an earlier agent.
    column: &'a str,
    metric: &'a str,
    statistic: &'a str,
    labels: std::collections::BTreeMap<&'a str, &'a str>,
    group: &'a str,
    unit: &'a str,
    share: f64,
    seen: f64,
    expected: f64,
    since_us: u64,
    about: &'a str,
    /// The replica that stands out; empty: none does.
    replica: &'a str,
}

impl<'a> View<'a> {
    pub(super) fn new(reply: &'a StatusReply, problems: &'a [String]) -> Self {
        Self {
            version: &reply.version,
            incarnation: reply.incarnation,
            uptime_ms: reply.uptime_ms,
            workers: reply.workers.iter().map(WorkerView::new).collect(),
            lmaps: reply.lmaps.iter().map(LmapView::new).collect(),
            counters: reply.counters.iter().map(|(name, &count)| (name.as_str(), count)).collect(),
            problems,
            warnings: &reply.warnings,
            notes: &reply.notes,
        }
    }
}

impl<'a> WorkerView<'a> {
    fn new(worker: &'a WorkerStatus) -> Self {
        Self {
            worker: worker.worker,
            connected: worker.connected,
            transport: &worker.transport,
            epoch: worker.epoch,
            acknowledged_epoch: worker.acknowledged_epoch,
            ticks: worker.ticks,
            late_ticks: worker.late_ticks,
            failed_regions: worker.failed_regions,
            cpu_ns: worker.cpu_ns,
            lost_verdicts: worker.lost_verdicts,
            failed_batches: worker.failed_batches,
            connections: worker.connections,
            revoked_regions: worker.revoked_regions,
            drained_by: worker.drained_by.as_deref(),
            lmaps: worker.lmaps,
        }
    }
}

impl<'a> LmapView<'a> {
    fn new(lmap: &'a LmapStatus) -> Self {
        Self {
            lmap: lmap.lmap,
            service: &lmap.service,
            state: &lmap.state,
            alarm: lmap.alarm,
            alarms: lmap.alarms,
            rows: lmap.rows,
            rows_needed: lmap.rows_needed,
            gamma: lmap.gamma,
            alarms_per_day: lmap.alarms_per_day,
            gamma_factor: lmap.gamma_factor,
            threshold_noise: lmap.threshold_noise,
            scores: &lmap.scores,
            samples: lmap.samples,
            discarded: lmap.discarded,
            columns: lmap.columns,
            unwatched: lmap.unwatched,
            replicas: lmap.replicas,
            silent_replicas: &lmap.silent_replicas,
            reasons: lmap.reasons.iter().map(ReasonView::new).collect(),
            groups: lmap.groups.iter().map(|group| (group.group.as_str(), group.share)).collect(),
            at_unix_ns: lmap.at_unix_ns,
            rank: lmap.rank,
            points_at: &lmap.points_at,
            incident_unix_ns: lmap.incident_unix_ns,
            worker: lmap.worker,
            detector: lmap.detector.as_ref().map(DetectorView::new),
            members: lmap.members.iter().map(MemberView::new).collect(),
            interval_us: lmap.interval_us,
            interval_by: &lmap.interval_by,
            judged_us: lmap.judged_us,
            fetch_us: lmap.fetch_us,
            fastest_us: lmap.fastest_us,
            learning_rows: lmap.learning_rows,
            learning_needed: lmap.learning_needed,
            model_by: &lmap.model_by,
            model_unused: lmap.model_unused,
        }
    }
}

impl<'a> MemberView<'a> {
    fn new(member: &'a LmapMember) -> Self {
        let &LmapMember { ref service, replicas, missing_for_ms, .. } = member;
        Self { service, replicas, missing_for_ms }
    }
}

impl<'a> DetectorView<'a> {
    fn new(detector: &'a Detector) -> Self {
        let &Detector { ref score, rank, sketch_rows, stride, percentile, learning_rate, margin, .. } = detector;
        let &Detector { alarms_per_day, rows_kept, .. } = detector;
        let score = Some(score.as_str()).filter(|score| !score.is_empty());
        Self { score, rank, sketch_rows, stride, percentile, learning_rate, margin, alarms_per_day, rows_kept }
    }
}

impl<'a> ReasonView<'a> {
    fn new(reason: &'a Reason) -> Self {
        let Reason { column, metric, statistic, group, unit, about, replica, .. } = reason;
        let &Reason { share, seen, expected, since_us, .. } = reason;
        let labels = reason.labels.iter().map(|label| (label.key.as_str(), label.value.as_str())).collect();
        Self { column, metric, statistic, labels, group, unit, share, seen, expected, since_us, about, replica }
    }
}

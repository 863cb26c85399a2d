//! The runtime of one LMAP on a worker: its regions, its columns, its detectors, and its reports to the host agent.

use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::{
    DetectorSpec, Episode, GroupShare, LmapSpec, MetricShare, Reason as WireReason, RowScore, State, Verdict,
};
use wire::id::{Epoch, LmapId, MetricId, Owner};
use wire::metric::Statistic;
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::time::{Interval, Nanos};

use crate::alarm::Alarm;
use crate::columns::Columns;
use crate::detector_slot::{DetectorFactory, Detectors, Reason};
use crate::digest::Digest;
use crate::error::UnexpectedMessage;
use crate::jobs::Jobs;
use crate::observation::ObservationTime;
use crate::outbox::Outbox;
use crate::regions::Regions;
use crate::retained_lmap::RetainedLmap;
use crate::rows::{self, History, Subscription};
use crate::settings::WorkerSettings;

/// A metric is listed in a row's score from this share of γ² on.
const MIN_SQUARE_SHARE: f64 = 0.01;

/// The time of a tick on both clocks, and its circumstances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// Monotonic time at which the fetch began.
    pub(crate) at: Nanos,
    pub(crate) at_unix_ns: u64,
    /// Intervals that were skipped before it.
    pub(crate) missed: u64,
    /// Whether the batch as a whole was fetched.
    pub(crate) batch: bool,
    /// Whether no host agent is connected.
    pub(crate) alone: bool,
}

/// State that all LMAPs of a worker share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) outbox: Outbox,
    pub(crate) jobs: Jobs,
    pub(crate) factory: DetectorFactory,
    /// Verdicts with a score below this share of γ are summarised only.
    pub(crate) lowest_share: f64,
    pub(crate) reasons: usize,
    pub(crate) explained: Vec<Reason>,
    pub(crate) scratch: Vec<lmap::Reason>,
    /// Shares of the metric groups in the score that was explained last.
    pub(crate) groups: Vec<GroupShare>,
    pub(crate) group_scratch: Vec<(u16, f64)>,
    pub(crate) column_scratch: Vec<(usize, f64)>,
}

impl SharedState {
    /// Fills `explained` and `groups` for the row that was scored last.
    fn explain(&mut self, detectors: &Detectors) {
        detectors.explain(self.reasons, &mut self.scratch, &mut self.explained);
        detectors.group_shares(&mut self.group_scratch, &mut self.groups);
    }
}

/// The runtime of one LMAP.
#[derive(Debug)]
pub(crate) struct LmapRuntime {
    id: LmapId,
    service: ServiceName,
    /// Who pays for what is retained of it: the owner of its first replica.
    owner: Owner,
    pub(crate) interval: Interval,
    epoch: Epoch,
    model: Vec<u8>,
    detector: DetectorSpec,
    pub(crate) regions: Regions,
    columns: Columns,
    detectors: Option<Detectors>,
    /// The model from which its detectors start once there are columns.
    warm_model: Option<Arc<lmap::Model>>,
    /// When its model was last due for the host agent.
    model_given: Option<Nanos>,
    alarm: Alarm,
    /// Whether rows were missed: differences and smoothing restart with the next row.
    gap: bool,
    /// The last score.
    score: f64,
    reported_state: Option<State>,
    samples: u64,
    digest: Digest,
    history: History,
    subscription: Option<Subscription>,
    /// Whether verdicts carry their row.
    pub(crate) gives_features: bool,
}

impl LmapRuntime {
    /// Creates the runtime that `spec` describes. Its detectors learn, or are armed by a model.
    ///
    /// # Errors
    ///
    /// What of `spec` cannot be carried out. The runtime is returned in any case and does the rest.
    pub(crate) fn new(
        spec: &LmapSpec,
        epoch: Epoch,
        settings: &WorkerSettings,
        retained: Option<RetainedLmap>,
        factory: &mut DetectorFactory,
    ) -> (Self, Result<(), UnexpectedMessage>) {
        let regions = Regions::new(spec, settings.silent_heartbeats);
        let columns = Columns::new(spec, &regions.indices(), &settings.aggregations, settings.observations_held);
        let unknown = spec.metrics.iter().find(|metric| !Columns::can_compute(metric, &settings.aggregations));
        let unknown = unknown.map(|metric| UnexpectedMessage::Aggregation {
            lmap: spec.id,
            aggregation: metric.aggregation.to_string(),
        });
        let usable = |retained: &RetainedLmap| {
            retained.interval == spec.interval
                && retained.detector == spec.detector
                && retained.detectors.as_ref().is_some_and(|detectors| detectors.has_model(&spec.model))
        };
        let unfit = factory.configure_for(spec.interval, &spec.detector);
        let (samples, alarm) =
            retained.as_ref().map_or((0, Alarm::default()), |retained| (retained.samples, retained.alarm));
        let alike = |retained: &&RetainedLmap| {
            retained.interval == spec.interval && retained.detector == spec.detector && spec.model.is_empty()
        };
        let warm_model = retained.as_ref().filter(alike).and_then(|retained| retained.warm_model.clone());
        let continues = retained.as_ref().is_some_and(|retained| retained.continues);
        let (detectors, refused) = match retained.filter(usable).and_then(|retained| retained.detectors) {
            Some(mut detectors) => {
                detectors.columns_changed(columns.infos(), &spec.model, factory);
                (Some(detectors), Ok(()))
            }
            None if columns.infos().is_empty() => (None, Ok(())),
            None => {
                let (detectors, refused) = match &warm_model {
                    Some(warm_model) => factory.create_warm(columns.infos(), Arc::clone(warm_model), continues),
                    None => factory.create(columns.infos(), &spec.model),
                };
                (detectors, unfit.and(refused))
            }
        };
        let runtime = Self {
            id: spec.id,
            service: spec.service.clone(),
            owner: spec.replicas.first().map_or(Owner::Agent, |replica| replica.owner),
            interval: spec.interval,
            epoch,
            model: spec.model.clone(),
            detector: spec.detector,
            history: History::new(settings.row_history, columns.infos().len()),
            regions,
            columns,
            detectors,
            warm_model,
            model_given: None,
            alarm,
            gap: true,
            score: 0.0,
            reported_state: None,
            samples,
            digest: Digest::default(),
            subscription: None,
            gives_features: false,
        };
        (runtime, unknown.map_or(refused, Err))
    }

    /// Continues where `old` was, the same LMAP under an earlier configuration of the same host agent. Its detectors
    /// have been handed over.
    pub(crate) fn take_over(mut self, mut old: Self, outbox: &mut Outbox) -> Self {
        old.send_buffered_rows(outbox);
        self.gap = old.gap || !self.regions.same_replicas(&old.regions);
        self.regions.take_over(&old.regions);
        let keys = |runtime: &Self| runtime.columns.infos().iter().map(|info| info.key).collect::<Vec<_>>();
        if keys(&self) == keys(&old) {
            self.history = old.history;
        }
        self.columns = self.columns.take_over(old.columns);
        let Self { model_given, score, digest, subscription, gives_features, .. } = old;
        Self { model_given, score, digest, subscription, gives_features, ..self }
    }

    /// Sends the buffered rows: they belong to this configuration.
    fn send_buffered_rows(&mut self, outbox: &mut Outbox) {
        let rows = self.subscription.as_mut().map(Subscription::take).unwrap_or_default();
        if !rows.is_empty() {
            outbox.rows(proto::Rows { lmap: self.id.0, epoch: self.epoch.0, rows });
        }
    }

    /// Hands the detectors over to a later configuration of the same LMAP.
    pub(crate) fn hand_over(&mut self, now: Nanos) -> RetainedLmap {
        let (detectors, warm_model) = (self.detectors.take(), self.warm_model.take());
        let Self { interval, detector, samples, alarm, owner, .. } = *self;
        RetainedLmap { detectors, warm_model, continues: false, interval, detector, samples, alarm, since: now, owner }
    }

    /// The service is gone. Returns the model from which its detectors start when it comes back; `None` if nothing was
    /// learned.
    pub(crate) fn into_model(mut self, now: Nanos) -> Option<(ServiceName, RetainedLmap)> {
        let mut retained = self.hand_over(now);
        retained.drop_detectors();
        (retained.samples, retained.alarm) = (0, Alarm::default());
        retained.warm_model.is_some().then_some((self.service, retained))
    }

    /// Ends the configuration, and returns what is retained.
    pub(crate) fn into_retained(mut self, now: Nanos) -> (ServiceName, RetainedLmap) {
        let mut retained = self.hand_over(now);
        if let Some(detectors) = &mut retained.detectors {
            detectors.gap();
        }
        (self.service, retained)
    }

    /// One tick: checks the fetched regions, scores the row, and learns it. Returns a verdict if one has to be sent
    /// now; everything else goes into the summary. Does not allocate unless there is a verdict.
    pub(crate) fn tick(&mut self, tick: Tick, shared: &mut SharedState) -> Option<proto::Verdict> {
        let check = self.regions.check(tick.at, tick.batch, tick.alone, &mut shared.outbox);
        self.gap |= check.changed || tick.missed > 0;
        let time = ObservationTime { at: tick.at, interval: self.interval };
        let all_silent = self.regions.all_silent();
        self.columns.read(&self.regions.buffers, self.regions.observations(), time);
        let scored = if check.fresh && !all_silent { self.score_and_learn(tick, shared) } else { None };
        if scored.is_none() {
            self.gap = true;
        }
        let in_episode = match scored {
            Some(verdict) => matches!(verdict.episode, lmap::Episode::Began | lmap::Episode::On),
            None => false,
        };
        let silent = self.regions.are_silent();
        let episode = self.alarm.step(silent || in_episode);
        let state = if silent { State::Silent } else { self.state() };
        let near = scored.is_some_and(|verdict| {
            let gamma = verdict.gamma.filter(|_| is_armed(verdict.state));
            gamma.is_some_and(|gamma| verdict.score >= shared.lowest_share * gamma)
        });
        let changed = self.reported_state.replace(state) != Some(state);
        if !(changed || near || episode != Episode::Quiet) {
            return None;
        }
        let over = scored.filter(|verdict| verdict.over);
        let row = over.and_then(|verdict| self.row_score(verdict, &mut shared.column_scratch));
        let features = scored.is_some().then(|| self.features()).flatten();
        Some(proto::Verdict { features, ..self.verdict(state, episode, row, over.is_some(), shared) })
    }

    /// The row that was scored last, if the host agent wants it.
    fn features(&self) -> Option<proto::Features> {
        let detectors = self.detectors.as_ref().filter(|_| self.gives_features)?;
        let mut features = proto::Features { values: self.columns.row().to_vec(), residuals: Vec::new() };
        detectors.residuals(features.values.len(), &mut features.residuals);
        Some(features)
    }

    /// Scores and learns the row just read.
    fn score_and_learn(&mut self, tick: Tick, shared: &mut SharedState) -> Option<lmap::Verdict> {
        let detectors = self.detectors.as_mut()?;
        if core::mem::take(&mut self.gap) {
            detectors.gap();
        }
        let row = self.columns.row();
        if self.regions.several_services {
            detectors.forget_missing(row);
        }
        // Without a host agent, a slot may be reused for another series unnoticed. Such rows are scored, but never
        // learned.
        let (verdict, took_over) = detectors.step(row, !tick.alone, &mut shared.jobs)?;
        self.samples += 1;
        self.score = verdict.score;
        self.digest.score(tick.at, verdict.score);
        if verdict.over {
            shared.explain(detectors);
            self.digest.over(tick.at, verdict.score, &shared.explained, &shared.groups);
        }
        if took_over {
            // The error was reported when the LMAP was configured.
            let _ = shared.factory.configure_for(self.interval, &self.detector);
            detectors.columns_changed(self.columns.infos(), &self.model, &mut shared.factory);
        }
        self.history.push(tick.at_unix_ns, verdict.score, row);
        if let Some(subscription) = &mut self.subscription {
            let (at_unix_ns, score) = (tick.at_unix_ns, verdict.score);
            let row = || proto::Row { at_unix_ns, score, values: row.to_vec() };
            if let Some(rows) = subscription.push(tick.at, self.interval, row) {
                shared.outbox.rows(proto::Rows { lmap: self.id.0, epoch: self.epoch.0, rows });
            }
        }
        Some(verdict)
    }

    fn state(&self) -> State {
        match self.detectors.as_ref().map(Detectors::state) {
            None | Some(lmap::State::Learning { .. } | lmap::State::Provisional { .. }) => State::Learning,
            Some(lmap::State::Armed) => State::Armed,
            Some(lmap::State::Drifted { .. }) => State::Drifted,
        }
    }

    /// The score of the last row alone, by metric, the largest share first.
    fn row_score(&self, verdict: lmap::Verdict, scratch: &mut Vec<(usize, f64)>) -> Option<RowScore> {
        let (detectors, gamma) = (self.detectors.as_ref()?, verdict.gamma?);
        detectors.column_shares(scratch);
        let mut shares: BTreeMap<MetricId, f64> = BTreeMap::new();
        for (column, share) in scratch.iter() {
            if let Some(info) = self.columns.infos().get(*column) {
                *shares.entry(info.metric).or_default() += share;
            }
        }
        let least = MIN_SQUARE_SHARE * (gamma / verdict.raw).powi(2);
        let shares = shares.into_iter().map(|(metric, share)| MetricShare { metric, share });
        let mut shares: Vec<_> = shares.filter(|of| of.share >= least).collect();
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        let cut = shares.len() > RowScore::MAX;
        shares.truncate(RowScore::MAX);
        Some(RowScore { score: verdict.raw, shares, cut })
    }

    fn verdict(
        &self,
        state: State,
        episode: Episode,
        row: Option<RowScore>,
        over: bool,
        shared: &SharedState,
    ) -> proto::Verdict {
        let verdict = Verdict {
            lmap: self.id,
            epoch: self.epoch,
            score: self.score,
            gamma: self.detectors.as_ref().and_then(Detectors::gamma),
            state,
            episode,
            reasons: if over { self.wire_reasons(&shared.explained, Nanos::ZERO) } else { Vec::new() },
            groups: if over { shared.groups.clone() } else { Vec::new() },
            row,
            silent: self.regions.silent().filter(|_| state == State::Silent).collect(),
            features: None,
        };
        proto::Verdict::from(&verdict)
    }

    /// Converts reasons of a row that is `ago` old. A column that has stood out since then has done so for that much
    /// longer.
    fn wire_reasons(&self, reasons: &[Reason], ago: Nanos) -> Vec<WireReason> {
        let convert = |reason: &Reason| {
            let info = self.columns.infos().get(reason.column)?;
            let Reason { share, mut seen, mut expected, since_rows, .. } = *reason;
            let since = match u64::from(since_rows) {
                0 => Nanos::ZERO,
                rows => Nanos(self.interval.length().0.saturating_mul(rows)).plus(ago),
            };
            // The reconstruction of a count or a duration may be negative, which is impossible and would confuse
            // readers. A column without a value is reported as if it had the expected one.
            if info.statistic != Statistic::Value {
                (seen, expected) = (seen.max(0.0), expected.max(0.0));
            }
            Some(WireReason { metric: info.metric, statistic: info.statistic, share, seen, expected, since })
        };
        reasons.iter().filter_map(convert).collect()
    }

    /// The summary since the last one. Starts the next period.
    pub(crate) fn summarise(&mut self, now: Nanos, period: Nanos, shared: &mut SharedState) -> proto::LmapSummary {
        let (rows, needed) = match self.detectors.as_ref().map(Detectors::state) {
            Some(lmap::State::Learning { rows, needed } | lmap::State::Provisional { rows, needed }) => (rows, needed),
            _ => (0, 0),
        };
        if let Some(detectors) = self.detectors.as_ref().filter(|_| self.digest.reasons().is_empty()) {
            shared.explain(detectors);
            self.digest.over(now, 0.0, &shared.explained, &shared.groups);
        }
        let columns = self.columns.infos().len();
        let never = self.columns.infos().iter().filter(|info| !info.column.watched).count() as u32;
        let silent: Vec<u32> = self.regions.silent().map(|replica| replica.0).collect();
        let state = if self.regions.are_silent() { State::Silent } else { self.state() };
        let discarded = self.regions.discarded;
        let budget = self.detectors.as_ref().and_then(|detectors| detectors.budget(self.interval));
        let summary = proto::LmapSummary {
            lmap: self.id.0,
            epoch: self.epoch.0,
            state: proto::State::from(state).into(),
            rows: rows as u32,
            rows_needed: needed as u32,
            gamma: self.detectors.as_ref().and_then(Detectors::gamma).unwrap_or(0.0),
            scores: self.digest.scores(),
            samples: self.samples,
            discarded_generation: discarded.generation,
            discarded_header: discarded.header,
            discarded_unread: discarded.unread,
            columns: columns as u32,
            unwatched: (self.detectors.as_ref().map_or(columns, |detectors| detectors.unwatched(columns)) as u32)
                .saturating_sub(never),
            alarms_per_day: budget.map_or(0.0, |(alarms, _)| alarms),
            gamma_factor: budget.map_or(0.0, |(_, factor)| factor),
            threshold_noise: self.detectors.as_ref().and_then(Detectors::threshold_noise).unwrap_or(0.0),
            silent_replicas: silent,
            reasons: self
                .wire_reasons(self.digest.reasons(), self.digest.age(now))
                .iter()
                .map(proto::Reason::from)
                .collect(),
            groups: self.digest.groups().iter().map(proto::GroupShare::from).collect(),
        };
        self.digest.restart(now, period);
        summary
    }

    /// Subscribes to every `every`-th row, after the rows of the history; `None` ends the subscription.
    pub(crate) fn subscribe(&mut self, every: Option<NonZeroU32>, outbox: &mut Outbox) {
        let Some(every) = every else {
            self.send_buffered_rows(outbox);
            self.subscription = None;
            return;
        };
        if let Some(subscription) = &mut self.subscription {
            subscription.set_every(every);
            return;
        }
        self.subscription = Some(Subscription::new(every));
        for rows in rows::messages(self.id, self.epoch, self.history.rows(), self.columns.infos().len()) {
            outbox.rows(rows);
        }
    }

    pub(crate) fn fit_again(&mut self, jobs: &mut Jobs) {
        if let Some(detectors) = &mut self.detectors {
            detectors.fit_again(jobs);
        }
    }

    /// Starts the first period of summaries.
    pub(crate) fn begin_digest(&mut self, now: Nanos, period: Nanos) {
        self.digest.restart(now, period);
    }

    /// Whether the host agent is due to get the model: when the detector is first armed, and `every` so often.
    pub(crate) fn model_is_due(&mut self, now: Nanos, every: Nanos) -> bool {
        let recent = self.model_given.and_then(|at| now.since(at)).is_some_and(|length| length < every);
        let is_due = !recent && matches!(self.state(), State::Armed | State::Drifted);
        if is_due {
            self.model_given = Some(now);
        }
        is_due
    }

    /// There was no model when it was due: it is due still.
    pub(crate) fn model_is_missing(&mut self) {
        self.model_given = None;
    }

    /// Whether this is the LMAP of `service`.
    pub(crate) fn is_of(&self, service: &ServiceName) -> bool {
        self.service == *service
    }

    pub(crate) fn detectors(&self) -> Option<&Detectors> {
        self.detectors.as_ref()
    }

    pub(crate) fn detectors_mut(&mut self) -> Option<&mut Detectors> {
        self.detectors.as_mut()
    }

    /// Memory in bytes of its detectors and of the rows for subscribers, without the place for rows that have not come.
    pub(crate) fn used_bytes(&self) -> u64 {
        let detectors = self.detectors.as_ref().map_or(0, Detectors::used_bytes);
        (detectors + self.history.memory_bytes()) as u64
    }

    #[cfg(test)]
    pub(crate) fn summarised_samples(&self) -> u64 {
        self.samples
    }

    /// The state that was reported last.
    pub(crate) fn reported_state(&self) -> State {
        self.reported_state.unwrap_or(State::Learning)
    }
}

fn is_armed(state: lmap::State) -> bool {
    matches!(state, lmap::State::Armed | lmap::State::Drifted { .. })
}

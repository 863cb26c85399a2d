//! One LMAP on a worker: its regions, its columns, its detectors, and what is to be said of them.

use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::{
    DetectorSpec, Episode, GroupShare, LmapSpec, MetricShare, Reason as SpokenReason, RowScore, State, Verdict,
};
use wire::id::{Epoch, LmapId, MetricId};
use wire::metric::Statistic;
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::time::{Interval, Nanos};

use crate::alarm::Alarm;
use crate::columns::Columns;
use crate::digest::Digest;
use crate::error::ForeignMessage;
use crate::fetched::Regions;
use crate::jobs::Jobs;
use crate::judge::{Judges, Maker, Reason};
use crate::outbox::Outbox;
use crate::reading::Moment;
use crate::rows::{self, History, Subscription};
use crate::settings::WorkerSettings;

/// A metric's part of a row's squared score is told from this share of γ² on.
const LEAST_SQUARE: f64 = 0.01;

/// When a tick was, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// When the fetch began.
    pub(crate) at: Nanos,
    pub(crate) at_unix_ns: u64,
    /// Whole intervals that were missed before it.
    pub(crate) missed: u64,
    /// The batch did not fail as a whole.
    pub(crate) batch: bool,
    /// No host agent is connected.
    pub(crate) alone: bool,
}

/// What all LMAPs of a worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) outbox: Outbox,
    pub(crate) jobs: Jobs,
    pub(crate) maker: Maker,
    /// Verdicts with a score below this share of γ are only summarised.
    pub(crate) lowest_share: f64,
    pub(crate) reasons: usize,
    pub(crate) explained: Vec<Reason>,
    pub(crate) scratch: Vec<lmap::Reason>,
    /// What the score explained last is made of.
    pub(crate) groups: Vec<GroupShare>,
    pub(crate) group_scratch: Vec<(u16, f64)>,
    pub(crate) column_scratch: Vec<(usize, f64)>,
}

impl Shared {
    /// Puts into `explained` and `groups` why the row judged last has its score.
    fn explain(&mut self, judges: &Judges) {
        judges.explain(self.reasons, &mut self.scratch, &mut self.explained);
        judges.group_shares(&mut self.group_scratch, &mut self.groups);
    }
}

/// What survives of an LMAP when its configuration is gone: for a host agent that comes back.
#[derive(Debug)]
pub(crate) struct Parked {
    judges: Option<Judges>,
    /// What the next of its kind begins with, if the detectors are gone.
    known: Option<Arc<lmap::Model>>,
    interval: Interval,
    detector: DetectorSpec,
    samples: u64,
    /// Whether the host agent was told of an alarm that has not ended.
    pub(crate) alarm: Alarm,
    pub(crate) since: Nanos,
}

/// One LMAP.
#[derive(Debug)]
pub(crate) struct Watch {
    id: LmapId,
    service: ServiceName,
    pub(crate) interval: Interval,
    epoch: Epoch,
    model: Vec<u8>,
    detector: DetectorSpec,
    pub(crate) regions: Regions,
    columns: Columns,
    judges: Option<Judges>,
    /// What its detectors begin with once there are columns.
    known: Option<Arc<lmap::Model>>,
    alarm: Alarm,
    /// Something was missed: differences and smoothing restart with the next row.
    gap: bool,
    /// The score that was said last.
    score: f64,
    said: Option<State>,
    samples: u64,
    digest: Digest,
    history: History,
    subscription: Option<Subscription>,
}

impl Watch {
    /// An LMAP as `spec` says, learning or armed by its model.
    ///
    /// # Errors
    ///
    /// What of `spec` cannot be done, beside the watch that does the rest.
    pub(crate) fn new(
        spec: &LmapSpec,
        epoch: Epoch,
        settings: &WorkerSettings,
        parked: Option<Parked>,
        maker: &mut Maker,
    ) -> (Self, Result<(), ForeignMessage>) {
        let regions = Regions::new(spec, settings.silent_heartbeats);
        let columns = Columns::new(spec, &regions.places(), &settings.aggregations, settings.looks_held);
        let unknown = spec.metrics.iter().find_map(|metric| match &metric.aggregation {
            wire::metric::Aggregation::Named(name) if settings.aggregations.find(&metric.aggregation).is_none() => {
                Some(ForeignMessage::Aggregation { lmap: spec.id, name: name.clone() })
            }
            _ => None,
        });
        let usable = |parked: &Parked| {
            parked.interval == spec.interval
                && parked.detector == spec.detector
                && parked.judges.as_ref().is_some_and(|judges| judges.has_model(&spec.model))
        };
        let unfit = maker.make_for(spec.interval, &spec.detector);
        let (samples, alarm) = parked.as_ref().map_or((0, Alarm::default()), |parked| (parked.samples, parked.alarm));
        let alike = |parked: &&Parked| {
            parked.interval == spec.interval && parked.detector == spec.detector && spec.model.is_empty()
        };
        let known = parked.as_ref().filter(alike).and_then(|parked| parked.known.clone());
        let (judges, refused) = match parked.filter(usable).and_then(|parked| parked.judges) {
            Some(mut judges) => {
                judges.columns_changed(columns.infos(), &spec.model, maker);
                (Some(judges), Ok(()))
            }
            None if columns.infos().is_empty() => (None, Ok(())),
            None => {
                let (judges, refused) = match &known {
                    Some(known) => maker.warm(columns.infos(), Arc::clone(known)),
                    None => maker.judges(columns.infos(), &spec.model),
                };
                (judges, unfit.and(refused))
            }
        };
        let watch = Self {
            id: spec.id,
            service: spec.service.clone(),
            interval: spec.interval,
            epoch,
            model: spec.model.clone(),
            detector: spec.detector,
            history: History::new(settings.rows_kept, columns.infos().len()),
            regions,
            columns,
            judges,
            known,
            alarm,
            gap: true,
            score: 0.0,
            said: None,
            samples,
            digest: Digest::default(),
            subscription: None,
        };
        (watch, unknown.map_or(refused, Err))
    }

    /// Goes on where `old`, the same LMAP under an earlier configuration of the same host agent, has been. Its detectors were lent.
    pub(crate) fn take_over(mut self, mut old: Self, outbox: &mut Outbox) -> Self {
        old.send_waiting_rows(outbox);
        self.gap = old.gap || !self.regions.same_replicas(&old.regions);
        self.regions.take_over(&old.regions);
        let keys = |watch: &Self| watch.columns.infos().iter().map(|info| info.key).collect::<Vec<_>>();
        if keys(&self) == keys(&old) {
            self.history = old.history;
        }
        self.columns = self.columns.take_over(old.columns);
        Self { score: old.score, digest: old.digest, subscription: old.subscription, ..self }
    }

    /// Sends the rows that wait for others: what they mean is what this configuration says.
    fn send_waiting_rows(&mut self, outbox: &mut Outbox) {
        let rows = self.subscription.as_mut().map(Subscription::take).unwrap_or_default();
        if !rows.is_empty() {
            outbox.rows(proto::Rows { lmap: self.id.0, epoch: self.epoch.0, rows });
        }
    }

    /// Lends the detectors to a later configuration of the same LMAP.
    pub(crate) fn lend(&mut self, now: Nanos) -> Parked {
        let (judges, known) = (self.judges.take(), self.known.take());
        let Self { interval, detector, samples, alarm, .. } = *self;
        Parked { judges, known, interval, detector, samples, alarm, since: now }
    }

    /// The service is gone. What its like will be judged by when it comes again; `None` if nothing has been learnt.
    pub(crate) fn leave(mut self, now: Nanos) -> Option<(ServiceName, Parked)> {
        let mut parked = self.lend(now);
        parked.forget_detectors();
        (parked.samples, parked.alarm) = (0, Alarm::default());
        parked.known.is_some().then_some((self.service, parked))
    }

    /// Lets the configuration go.
    pub(crate) fn park(mut self, now: Nanos) -> (ServiceName, Parked) {
        let mut parked = self.lend(now);
        if let Some(judges) = &mut parked.judges {
            judges.gap();
        }
        (self.service, parked)
    }

    /// One tick: checks what was fetched, judges it, and learns it. Returns what is to be said now; the rest is summarised. Does not
    /// allocate unless there is something to say.
    pub(crate) fn tick(&mut self, tick: Tick, shared: &mut Shared) -> Option<proto::Verdict> {
        let found = self.regions.check(tick.at, tick.batch, tick.alone, &mut shared.outbox);
        self.gap |= found.changed || tick.missed > 0;
        let moment = Moment { at: tick.at, interval: self.interval };
        let all_silent = self.regions.all_silent();
        self.columns.read(&self.regions.buffers, self.regions.looks(), moment);
        let judged = if found.fresh && !all_silent { self.judge(tick, shared) } else { None };
        if judged.is_none() {
            self.gap = true;
        }
        let in_episode = match judged {
            Some(verdict) => matches!(verdict.episode, lmap::Episode::Began | lmap::Episode::On),
            None => false,
        };
        let silent = self.regions.silent().next().is_some();
        let episode = self.alarm.step(silent || in_episode);
        let state = if silent { State::Silent } else { self.state() };
        let near = judged.is_some_and(|verdict| {
            let gamma = verdict.gamma.filter(|_| is_armed(verdict.state));
            gamma.is_some_and(|gamma| verdict.score >= shared.lowest_share * gamma)
        });
        let changed = self.said.replace(state) != Some(state);
        if !(changed || near || episode != Episode::Quiet) {
            return None;
        }
        let over = judged.filter(|verdict| verdict.over);
        let row = over.and_then(|verdict| self.row_score(verdict, &mut shared.column_scratch));
        Some(self.verdict(state, episode, row, over.is_some(), shared))
    }

    /// Judges and learns the row just read.
    fn judge(&mut self, tick: Tick, shared: &mut Shared) -> Option<lmap::Verdict> {
        let judges = self.judges.as_mut()?;
        if core::mem::take(&mut self.gap) {
            judges.gap();
        }
        let row = self.columns.row();
        // Without a host agent nobody says when a slot changes hands: what is read then is judged, and never learnt.
        let (verdict, took_over) = judges.step(row, !tick.alone, &mut shared.jobs)?;
        self.samples += 1;
        self.score = verdict.score;
        self.digest.score(tick.at, verdict.score);
        if verdict.over {
            shared.explain(judges);
            self.digest.over(tick.at, verdict.score, &shared.explained, &shared.groups);
        }
        if took_over {
            // What does not go together was said when the LMAP was configured.
            let _ = shared.maker.make_for(self.interval, &self.detector);
            judges.columns_changed(self.columns.infos(), &self.model, &mut shared.maker);
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
        match self.judges.as_ref().map(Judges::state) {
            None | Some(lmap::State::Learning { .. } | lmap::State::Provisional { .. }) => State::Learning,
            Some(lmap::State::Armed) => State::Armed,
            Some(lmap::State::Drifted { .. }) => State::Drifted,
        }
    }

    /// What the row judged last says by itself, by metric, the heaviest first.
    fn row_score(&self, verdict: lmap::Verdict, scratch: &mut Vec<(usize, f64)>) -> Option<RowScore> {
        let (judges, gamma) = (self.judges.as_ref()?, verdict.gamma?);
        judges.column_shares(scratch);
        let mut shares: BTreeMap<MetricId, f64> = BTreeMap::new();
        for (column, share) in scratch.iter() {
            if let Some(info) = self.columns.infos().get(*column) {
                *shares.entry(info.metric).or_default() += share;
            }
        }
        let least = LEAST_SQUARE * (gamma / verdict.raw).powi(2);
        let shares = shares.into_iter().map(|(metric, share)| MetricShare { metric, share });
        let mut shares: Vec<_> = shares.filter(|of| of.share >= least).collect();
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        let cut = shares.len() > RowScore::MOST;
        shares.truncate(RowScore::MOST);
        Some(RowScore { score: verdict.raw, shares, cut })
    }

    fn verdict(
        &self,
        state: State,
        episode: Episode,
        row: Option<RowScore>,
        over: bool,
        shared: &Shared,
    ) -> proto::Verdict {
        let verdict = Verdict {
            lmap: self.id,
            epoch: self.epoch,
            score: self.score,
            gamma: self.judges.as_ref().and_then(Judges::gamma),
            state,
            episode,
            reasons: if over { self.spoken(&shared.explained, Nanos::ZERO) } else { Vec::new() },
            groups: if over { shared.groups.clone() } else { Vec::new() },
            row,
            silent: self.regions.silent().collect(),
        };
        proto::Verdict::from(&verdict)
    }

    /// Reasons of a row so long ago. One that stands out since then has done so for that much longer.
    fn spoken(&self, reasons: &[Reason], ago: Nanos) -> Vec<SpokenReason> {
        let spoken = |reason: &Reason| {
            let info = self.columns.infos().get(reason.column)?;
            let Reason { share, mut seen, mut expected, since_rows, .. } = *reason;
            let since = match u64::from(since_rows) {
                0 => Nanos::ZERO,
                rows => Nanos(self.interval.length().0.saturating_mul(rows)).plus(ago),
            };
            // What the directions make of a count or a duration may lie below zero; no person expects that. Nor has anybody seen it: a column
            // that has no value yet is told as if it were as expected.
            if info.statistic != Statistic::Value {
                (seen, expected) = (seen.max(0.0), expected.max(0.0));
            }
            Some(SpokenReason { metric: info.metric, statistic: info.statistic, share, seen, expected, since })
        };
        reasons.iter().filter_map(spoken).collect()
    }

    /// What was not said since the last summary. Starts the next one.
    pub(crate) fn summarise(&mut self, now: Nanos, period: Nanos, shared: &mut Shared) -> proto::LmapSummary {
        let (rows, needed) = match self.judges.as_ref().map(Judges::state) {
            Some(lmap::State::Learning { rows, needed } | lmap::State::Provisional { rows, needed }) => (rows, needed),
            _ => (0, 0),
        };
        if let Some(judges) = self.judges.as_ref().filter(|_| self.digest.reasons().is_empty()) {
            shared.explain(judges);
            self.digest.over(now, 0.0, &shared.explained, &shared.groups);
        }
        let columns = self.columns.infos().len();
        let never = self.columns.infos().iter().filter(|info| !info.column.watched).count() as u32;
        let silent: Vec<u32> = self.regions.silent().map(|replica| replica.0).collect();
        let state = if silent.is_empty() { self.state() } else { State::Silent };
        let discarded = self.regions.discarded;
        let budget = self.judges.as_ref().and_then(|judges| judges.budget(self.interval));
        let summary = proto::LmapSummary {
            lmap: self.id.0,
            epoch: self.epoch.0,
            state: proto::State::from(state).into(),
            rows: rows as u32,
            rows_needed: needed as u32,
            gamma: self.judges.as_ref().and_then(Judges::gamma).unwrap_or(0.0),
            scores: self.digest.scores(),
            samples: self.samples,
            discarded_generation: discarded.generation,
            discarded_header: discarded.header,
            discarded_unread: discarded.unread,
            columns: columns as u32,
            unwatched: (self.judges.as_ref().map_or(columns, |judges| judges.unwatched(columns)) as u32)
                .saturating_sub(never),
            alarms_per_day: budget.map_or(0.0, |(alarms, _)| alarms),
            gamma_factor: budget.map_or(0.0, |(_, factor)| factor),
            silent_replicas: silent,
            reasons: self.spoken(self.digest.reasons(), self.digest.age(now)).iter().map(proto::Reason::from).collect(),
            groups: self.digest.groups().iter().map(proto::GroupShare::from).collect(),
        };
        self.digest.restart(now, period);
        summary
    }

    /// Somebody wants every `every`-th row from now on, and first those that were kept; `None`: nobody does any more.
    pub(crate) fn subscribe(&mut self, every: Option<NonZeroU32>, outbox: &mut Outbox) {
        let Some(every) = every else {
            self.send_waiting_rows(outbox);
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
        if let Some(judges) = &mut self.judges {
            judges.fit_again(jobs);
        }
    }

    /// The summary's period began.
    pub(crate) fn begin_digest(&mut self, now: Nanos, period: Nanos) {
        self.digest.restart(now, period);
    }

    /// Whether it watches `service`.
    pub(crate) fn is_of(&self, service: &ServiceName) -> bool {
        self.service == *service
    }

    pub(crate) fn judges(&self) -> Option<&Judges> {
        self.judges.as_ref()
    }

    pub(crate) fn judges_mut(&mut self) -> Option<&mut Judges> {
        self.judges.as_mut()
    }

    #[cfg(test)]
    pub(crate) fn summarised_samples(&self) -> u64 {
        self.samples
    }

    /// What was said last.
    pub(crate) fn said(&self) -> State {
        self.said.unwrap_or(State::Learning)
    }
}

impl Parked {
    /// Lets the detectors go, and keeps what they know.
    pub(crate) fn forget_detectors(&mut self) {
        if let Some(judges) = self.judges.take() {
            self.known = judges.knowledge();
        }
    }

    /// What was learnt, as a model.
    pub(crate) fn knowledge(&self) -> Option<Arc<lmap::Model>> {
        self.judges.as_ref().and_then(Judges::knowledge).or_else(|| self.known.clone())
    }

    /// Whether there is anything left.
    pub(crate) fn is_of_use(&self) -> bool {
        self.judges.is_some() || self.known.is_some()
    }

    pub(crate) fn judges(&self) -> Option<&Judges> {
        self.judges.as_ref()
    }

    pub(crate) fn judges_mut(&mut self) -> Option<&mut Judges> {
        self.judges.as_mut()
    }
}

fn is_armed(state: lmap::State) -> bool {
    matches!(state, lmap::State::Armed | lmap::State::Drifted { .. })
}

//! The runtime of one LMAP on a worker: its regions, its columns, its detectors, and its reports to the host agent.

mod ahead;
mod beginning;
mod between;
mod memory;
mod successor;
mod summary;

use core::num::NonZeroU32;
use std::sync::Arc;

use wire::control::{DetectorSpec, Episode, GroupShare, RowScore, State, Verdict};
use wire::id::{Epoch, LmapId, Owner};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::time::{Interval, Nanos, UnixNanos};

use crate::alarm::Alarm;
use crate::columns::Columns;
use crate::detector_slot::{DetectorFactory, Detectors, Reason};
use crate::digest::Digest;
use crate::jobs::Jobs;
use crate::observation::ObservationTime;
use crate::outbox::Outbox;
use crate::outlier::{Deviation, ReplicaValues};
use crate::pace::Pace;
use crate::regions::Regions;
use crate::retained_lmap::RetainedLmap;
use crate::rows::{self, History, Subscription};
pub(crate) use between::Due;
use between::FastRows;
pub(crate) use successor::{Shelf, Strides, Successor};

/// The time of a tick on both clocks, and its circumstances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// Monotonic time at which the fetch began.
    pub(crate) at: Nanos,
    pub(crate) wall: UnixNanos,
    /// What of the LMAP is due.
    pub(crate) due: Due,
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
    /// Shares of columns in the score of the row over γ that was explained last.
    pub(crate) column_shares: Vec<(usize, f64)>,
    pub(crate) replica_scratch: ReplicaValues,
    /// Alarms that began, and that ended, between two rows.
    pub(crate) early_alarms: u64,
    pub(crate) early_ends: u64,
}

impl SharedState {
    /// Fills `explained` and `groups` for the row that was scored last.
    fn explain(&mut self, detectors: &Detectors) {
        let Self { reasons, scratch, explained, group_scratch, groups, .. } = self;
        detectors.explain(*reasons, (scratch, explained), (group_scratch, groups), None);
    }

    /// The same for a row over γ, and `column_shares`.
    fn explain_over(&mut self, detectors: &Detectors) {
        let Self { reasons, scratch, explained, group_scratch, groups, column_shares, .. } = self;
        detectors.explain(*reasons, (scratch, explained), (group_scratch, groups), Some(column_shares));
    }

    /// Names in each of the reasons that are `explained` the replica that stands out, if one does.
    fn name_replicas(&mut self, columns: &Columns) {
        for reason in &mut self.explained {
            let deviation = Deviation { seen: reason.seen, expected: reason.expected };
            reason.replica = columns.outlier(reason.column, deviation, &mut self.replica_scratch);
        }
    }
}

/// What is sent of an LMAP while somebody asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gives {
    /// Verdicts with the row that was judged.
    pub(crate) features: bool,
    /// Summaries with each column.
    pub(crate) columns: bool,
}

/// The runtime of one LMAP.
#[derive(Debug)]
pub(crate) struct LmapRuntime {
    id: LmapId,
    service: ServiceName,
    /// Who pays for what is retained of it: the owner of its first replica.
    owner: Owner,
    /// The interval at which rows are judged.
    interval: Interval,
    /// Least time between two fetches while something seems wrong.
    fastest: Option<Interval>,
    epoch: Epoch,
    model: Vec<u8>,
    detector: DetectorSpec,
    pub(crate) regions: Regions,
    columns: Columns,
    /// How often each metric is read, in rows.
    strides: Strides,
    detectors: Option<Detectors>,
    /// What learns at the interval of the configuration while another one judges.
    successor: Option<Box<Successor>>,
    /// Models of other intervals.
    shelf: Shelf,
    pace: Pace,
    /// Rows between rows, while it is fetched faster.
    fast: Option<Box<FastRows>>,
    /// When the last row was due; `None` if it was the first after a gap.
    last_row: Option<Nanos>,
    /// Whether an episode is on.
    in_episode: bool,
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
    /// What the host agent wants beside verdicts and summaries.
    pub(crate) gives: Gives,
}

impl LmapRuntime {
    /// Continues where `old` was, the same LMAP under an earlier configuration of the same host agent. Its detectors
    /// have been handed over.
    pub(crate) fn take_over(mut self, mut old: Self, outbox: &mut Outbox) -> Self {
        old.send_buffered_rows(outbox);
        let others = !self.regions.same_replicas(&old.regions);
        self.gap = old.gap || others;
        if others {
            self.replicas_changed();
        }
        self.regions.take_over(&old.regions);
        let keys = |runtime: &Self| runtime.columns.infos().iter().map(|info| info.key).collect::<Vec<_>>();
        if keys(&self) == keys(&old) && self.interval == old.interval {
            self.history = old.history;
        }
        if self.interval == old.interval {
            self.columns = self.columns.take_over(old.columns);
            self.last_row = old.last_row;
        }
        let Self { model_given, score, digest, subscription, gives, .. } = old;
        Self { model_given, score, digest, subscription, gives, ..self }
    }

    /// What replicas keep (memory, threads, descriptors) is another amount if pods of a workload come or go, as in a
    /// rollout, and is no fault. Processes of other services come and go by themselves: what they keep is judged.
    fn replicas_changed(&mut self) {
        let infos = self.columns.infos();
        if let Some(detectors) = self.detectors.as_mut().filter(|_| self.service.has_namespace()) {
            detectors.arrive(|at| infos.get(at).is_some_and(|info| info.column.pool));
        }
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
        let learning = self.successor.take();
        let (shelf, strides) = (core::mem::take(&mut self.shelf), Arc::clone(&self.strides));
        let Self { id, interval, detector, samples, alarm, in_episode, owner, .. } = *self;
        let (continues, since) = (false, now);
        RetainedLmap {
            lmap: Some(id),
            detectors,
            learning,
            shelf,
            strides,
            warm_model,
            continues,
            interval,
            detector,
            samples,
            alarm,
            in_episode,
            since,
            owner,
        }
    }

    /// The service is gone. Returns the model from which its detectors start when it comes back; `None` if nothing was
    /// learned.
    pub(crate) fn into_model(mut self, now: Nanos) -> Option<(ServiceName, RetainedLmap)> {
        let mut retained = self.hand_over(now);
        retained.drop_detectors();
        (retained.samples, retained.alarm, retained.in_episode) = (0, Alarm::default(), false);
        retained.is_useful().then_some((self.service, retained))
    }

    /// Ends the configuration, and returns what is retained.
    pub(crate) fn into_retained(mut self, now: Nanos) -> (ServiceName, RetainedLmap) {
        let mut retained = self.hand_over(now);
        if let Some(detectors) = &mut retained.detectors {
            detectors.gap();
        }
        if let Some(learning) = &mut retained.learning {
            learning.retain();
        }
        (self.service, retained)
    }

    /// One tick: checks the fetched regions, scores the rows that are due, and learns them. Returns a verdict if one
    /// has to be sent now; everything else goes into the summary. Does not allocate unless there is a verdict, or
    /// something seems wrong.
    pub(crate) fn tick(&mut self, tick: Tick, shared: &mut SharedState) -> Option<proto::Verdict> {
        let check = self.regions.check(tick.at, tick.batch, tick.alone, &mut shared.outbox);
        let usable = check.fresh && !self.regions.all_silent();
        self.gap |= check.changed;
        self.row_of_successor(tick, usable, check.changed, shared);
        if tick.due.row.is_some() {
            return self.row(tick, usable, check.changed, shared);
        }
        let began = self.between(tick, usable, check, shared);
        let silent = self.regions.are_silent();
        let state = if silent { State::Silent } else { self.state() };
        let episode = self.alarm.step(silent || self.in_episode, false);
        let changed = self.reported_state.replace(state) != Some(state);
        self.verdict_between(began, (state, episode, changed), shared)
    }

    /// The row that is due.
    fn row(&mut self, tick: Tick, usable: bool, changed: bool, shared: &mut SharedState) -> Option<proto::Verdict> {
        self.gap |= tick.due.row.is_some_and(|missed| missed > 0);
        let time = ObservationTime::of_row(tick.at, self.interval);
        self.columns.read(&self.regions.buffers, self.regions.observations(), time);
        // In the first row after a gap, what is missing is as long ago: what follows is not compared with it.
        self.last_row = (!self.gap).then_some(tick.at);
        let scored = if usable { self.score_and_learn(tick, shared) } else { None };
        if scored.is_none() {
            self.gap = true;
        }
        let another = self.in_episode && scored.is_some_and(|verdict| verdict.episode == lmap::Episode::Began);
        self.in_episode = match scored {
            Some(verdict) => matches!(verdict.episode, lmap::Episode::Began | lmap::Episode::On),
            // Nothing new is known: what was wrong has not ended.
            None => self.in_episode,
        };
        if !self.in_episode && scored.is_some_and(|verdict| !verdict.over) {
            self.columns.learn_usual();
        }
        let silent = self.regions.are_silent();
        let episode = self.alarm.step(silent || self.in_episode, another);
        self.keep_pace(scored, changed, silent || self.in_episode);
        let state = if silent { State::Silent } else { self.state() };
        let near = scored.is_some_and(|verdict| {
            let gamma = verdict.gamma.filter(|_| verdict.state.judges());
            gamma.is_some_and(|gamma| verdict.score >= shared.lowest_share * gamma)
        });
        let changed = self.reported_state.replace(state) != Some(state);
        if !(changed || near || episode != Episode::Quiet) {
            return None;
        }
        let over = scored.filter(|verdict| verdict.over);
        let row = over.and_then(|verdict| self.row_score(verdict, &shared.column_shares));
        let features = scored.is_some().then(|| self.features()).flatten();
        Some(proto::Verdict { features, ..self.verdict(state, episode, row, over.is_some(), shared) })
    }

    /// The row of the interval that is learnt, if one is due. Once that is learnt, it takes over.
    fn row_of_successor(&mut self, tick: Tick, usable: bool, changed: bool, shared: &mut SharedState) {
        let Some(successor) = &mut self.successor else { return };
        if changed || tick.due.successor.is_some_and(|missed| missed > 0) {
            successor.gap();
        }
        if tick.due.successor.is_none() {
            return successor.pass(&self.regions);
        }
        let signs = successor::RowSigns { usable, learn: !tick.alone, in_alarm: self.in_episode };
        if successor.row(tick.at, &self.regions, signs, &mut shared.jobs)
            && self.can_be_succeeded()
            && let Some(successor) = self.successor.take()
        {
            self.shelf.put(self.interval, self.detectors.as_ref().and_then(Detectors::learned_model));
            self.succeed(*successor, shared);
        }
    }

    /// Whether the model of the interval that judges can be kept: not while its sketch is being decomposed.
    fn can_be_succeeded(&self) -> bool {
        let has_model = |of: &Detectors| !of.state().judges() || of.learned_model().is_some();
        self.detectors.as_ref().is_none_or(has_model)
    }

    /// The successor's interval is that of the LMAP from now on. An alarm that is on goes on.
    fn succeed(&mut self, successor: Successor, shared: &mut SharedState) {
        let Successor { interval, columns, mut detectors, strides, .. } = successor;
        // The error was reported when the LMAP was configured.
        let _ = shared.factory.configure_for(interval, &self.detector);
        detectors.columns_changed(columns.infos(), &self.model, &mut shared.factory);
        if self.in_episode {
            detectors.begin_episode();
        }
        (self.interval, self.columns, self.strides, self.detectors) = (interval, columns, strides, Some(detectors));
        (self.gap, self.last_row) = (false, None);
        self.history.clear();
    }

    /// The row that was scored last, if the host agent wants it.
    fn features(&self) -> Option<proto::Features> {
        let detectors = self.detectors.as_ref().filter(|_| self.gives.features)?;
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
            shared.explain_over(detectors);
            shared.name_replicas(&self.columns);
            self.digest.over(tick.at, verdict.score, &shared.explained, &shared.groups);
        }
        if took_over {
            // The error was reported when the LMAP was configured.
            let _ = shared.factory.configure_for(self.interval, &self.detector);
            detectors.columns_changed(self.columns.infos(), &self.model, &mut shared.factory);
        }
        self.history.push(tick.wall, verdict.score, row);
        if let Some(subscription) = &mut self.subscription {
            let (at_unix_ns, score) = (tick.wall.0, verdict.score);
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
        // What was normal at other intervals is not what the operator means.
        (self.shelf, self.successor) = (Shelf::default(), None);
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
        let is_due = !recent && self.state().judges();
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

    /// Its detectors, and those that learn another interval.
    pub(crate) fn all_detectors(&self) -> impl Iterator<Item = &Detectors> {
        self.detectors.iter().chain(self.successor.as_ref().map(|successor| &successor.detectors))
    }

    pub(crate) fn all_detectors_mut(&mut self) -> impl Iterator<Item = &mut Detectors> {
        self.detectors.iter_mut().chain(self.successor.as_mut().map(|successor| &mut successor.detectors))
    }

    /// The interval at which rows are judged.
    pub(crate) fn interval(&self) -> Interval {
        self.interval
    }

    /// Time between two fetches for it.
    fn fetch_interval(&self) -> Interval {
        self.intervals().into_iter().flatten().min().unwrap_or(self.interval)
    }

    /// Drops the models of other intervals. Returns how many.
    pub(crate) fn clear_shelf(&mut self) -> u64 {
        core::mem::take(&mut self.shelf).len() as u64
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

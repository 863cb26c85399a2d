//! The worker: one state machine over all its LMAPs. It is given the time and what came in, and says what to do; it owns no thread, no
//! clock, no socket and no reader, so that the same code runs on a DPU, on a host, and in a simulation.

mod host;

use std::collections::{BTreeMap, VecDeque};

use transport::{BatchError, FetchStatus, RegionBuffer, RegionError};
use wire::control::{PROTOCOL, State};
use wire::id::{Epoch, Incarnation, LmapId, RegionId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::rdma::Endpoint;
use wire::time::{Interval, Nanos};

use crate::attachments::{AttachRequest, Attachments, Effect};
use crate::backoff::Seeds;
use crate::error::ForeignMessage;
use crate::fetched::Discarded;
use crate::jobs::{JobId, Jobs};
use crate::judge::{Judges, Maker};
use crate::outbox::Outbox;
use crate::queue_pair::QueuePair;
use crate::settings::{Fetching, WorkerSettings};
use crate::ticker::Schedule;
use crate::watch::{Parked, Shared, Tick, Watch};

/// Messages of the host agent that may wait while a batch is out.
const MOST_DEFERRED: usize = 4096;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a step that is not taken is a missed tick"]
pub enum Step {
    /// Nothing until then, unless something comes in.
    SleepUntil(Nanos),
    /// Let the reader fetch [`Worker::batch`] and tell [`Worker::fetched`].
    Fetch,
}

/// How it stands with the host agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// No connection since then.
    Gone { since: Nanos },
    /// Connected, not welcomed yet.
    Greeting,
    /// Welcomed.
    Up,
    /// To be closed: nothing more is taken.
    Closing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    fetched_regions: u64,
    failed_regions: u64,
    failed_batches: u64,
    revoked_regions: u64,
    cpu_ns: u64,
    foreign_messages: u64,
    welcomes: u64,
    /// Of all LMAPs, those that are gone included.
    discarded: Discarded,
}

/// What a worker's own metrics are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerStatus {
    /// As the summary has them.
    pub counters: proto::WorkerCounters,
    /// How regions are fetched, by its name in the hello; empty before the first welcome.
    pub transport: String,
    /// Whether the queue pair is connected; always false without RDMA.
    pub connected: bool,
    /// Whether the host agent has welcomed it.
    pub welcomed: bool,
    /// The last epoch that is in effect.
    pub epoch: u64,
    /// LMAPs that learn, are armed, drifted, or have a silent replica.
    pub lmaps: [usize; 4],
    /// Replicas whose heartbeat stands still.
    pub silent_replicas: usize,
    /// Samples of regions that were not used since the start: the layout changed, the header is none, could not be read.
    pub discarded: [u64; 3],
    /// How often a host agent has welcomed it.
    pub welcomes: u64,
    /// Detectors kept for a host agent that comes back.
    pub remembered: usize,
    /// Regions that are attached.
    pub attached: usize,
    /// Regions in use.
    pub regions: usize,
}

/// One worker. See the module's documentation; the calls come from one thread, in the order in which things happen.
#[derive(Debug)]
pub struct Worker {
    settings: WorkerSettings,
    seeds: Seeds,
    incarnation: Incarnation,
    link: Link,
    /// The run of the host agent that the configuration is from.
    host: Incarnation,
    /// The last epoch of this connection.
    epoch: Option<Epoch>,
    period: Nanos,
    next_summary: Nanos,
    schedule: Schedule,
    watches: BTreeMap<LmapId, Watch>,
    parked: BTreeMap<ServiceName, Parked>,
    attachments: Attachments,
    /// How regions are fetched, by its name in the hello; empty before the first welcome.
    transport: String,
    fetching: Fetching,
    queue_pair: QueuePair,
    /// Regions of the last batch that must not be read any more.
    revoked: Vec<RegionId>,
    shared: Shared,
    due: Vec<(Interval, u64)>,
    batch: Vec<RegionBuffer>,
    owners: Vec<(LmapId, usize)>,
    /// The last fetch on both clocks: tells the time of day of a summary.
    time_of_day: Option<(Nanos, u64)>,
    /// When the batch that is out was begun.
    out: Option<Nanos>,
    deferred: VecDeque<proto::HostMessage>,
    counted: Counted,
}

impl Worker {
    /// A worker without any LMAP. `seed` decides its incarnation, its detectors' choices and its pauses.
    #[must_use]
    pub fn new(settings: WorkerSettings, seed: u64) -> Self {
        let mut seeds = Seeds::new(seed);
        let shared = Shared {
            outbox: Outbox::new(settings.outbox_messages, settings.outbox_rows),
            jobs: Jobs::default(),
            maker: Maker::new(settings.detector.clone(), seeds.draw()),
            lowest_share: settings.lowest_share,
            reasons: settings.reasons,
            explained: Vec::new(),
            scratch: Vec::new(),
        };
        Self {
            incarnation: Incarnation(seeds.draw()),
            seeds,
            link: Link::Gone { since: Nanos::ZERO },
            host: Incarnation(0),
            epoch: None,
            period: settings.summary,
            next_summary: Nanos::ZERO,
            schedule: Schedule::default(),
            watches: BTreeMap::new(),
            parked: BTreeMap::new(),
            attachments: Attachments::new(settings.attach_pause, settings.regions),
            transport: String::new(),
            fetching: Fetching::Memory,
            queue_pair: QueuePair::new(),
            revoked: Vec::new(),
            shared,
            due: Vec::new(),
            batch: Vec::new(),
            owners: Vec::new(),
            time_of_day: None,
            out: None,
            deferred: VecDeque::new(),
            counted: Counted::default(),
            settings,
        }
    }

    /// The first message of every connection. Its incarnation changes when the host agent refuses the worker: who was fenced comes back
    /// as another.
    #[must_use]
    pub fn hello(&self) -> proto::WorkerHello {
        proto::WorkerHello {
            protocol: PROTOCOL,
            worker: self.settings.worker.0,
            incarnation: self.incarnation.0,
            version: self.settings.version.clone(),
            transports: self.settings.transports.clone(),
        }
    }

    /// A connection to the host agent is there, and [`Worker::hello`] was sent.
    pub fn connected(&mut self, _now: Nanos) {
        self.link = Link::Greeting;
    }

    /// The connection is gone. The worker goes on with what it has for [`WorkerSettings::alone`].
    pub fn disconnected(&mut self, now: Nanos) {
        if !matches!(self.link, Link::Gone { .. }) {
            self.link = Link::Gone { since: now };
        }
        self.deferred.clear();
        self.queue_pair.disconnected();
        for watch in self.watches.values_mut() {
            watch.subscribe(None, &mut self.shared.outbox);
        }
        self.shared.outbox.disconnected();
    }

    /// The next message for the host agent; `None` if there is none, or it has not welcomed this worker.
    pub fn next_message(&mut self) -> Option<proto::WorkerMessage> {
        if self.link == Link::Up { self.shared.outbox.pop() } else { None }
    }

    /// All messages that wait for the host agent. What is not taken goes on waiting.
    pub fn outbox(&mut self) -> impl Iterator<Item = proto::WorkerMessage> + '_ {
        core::iter::from_fn(|| self.next_message())
    }

    /// What the runner has to do, in order. To be asked for after every other call, and done before the next fetch.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.attachments.take_effects()
    }

    /// Whether [`Worker::attached`] is still waited for, for this very request: what came of one that is not is to be thrown away.
    #[must_use]
    pub fn expects(&self, request: &AttachRequest) -> bool {
        self.attachments.expects(request)
    }

    /// The reader has attached a region, or could not for the reason given; then it is asked to again after a pause.
    pub fn attached(&mut self, now: Nanos, region: RegionId, outcome: Result<(), String>) {
        let attached = outcome.is_ok();
        if !self.attachments.reported(now, region, attached, &mut self.seeds) {
            return;
        }
        for watch in self.watches.values_mut() {
            match self.fetching {
                Fetching::Memory => watch.regions.attached(region, attached),
                // What the device cannot read says nothing of the replica's life.
                Fetching::Verbs => watch.regions.set_attached(region, attached),
            }
        }
        if let Err(problem) = outcome {
            self.shared.outbox.problem(region, problem);
        }
    }

    /// The device has reset the queue pair, whose end this is now, or could not for the reason given; then it is tried again after a pause.
    pub fn queue_pair_reset(&mut self, now: Nanos, outcome: Result<Endpoint, String>) {
        if let Some(connect) = self.queue_pair.reset(now, outcome, &mut self.seeds) {
            self.shared.outbox.connect(connect);
        }
    }

    /// The device has connected the queue pair, or could not for the reason given; then all is tried again after a pause.
    pub fn queue_pair_connected(&mut self, now: Nanos, outcome: Result<(), String>) {
        if let Some(problem) = self.queue_pair.connected(now, outcome, &mut self.seeds) {
            self.shared.outbox.connect(problem);
        }
    }

    /// What to do at `now`. Ticks missed by whole intervals are counted, not made up for.
    pub fn poll(&mut self, now: Nanos) -> Step {
        if self.out.is_some() {
            return Step::Fetch;
        }
        self.attachments.poll(now);
        if let Some(effect) = self.queue_pair.poll(now, &mut self.seeds) {
            self.attachments.push(Effect::QueuePair(effect));
        }
        if self.is_alone_for_too_long(now) {
            self.park_all(now);
        }
        let mut due = core::mem::take(&mut self.due);
        self.schedule.poll(now, &mut due);
        self.due = due;
        // A summary waits for the tick, but not for ever.
        let wait = if self.due.is_empty() { Nanos::ZERO } else { Nanos(self.period.0 / 2) };
        if now >= self.next_summary.plus(wait) || self.next_summary > now.plus(self.period) {
            self.next_summary = now.plus(self.period);
            self.summarise(now);
        }
        if self.due.is_empty() {
            return Step::SleepUntil(self.deadline());
        }
        self.gather();
        self.out = Some(now);
        Step::Fetch
    }

    /// The regions to fetch, when [`Worker::poll`] says so. May be empty: a tick without anything to read is still a tick.
    pub fn batch(&mut self) -> &mut [RegionBuffer] {
        &mut self.batch
    }

    /// The batch was fetched, or could not be as a whole. Judges all LMAPs that are due, then takes in what the host agent has said
    /// meanwhile. `at_unix_ns` is the time of day. Returns what of that was not taken.
    pub fn fetched(&mut self, now: Nanos, at_unix_ns: u64, outcome: &Result<(), BatchError>) -> Vec<ForeignMessage> {
        let Some(at) = self.out.take() else { return Vec::new() };
        self.time_of_day = Some((now, at_unix_ns));
        self.counted.failed_batches += u64::from(outcome.is_err());
        self.scatter(outcome.is_ok());
        let mut verdicts = Vec::new();
        let (batch, alone) = (outcome.is_ok(), self.link != Link::Up);
        for watch in self.watches.values_mut() {
            let Some((_, missed)) = self.due.iter().find(|(interval, _)| *interval == watch.interval) else { continue };
            let tick = Tick { at, at_unix_ns, missed: *missed, batch, alone };
            let before = watch.regions.discarded;
            verdicts.extend(watch.tick(tick, &mut self.shared));
            self.counted.discarded.add(watch.regions.discarded.since(before));
        }
        if !verdicts.is_empty() {
            self.shared.outbox.verdicts(proto::Verdicts { at_unix_ns, verdicts });
        }
        if outcome.is_err() {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        self.leave_revoked(now);
        let deferred = core::mem::take(&mut self.deferred);
        deferred.into_iter().filter_map(|message| self.on_host(now, message).err()).collect()
    }

    /// A job to run on another thread, at lower urgency.
    pub fn take_job(&mut self) -> Option<(JobId, lmap::Job)> {
        self.shared.jobs.take()
    }

    /// What a job computed. If its detector is gone, it is dropped.
    pub fn job_done(&mut self, id: JobId, done: lmap::Done) {
        let Some(owner) = self.shared.jobs.done(id) else { return };
        let watched = self.watches.values_mut().filter_map(Watch::judges_mut);
        let parked = self.parked.values_mut().filter_map(Parked::judges_mut);
        if let Some(judges) = watched.chain(parked).find(|judges| judges.has(owner)) {
            judges.install(owner, done);
        }
    }

    /// Processor time that the worker's thread has used so far, from a clock that this crate's edge reads.
    pub fn set_cpu(&mut self, used: Nanos) {
        self.counted.cpu_ns = used.0;
    }

    /// Whether the queue pair is connected, as far as is known; always false without RDMA.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.queue_pair.is_up()
    }

    /// What its own metrics are made of. Cheap, but not for every tick.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        let mut lmaps = [0; 4];
        for watch in self.watches.values() {
            lmaps[match watch.said() {
                State::Learning => 0,
                State::Armed => 1,
                State::Drifted => 2,
                State::Silent => 3,
            }] += 1;
        }
        let (attached, regions) = self.attachments.count();
        let discarded = self.counted.discarded;
        WorkerStatus {
            counters: self.counters(),
            transport: self.transport.clone(),
            connected: self.is_connected(),
            welcomed: self.link == Link::Up,
            epoch: self.epoch.unwrap_or(Epoch::NONE).0,
            lmaps,
            silent_replicas: self.watches.values().map(|watch| watch.regions.silent().count()).sum(),
            discarded: [discarded.generation, discarded.header, discarded.unread],
            welcomes: self.counted.welcomes,
            remembered: self.parked.len(),
            attached,
            regions,
        }
    }

    fn counters(&self) -> proto::WorkerCounters {
        let Counted {
            fetched_regions, failed_regions, failed_batches, revoked_regions, cpu_ns, foreign_messages, ..
        } = self.counted;
        proto::WorkerCounters {
            ticks: self.schedule.ticks(),
            late_ticks: self.schedule.late(),
            fetched_regions,
            failed_regions,
            failed_batches,
            lost_rows: self.shared.outbox.lost_rows(),
            lost_verdicts: self.shared.outbox.lost_verdicts(),
            cpu_ns,
            foreign_messages,
            connections: self.queue_pair.connections(),
            revoked_regions,
        }
    }

    fn deadline(&self) -> Nanos {
        let alone = match self.link {
            Link::Gone { since } if !self.watches.is_empty() => since.plus(self.settings.alone),
            _ => Nanos::NEVER,
        };
        let tries = self.attachments.next().min(self.queue_pair.next());
        self.schedule.next().min(self.next_summary).min(tries).min(alone)
    }

    fn is_alone_for_too_long(&self, now: Nanos) -> bool {
        let Link::Gone { since } = self.link else { return false };
        !self.watches.is_empty() && now.since(since).is_some_and(|length| length >= self.settings.alone)
    }

    /// Moves the buffers of all LMAPs that are due into one batch. Does not allocate once the batch has had its size.
    fn gather(&mut self) {
        self.batch.clear();
        self.owners.clear();
        for (id, watch) in &mut self.watches {
            if !self.due.iter().any(|(interval, _)| *interval == watch.interval) {
                continue;
            }
            let first = self.owners.len();
            self.owners.extend(watch.regions.to_fetch().map(|at| (*id, at)));
            for (_, at) in self.owners.iter().skip(first) {
                if let Some(buffer) = watch.regions.buffers.get_mut(*at) {
                    let words = core::mem::take(&mut buffer.words);
                    self.batch.push(RegionBuffer { region: buffer.region, words, status: FetchStatus::Pending });
                }
            }
        }
    }

    /// Moves the buffers back.
    fn scatter(&mut self, batch: bool) {
        for (buffer, (id, at)) in self.batch.drain(..).zip(self.owners.drain(..)) {
            let fetched = batch && matches!(buffer.status, FetchStatus::Fetched);
            self.counted.fetched_regions += u64::from(fetched);
            self.counted.failed_regions += u64::from(!fetched);
            if batch && buffer.status == FetchStatus::Failed(RegionError::Revoked) {
                self.revoked.push(buffer.region);
            }
            if let Some(place) = self.watches.get_mut(&id).and_then(|watch| watch.regions.buffers.get_mut(at)) {
                *place = buffer;
            }
        }
    }

    /// Reads regions that must not be read any more no longer. With RDMA, trying has cost the queue pair.
    fn leave_revoked(&mut self, now: Nanos) {
        let mut revoked = core::mem::take(&mut self.revoked);
        revoked.sort_unstable();
        revoked.dedup();
        self.counted.revoked_regions += revoked.len() as u64;
        if !revoked.is_empty() && self.fetching == Fetching::Verbs {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        for region in revoked.drain(..) {
            self.attachments.revoked(now, region, &mut self.seeds);
            for watch in self.watches.values_mut() {
                watch.regions.set_attached(region, false);
            }
        }
        self.revoked = revoked;
    }

    fn summarise(&mut self, now: Nanos) {
        let remembered = self.settings.remembered;
        let before = self.parked.len();
        self.parked.retain(|_, parked| now.since(parked.since).is_none_or(|length| length < remembered));
        if self.parked.len() < before {
            self.forget_jobs();
        }
        let (period, shared) = (self.period, &mut self.shared);
        let lmaps: Vec<_> = self.watches.values_mut().map(|watch| watch.summarise(now, period, shared)).collect();
        if self.link == Link::Up {
            let counters = Some(self.counters());
            let since = |(then, unix): (Nanos, u64)| unix.saturating_add(now.since(then).unwrap_or(Nanos::ZERO).0);
            let at_unix_ns = self.time_of_day.map_or(0, since);
            self.shared.outbox.summary(proto::Summary { at_unix_ns, lmaps, counters });
        }
    }

    /// Lets all configurations go, and keeps what was learnt.
    fn park_all(&mut self, now: Nanos) {
        for (_, watch) in core::mem::take(&mut self.watches) {
            self.let_go(&watch);
            let (service, parked) = watch.park(now);
            self.parked.insert(service, parked);
        }
        self.forget_jobs();
    }

    fn let_go(&mut self, watch: &Watch) {
        self.schedule.leave(watch.interval);
        for region in watch.regions.specs() {
            self.attachments.release(region);
        }
    }

    /// Drops the jobs of detectors that are no more.
    fn forget_jobs(&mut self) {
        let watched = self.watches.values().filter_map(Watch::judges);
        let parked = self.parked.values().filter_map(Parked::judges);
        let ids: std::collections::BTreeSet<_> = watched.chain(parked).flat_map(Judges::ids).collect();
        self.shared.jobs.retain(|owner| ids.contains(&owner));
    }
}

#[cfg(test)]
mod tests;

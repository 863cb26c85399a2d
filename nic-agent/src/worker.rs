//! The worker: one state machine over all its LMAPs. It is given the time and what came in, and says what to do; it owns no thread, no
//! clock, no socket and no reader, so that the same code runs on a DPU, on a host, and in a simulation.

mod host;
mod report;
mod tick;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use transport::RegionBuffer;
use wire::control::PROTOCOL;
use wire::id::{Epoch, Incarnation, LmapId, RegionId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::rdma::Endpoint;
use wire::time::{Interval, Nanos};

use crate::attachments::{AttachRequest, Attachments, Effect};
use crate::backoff::Seeds;
use crate::jobs::{JobId, Jobs};
use crate::judge::{Judges, Maker};
use crate::outbox::Outbox;
use crate::queue_pair::QueuePair;
use crate::settings::{Fetching, WorkerSettings};
use crate::ticker::Schedule;
use crate::watch::{Parked, Shared, Watch};
use report::Counted;
pub use report::WorkerStatus;

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
            maker: Maker::new(settings.detector.clone(), seeds.draw()).with_budget(settings.alarms_per_day),
            lowest_share: settings.lowest_share,
            reasons: settings.reasons,
            explained: Vec::new(),
            scratch: Vec::new(),
            groups: Vec::new(),
            column_scratch: Vec::new(),
            group_scratch: Vec::new(),
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
            takes_lowest_share: true,
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

    /// What has been learnt of `service`, for another node or another day; `None` as long as that is nothing, while its sketch is being
    /// decomposed, and if it is judged by a trained model. Copies the model: 0.1 MB for 141 columns.
    #[must_use]
    pub fn model(&self, service: &ServiceName) -> Option<Arc<lmap::Model>> {
        let watched = self.watches.values().find(|watch| watch.is_of(service)).and_then(Watch::judges);
        watched.and_then(Judges::knowledge).or_else(|| self.parked.get(service).and_then(Parked::knowledge))
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

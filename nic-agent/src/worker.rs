//! The worker: one state machine over all its LMAPs. Time and messages are parameters, and actions are return values.
//! It owns no thread, clock, socket or reader, so the same code runs on a DPU, on a host, and in a simulation.

mod host;
mod models;
mod report;
mod retained_models;
mod tick;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use transport::RegionBuffer;
use wire::control::{OLDEST_PROTOCOL, PROTOCOL};
use wire::id::{Epoch, Incarnation, LmapId, RegionId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::rdma::Endpoint;
use wire::time::{Interval, Nanos, Timestamp};

use crate::attachments::{AttachRequest, Attachments, Effect};
use crate::detector_slot::{DetectorFactory, Detectors};
use crate::effect_error::EffectError;
use crate::jobs::{JobId, Jobs};
use crate::lmap_runtime::{LmapRuntime, SharedState};
use crate::outbox::Outbox;
use crate::outlier::ReplicaValues;
use crate::pace::ExtraReads;
use crate::queue_pair::QueuePair;
use crate::retained_lmap::RetainedLmap;
use crate::seeds::Seeds;
use crate::settings::{Fetching, WorkerSettings};
use crate::ticker::Schedule;
use models::Handover;
use report::Counters;
pub use report::WorkerStatus;

/// Most messages of the host agent that are deferred while a batch is in flight.
const MAX_DEFERRED: usize = 4096;

/// The next action of the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a step that is not taken is a missed tick"]
pub enum Step {
    /// Nothing until then, unless an event arrives.
    SleepUntil(Nanos),
    /// Let the reader fetch [`Worker::batch`], then call [`Worker::fetched`].
    Fetch,
}

/// The state of the session with the host agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// No connection since then.
    Gone { since: Nanos },
    /// Connected; the welcome is pending.
    Greeting,
    /// The host agent has welcomed the worker.
    Up,
    /// The connection is being closed; messages are ignored.
    Closing,
}

/// One worker. Call its methods from one thread, in the order of events.
#[derive(Debug)]
pub struct Worker {
    settings: WorkerSettings,
    seeds: Seeds,
    incarnation: Incarnation,
    link: Link,
    /// The run of the host agent from which the configuration is.
    host: Incarnation,
    /// The last epoch of this session.
    epoch: Option<Epoch>,
    period: Nanos,
    next_summary: Nanos,
    schedule: Schedule,
    runtimes: BTreeMap<LmapId, LmapRuntime>,
    retained: BTreeMap<ServiceName, RetainedLmap>,
    attachments: Attachments,
    /// Name of the transport; empty before the first welcome.
    transport: String,
    fetching: Fetching,
    queue_pair: QueuePair,
    /// Regions of the last batch whose key was revoked.
    revoked: Vec<RegionId>,
    /// Regions of the last batch into which a hole was punched.
    punched: Vec<RegionId>,
    shared: SharedState,
    due: Vec<(Interval, u64)>,
    /// LMAPs that are fetched faster.
    extra: ExtraReads,
    batch: Vec<RegionBuffer>,
    owners: Vec<(LmapId, usize)>,
    /// Monotonic and wall-clock time of the last fetch, from which the wall-clock time of a summary is computed.
    wall_clock: Option<Timestamp>,
    /// When the batch in flight was started.
    in_flight: Option<Nanos>,
    deferred: VecDeque<proto::HostMessage>,
    /// Models for the host agent.
    handover: Handover,
    /// Time of the latest call.
    now: Nanos,
    counters: Counters,
}

impl Worker {
    /// A worker without LMAPs. `seed` determines its incarnation, its pauses, and the random choices of its detectors.
    #[must_use]
    pub fn new(settings: WorkerSettings, seed: u64) -> Self {
        let mut seeds = Seeds::new(seed);
        let shared = SharedState {
            outbox: Outbox::new(settings.outbox_messages, settings.outbox_rows),
            jobs: Jobs::default(),
            factory: DetectorFactory::new(settings.detector.clone(), seeds.draw()).with_budget(settings.alarms_per_day),
            lowest_share: settings.lowest_share,
            reasons: settings.reasons,
            explained: Vec::new(),
            scratch: Vec::new(),
            groups: Vec::new(),
            column_shares: Vec::new(),
            replica_scratch: ReplicaValues::default(),
            group_scratch: Vec::new(),
            early_alarms: 0,
            early_ends: 0,
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
            runtimes: BTreeMap::new(),
            retained: BTreeMap::new(),
            attachments: Attachments::new(settings.attach_pause, settings.regions),
            transport: String::new(),
            fetching: Fetching::Memory,
            queue_pair: QueuePair::new(),
            revoked: Vec::new(),
            punched: Vec::new(),
            shared,
            due: Vec::new(),
            extra: ExtraReads::default(),
            batch: Vec::new(),
            owners: Vec::new(),
            wall_clock: None,
            in_flight: None,
            deferred: VecDeque::new(),
            handover: Handover::default(),
            now: Nanos::ZERO,
            counters: Counters::default(),
            settings,
        }
    }

    /// The first message of every connection. The incarnation changes when the host agent refuses the worker: a worker
    /// that was fenced comes back as another run.
    #[must_use]
    pub fn hello(&self) -> proto::WorkerHello {
        proto::WorkerHello {
            protocol: PROTOCOL,
            worker: self.settings.worker.0,
            incarnation: self.incarnation.0,
            version: self.settings.version.clone(),
            transports: self.settings.transports.clone(),
            takes_lowest_share: true,
            oldest_protocol: OLDEST_PROTOCOL,
            hands_over_models: true,
            takes_streams: true,
            stream_interfaces: self.settings.stream_interfaces,
            warnings: self.settings.warnings.clone(),
            reads_sample_times: true,
        }
    }

    /// A connection to the host agent is open, and [`Worker::hello`] was sent.
    pub fn connected(&mut self, _now: Nanos) {
        self.link = Link::Greeting;
    }

    /// The connection is closed. The worker keeps its configuration for [`WorkerSettings::without_host_agent`].
    pub fn disconnected(&mut self, now: Nanos) {
        if !matches!(self.link, Link::Gone { .. }) {
            self.link = Link::Gone { since: now };
        }
        self.deferred.clear();
        self.queue_pair.disconnected();
        for runtime in self.runtimes.values_mut() {
            runtime.subscribe(None, &mut self.shared.outbox);
        }
        self.shared.outbox.disconnected();
    }

    /// The next message for the host agent; `None` if there is none, or without a session.
    pub fn next_message(&mut self) -> Option<proto::WorkerMessage> {
        if self.link != Link::Up {
            return None;
        }
        self.shared.outbox.pop().or_else(|| self.next_model())
    }

    /// Takes all queued messages for the host agent. Messages that the iterator does not reach stay queued.
    pub fn outbox(&mut self) -> impl Iterator<Item = proto::WorkerMessage> + '_ {
        core::iter::from_fn(|| self.next_message())
    }

    /// Takes the effects that the runner has to carry out, in order. Call it after every other call, and carry them out
    /// before the next fetch.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.attachments.take_effects()
    }

    /// Whether the worker still expects [`Worker::attached`] for this very request. If not, discard its outcome.
    #[must_use]
    pub fn expects(&self, request: &AttachRequest) -> bool {
        self.attachments.expects(request)
    }

    /// The reader has attached a region, or has failed to, for the given reason. Then the worker requests it again
    /// after a pause.
    pub fn attached(&mut self, now: Nanos, region: RegionId, outcome: Result<(), EffectError>) {
        let attached = outcome.is_ok();
        if !self.attachments.completed(now, region, attached, &mut self.seeds) {
            return;
        }
        for runtime in self.runtimes.values_mut() {
            match self.fetching {
                Fetching::Memory => runtime.regions.attached(region, attached),
                // If the device cannot attach a region, that says nothing about the replica's liveness.
                Fetching::Verbs => runtime.regions.set_attached(region, attached),
            }
        }
        if let Err(problem) = outcome {
            self.shared.outbox.problem(region, problem.to_string());
        }
    }

    /// The device has reset the queue pair, which now has this endpoint, or has failed to. Then the worker tries again
    /// after a pause.
    pub fn queue_pair_reset(&mut self, now: Nanos, outcome: Result<Endpoint, EffectError>) {
        if let Some(connect) = self.queue_pair.reset(now, outcome, &mut self.seeds) {
            self.shared.outbox.connect(connect);
        }
    }

    /// The device has connected the queue pair, or has failed to. Then the worker starts over after a pause.
    pub fn queue_pair_connected(&mut self, now: Nanos, outcome: Result<(), EffectError>) {
        if let Some(problem) = self.queue_pair.connected(now, outcome, &mut self.seeds) {
            self.shared.outbox.connect(problem);
        }
    }

    /// The next job to run on another thread, at lower priority.
    pub fn take_job(&mut self) -> Option<(JobId, lmap::Job)> {
        self.shared.jobs.take()
    }

    /// Takes the result of a job. It is dropped if the detector does not exist any more.
    pub fn job_done(&mut self, id: JobId, done: lmap::JobResult) {
        let Some(owner) = self.shared.jobs.done(id) else { return };
        let every = self.handover.every();
        for (lmap, runtime) in &mut self.runtimes {
            let Some(detectors) = runtime.all_detectors_mut().find(|detectors| detectors.has(owner)) else { continue };
            detectors.install(owner, done);
            // Its first model, or one that was due while it was in the job.
            if every.is_some_and(|every| runtime.model_is_due(self.now, every)) {
                self.handover.ask(*lmap);
            }
            return;
        }
        let mut retained = self.retained.values_mut().flat_map(RetainedLmap::all_detectors_mut);
        if let Some(detectors) = retained.find(|detectors| detectors.has(owner)) {
            detectors.install(owner, done);
        }
    }

    /// The learned model of `service`, for another node or a later start, which says how far apart its rows were;
    /// `None` before there is one, while the sketch is being decomposed, and with a trained model. Copies the model:
    /// 0.1 MB for 141 columns.
    #[must_use]
    pub fn model(&self, service: &ServiceName) -> Option<lmap::Model> {
        let of = |runtime: &LmapRuntime| Some((runtime.interval(), runtime.detectors()?.learned_model()?));
        let running = self.runtimes.values().find(|runtime| runtime.is_of(service)).and_then(of);
        let retained = || self.retained.get(service).and_then(|of| Some((of.interval, of.learned_model()?)));
        let (interval, model) = running.or_else(retained)?;
        Some(Arc::unwrap_or_clone(model).of_rows_every(interval.length().as_secs_f64()))
    }

    /// Ends all configurations, and retains what was learned.
    fn retain_all(&mut self, now: Nanos) {
        for (_, mut runtime) in core::mem::take(&mut self.runtimes) {
            self.release(now, &mut runtime);
            let (service, retained) = runtime.into_retained(now);
            self.retained.insert(service, retained);
        }
        self.evict_detectors();
        self.drop_orphaned_jobs();
    }

    fn release(&mut self, now: Nanos, runtime: &mut LmapRuntime) {
        for interval in runtime.intervals().into_iter().flatten() {
            self.schedule.leave(interval, now);
        }
        self.extra.release(runtime.go_slow().unwrap_or_default());
        for region in runtime.regions.claims() {
            self.attachments.release(region);
        }
    }

    /// Drops the jobs of detectors that do not exist any more.
    fn drop_orphaned_jobs(&mut self) {
        let watched = self.runtimes.values().flat_map(LmapRuntime::all_detectors);
        let retained = self.retained.values().flat_map(RetainedLmap::all_detectors);
        let ids: std::collections::BTreeSet<_> = watched.chain(retained).flat_map(Detectors::ids).collect();
        self.shared.jobs.retain(|owner| ids.contains(&owner));
    }
}

#[cfg(test)]
mod tests;

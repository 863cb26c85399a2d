//! The node: holds the state of the control plane and carries out its actions. All edges call it; nothing here blocks.

mod actions;
mod cgroup_files;
mod facts;
mod hooks;
mod looks;
mod operators;
mod samplers;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_runtime::access::Identity;
use agent_runtime::reload::ReloadState;
use region::{AcceptError, AcceptedRegion, OwnedRegion};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use wire::id::{HookId, Incarnation, LmapId, RegionId};
use wire::layout::RegionSize;
use wire::name::{InstanceName, ServiceName};
use wire::proto::control as proto;
use wire::registration::{PlacedSeries, ServiceMessage};
use wire::time::Nanos;

use crate::cgroup_metrics::PaceSender;
use crate::clock::{self, Clock};
use crate::control_plane::{ConnectionId, ControlPlane, Descriptor, Paces, Peer, Settings};
use crate::dispatch::Dispatch;
use crate::edge_counts::EdgeCounts;
use crate::outbox::{Outbox, OutboxBudget};
use crate::process_metrics::RequestSender;
use crate::region_registration::request;
use crate::span_ring::RequestSender as RingRequestSender;

pub(crate) use self::cgroup_files::CgroupFiles;
pub use self::hooks::WatchError;
use self::looks::Looks;
pub(crate) use self::looks::Onlooker;

/// Messages queued for one worker. A worker that lets more queue up is disconnected; when it reconnects, it is sent
/// everything again.
const WORKER_QUEUE: usize = 1024;

/// Messages to a worker. The stream ends when the sender is dropped.
pub type ToWorker = mpsc::Receiver<Result<proto::HostMessage, tonic::Status>>;

/// A worker's stream. Dropping it ends both directions.
#[derive(Debug)]
struct WorkerStream {
    messages: mpsc::Sender<Result<proto::HostMessage, tonic::Status>>,
    /// Messages queued at the registrar.
    queued: usize,
    _open: oneshot::Sender<()>,
}

#[derive(Debug)]
struct State {
    plane: ControlPlane,
    dispatch: Dispatch,
    services: BTreeMap<ConnectionId, Arc<Outbox>>,
    outboxes: OutboxBudget,
    /// When each service connected, since boot.
    connected: BTreeMap<ConnectionId, Nanos>,
    workers: BTreeMap<ConnectionId, WorkerStream>,
    regions: BTreeMap<RegionId, Arc<AcceptedRegion>>,
    hooks: BTreeMap<HookId, Arc<Notify>>,
    requests: Option<RequestSender>,
    cgroups: Option<PaceSender>,
    spans: Option<RingRequestSender>,
    last_connection: u64,
    last_region: u64,
    /// When the latest service connected.
    last_service: Nanos,
    deadline: Nanos,
}

/// One per process. Shared by all edges.
#[derive(Debug)]
pub struct Node {
    state: Mutex<State>,
    clock: Clock,
    incarnation: Incarnation,
    wake: Notify,
    draining: watch::Sender<bool>,
    paces: watch::Sender<Paces>,
    /// Carries out RDMA work; `None` without RDMA.
    registrar: Option<request::RequestSender>,
    /// Counters of the edges.
    pub counts: EdgeCounts,
    /// What became of changed configuration.
    pub reloads: Arc<ReloadState>,
    /// Processes of cgroups that are read.
    pub(crate) cgroup_files: CgroupFiles,
    looks: Looks,
}

/// Why a reader does not get a region's descriptor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request names another run of the agent: the reader's configuration is out of date.
    #[error("this is {0}: wait for its configuration")]
    Incarnation(Incarnation),
    /// The region was never registered, or was dropped.
    #[error("{0} is not registered (any more)")]
    Unknown(RegionId),
    /// The operating system gave no read-only descriptor.
    #[error("no read-only descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}

impl Node {
    /// A node with at most `hooks` hooks and watchers. `registrar` serves workers that read by RDMA; without it there
    /// are none.
    #[must_use]
    pub fn new(settings: Settings, hooks: usize, clock: Clock, registrar: Option<request::RequestSender>) -> Self {
        let incarnation = settings.incarnation;
        let state = State {
            plane: ControlPlane::new(settings),
            dispatch: Dispatch::new(hooks),
            services: BTreeMap::new(),
            outboxes: OutboxBudget::default(),
            connected: BTreeMap::new(),
            workers: BTreeMap::new(),
            regions: BTreeMap::new(),
            hooks: BTreeMap::new(),
            requests: None,
            cgroups: None,
            spans: None,
            last_connection: 0,
            last_region: 0,
            last_service: Nanos::ZERO,
            deadline: Nanos::NEVER,
        };
        Self {
            state: Mutex::new(state),
            clock,
            incarnation,
            wake: Notify::new(),
            draining: watch::Sender::new(false),
            paces: watch::Sender::new(Paces::default()),
            registrar,
            counts: EdgeCounts::default(),
            reloads: Arc::default(),
            cgroup_files: CgroupFiles::default(),
            looks: Looks::default(),
        }
    }

    /// The agent's monotonic clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The incarnation of this run.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Sends requests to measure the processes of replicas to `requests` from now on.
    pub fn measure_with(&self, requests: RequestSender) {
        self.lock().requests = Some(requests);
    }

    /// Sends requests to read span rings to `requests` from now on.
    pub fn read_spans_with(&self, requests: RingRequestSender) {
        self.lock().spans = Some(requests);
    }

    /// Runs the control plane's deadlines until the task is dropped.
    pub async fn run_deadlines(&self) {
        loop {
            let deadline = self.with(|_, _| ()).1;
            let wait = deadline.since(self.clock.now()).unwrap_or(Nanos::ZERO);
            // At most an hour, so that no timer overflows when there is no deadline.
            let wait = wait.min(Nanos::from_secs(3600));
            tokio::select! {
                () = tokio::time::sleep(wait.into()) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Calls the control plane, then carries out its actions.
    pub fn plane<R>(&self, ask: impl FnOnce(&mut ControlPlane, Nanos) -> R) -> R {
        self.with(|state, now| ask(&mut state.plane, now)).0
    }

    /// Reads the control plane and the dispatcher, without side effects.
    pub fn inspect<R>(&self, look: impl FnOnce(&ControlPlane, &Dispatch) -> R) -> R {
        let state = self.lock();
        look(&state.plane, &state.dispatch)
    }

    /// `who` looks at these LMAPs: each of their columns is fetched.
    pub(crate) fn look_at(&self, who: Onlooker, looked: BTreeSet<LmapId>) {
        let all = self.looks.all(who, looked);
        if self.inspect(|plane, _| plane.is_looked_at(&all)) {
            return;
        }
        self.with(|state, _| state.plane.look_at(&all));
    }

    /// A service connected just now. Messages to it go through the outbox.
    pub fn service_connected(&self, peer: Peer) -> (ConnectionId, Arc<Outbox>) {
        self.service_connected_at(peer, clock::since_boot())
    }

    /// A service connected `connected` after boot: a process with its number that began later is another one.
    pub(crate) fn service_connected_at(&self, peer: Peer, connected: Nanos) -> (ConnectionId, Arc<Outbox>) {
        self.with(|state, now| {
            let (id, outbox) = (state.next_connection(), Arc::new(Outbox::of(&state.outboxes)));
            state.services.insert(id, Arc::clone(&outbox));
            state.connected.insert(id, connected);
            state.last_service = now;
            state.plane.service_connected(now, id, peer);
            (id, outbox)
        })
        .0
    }

    /// A service sent `message`, with `descriptor` if one came along.
    pub fn service_message(&self, id: ConnectionId, message: ServiceMessage, descriptor: Option<OwnedFd>) {
        let accepted = match (&message, descriptor) {
            (ServiceMessage::AddRegion { size, .. } | ServiceMessage::AddSpanRing { size, .. }, Some(memory)) => {
                Some(AcceptedRegion::accept(memory, *size))
            }
            (_, descriptor) => {
                self.counts.stray_descriptors.add(descriptor.iter().count() as u64);
                None
            }
        };
        self.with(|state, now| {
            let descriptor = match accepted {
                None => Descriptor::None,
                Some(Err(error)) => Descriptor::Refused(error.to_string()),
                Some(Ok(region)) => Descriptor::Accepted(state.keep(region)),
            };
            state.plane.service_message(now, id, message, &descriptor);
        });
    }

    /// A service sent bytes that are not a message.
    pub fn service_garbage(&self, id: ConnectionId, reason: &str) {
        self.with(|state, now| state.plane.service_garbage(now, id, reason));
    }

    /// A service's connection ended, or an agent replica is no longer needed.
    pub fn service_gone(&self, id: ConnectionId) {
        self.with(|state, now| {
            state.services.remove(&id);
            state.connected.remove(&id);
            state.plane.service_gone(now, id);
        });
    }

    /// Adds the region into which the agent measures the process of connection `id`.
    pub fn add_agent_region(&self, id: ConnectionId, region: &OwnedRegion, series: Vec<PlacedSeries>) {
        match own_region(region) {
            Ok(own) => drop(self.with(|state, now| {
                let kept = state.keep(own);
                state.plane.agent_region(now, id, kept, region.size(), series);
            })),
            Err(error) => {
                tracing::error!(error = &error as &dyn core::error::Error, "cannot create the agent's own region");
            }
        }
    }

    /// Adds a replica of `service` on the agent's own account, with values in `region`: for services that are known by
    /// their spans only.
    pub fn agent_replica(
        &self,
        service: ServiceName,
        instance: InstanceName,
        region: &OwnedRegion,
        series: Vec<PlacedSeries>,
    ) -> ConnectionId {
        let joined = |state: &mut State, _| {
            let id = state.next_connection();
            state.plane.agent_replica(id, service, instance);
            id
        };
        let id = self.with(joined).0;
        self.add_agent_region(id, region, series);
        id
    }

    /// Adds series to the region of [`Self::agent_replica`].
    pub fn agent_series(&self, id: ConnectionId, series: Vec<PlacedSeries>) {
        self.with(|state, now| state.plane.agent_series(now, id, series));
    }

    /// A read-only descriptor of `region`. `host` is the incarnation that the reader was configured by.
    ///
    /// # Errors
    ///
    /// [`RequestError`], with what the reader can do.
    pub fn read_only_descriptor(
        &self,
        host: Incarnation,
        region: RegionId,
    ) -> Result<(OwnedFd, RegionSize), RequestError> {
        if host != self.incarnation {
            return Err(RequestError::Incarnation(self.incarnation));
        }
        let state = self.lock();
        let kept = state.regions.get(&region).ok_or(RequestError::Unknown(region))?;
        Ok((kept.reader_fd()?, kept.size()))
    }

    /// At most `most` regions of services and of this agent, in the order of their ids, behind `after`.
    pub(crate) fn regions_after(&self, after: RegionId, most: usize) -> Vec<(RegionId, Arc<AcceptedRegion>)> {
        let state = self.lock();
        let behind = state.regions.range((Bound::Excluded(after), Bound::Unbounded));
        behind.take(most).map(|(&id, region)| (id, Arc::clone(region))).collect()
    }

    /// A worker's stream began. The first channel carries messages to the worker; the second one closes when the stream
    /// has to end.
    pub fn worker_connected(
        &self,
        identity: &Identity,
        hello: &proto::WorkerHello,
    ) -> (ConnectionId, ToWorker, oneshot::Receiver<()>) {
        let (messages, to_worker) = mpsc::channel(WORKER_QUEUE);
        let (open, closed) = oneshot::channel();
        let id = self
            .with(|state, now| {
                let id = state.next_connection();
                state.workers.insert(id, WorkerStream { messages, queued: 0, _open: open });
                state.plane.worker_connected(now, id, identity, hello);
                id
            })
            .0;
        (id, to_worker, closed)
    }

    /// A worker sent `message`.
    pub fn worker_message(&self, id: ConnectionId, message: proto::WorkerMessage) {
        self.with(|state, now| state.plane.worker_message(now, id, message));
    }

    /// A worker's stream ended.
    pub fn worker_gone(&self, id: ConnectionId) {
        self.with(|state, now| {
            state.workers.remove(&id);
            state.plane.worker_gone(now, id);
        });
    }

    /// Ranks services in alarm by the call graph `calls` from now on.
    pub(crate) fn set_calls(&self, calls: ::hooks::suspects::Calls) {
        self.lock().plane.set_calls(calls);
    }

    /// True once the agent is shutting down.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Resolves when the agent starts to shut down.
    pub async fn drained(&self) {
        // The sender lives in `self`, so `wait_for` cannot fail.
        _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Starts the shutdown: services and workers are sent what is queued and then closed; hooks get what is queued and
    /// then end.
    pub fn drain(&self) {
        let mut state = self.lock();
        for outbox in core::mem::take(&mut state.services).into_values() {
            outbox.close();
        }
        state.workers.clear();
        state.requests = None;
        state.spans = None;
        drop(state);
        self.draining.send_replace(true);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then carries out all actions that follow. Also returns the next deadline.
    fn with<R>(&self, change: impl FnOnce(&mut State, Nanos) -> R) -> (R, Nanos) {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = change(&mut state, now);
        let least = state.dispatch.least_share();
        state.plane.want_verdicts_from(least);
        let deadline = state.plane.poll(now);
        // An action may ask for more: whoever follows a service subscribes to its new LMAP.
        loop {
            let actions = state.plane.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(&mut state, action);
            }
        }
        if deadline < state.deadline {
            self.wake.notify_one();
        }
        state.deadline = deadline;
        (result, deadline)
    }
}

impl State {
    fn next_connection(&mut self) -> ConnectionId {
        self.last_connection += 1;
        ConnectionId(self.last_connection)
    }

    fn keep(&mut self, region: AcceptedRegion) -> RegionId {
        self.last_region += 1;
        let id = RegionId(self.last_region);
        self.regions.insert(id, Arc::new(region));
        id
    }

    /// Removes hooks whose stream broke a minute ago.
    fn expire_detached(&mut self, now: Nanos) {
        let expired = self.dispatch.expire_detached(now);
        for id in &expired {
            self.hooks.remove(id);
        }
        if !expired.is_empty() {
            self.subscribe_all();
        }
    }

    fn notified(&mut self, id: HookId) -> Arc<Notify> {
        Arc::clone(self.hooks.entry(id).or_default())
    }

    /// Wakes the hooks and watchers for which `queue` has queued something.
    fn tell(&mut self, queue: impl FnOnce(&mut Dispatch) -> Vec<HookId>) {
        let hooks = queue(&mut self.dispatch);
        for hook in hooks.iter().filter_map(|id| self.hooks.get(id)) {
            hook.notify_one();
        }
    }

    fn subscribe(&mut self, lmap: LmapId) {
        let (every, features) = (self.dispatch.rows_every(lmap), self.dispatch.wants_features(lmap));
        // A deleted LMAP needs no subscription.
        _ = self.plane.subscribe(lmap, every, features);
    }

    /// Hooks came or went. O(LMAPs × hooks).
    fn subscribe_all(&mut self) {
        let lmaps: Vec<_> = self.plane.lmap_views().map(|(lmap, _)| lmap).collect();
        for lmap in lmaps {
            self.subscribe(lmap);
        }
    }
}

/// Why a region of the agent's own cannot be kept among those of services.
#[derive(Debug, thiserror::Error)]
enum OwnRegionError {
    #[error("no second descriptor of it")]
    Descriptor(#[from] std::io::Error),
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

/// The agent's own `region`, as it keeps regions of services: by a descriptor beside the one that it writes by.
fn own_region(region: &OwnedRegion) -> Result<AcceptedRegion, OwnRegionError> {
    let memory = region.as_fd().try_clone_to_owned()?;
    Ok(AcceptedRegion::accept(memory, region.size())?)
}

//! Holds the node's state and does what the control plane wants done. Every edge comes here; nothing here waits.

mod acting;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use region::{AcceptedRegion, OwnedRegion};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use wire::id::{HookId, Incarnation, LmapId, RegionId};
use wire::layout::RegionSize;
use wire::name::{InstanceName, ServiceName};
use wire::proto::control as proto;
use wire::registration::{PlacedSeries, ServiceMessage};
use wire::time::Nanos;

use crate::clock::Clock;
use crate::control_plane::{ConnectionId, ControlPlane, Descriptor, Event, OperatorError, Peer, Settings};
use crate::dispatch::{Dispatch, Filter, StreamId, Taken, TooManyHooks, UnknownHook, WatchedRow};
use crate::edge_counts::EdgeCounts;
use crate::exposing::registrar;
use crate::outbox::Outbox;
use crate::process_metrics::Orders;
use crate::span_ring;

/// Messages that wait for a worker; one that lets more wait is cut off, comes back, and is told everything anew.
const WORKER_QUEUE: usize = 1024;

/// What goes to a worker: messages, and the end of its stream.
pub type ToWorker = mpsc::Receiver<Result<proto::HostMessage, tonic::Status>>;

/// A worker's stream. Dropping it ends both directions.
#[derive(Debug)]
struct Line {
    messages: mpsc::Sender<Result<proto::HostMessage, tonic::Status>>,
    /// Messages that wait for the registrar.
    queued: usize,
    _open: oneshot::Sender<()>,
}

#[derive(Debug)]
struct State {
    plane: ControlPlane,
    dispatch: Dispatch,
    services: BTreeMap<ConnectionId, Arc<Outbox>>,
    workers: BTreeMap<ConnectionId, Line>,
    regions: BTreeMap<RegionId, Arc<AcceptedRegion>>,
    hooks: BTreeMap<HookId, Arc<Notify>>,
    orders: Option<Orders>,
    spans: Option<span_ring::Orders>,
    last_connection: u64,
    last_region: u64,
    deadline: Nanos,
}

/// The node: one per process.
#[derive(Debug)]
pub struct Node {
    state: Mutex<State>,
    clock: Clock,
    incarnation: Incarnation,
    wake: Notify,
    draining: watch::Sender<bool>,
    /// What has to do with RDMA is done by the registrar, if there is one.
    registrar: Option<registrar::Orders>,
    /// What the edges count.
    pub counts: EdgeCounts,
}

/// Why a reader does not get a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request names another run of the agent: its configuration is out of date.
    #[error("this is {0}: wait for a configuration from it")]
    Incarnation(Incarnation),
    /// No such region, or it was dropped.
    #[error("{0} is not registered, or not any more")]
    Unknown(RegionId),
    /// The system refused.
    #[error("no read-only descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}

impl Node {
    /// A node with room for `hooks` hooks and watchers. Workers that read by RDMA are served by `registrar`; without
    /// it there are none.
    #[must_use]
    pub fn new(settings: Settings, hooks: usize, clock: Clock, registrar: Option<registrar::Orders>) -> Self {
        let incarnation = settings.incarnation;
        let state = State {
            plane: ControlPlane::new(settings),
            dispatch: Dispatch::new(hooks),
            services: BTreeMap::new(),
            workers: BTreeMap::new(),
            regions: BTreeMap::new(),
            hooks: BTreeMap::new(),
            orders: None,
            spans: None,
            last_connection: 0,
            last_region: 0,
            deadline: Nanos::NEVER,
        };
        Self {
            state: Mutex::new(state),
            clock,
            incarnation,
            wake: Notify::new(),
            draining: watch::Sender::new(false),
            registrar,
            counts: EdgeCounts::default(),
        }
    }

    /// The agent's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// This run of the agent.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Processes of registered replicas are measured by whoever takes these orders.
    pub fn measure_with(&self, orders: Orders) {
        self.lock().orders = Some(orders);
    }

    /// Span rings of replicas are read by whoever takes these orders.
    pub fn read_spans_with(&self, orders: span_ring::Orders) {
        self.lock().spans = Some(orders);
    }

    /// Runs the control plane's deadlines until the task is dropped.
    pub async fn keep_time(&self) {
        loop {
            let deadline = self.with(|_, _| ()).1;
            let wait = deadline.since(self.clock.now()).unwrap_or(Nanos::ZERO);
            // A deadline that never comes is waited for in hours, so that no timer overflows.
            let wait = wait.min(Nanos::from_secs(3600));
            tokio::select! {
                () = tokio::time::sleep(wait.into()) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Asks the control plane, then does what it wants done.
    pub fn plane<R>(&self, ask: impl FnOnce(&mut ControlPlane, Nanos) -> R) -> R {
        self.with(|state, now| ask(&mut state.plane, now)).0
    }

    /// Looks at the control plane and the hooks.
    pub fn look<R>(&self, look: impl FnOnce(&ControlPlane, &Dispatch) -> R) -> R {
        let state = self.lock();
        look(&state.plane, &state.dispatch)
    }

    /// A service connected. What it is to be told comes through the outbox.
    pub fn service_connected(&self, peer: Peer) -> (ConnectionId, Arc<Outbox>) {
        self.with(|state, now| {
            let (id, outbox) = (state.next_connection(), Arc::new(Outbox::default()));
            state.services.insert(id, Arc::clone(&outbox));
            state.plane.service_connected(now, id, peer);
            (id, outbox)
        })
        .0
    }

    /// A service said something, with `descriptor` if one came along.
    pub fn service_message(&self, id: ConnectionId, message: ServiceMessage, descriptor: Option<OwnedFd>) {
        let accepted = match (&message, descriptor) {
            (ServiceMessage::AddRegion { size, .. } | ServiceMessage::AddSpanRing { size, .. }, Some(memory)) => {
                Some(AcceptedRegion::accept(memory, *size))
            }
            (_, descriptor) => {
                self.counts.stray_descriptors.more(descriptor.iter().count() as u64);
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

    /// A service sent something that is no message.
    pub fn service_garbage(&self, id: ConnectionId, reason: &str) {
        self.with(|state, now| state.plane.service_garbage(now, id, reason));
    }

    /// A service's connection ended, or what the agent stood for is no more.
    pub fn service_gone(&self, id: ConnectionId) {
        self.with(|state, now| {
            state.services.remove(&id);
            state.plane.service_gone(now, id);
        });
    }

    /// The agent measures the process of `id` into `region`.
    pub fn own_region(&self, id: ConnectionId, region: &OwnedRegion, series: Vec<PlacedSeries>) {
        let own = region.as_fd().try_clone_to_owned().map(|memory| AcceptedRegion::accept(memory, region.size()));
        match own {
            Ok(Ok(own)) => drop(self.with(|state, now| {
                let kept = state.keep(own);
                state.plane.agent_region(now, id, kept, region.size(), series);
            })),
            Ok(Err(error)) => tracing::error!(error = &error as &dyn core::error::Error, "the agent's own region"),
            Err(error) => tracing::error!(%error, "the agent's own region"),
        }
    }

    /// The agent itself stands for something that services say of themselves in another way: a replica of `service`, with values in `region`.
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
        self.own_region(id, region, series);
        id
    }

    /// There are further series in the region of [`Self::agent_replica`].
    pub fn agent_series(&self, id: ConnectionId, series: Vec<PlacedSeries>) {
        self.with(|state, now| state.plane.agent_series(now, id, series));
    }

    /// A read-only descriptor of `region`, named by the run `host`.
    ///
    /// # Errors
    ///
    /// [`RequestError`] with what the reader can do.
    pub fn reader_of(&self, host: Incarnation, region: RegionId) -> Result<(OwnedFd, RegionSize), RequestError> {
        if host != self.incarnation {
            return Err(RequestError::Incarnation(self.incarnation));
        }
        let state = self.lock();
        let kept = state.regions.get(&region).ok_or(RequestError::Unknown(region))?;
        Ok((kept.reader_fd()?, kept.size()))
    }

    /// A worker's stream began. What it is to be told comes through the first channel; the second one ends when the stream is to end.
    pub fn worker_connected(&self, hello: &proto::WorkerHello) -> (ConnectionId, ToWorker, oneshot::Receiver<()>) {
        let (messages, to_worker) = mpsc::channel(WORKER_QUEUE);
        let (open, closed) = oneshot::channel();
        let id = self
            .with(|state, now| {
                let id = state.next_connection();
                state.workers.insert(id, Line { messages, queued: 0, _open: open });
                state.plane.worker_connected(now, id, hello);
                id
            })
            .0;
        (id, to_worker, closed)
    }

    /// A worker said something.
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

    /// Registers a hook, which is notified when something waits for it.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`].
    pub fn register_hook(&self, filter: Filter, queue: usize) -> Result<(HookId, Arc<Notify>), TooManyHooks> {
        let (registered, _) = self.with(|state, now| {
            state.forget_left(now);
            let id = state.dispatch.register(filter, queue)?;
            Ok((id, state.notified(id)))
        });
        registered
    }

    /// From now on services in alarm are ranked by who calls whom in `calls`.
    pub(crate) fn know_calls(&self, calls: ranking::Calls) {
        self.lock().plane.know_calls(calls);
    }

    /// Registers a watcher of raw rows.
    ///
    /// # Errors
    ///
    /// The outer one if there is no such LMAP, the inner one if there are too many watchers.
    pub fn watch_rows(
        &self,
        lmap: LmapId,
        every: u32,
        queue: usize,
    ) -> Result<Result<(HookId, Arc<Notify>), TooManyHooks>, OperatorError> {
        self.with(|state, _| {
            if state.plane.columns(lmap).is_none() {
                return Err(OperatorError::NoLmap(lmap));
            }
            Ok(state.dispatch.watch(lmap, every, queue).map(|id| {
                state.subscribe(lmap);
                (id, state.notified(id))
            }))
        })
        .0
    }

    /// A stream of `id` has begun, which ends when another one takes over.
    pub fn hook_stream(&self, id: HookId) -> Option<StreamId> {
        self.lock().dispatch.stream(id)
    }

    /// Another stream goes on with a hook, after the verdict of sequence `after`. The one before is woken, and finds out.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`].
    pub fn resume_hook(&self, id: HookId, after: u64) -> Result<(StreamId, Arc<Notify>), UnknownHook> {
        let mut state = self.lock();
        state.forget_left(self.clock.now());
        let stream = state.dispatch.resume(id, after)?;
        let notify = Arc::new(Notify::new());
        notify.notify_one();
        if let Some(before) = state.hooks.insert(id, Arc::clone(&notify)) {
            before.notify_one();
        }
        Ok((stream, notify))
    }

    /// The stream of a hook broke: the hook is kept for a minute, in case somebody goes on with it.
    pub fn leave_hook(&self, id: HookId, stream: StreamId) {
        self.lock().dispatch.leave(id, stream, self.clock.now());
    }

    /// The next verdict for a stream of a hook.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] if another stream has taken over.
    pub fn next_event_for(&self, id: HookId, stream: StreamId) -> Result<Option<Taken<Arc<Event>>>, UnknownHook> {
        self.lock().dispatch.take_for(id, stream)
    }

    /// A hook or watcher is gone.
    pub fn unregister(&self, id: HookId) {
        self.with(|state, _| {
            state.hooks.remove(&id);
            if let Some(lmap) = state.dispatch.unregister(id) {
                state.subscribe(lmap);
            }
        });
    }

    /// The next verdict for a hook.
    pub fn next_event(&self, id: HookId) -> Option<Taken<Arc<Event>>> {
        self.lock().dispatch.take(id)
    }

    /// The next row for a watcher.
    pub fn next_row(&self, id: HookId) -> Option<Taken<WatchedRow>> {
        self.lock().dispatch.take_row(id)
    }

    /// Becomes true when the agent is about to end.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Resolves when the agent is about to end.
    pub async fn drained(&self) {
        // The sender is part of the node, so that there is no error to come.
        _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// The agent is about to end: services and workers are sent what waits for them and closed, hooks get what waits and end.
    pub fn drain(&self) {
        let mut state = self.lock();
        for outbox in core::mem::take(&mut state.services).into_values() {
            outbox.close();
        }
        state.workers.clear();
        state.orders = None;
        state.spans = None;
        drop(state);
        self.draining.send_replace(true);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then does everything that follows from it. Returns when something is due next, too.
    fn with<R>(&self, change: impl FnOnce(&mut State, Nanos) -> R) -> (R, Nanos) {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = change(&mut state, now);
        let least = state.dispatch.least_share();
        state.plane.want_verdicts_from(least);
        let deadline = state.plane.poll(now);
        for action in state.plane.take_actions() {
            self.act(&mut state, action);
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

    /// Makes room of hooks that nobody went on with.
    fn forget_left(&mut self, now: Nanos) {
        for id in self.dispatch.forget_left(now) {
            self.hooks.remove(&id);
        }
    }

    fn notified(&mut self, id: HookId) -> Arc<Notify> {
        Arc::clone(self.hooks.entry(id).or_default())
    }

    fn wake(&self, hooks: &[HookId]) {
        for hook in hooks.iter().filter_map(|id| self.hooks.get(id)) {
            hook.notify_one();
        }
    }

    fn subscribe(&mut self, lmap: LmapId) {
        let every = self.dispatch.rows_every(lmap);
        // An LMAP that is gone needs no subscription.
        _ = self.plane.subscribe_rows(lmap, every);
    }
}

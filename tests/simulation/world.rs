//! A node with its agents and services in virtual time, and the faults injected into it.

mod drains;
mod kill_matrix;
mod quiet;
mod restarts;

use std::collections::BTreeSet;

use host_agent::control_plane::{ConnectionId, Event, RowBatch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wire::id::{LmapId, WorkerId};
use wire::metric::Statistic;
use wire::name::ServiceName;
use wire::proto::control::{HostMessage, WorkerMessage, host_message, worker_message};
use wire::proto::registration::AgentMessage;
use wire::time::{Interval, Nanos};

use crate::hooks::Hooks;
use crate::host::{Host, HostOutput};
use crate::ledger::MessageLedger;
use crate::link::Link;
use crate::node::Node;
use crate::operators;
use crate::service::{OutgoingMessage, Service, name};
use crate::stats::RunStats;
use crate::values;
use crate::verbs::Fabric;
use quiet::Judgement;

const STEP: Nanos = Nanos::from_millis(5);
const SERVICES: u64 = 4;
const WORKERS: u32 = 2;
/// Share of γ from which on workers send verdicts, as by default.
const LOWEST_SHARE: f64 = 0.5;
/// How often the host agent wants models, but in some tests.
const MODELS_EVERY: Nanos = Nanos::from_secs(1);

/// Transports of a worker; over several seeds each worker has each combination.
fn transports(seed: u64, worker: u32) -> &'static [&'static str] {
    if (seed >> worker) & 1 == 0 { &["verbs", "shm"] } else { &["shm"] }
}

#[derive(Debug, Default)]
struct ServiceEnd {
    service: Option<Service>,
    connection: Option<ConnectionId>,
    up: Link<OutgoingMessage>,
    down: Link<Option<AgentMessage>>,
    next_try: Nanos,
}

#[derive(Debug)]
struct WorkerEnd {
    node: Node,
    connection: Option<ConnectionId>,
    open: bool,
    up: Link<WorkerMessage>,
    down: Link<Option<HostMessage>>,
    next_try: Nanos,
    /// It ends once it has left.
    leaves: bool,
}

/// The simulated node with its services.
#[derive(Debug)]
pub struct World {
    now: Nanos,
    random: ChaCha8Rng,
    seed: u64,
    /// Number of changes of a wall clock.
    clock_changes: u64,
    interval: Interval,
    host: Host,
    fabric: Fabric,
    incarnations: u64,
    replicas: u64,
    services: Vec<ServiceEnd>,
    workers: Vec<WorkerEnd>,
    subscribed: BTreeSet<LmapId>,
    hooks: Option<Hooks>,
    ledger: MessageLedger,
    careless: bool,
    /// Nothing goes wrong but what a test does: short delays, services that keep their metrics, and every verdict is
    /// dispatched.
    is_quiet: bool,
    /// Whether the host agent stores the models that it keeps (`lmap.models_dir`). Of quiet nodes only.
    is_stored: bool,
    /// How often the host agent wants models.
    models_every: Nanos,
    /// Verdicts of armed detectors. Of quiet nodes only.
    judged: Vec<Judgement>,
    /// Services of which rows have arrived. Of quiet nodes only.
    rows: BTreeSet<ServiceName>,
    pub stats: RunStats,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let millis = [20, 50, 100][random.random_range(0..3)];
        let interval = Interval::new(Nanos::from_millis(millis)).expect("between a millisecond and an hour");
        let fabric = Fabric::default();
        let worker = |number| WorkerEnd {
            node: Node::new(number, seed ^ u64::from(number) << 32, transports(seed, number), fabric.clone()),
            connection: None,
            open: false,
            up: Link::default(),
            down: Link::default(),
            next_try: Nanos::ZERO,
            leaves: false,
        };
        Self {
            now: Nanos::from_secs(1),
            interval,
            host: Host::new(1, interval, LOWEST_SHARE, MODELS_EVERY, fabric.clone()),
            incarnations: 1,
            replicas: 0,
            // Two replicas of each service at most.
            services: (0..2 * SERVICES).map(|_| ServiceEnd::default()).collect(),
            workers: (0..WORKERS).map(worker).collect(),
            subscribed: BTreeSet::new(),
            hooks: Some(Hooks::new()),
            ledger: MessageLedger::default(),
            careless: false,
            is_quiet: false,
            is_stored: true,
            models_every: MODELS_EVERY,
            judged: Vec::new(),
            rows: BTreeSet::new(),
            stats: RunStats::default(),
            random,
            fabric,
            seed,
            clock_changes: 0,
        }
    }

    /// The same with a host agent that releases slots too early.
    pub fn careless(seed: u64) -> Self {
        let mut world = Self::new(seed);
        (world.careless, world.host.careless) = (true, true);
        world
    }

    /// Injects faults for `length`, then runs without faults until everything is freed.
    pub fn run(&mut self, length: Nanos) {
        let end = self.now.plus(length);
        while self.now < end {
            self.inject_faults();
            self.step();
        }
        for end in &mut self.services {
            end.service = None;
        }
        operators::delete_all(&mut self.host.control, self.now);
        let limit = self.now.plus(Nanos::from_secs(20));
        while !self.is_empty() {
            assert!(self.now < limit, "not freed 20 s after the last service left: {}", self.left());
            self.step();
        }
        self.close_hooks();
        self.ledger.host_ends(self.host.control.counters());
        self.stats.count_host(self.host.control.counters());
        let in_flight = self.workers.iter().flat_map(|end| end.up.in_flight());
        self.stats.lost_with_connections = self.ledger.close(in_flight);
        for end in &self.workers {
            end.node.check_counters();
            self.stats.count(&end.node);
        }
    }

    fn close_hooks(&mut self) {
        self.stats.lost_by_slow_hooks += self.hooks.take().map_or(0, Hooks::close);
    }

    fn is_empty(&self) -> bool {
        // What was learnt stays, for services that come back.
        let freed = |(name, size): &(&str, usize)| *size == 0 || ["kept_model_bytes", "drained_workers"].contains(name);
        let agent = self.host.control.sizes().iter().all(freed);
        let waits = self.host.control.pending_releases() + self.host.regions() + self.fabric.registrations();
        agent && waits == 0 && self.workers.iter().all(|end| end.node.attached() == 0)
    }

    fn left(&self) -> String {
        let attached: Vec<_> = self.workers.iter().map(|end| end.node.attached()).collect();
        let (waiting, regions) = (self.host.control.pending_releases(), self.host.regions());
        let (sizes, registered) = (self.host.control.sizes(), self.fabric.registrations());
        format!(
            "{sizes:?}, {waiting} releases, {regions} regions, {registered} of them registered, {attached:?} attached"
        )
    }

    fn step(&mut self) {
        self.now = self.now.plus(STEP);
        for at in 0..self.services.len() {
            self.step_service(at);
        }
        for at in 0..self.workers.len() {
            self.step_worker(at);
        }
        self.step_host();
    }

    fn inject_faults(&mut self) {
        let at = self.random.random_range(0..self.services.len());
        if self.services[at].service.is_none() && self.random.random_bool(0.02) {
            self.replicas += 1;
            let series = self.random.random_range(1..6);
            self.services[at].service = Some(Service::new(at as u64 % SERVICES, self.replicas, series));
        }
        if self.random.random_bool(0.0008) {
            self.services[at].service = None; // it exits without a message
        }
        if self.random.random_bool(0.0008) {
            self.break_service(at);
        }
        if let Some(service) = &mut self.services[at].service
            && self.random.random_bool(0.001)
        {
            let until = self.now.plus(Nanos::from_millis(self.random.random_range(20..500)));
            service.invalidate_header(until, self.random.random_bool(0.5));
        }
        if let Some(service) = &mut self.services[at].service
            && self.random.random_bool(0.001)
        {
            service.stopped_until = self.now.plus(Nanos::from_millis(self.random.random_range(100..3000)));
        }
        let at = self.random.random_range(0..self.workers.len());
        if self.random.random_bool(0.001) {
            self.break_worker(at);
        }
        if self.random.random_bool(0.0005) {
            self.restart_worker(at);
        }
        if self.random.random_bool(0.001) && self.workers[at].open {
            self.workers[at].leaves = self.workers[at].node.worker.leave();
        }
        if self.random.random_bool(0.001) {
            self.workers[at].node.stalled_until = self.now.plus(Nanos::from_millis(self.random.random_range(10..4000)));
        }
        let worker = WorkerId(at as u32);
        if self.random.random_bool(0.001) {
            self.fabric.break_end(worker);
        }
        if self.random.random_bool(0.004) {
            self.fabric.revoke(worker, self.random.random_range(0..3));
        }
        if self.random.random_bool(0.0005) {
            self.restart_host();
        }
        if self.random.random_bool(0.0005) {
            let forced = self.random.random_bool(0.3);
            let drained = self.host.control.drain_worker(self.now, worker, forced, "an operator");
            self.stats.drained += u64::from(drained.is_ok());
        }
        if self.random.random_bool(0.001) {
            // It may not exist in this run of the host agent.
            let _ = self.host.control.undrain_worker(self.now, worker);
        }
        if self.random.random_bool(0.004) {
            let called = operators::call(&mut self.host.control, self.now, &mut self.random);
            self.stats.calls += u64::from(called);
        }
        if self.random.random_bool(0.001) {
            self.clock_changes += 1;
            // No wall-clock time comes twice, since it identifies rows here.
            let time = Nanos::from_secs(self.random.random_range(0..14_400)).plus(Nanos(self.clock_changes));
            self.workers[at].node.wall_offset = time;
        }
        if self.random.random_bool(0.0005) {
            self.now = self.now.plus(Nanos::from_millis(self.random.random_range(100..5000))); // the machine slept
        }
    }

    fn break_service(&mut self, at: usize) {
        let longest = if self.is_quiet { 50 } else { 800 };
        let end = &mut self.services[at];
        if let Some(connection) = end.connection.take() {
            self.host.control.service_gone(self.now, connection);
        }
        (end.up, end.down) = (Link::default(), Link::default());
        end.next_try = self.now.plus(Nanos::from_millis(self.random.random_range(5..longest)));
    }

    fn break_worker(&mut self, at: usize) {
        let longest = if self.is_quiet { 50 } else { 3000 };
        let end = &mut self.workers[at];
        if let Some(connection) = end.connection.take() {
            self.host.control.worker_gone(self.now, connection);
        }
        if core::mem::take(&mut end.open) {
            end.node.worker.disconnected(self.now);
        }
        end.up.in_flight().for_each(|message| self.ledger.lost(message));
        (end.up, end.down) = (Link::default(), Link::default());
        end.next_try = self.now.plus(Nanos::from_millis(self.random.random_range(5..longest)));
    }

    fn restart_worker(&mut self, at: usize) {
        self.stats.restarts += 1;
        self.stats.count(&self.workers[at].node);
        self.workers[at].node.check_counters();
        self.break_worker(at);
        let seed = self.random.random();
        let transports = transports(self.seed, at as u32);
        self.workers[at].leaves = false;
        self.workers[at].node = Node::new(at as u32, seed, transports, self.fabric.clone());
        self.workers[at].node.delay_reads(self.is_quiet);
    }

    fn restart_host(&mut self) {
        self.stats.restarts += 1;
        self.incarnations += 1;
        self.ledger.host_ends(self.host.control.counters());
        self.stats.count_host(self.host.control.counters());
        (0..self.services.len()).for_each(|at| self.break_service(at));
        (0..self.workers.len()).for_each(|at| self.break_worker(at));
        let stored = self.host.control.kept_models().map(|(key, _, model)| (key.0.clone(), model.clone()));
        let stored: Vec<_> = stored.filter(|_| self.is_quiet && self.is_stored).collect();
        let lowest_share = if self.is_quiet { 0.0 } else { LOWEST_SHARE };
        self.host = Host::new(self.incarnations, self.interval, lowest_share, self.models_every, self.fabric.clone());
        (self.host.careless, self.host.is_quiet) = (self.careless, self.is_quiet);
        if self.is_quiet {
            self.host.control.want_verdicts_from(0.0);
            for (service, model) in stored {
                self.host.control.restore_model(&service, model);
            }
        }
        self.subscribed.clear();
        self.close_hooks();
    }

    fn step_service(&mut self, at: usize) {
        let now = self.now;
        let end = &mut self.services[at];
        let Some(service) = &mut end.service else {
            if end.connection.is_some() {
                self.break_service(at);
            }
            return;
        };
        service.step(now, &mut self.random, self.is_quiet);
        if end.connection.is_none() && end.next_try <= now && service.stopped_until <= now {
            end.connection = Some(self.host.service_connected(now));
            service.connected();
        }
        let Some(connection) = end.connection else {
            service.outbox.clear(); // a new connection sends everything again
            return;
        };
        for message in service.outbox.drain(..) {
            end.up.send(now, &mut self.random, self.is_quiet, message);
        }
        while let Some(message) = end.up.receive(now) {
            self.host.service_message(now, connection, message);
        }
        while let Some(message) = end.down.receive(now) {
            match message {
                Some(message) => service.on_agent_message(message),
                None => return self.break_service(at),
            }
        }
    }

    fn step_worker(&mut self, at: usize) {
        let now = self.now;
        let end = &mut self.workers[at];
        let stalled = now < end.node.stalled_until;
        if !end.open && end.next_try <= now && !stalled {
            end.open = true;
            end.node.worker.connected(now);
            let hello = WorkerMessage { message: Some(worker_message::Message::Hello(end.node.worker.hello())) };
            end.up.send(now, &mut self.random, self.is_quiet, hello);
        }
        while let Some(message) = end.up.receive(now) {
            if end.connection.is_none() && !matches!(message.message, Some(worker_message::Message::Hello(_))) {
                self.ledger.lost(&message);
                continue;
            }
            let before = self.host.control.counters().clone();
            end.connection = self.host.worker_message(now, end.connection, message.clone());
            self.ledger.arrived(&message, &before, self.host.control.counters());
        }
        if stalled {
            return;
        }
        while !end.node.is_reading()
            && let Some(message) = end.down.receive(now)
        {
            match message {
                Some(message) => end.node.on_host_message(now, &message),
                None => return self.break_worker(at),
            }
        }
        let host = &self.host;
        end.node.step(now, &mut self.random, self.is_quiet, &|request| host.region(request.host, request.region));
        if core::mem::take(&mut end.node.disconnect) {
            return self.break_worker(at);
        }
        while let Some(message) = end.node.next_message() {
            self.ledger.sent(WorkerId(at as u32), &message);
            end.up.send(now, &mut self.random, self.is_quiet, message);
        }
        if end.leaves && end.node.worker.has_left() {
            self.restart_worker(at);
        }
    }

    fn step_host(&mut self) {
        let now = self.now;
        let mut is_new = false;
        for out in self.host.step(now) {
            match out {
                HostOutput::ToService(connection, message) => self.send_to_service(connection, Some(message)),
                HostOutput::CloseService(connection) => self.send_to_service(connection, None),
                HostOutput::ToWorker(worker, connection, message) => {
                    if let Some(host_message::Message::SetLmap(lmap)) = &message.message {
                        is_new |= !self.subscribed.contains(&LmapId(lmap.lmap));
                    }
                    self.ledger.on_host_message(worker, &message);
                    self.send_to_worker(connection, Some(message));
                }
                HostOutput::CloseWorker(connection) => {
                    if let Some(end) = self.workers.iter_mut().find(|end| end.connection == Some(connection)) {
                        end.node.is_fenced = true;
                    }
                    self.send_to_worker(connection, None);
                }
                HostOutput::Dispatch(event) => {
                    self.check_verdict(&event);
                    self.hooks.get_or_insert_with(Hooks::new).dispatch(*event);
                }
                HostOutput::Rows(rows) => self.check_rows(&rows),
            }
        }
        self.hooks.get_or_insert_with(Hooks::new).step(now);
        self.stats.released = self.stats.released.max(self.host.control.counters().released_slot_runs);
        // Subscribes to all rows of every LMAP as soon as a worker gets it. Listing is expensive and few steps have a
        // new LMAP.
        let lmaps = if is_new { self.host.control.list().lmaps } else { Vec::new() };
        for id in lmaps.into_iter().map(|info| LmapId(info.lmap)) {
            if self.subscribed.insert(id) {
                self.host.control.subscribe_rows(id, 1).expect("the LMAP exists");
            }
        }
    }

    fn send_to_service(&mut self, connection: ConnectionId, message: Option<AgentMessage>) {
        if let Some(end) = self.services.iter_mut().find(|end| end.connection == Some(connection)) {
            end.down.send(self.now, &mut self.random, self.is_quiet, message);
        }
    }

    fn send_to_worker(&mut self, connection: ConnectionId, message: Option<HostMessage>) {
        if let Some(end) = self.workers.iter_mut().find(|end| end.connection == Some(connection)) {
            end.down.send(self.now, &mut self.random, self.is_quiet, message);
        }
    }

    /// Checks that every value belongs to the metric of its column.
    fn check_rows(&mut self, batch: &RowBatch) {
        for row in &batch.rows {
            assert_eq!(row.values.len(), batch.columns.len(), "a row has a value for each column");
            for (title, value) in batch.columns.iter().zip(&row.values).filter(|(_, value)| !value.is_nan()) {
                self.stats.values += 1;
                let (uid, statistic) = values::column(title);
                if self.is_quiet {
                    self.rows.insert(name(values::service_of(uid)));
                }
                self.stats.increments += u64::from(statistic != Statistic::Value);
                self.stats.of_processes += u64::from(values::is_of_process(uid));
                assert!(values::is_of(title, *value), "{value} stands under {title} at {}", self.now);
            }
        }
    }

    fn check_verdict(&mut self, event: &Event) {
        self.stats.verdicts += 1;
        if self.is_quiet && event.verdict.state.judges() {
            let (at, service) = (self.now, event.service.clone());
            self.judged.push(Judgement { at, service, row_unix_ns: event.at.0 });
        }
        self.ledger.dispatched(event);
        assert!(event.verdict.score.is_finite() && event.verdict.score >= 0.0, "a score is a score: {event:?}");
        for reason in &event.reasons {
            assert!(values::is_near(&reason.column(), reason.seen), "a reason is another metric's: {event:?}");
            let of = name(values::service_of(values::column(&reason.column()).0));
            let is_concerned = event.concerned.is_empty() || event.concerned.contains(&of);
            let is_its = event.service == of || operators::is_over_several(&event.service) && is_concerned;
            assert!(is_its, "a verdict names another service's metric: {event:?}");
        }
    }
}

//! Both agents of a node in virtual time, each on its account. Messages between them are bytes.

use std::collections::{BTreeMap, VecDeque};

use host_agent::control_plane::{Action, ConnectionId, ControlPlane, Descriptor, Identity, LmapOptions, Peer};
use host_agent::dispatch::{Dispatch, Filter};
use nic_agent::{Effect, EffectError, Step, Worker};
use prost::Message as _;
use rand_chacha::ChaCha8Rng;
use transport::local::Region;
use transport::{Access, LocalReader, RegionReader as _};
use wire::id::{HookId, Incarnation, LmapId, RegionId};
use wire::name::ServiceName;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::proto::registration::agent_message;
use wire::registration::ServiceMessage;
use wire::time::{Nanos, UnixNanos};

use crate::accounts::Account;
use crate::service::Service;

/// How long a worker waits before it connects again.
const RECONNECT: Nanos = Nanos::from_secs(1);
/// A region's memory is this test's. It lives until no agent has it any more.
const LATER: Nanos = Nanos::from_secs(3600);

/// A service, and its connection to the host agent.
#[derive(Debug)]
struct ServiceEnd {
    service: Service,
    connection: ConnectionId,
}

/// Both agents and the services of a node.
#[derive(Debug)]
pub struct Node {
    pub now: Nanos,
    pub host: ControlPlane,
    pub hooks: Dispatch,
    pub worker: Worker,
    reader: LocalReader,
    services: BTreeMap<usize, ServiceEnd>,
    /// The worker's connection, and when it tries again without one.
    link: Option<ConnectionId>,
    next_try: Nanos,
    to_worker: VecDeque<Vec<u8>>,
    /// The host agent closes the worker's connection after what it has sent.
    is_closed: bool,
    regions: BTreeMap<RegionId, Region>,
    gone: VecDeque<(Nanos, Region)>,
    last_connection: u64,
    last_region: u64,
    /// A hook that takes what it gets, and one that is slow.
    hook: HookId,
}

impl Node {
    pub fn new(host: host_agent::control_plane::Settings, nic: nic_agent::WorkerSettings) -> Self {
        let (quick, slow) = (
            Filter { lmaps: [].into(), min_share: 0.5, ..Filter::default() },
            Filter { lmaps: [].into(), min_share: 0.5, ..Filter::default() },
        );
        let host = Account::Host.charge(|| ControlPlane::new(host));
        let (hooks, hook) = Account::Hooks.charge(|| {
            let mut hooks = Dispatch::new(64);
            hooks.register(slow, 256).expect("there are few hooks");
            let hook = hooks.register(quick, 256).expect("there are few hooks");
            (hooks, hook)
        });
        let (worker, reader) = Account::Nic.charge(|| (Worker::new(nic, 7), LocalReader::new()));
        Self {
            now: Nanos::from_secs(1),
            host,
            hooks,
            worker,
            reader,
            services: BTreeMap::new(),
            link: None,
            next_try: Nanos::ZERO,
            to_worker: VecDeque::new(),
            is_closed: false,
            regions: BTreeMap::new(),
            gone: VecDeque::new(),
            last_connection: 0,
            last_region: 0,
            hook,
        }
    }

    fn connection(&mut self) -> ConnectionId {
        self.last_connection += 1;
        ConnectionId(self.last_connection)
    }

    /// Starts `service` in place `at`; the one before ends.
    pub fn start(&mut self, at: usize, service: Service) {
        self.stop(at);
        let (connection, uid, now) = (self.connection(), service.uid, self.now);
        Account::Host.charge(|| {
            self.host.service_connected(now, connection, Peer { pid: 1, uid, cgroup: String::new() });
        });
        self.services.insert(at, ServiceEnd { service, connection });
        self.send(at);
    }

    /// Ends the service in place `at` without a message.
    pub fn stop(&mut self, at: usize) {
        let Some(end) = self.services.remove(&at) else { return };
        Account::Host.charge(|| self.host.service_gone(self.now, end.connection));
    }

    /// Lets `act` change the service in place `at`.
    pub fn with(&mut self, at: usize, act: impl FnOnce(&mut Service)) {
        if let Some(end) = self.services.get_mut(&at) {
            act(&mut end.service);
            self.send(at);
        }
    }

    /// Sends what the service in place `at` has to say.
    fn send(&mut self, at: usize) {
        let Some(end) = self.services.get_mut(&at) else { return };
        for (bytes, with_region) in core::mem::take(&mut end.service.outbox) {
            let descriptor = if with_region {
                self.last_region += 1;
                self.regions.insert(RegionId(self.last_region), end.service.region.clone());
                Descriptor::Accepted(RegionId(self.last_region))
            } else {
                Descriptor::None
            };
            Account::Host.charge(|| {
                let message = ServiceMessage::decode(&bytes).expect("services send what can be read");
                self.host.service_message(self.now, end.connection, message, &descriptor);
            });
        }
    }

    /// All services write.
    pub fn write(&self, random: &mut ChaCha8Rng) {
        self.services.values().for_each(|end| end.service.write(random));
    }

    /// Breaks the worker's connection for `pause`.
    pub fn break_worker(&mut self, pause: Nanos) {
        if let Some(connection) = self.link.take() {
            Account::Host.charge(|| self.host.worker_gone(self.now, connection));
            Account::Nic.charge(|| self.worker.disconnected(self.now));
        }
        (self.is_closed, self.to_worker) = (false, VecDeque::new());
        self.next_try = self.now.plus(pause);
    }

    /// An operator has the service's LMAP deleted and created again, and those deleted whose services are gone.
    pub fn renew_lmap(&mut self, service: &str) {
        let name = ServiceName::new(service).expect("letters and digits are a name");
        let lmaps = self.host.list().lmaps;
        let deleted = lmaps.iter().filter(|info| info.service == service || info.replicas.is_empty());
        Account::Host.charge(|| {
            deleted.for_each(|info| self.host.delete_lmap(self.now, LmapId(info.lmap)).expect("it is listed"));
            self.host.new_lmap(self.now, &name, LmapOptions::default()).expect("there is none");
        });
    }

    /// Watches all rows of every LMAP by a watcher that takes none; those before leave.
    pub fn watch(&mut self, before: &mut Vec<HookId>) {
        let lmaps: Vec<_> = self.host.list().lmaps.iter().map(|info| LmapId(info.lmap)).collect();
        Account::Hooks.charge(|| before.drain(..).for_each(|watcher| _ = self.hooks.unregister(watcher)));
        for lmap in lmaps {
            before.extend(Account::Hooks.charge(|| self.hooks.watch(lmap, 1, 64)));
            Account::Host.charge(|| self.host.subscribe_rows(lmap, 1)).expect("it is listed");
        }
    }

    /// Learns the behaviour of now as normal.
    pub fn fit_again(&mut self) {
        let lmaps: Vec<_> = self.host.list().lmaps.iter().map(|info| LmapId(info.lmap)).collect();
        for lmap in lmaps {
            // One that runs nowhere now cannot be fitted.
            _ = Account::Host.charge(|| self.host.fit_again(self.now, lmap));
        }
    }

    /// Everything that is due until `now`.
    pub fn step(&mut self, now: Nanos) {
        self.now = now;
        self.gone.retain(|(at, _)| *at > now);
        if self.link.is_none() && self.next_try <= now {
            let connection = self.connection();
            let hello = Account::Test.charge(|| self.worker.hello());
            Account::Nic.charge(|| self.worker.connected(now));
            Account::Host.charge(|| self.host.worker_connected(now, connection, &Identity::Anyone, &hello));
            self.link = Some(connection);
        }
        self.step_host();
        self.step_worker();
        self.step_host();
    }

    fn step_host(&mut self) {
        let mut released = Vec::new();
        Account::Host.charge(|| {
            self.host.poll(self.now);
            for action in self.host.take_actions() {
                match action {
                    Action::ToService { connection, message } => Account::Test.charge(|| {
                        if let Some(agent_message::Message::Release(release)) = &message.message {
                            released.push((connection, release.runs.clone()));
                        }
                    }),
                    Action::ToWorker { connection, message, .. } if Some(connection) == self.link => {
                        Account::Test.charge(|| self.to_worker.push_back(message.encode_to_vec()));
                    }
                    Action::CloseWorker { connection } => self.is_closed |= Some(connection) == self.link,
                    Action::DropRegion(region) => Account::Test.charge(|| {
                        let region = self.regions.remove(&region);
                        self.gone.extend(region.map(|region| (self.now.plus(LATER), region)));
                    }),
                    // Copied, so that what is queued is on the queues' own account.
                    Action::Dispatch(event) => Account::Hooks.charge(|| {
                        self.hooks.dispatch((*event).clone());
                    }),
                    Action::Rows(rows) => Account::Hooks.charge(|| {
                        let mut copy = (*rows).clone();
                        copy.columns = copy.columns.iter().cloned().collect();
                        self.hooks.rows(&copy);
                    }),
                    _ => {}
                }
            }
        });
        while Account::Hooks.charge(|| self.hooks.take(self.hook)).is_some() {}
        for (connection, runs) in released {
            let end = self.services.values_mut().find(|end| end.connection == connection);
            if let Some(end) = end {
                for run in runs {
                    end.service.released(run);
                }
            }
        }
    }

    fn step_worker(&mut self) {
        let (now, mut messages) = (self.now, Vec::new());
        let arrived = core::mem::take(&mut self.to_worker);
        Account::Nic.charge(|| {
            for bytes in &arrived {
                let message = HostMessage::decode(&bytes[..]).expect("the host agent sends what can be read");
                // It refuses what belongs to a session that has ended.
                _ = self.worker.on_host(now, message);
                self.act();
            }
        });
        if core::mem::take(&mut self.is_closed) {
            self.break_worker(RECONNECT);
        }
        Account::Nic.charge(|| {
            while self.worker.poll(now) == Step::Fetch {
                self.act();
                let outcome = self.reader.fetch(self.worker.batch());
                self.worker.fetched(now, UnixNanos(now.0), &outcome);
            }
            self.act();
            while let Some((id, job)) = self.worker.take_job() {
                let done = job.run();
                self.worker.job_done(id, done);
            }
            while self.link.is_some()
                && let Some(message) = self.worker.next_message()
            {
                Account::Test.charge(|| messages.push(message.encode_to_vec()));
            }
        });
        if let Some(connection) = self.link {
            for bytes in &messages {
                Account::Host.charge(|| {
                    let message = WorkerMessage::decode(&bytes[..]).expect("the worker sends what can be read");
                    self.host.worker_message(now, connection, message);
                });
            }
        }
    }

    fn act(&mut self) {
        for effect in self.worker.take_effects() {
            match effect {
                Effect::Attach(request) => {
                    let region = self.regions.get(&request.region).filter(|_| request.host == self.host_run());
                    let outcome = match region.cloned() {
                        Some(region) => self
                            .reader
                            .attach(request.region, request.size, Access::Memory(region))
                            .map_err(|error| EffectError::of(&error)),
                        None => Err("no such region".into()),
                    };
                    self.worker.attached(self.now, request.region, outcome);
                }
                Effect::Detach(region) => self.reader.detach(region),
                _ => {}
            }
        }
    }

    fn host_run(&self) -> Incarnation {
        self.host.settings().incarnation
    }

    /// Ends everything. What is left on the agents' accounts was freed on another one, or is leaked.
    pub fn end(self) {
        let Self { host, hooks, worker, reader, .. } = self;
        Account::Host.charge(|| drop(host));
        Account::Hooks.charge(|| drop(hooks));
        Account::Nic.charge(|| drop((worker, reader)));
    }
}

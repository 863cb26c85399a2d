//! The host agent's control plane, and the edge around it: connections, descriptors, hooks.

use std::collections::{BTreeMap, BTreeSet};

use host_agent::control_plane::{
    Action, ConnectionId, ControlPlane, Descriptor, Event, Identity, Peer, RowBatch, Settings,
};
use transport::local::Region;
use wire::id::{Incarnation, LmapId, RegionId, WorkerId};
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{Acknowledgement, HostMessage, QueuePairReply, WorkerMessage, worker_message};
use wire::proto::registration::AgentMessage;
use wire::rdma::{Endpoint, PacketSequence};
use wire::time::{Interval, Nanos};

use crate::service::{OutgoingMessage, number_of};
use crate::values::{self, OF_PROCESS, placed, uid_of_process};
use crate::verbs::Fabric;

/// Interval of process metrics.
const SAMPLED: Nanos = Nanos::from_millis(100);

/// A region with process metrics, written by the host agent itself.
#[derive(Debug)]
struct Process {
    service: u64,
    memory: Region,
    samples: u64,
    next: Nanos,
}

impl Process {
    fn new(service: u64, now: Nanos) -> Self {
        let process = Self { service, memory: Region::new(RegionSize::ONE_PAGE), samples: 0, next: now.plus(SAMPLED) };
        process.series().for_each(|(uid, first)| values::begin(&process.memory, uid, first));
        process.memory.sampled(process.time());
        process
    }

    /// The time of the last sample on a clock that stands still while none is taken: what a value is per interval tells
    /// which one it is only if that is of whole numbers.
    fn time(&self) -> Nanos {
        Nanos(SAMPLED.0 * (self.samples + 1))
    }

    fn series(&self) -> impl Iterator<Item = (u64, Slot)> + use<> {
        let service = self.service;
        (0..OF_PROCESS).map(move |index| (uid_of_process(service, index), Slot(index as u32)))
    }

    /// Measures if it is due. Missed measurements are not repeated.
    fn step(&mut self, now: Nanos) {
        if now < self.next {
            return;
        }
        self.next = now.plus(SAMPLED);
        self.samples += 1;
        self.series().for_each(|(uid, first)| values::write(&self.memory, uid, first, self.samples));
        self.memory.sampled(self.time());
    }
}

/// Time until a retry.
const RETRY_AFTER: Nanos = Nanos::from_millis(300);

/// One run of the host agent.
#[derive(Debug)]
pub struct Host {
    /// An injected bug: it treats every message to a worker as acknowledged at once, and so releases slots too early.
    /// The checks must detect that.
    pub careless: bool,
    /// Every queue pair is connected when it is asked for.
    pub is_quiet: bool,
    pub control: ControlPlane,
    pub incarnation: Incarnation,
    regions: BTreeMap<RegionId, Region>,
    processes: BTreeMap<ConnectionId, Process>,
    fabric: Fabric,
    /// Number of queue pair requests.
    requests: u64,
    /// Due retries, for regions that could not be registered and for an unplugged device.
    retries: Vec<(Nanos, WorkerId, Option<BTreeSet<LmapId>>)>,
    last_region: u64,
    last_connection: u64,
}

/// Output of the host agent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "as of the host agent's actions")]
pub enum HostOutput {
    ToService(ConnectionId, AgentMessage),
    CloseService(ConnectionId),
    ToWorker(WorkerId, ConnectionId, HostMessage),
    CloseWorker(ConnectionId),
    Dispatch(Box<Event>),
    Rows(Box<RowBatch>),
}

impl Host {
    /// Workers send verdicts from `lowest_share` of γ on, and models every `models_every`.
    pub fn new(incarnation: u64, interval: Interval, lowest_share: f64, models_every: Nanos, fabric: Fabric) -> Self {
        let incarnation = Incarnation(incarnation);
        let transports = vec!["verbs".to_owned(), "shm".to_owned()];
        let lease = Nanos::from_secs(2);
        let settings =
            Settings { lease, models_every, lowest_share, transports, ..Settings::new(incarnation, interval) };
        fabric.restart_host();
        // Regions of different runs have the same numbers; only the incarnation distinguishes them.
        Self {
            careless: false,
            is_quiet: false,
            control: ControlPlane::new(settings),
            incarnation,
            regions: BTreeMap::new(),
            processes: BTreeMap::new(),
            fabric,
            requests: 0,
            retries: Vec::new(),
            last_region: 0,
            last_connection: 0,
        }
    }

    fn connection(&mut self) -> ConnectionId {
        self.last_connection += 1;
        ConnectionId(self.last_connection)
    }

    pub fn service_connected(&mut self, now: Nanos) -> ConnectionId {
        let connection = self.connection();
        self.control.service_connected(now, connection, Peer { pid: 1, uid: 0, cgroup: String::new() });
        connection
    }

    pub fn service_message(&mut self, now: Nanos, connection: ConnectionId, (message, region): OutgoingMessage) {
        let descriptor = match region {
            None => Descriptor::None,
            Some(region) => Descriptor::Accepted(self.keep(region)),
        };
        self.control.service_message(now, connection, message, &descriptor);
    }

    fn keep(&mut self, region: Region) -> RegionId {
        self.last_region += 1;
        self.regions.insert(RegionId(self.last_region), region);
        RegionId(self.last_region)
    }

    /// Starts measuring the process of a new replica.
    fn measure(&mut self, now: Nanos, connection: ConnectionId, service: u64) {
        let process = Process::new(service, now);
        let (region, series) = (self.keep(process.memory.clone()), process.series());
        let series = series.map(|(uid, first)| placed(uid, first)).collect();
        self.control.agent_region(now, connection, region, process.memory.size(), series);
        self.processes.insert(connection, process);
    }

    pub fn worker_message(
        &mut self,
        now: Nanos,
        connection: Option<ConnectionId>,
        message: WorkerMessage,
    ) -> Option<ConnectionId> {
        if let (None, Some(worker_message::Message::Hello(hello))) = (connection, &message.message) {
            let connection = self.connection();
            self.control.worker_connected(now, connection, &Identity::Anyone, hello);
            return Some(connection);
        }
        let connection = connection?;
        self.control.worker_message(now, connection, message);
        Some(connection)
    }

    /// The response of the regions socket.
    pub fn region(&self, host: Incarnation, region: RegionId) -> Option<Region> {
        self.regions.get(&region).filter(|_| host == self.incarnation).cloned()
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Adds addresses and keys of the regions to a message for a worker that reads by RDMA.
    fn register(&mut self, now: Nanos, worker: WorkerId, message: &mut HostMessage) {
        let Some(Message::SetLmap(lmap)) = &mut message.message else { return };
        if !self.control.uses_verbs(worker) {
            return;
        }
        let mut failed = Vec::new();
        for region in lmap.replicas.iter_mut().flat_map(|replica| &mut replica.regions) {
            let id = RegionId(region.region);
            let Some(memory) = self.regions.get(&id) else { continue };
            match self.fabric.register(worker, id, memory) {
                Some(place) => (region.address, region.rkey) = place,
                None => failed.push((id, "no memory can be locked".to_owned())),
            }
        }
        let lmap = LmapId(lmap.lmap);
        if !failed.is_empty() {
            self.retries.push((now.plus(RETRY_AFTER), worker, Some([lmap].into())));
        }
        self.control.regions_registered(worker, lmap, failed);
    }

    /// The reply to a worker's queue pair. Some replies report a problem, some are lost, and sometimes the device is
    /// unplugged.
    fn connect(&mut self, now: Nanos, worker: WorkerId, attempt: u32, peer: Endpoint) -> Option<HostMessage> {
        self.requests += 1;
        let psn = PacketSequence::from_random(self.requests.wrapping_mul(0x9e37_79b9));
        let answer = match if self.is_quiet { 0 } else { self.requests % 16 } {
            5 => return None,
            13 => {
                self.fabric.stop(worker, true);
                self.retries.push((now.plus(RETRY_AFTER), worker, None));
                QueuePairReply { attempt, host: None, problem: "the device is gone".to_owned() }
            }
            11 => QueuePairReply { attempt, host: None, problem: "the device is busy".to_owned() },
            _ => {
                let host = self.fabric.connect(worker, psn, peer);
                QueuePairReply { attempt, host: Some((&host).into()), problem: String::new() }
            }
        };
        Some(HostMessage { epoch: 0, message: Some(Message::QueuePair(answer)) })
    }

    /// Runs the control plane and carries out its actions.
    pub fn step(&mut self, now: Nanos) -> Vec<HostOutput> {
        self.processes.values_mut().for_each(|process| process.step(now));
        for (_, worker, lmaps) in self.retries.extract_if(.., |(at, ..)| *at <= now) {
            self.control.resend(now, worker, lmaps.as_ref());
        }
        self.control.poll(now);
        let (mut out, mut joined, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for action in self.control.take_actions() {
            match action {
                Action::ToService { connection, message } => out.push(HostOutput::ToService(connection, message)),
                Action::CloseService { connection } => out.push(HostOutput::CloseService(connection)),
                Action::ToWorker { connection, worker, mut message } => {
                    self.register(now, worker, &mut message);
                    if let Some(Message::SetLmap(_) | Message::RemoveLmap(_)) = &message.message {
                        sent.push((connection, message.epoch));
                    }
                    out.push(HostOutput::ToWorker(worker, connection, message));
                }
                Action::ConnectQueuePair { connection, worker, attempt, peer } => {
                    let answer = self.connect(now, worker, attempt, peer);
                    out.extend(answer.map(|message| HostOutput::ToWorker(worker, connection, message)));
                }
                Action::StopReading { worker, for_good } => self.fabric.stop(worker, for_good),
                Action::CloseWorker { connection } => out.push(HostOutput::CloseWorker(connection)),
                Action::Dispatch(event) => out.push(HostOutput::Dispatch(event)),
                Action::Rows(rows) => out.push(HostOutput::Rows(rows)),
                Action::ReplicaJoined { connection, service, .. } => joined.push((connection, number_of(&service))),
                Action::ReplicaLeft { connection } => {
                    joined.retain(|(joined, _)| *joined != connection);
                    self.processes.remove(&connection);
                }
                Action::DropRegion(region) => {
                    self.fabric.deregister(region);
                    let dropped = self.regions.remove(&region);
                    assert!(dropped.is_some(), "{region} is dropped twice, or never existed");
                }
                _ => {}
            }
        }
        for (connection, service) in joined {
            self.measure(now, connection, service);
        }
        if self.careless {
            for (connection, epoch) in sent {
                let acknowledge = worker_message::Message::Acknowledgement(Acknowledgement { epoch });
                self.control.worker_message(now, connection, WorkerMessage { message: Some(acknowledge) });
            }
        }
        out
    }
}

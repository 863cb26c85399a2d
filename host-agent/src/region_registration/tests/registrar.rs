//! The registrar's thread with a node: nothing waits for it, and what has to follow a fence does not overtake it.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, mpsc};
use std::time::Duration;

use prost::Message as _;
use tokio::time::timeout;
use wire::frame::Frames;
use wire::id::Incarnation;
use wire::layout::{Slot, VERSION};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::control::host_message::Message;
use wire::proto::registration::{AgentMessage, agent_message};
use wire::registration::{Hello, PlacedSeries, ServiceMessage, Shards, SlotRun};
use wire::time::Interval;

use super::super::{registrar, request};
use super::*;
use crate::clock::Clock;
use crate::control_plane::{ConnectionId, Identity, Peer, Settings};
use crate::node::{Node, ToWorker};
use crate::outbox::Outbox;

/// Longest wait in these tests.
const PATIENCE: Duration = Duration::from_mins(1);

/// Blocks a device call until the test opens the gate.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_closed = self.is_closed.lock().unwrap();
        while *is_closed {
            is_closed = self.opened.wait(is_closed).unwrap();
        }
    }

    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }
}

/// A device that waits at a gate before it registers or fences.
#[derive(Debug)]
struct GatedDevice {
    gate: Arc<Gate>,
    fake: FakeDevice,
}

impl WorkerDevice for GatedDevice {
    fn register(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<RegisteredRegion, RegisterError> {
        self.gate.pass();
        self.fake.register(region, memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), FenceError> {
        self.fake.deregister(region)
    }

    fn refused_deregistrations(&self) -> usize {
        self.fake.refused_deregistrations()
    }

    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError> {
        self.fake.connect(psn, peer)
    }

    fn fence(&mut self) -> Result<(), FenceError> {
        self.gate.pass();
        self.fake.fence()
    }

    fn revoke(&mut self) -> Result<(), FenceError> {
        self.gate.pass();
        self.fake.revoke()
    }
}

struct Agent {
    node: Arc<Node>,
    gate: Arc<Gate>,
    world: SharedState,
    runtime: tokio::runtime::Runtime,
}

impl Agent {
    fn new() -> Self {
        let (gate, world) = (Arc::new(Gate::default()), SharedState::default());
        world.lock().unwrap().capacity = 100;
        let (slow, state) = (Arc::clone(&gate), Arc::clone(&world));
        let open = move |_: bool| {
            let fake = FakeDevice { world: Arc::clone(&state), registered: BTreeSet::new(), kept: 0 };
            Ok(Box::new(GatedDevice { gate: Arc::clone(&slow), fake }) as Box<dyn WorkerDevice>)
        };
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let settings = Settings {
            transports: vec!["verbs".to_owned()],
            settle: Nanos::ZERO,
            gather: Nanos::ZERO,
            ..Settings::new(Incarnation(9), interval)
        };
        let (requests, inbox) = request::channel();
        let node = Arc::new(Node::new(settings, 4, Clock::start(), Some(requests)));
        registrar::start(Registrations::new(Box::new(open)), inbox, &node).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { node, gate, world, runtime }
    }

    /// A worker of this incarnation, welcomed.
    fn worker(&self, incarnation: u64) -> ToWorker {
        let (_, mut to_worker, _open) = self.node.worker_connected(&Identity::Anyone, &hello(incarnation));
        assert!(matches!(self.next_message(&mut to_worker), Message::Welcome(_)));
        to_worker
    }

    fn next_message(&self, to_worker: &mut ToWorker) -> Message {
        let next = self.runtime.block_on(async { timeout(PATIENCE, to_worker.recv()).await });
        next.expect("the worker is sent nothing").expect("the stream is open").unwrap().message.unwrap()
    }

    /// The next configuration that the worker gets.
    fn next_config(&self, to_worker: &mut ToWorker) -> proto::Lmap {
        match self.next_message(to_worker) {
            Message::SetLmap(lmap) => lmap,
            other => panic!("{other:?}"),
        }
    }

    /// A service with a region and two counters in it.
    fn service(&self) -> (ConnectionId, Arc<Outbox>) {
        let peer = Peer { pid: 0, uid: 0, cgroup: String::new() };
        let (id, outbox) = self.node.service_connected(peer);
        let (service, instance) = (ServiceName::new("cart").unwrap(), InstanceName::new("cart-1").unwrap());
        let hello = Hello::new(service, instance, Labels::default());
        self.node.service_message(id, ServiceMessage::Hello(hello), None);
        let region = ServiceMessage::AddRegion { region: 0, size: RegionSize::ONE_PAGE, layout_version: VERSION };
        self.node.service_message(id, region, Some(memory()));
        self.node.service_message(id, ServiceMessage::AddSeries(vec![Ok(series("a", 0)), Ok(series("b", 1))]), None);
        (id, outbox)
    }

    /// Messages queued for the service within `patience`.
    fn sent_to_service(&self, outbox: &Outbox, patience: Duration) -> Vec<agent_message::Message> {
        let bytes = self.runtime.block_on(async { timeout(patience, outbox.next()).await });
        let (mut frames, mut messages) = (Frames::default(), Vec::new());
        frames.push(&bytes.ok().flatten().unwrap_or_default());
        while let Some(frame) = frames.next_frame().unwrap() {
            messages.extend(AgentMessage::decode(frame).unwrap().message);
        }
        messages
    }
}

fn hello(incarnation: u64) -> proto::WorkerHello {
    proto::WorkerHello {
        protocol: wire::control::PROTOCOL,
        worker: 0,
        incarnation,
        version: "test".to_owned(),
        transports: vec!["verbs".to_owned()],
        takes_lowest_share: true,
        ..proto::WorkerHello::default()
    }
}

fn memory() -> OwnedFd {
    OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap().as_fd().try_clone_to_owned().unwrap()
}

fn series(name: &str, first: u32) -> PlacedSeries {
    let series = Series {
        name: MetricName::new(name).unwrap(),
        labels: Labels::default(),
        kind: Kind::Counter,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    PlacedSeries { series, region: 0, first: Slot(first), shards: Shards::ONE, declared: Declaration::NONE }
}

fn is_release(message: &agent_message::Message) -> bool {
    matches!(message, agent_message::Message::Release(_))
}

#[test]
fn registering_a_region_blocks_no_one_and_the_worker_is_configured_afterwards() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    agent.gate.set(true);

    let (_, outbox) = agent.service();
    let (asks, answered) = mpsc::channel();
    let node = Arc::clone(&agent.node);
    let asking = std::thread::spawn(move || asks.send(node.plane(|plane, _| plane.list())));
    let list = answered.recv_timeout(PATIENCE).expect("the node is locked while a device works");
    asking.join().unwrap().unwrap();

    assert_eq!(list.lmaps.len(), 1);
    assert!(!agent.sent_to_service(&outbox, PATIENCE).is_empty(), "the service is answered");
    assert!(to_worker.try_recv().is_err(), "without a key it is sent nothing");
    agent.gate.set(false);
    let config = agent.next_config(&mut to_worker);
    assert_eq!(places(&config), [(1 << 16, 1)]);
}

#[test]
fn slots_are_given_back_after_the_fence_of_the_worker_that_may_read_them() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, outbox) = agent.service();
    agent.next_config(&mut to_worker);
    let run = SlotRun { region: 0, first: Slot(0), slots: 1 };
    agent.node.service_message(id, ServiceMessage::Retire(vec![run]), None);
    agent.next_config(&mut to_worker);
    let before = agent.sent_to_service(&outbox, PATIENCE);
    assert!(!before.iter().any(is_release), "the worker has not acknowledged: {before:?}");

    // Another run of the worker comes. The first run is fenced, which takes the device its time.
    agent.gate.set(true);
    let _second = agent.node.worker_connected(&Identity::Anyone, &hello(2));
    assert_eq!(agent.sent_to_service(&outbox, Duration::ZERO), [], "the device has not reset its queue pair");
    agent.gate.set(false);

    let messages = agent.sent_to_service(&outbox, PATIENCE);
    assert!(messages.iter().any(is_release), "{messages:?}");
    assert!(log(&agent.world).iter().any(|line| line == "end"), "{:?}", log(&agent.world));
}

#[test]
fn slots_are_held_back_while_a_worker_that_may_read_them_cannot_be_fenced() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, outbox) = agent.service();
    agent.next_config(&mut to_worker);
    let run = SlotRun { region: 0, first: Slot(0), slots: 1 };
    agent.node.service_message(id, ServiceMessage::Retire(vec![run]), None);
    agent.next_config(&mut to_worker);
    agent.sent_to_service(&outbox, PATIENCE);
    agent.world.lock().unwrap().cannot_fence = true;

    // Another run of the worker comes. Its messages follow the fence of the first run.
    let mut second = agent.worker(2);
    assert_eq!(places(&agent.next_config(&mut second)), [(0, 0)], "it gets no keys of that device");
    assert_eq!(agent.sent_to_service(&outbox, Duration::ZERO), []);
    let unfenced = || agent.node.plane(|plane, _| (plane.sizes()[5], plane.status().problems));
    let (size, problems) = unfenced();
    assert_eq!((size, agent.node.counts.failed_fences.get()), (("unfenced_workers", 1), 1));
    assert!(
        problems[0].contains("worker-0 cannot be fenced from RDMA") && problems[0].contains(&chain(&cannot_fence())),
        "{problems:?}"
    );

    agent.world.lock().unwrap().cannot_fence = false;
    let messages = agent.sent_to_service(&outbox, PATIENCE);
    assert!(messages.iter().any(is_release), "{messages:?}");
    let (size, problems) = unfenced();
    assert_eq!(size, ("unfenced_workers", 0));
    assert!(problems.iter().all(|problem| !problem.contains("cannot be fenced")), "{problems:?}");
    assert_eq!(places(&agent.next_config(&mut second)), [(1 << 16, 1)]);
}

#[test]
fn a_region_registered_after_a_retry_is_sent_and_its_problem_disappears() {
    let agent = Agent::new();
    agent.world.lock().unwrap().capacity = 0;
    let mut to_worker = agent.worker(1);
    let (_, _outbox) = agent.service();

    assert_eq!(places(&agent.next_config(&mut to_worker)), [(0, 0)]);
    let unreadable = || agent.node.plane(|plane, _| (plane.sizes()[4], plane.status().problems));
    let (size, problems) = unreadable();
    assert_eq!(size, ("unreadable_regions", 1));
    assert!(problems[0].contains("region-1 of cart cannot be read: cannot pin a region"), "{problems:?}");

    agent.world.lock().unwrap().capacity = 1;
    assert_eq!(places(&agent.next_config(&mut to_worker)), [(1 << 16, 1)]);
    let (size, problems) = unreadable();
    assert_eq!(size, ("unreadable_regions", 0));
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_lost_device_is_counted_and_its_regions_are_sent_again() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    agent.service();
    agent.next_config(&mut to_worker);
    agent.world.lock().unwrap().is_unplugged = true;

    let asks = |attempt| request::Request::Connect { to: ConnectionId(1), worker: WORKER, attempt, peer: end() };
    agent.node.request(asks(1));
    assert!(
        matches!(agent.next_message(&mut to_worker), Message::QueuePair(answer) if answer.problem == chain(&unplugged()))
    );
    agent.world.lock().unwrap().is_unplugged = false;

    assert_eq!(places(&agent.next_config(&mut to_worker)), [(1 << 16, 1)]);
    agent.node.request(asks(2));
    assert!(matches!(agent.next_message(&mut to_worker), Message::QueuePair(answer) if answer.problem.is_empty()));
    let counts = &agent.node.counts;
    assert_eq!((counts.lost_devices.get(), counts.reopened_devices.get()), (1, 1));
}

#[test]
fn a_worker_with_too_many_messages_queued_behind_a_device_is_disconnected() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    agent.gate.set(true);
    agent.service();

    for _ in 0..2000 {
        agent.node.plane(|plane, now| plane.resend(now, WORKER, None));
    }

    let next = agent.runtime.block_on(async { timeout(PATIENCE, to_worker.recv()).await });
    assert!(next.expect("its stream goes on").is_none());
    assert_eq!(agent.node.counts.slow_workers.get(), 1);
    agent.gate.set(false);
}

#[test]
fn a_worker_with_too_many_requests_for_its_queue_pair_behind_a_device_is_disconnected() {
    let agent = Agent::new();
    let (id, mut to_worker, _open) = agent.node.worker_connected(&Identity::Anyone, &hello(1));
    assert!(matches!(agent.next_message(&mut to_worker), Message::Welcome(_)));
    agent.gate.set(true);
    agent.service();

    for attempt in 0..2000 {
        let connect = proto::ConnectQueuePair { attempt, worker: Some((&end()).into()), problem: String::new() };
        let message = proto::worker_message::Message::ConnectQueuePair(connect);
        agent.node.worker_message(id, proto::WorkerMessage { message: Some(message) });
    }

    let next = agent.runtime.block_on(async { timeout(PATIENCE, to_worker.recv()).await });
    assert!(next.expect("its stream goes on").is_none());
    assert_eq!(agent.node.counts.slow_workers.get(), 1);
    agent.gate.set(false);
}

#[test]
fn a_refused_deregistration_is_counted() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, _outbox) = agent.service();
    let set = agent.next_config(&mut to_worker);
    assert_eq!(places(&set), [(1 << 16, 1)]);
    agent.world.lock().unwrap().cannot_deregister = true;

    agent.node.service_gone(id);
    assert!(matches!(agent.next_message(&mut to_worker), Message::RemoveLmap(_)));
    agent.node.request(request::Request::Deregister(RegionId(1)));
    agent.node.request(request::Request::Connect { to: ConnectionId(1), worker: WORKER, attempt: 1, peer: end() });

    assert!(matches!(agent.next_message(&mut to_worker), Message::QueuePair(answer) if !answer.problem.is_empty()));
    assert_eq!(agent.node.counts.failed_deregistrations.get(), 1);
}

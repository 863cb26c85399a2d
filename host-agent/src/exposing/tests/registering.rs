//! The registrar's thread beside a node: nobody waits for it, and what must come after a fence does not overtake it.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, mpsc};
use std::time::Duration;

use prost::Message as _;
use tokio::time::timeout;
use wire::frame::Frames;
use wire::id::Incarnation;
use wire::layout::{Slot, VERSION};
use wire::metric::{Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::control::host_message::Message;
use wire::proto::registration::{AgentMessage, agent_message};
use wire::registration::{Hello, PlacedSeries, ServiceMessage, SlotRun};
use wire::time::Interval;

use super::super::registrar;
use super::*;
use crate::clock::Clock;
use crate::control_plane::{ConnectionId, Peer, Settings};
use crate::node::{Node, ToWorker};
use crate::outbox::Outbox;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_mins(1);

/// Stops the device at a call until the test opens it.
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

/// A device that waits at its gate before it registers or resets.
#[derive(Debug)]
struct Slow {
    gate: Arc<Gate>,
    fake: Fake,
}

impl Expose for Slow {
    fn expose(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<Exposed, String> {
        self.gate.pass();
        self.fake.expose(region, memory)
    }

    fn withdraw(&mut self, region: RegionId) -> Result<(), String> {
        self.fake.withdraw(region)
    }

    fn kept(&self) -> usize {
        self.fake.kept()
    }

    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, Unconnected> {
        self.fake.answer(psn, peer)
    }

    fn fence(&mut self) -> Result<(), String> {
        self.gate.pass();
        self.fake.fence()
    }

    fn end(&mut self) -> Result<(), String> {
        self.gate.pass();
        self.fake.end()
    }
}

struct Agent {
    node: Arc<Node>,
    gate: Arc<Gate>,
    world: Shared,
    runtime: tokio::runtime::Runtime,
}

impl Agent {
    fn new() -> Self {
        let (gate, world) = (Arc::new(Gate::default()), Shared::default());
        world.lock().unwrap().room = 100;
        let (slow, of_fakes) = (Arc::clone(&gate), Arc::clone(&world));
        let open = move |_: bool| {
            let fake = Fake { world: Arc::clone(&of_fakes), exposed: BTreeSet::new(), kept: 0 };
            Ok(Box::new(Slow { gate: Arc::clone(&slow), fake }) as Box<dyn Expose>)
        };
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let settings = Settings {
            transports: vec!["verbs".to_owned()],
            settle: Nanos::ZERO,
            gather: Nanos::ZERO,
            ..Settings::new(Incarnation(9), interval)
        };
        let (orders, inbox) = registrar::orders();
        let node = Arc::new(Node::new(settings, 4, Clock::start(), Some(orders)));
        registrar::start(Exposures::new(Box::new(open)), inbox, &node).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { node, gate, world, runtime }
    }

    /// A worker of this incarnation, welcomed.
    fn worker(&self, incarnation: u64) -> ToWorker {
        let (_, mut to_worker, _open) = self.node.worker_connected(&hello(incarnation));
        assert!(matches!(self.hears(&mut to_worker), Message::Welcome(_)));
        to_worker
    }

    fn hears(&self, to_worker: &mut ToWorker) -> Message {
        let next = self.runtime.block_on(async { timeout(PATIENCE, to_worker.recv()).await });
        next.expect("the worker is told nothing").expect("the stream is open").unwrap().message.unwrap()
    }

    /// The next configuration that the worker is told.
    fn is_set(&self, to_worker: &mut ToWorker) -> proto::Lmap {
        match self.hears(to_worker) {
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

    /// What waits for the service, or comes within `patience`.
    fn service_hears(&self, outbox: &Outbox, patience: Duration) -> Vec<agent_message::Message> {
        let bytes = self.runtime.block_on(async { timeout(patience, outbox.next()).await });
        let (mut frames, mut heard) = (Frames::default(), Vec::new());
        frames.push(&bytes.ok().flatten().unwrap_or_default());
        while let Some(frame) = frames.next_frame().unwrap() {
            heard.extend(AgentMessage::decode(frame).unwrap().message);
        }
        heard
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
    PlacedSeries { series, region: 0, first: Slot(first) }
}

fn is_release(message: &agent_message::Message) -> bool {
    matches!(message, agent_message::Message::Released(_))
}

#[test]
fn nobody_waits_while_a_region_is_registered_and_the_worker_is_told_when_it_is() {
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
    assert!(!agent.service_hears(&outbox, PATIENCE).is_empty(), "the service is answered");
    assert!(to_worker.try_recv().is_err(), "without a key it is told nothing");
    agent.gate.set(false);
    let told = agent.is_set(&mut to_worker);
    assert_eq!(places(&told), [(1 << 16, 1)]);
}

#[test]
fn slots_are_given_back_after_the_fence_of_the_worker_that_may_read_them() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, outbox) = agent.service();
    agent.is_set(&mut to_worker);
    let run = SlotRun { region: 0, first: Slot(0), slots: 1 };
    agent.node.service_message(id, ServiceMessage::Retire(vec![run]), None);
    agent.is_set(&mut to_worker);
    let before = agent.service_hears(&outbox, PATIENCE);
    assert!(!before.iter().any(is_release), "the worker has not acknowledged: {before:?}");

    // Another run of the worker comes: the first one is shut out, which takes the device its time.
    agent.gate.set(true);
    let _second = agent.node.worker_connected(&hello(2));
    assert_eq!(agent.service_hears(&outbox, Duration::ZERO), [], "the device has not reset its queue pair");
    agent.gate.set(false);

    let heard = agent.service_hears(&outbox, PATIENCE);
    assert!(heard.iter().any(is_release), "{heard:?}");
    assert!(log(&agent.world).iter().any(|line| line == "end"), "{:?}", log(&agent.world));
}

#[test]
fn slots_are_not_given_back_while_a_worker_that_may_read_them_cannot_be_shut_out() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, outbox) = agent.service();
    agent.is_set(&mut to_worker);
    let run = SlotRun { region: 0, first: Slot(0), slots: 1 };
    agent.node.service_message(id, ServiceMessage::Retire(vec![run]), None);
    agent.is_set(&mut to_worker);
    agent.service_hears(&outbox, PATIENCE);
    agent.world.lock().unwrap().is_deaf = true;

    // Another run of the worker comes; what it is told comes behind the fence of the first one.
    let mut second = agent.worker(2);
    assert_eq!(places(&agent.is_set(&mut second)), [(0, 0)], "it gets no keys of that device");
    assert_eq!(agent.service_hears(&outbox, Duration::ZERO), []);
    let unfenced = || agent.node.plane(|plane, _| (plane.sizes()[5], plane.status().problems));
    let (size, problems) = unfenced();
    assert_eq!((size, agent.node.counts.failed_fences.get()), (("unfenced_workers", 1), 1));
    assert!(
        problems[0].contains("worker-0 cannot be shut out from RDMA") && problems[0].contains("deaf"),
        "{problems:?}"
    );

    agent.world.lock().unwrap().is_deaf = false;
    let heard = agent.service_hears(&outbox, PATIENCE);
    assert!(heard.iter().any(is_release), "{heard:?}");
    let (size, problems) = unfenced();
    assert_eq!(size, ("unfenced_workers", 0));
    assert!(problems.iter().all(|problem| !problem.contains("cannot be shut out")), "{problems:?}");
    assert_eq!(places(&agent.is_set(&mut second)), [(1 << 16, 1)]);
}

#[test]
fn a_region_that_could_be_registered_later_is_told_by_itself_and_no_problem_any_more() {
    let agent = Agent::new();
    agent.world.lock().unwrap().room = 0;
    let mut to_worker = agent.worker(1);
    let (_, _outbox) = agent.service();

    assert_eq!(places(&agent.is_set(&mut to_worker)), [(0, 0)]);
    let unreadable = || agent.node.plane(|plane, _| (plane.sizes()[4], plane.status().problems));
    let (size, problems) = unreadable();
    assert_eq!(size, ("unreadable_regions", 1));
    assert!(problems[0].contains("region-1 of cart cannot be read: RLIMIT_MEMLOCK"), "{problems:?}");

    agent.world.lock().unwrap().room = 1;
    assert_eq!(places(&agent.is_set(&mut to_worker)), [(1 << 16, 1)]);
    let (size, problems) = unreadable();
    assert_eq!(size, ("unreadable_regions", 0));
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_lost_device_is_counted_and_its_regions_told_anew() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    agent.service();
    agent.is_set(&mut to_worker);
    agent.world.lock().unwrap().is_unplugged = true;

    let asks = |attempt| registrar::Order::Connect { to: ConnectionId(1), worker: WORKER, attempt, peer: end() };
    agent.node.order(asks(1));
    assert!(matches!(agent.hears(&mut to_worker), Message::QueuePair(answer) if answer.problem == "refused"));
    agent.world.lock().unwrap().is_unplugged = false;

    assert_eq!(places(&agent.is_set(&mut to_worker)), [(1 << 16, 1)]);
    agent.node.order(asks(2));
    assert!(matches!(agent.hears(&mut to_worker), Message::QueuePair(answer) if answer.problem.is_empty()));
    let counts = &agent.node.counts;
    assert_eq!((counts.lost_devices.get(), counts.reopened_devices.get()), (1, 1));
}

#[test]
fn a_worker_for_which_too_much_waits_behind_a_device_is_cut_off() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    agent.gate.set(true);
    agent.service();

    for _ in 0..2000 {
        agent.node.plane(|plane, now| plane.tell_again(now, WORKER, None));
    }

    let next = agent.runtime.block_on(async { timeout(PATIENCE, to_worker.recv()).await });
    assert!(next.expect("its stream goes on").is_none());
    assert_eq!(agent.node.counts.slow_workers.get(), 1);
    agent.gate.set(false);
}

#[test]
fn a_region_that_a_device_keeps_is_counted() {
    let agent = Agent::new();
    let mut to_worker = agent.worker(1);
    let (id, _outbox) = agent.service();
    let set = agent.is_set(&mut to_worker);
    assert_eq!(places(&set), [(1 << 16, 1)]);
    agent.world.lock().unwrap().is_stuck = true;

    agent.node.service_gone(id);
    assert!(matches!(agent.hears(&mut to_worker), Message::RemoveLmap(_)));
    agent.node.order(registrar::Order::Withdraw(RegionId(1)));
    agent.node.order(registrar::Order::Connect { to: ConnectionId(1), worker: WORKER, attempt: 1, peer: end() });

    assert!(matches!(agent.hears(&mut to_worker), Message::QueuePair(answer) if !answer.problem.is_empty()));
    assert_eq!(agent.node.counts.kept_regions.get(), 1);
}

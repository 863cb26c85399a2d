//! Registrations with fake devices, whose calls are logged, and with the simulated device.

mod registrar;
mod simulated_device;
mod unfenced;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use agent_runtime::chain;
use region::{AcceptedRegion, OwnedRegion};
use transport::verbs::{ConnectError, DeviceError, FenceError, RegisterError, RegisteredRegion};
use wire::id::{LmapId, RegionId, WorkerId};
use wire::layout::RegionSize;
use wire::proto::control as proto;
use wire::rdma::{Endpoint, PacketSequence, PathMtu, QueuePairNumber};
use wire::time::Nanos;

use super::{AffectedLmaps, OpenError, Registrations, Renewal, WorkerDevice};

const WORKER: WorkerId = WorkerId(0);
const LATER: Nanos = Nanos::from_secs(60);

type Memories = BTreeMap<RegionId, Arc<AcceptedRegion>>;

/// A fake device: its capabilities and faults, and its calls in order.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, by itself")]
struct DeviceState {
    log: Vec<String>,
    /// Regions that it can register.
    capacity: usize,
    /// Every call fails.
    is_unplugged: bool,
    /// Workers cannot be reached.
    workers_unreachable: bool,
    /// It deregisters nothing.
    cannot_deregister: bool,
    /// It fences no worker.
    cannot_fence: bool,
}

type SharedState = Arc<Mutex<DeviceState>>;

#[derive(Debug)]
struct FakeDevice {
    world: SharedState,
    registered: BTreeSet<RegionId>,
    kept: usize,
}

impl WorkerDevice for FakeDevice {
    fn register(&mut self, region: RegionId, _memory: &AcceptedRegion) -> Result<RegisteredRegion, RegisterError> {
        let capacity = self.world.lock().unwrap().capacity;
        if !self.registered.contains(&region) && self.registered.len() >= capacity {
            return Err(RegisterError::MemoryLimit { bytes: 4096, limit: 0, needed: 4096 });
        }
        self.registered.insert(region);
        Ok(RegisteredRegion { address: region.0 << 16, rkey: region.0 as u32 })
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), FenceError> {
        let mut world = self.world.lock().unwrap();
        let is_kept = self.registered.remove(&region) && world.cannot_deregister;
        self.kept += usize::from(is_kept);
        world.log.push(format!("deregister {region}"));
        if is_kept && world.cannot_fence { Err(cannot_fence()) } else { Ok(()) }
    }

    fn refused_deregistrations(&self) -> usize {
        self.kept
    }

    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError> {
        let mut world = self.world.lock().unwrap();
        if world.is_unplugged || world.cannot_fence || self.kept > 0 {
            return Err(unplugged());
        }
        if world.workers_unreachable {
            return Err(ConnectError::NotReset);
        }
        world.log.push(format!("connect {}", peer.qpn.get()));
        Ok(Endpoint { psn, qpn: QueuePairNumber::new(99).unwrap(), ..*peer })
    }

    fn fence(&mut self) -> Result<(), FenceError> {
        self.shut_out("fence")
    }

    fn revoke(&mut self) -> Result<(), FenceError> {
        self.shut_out("end")
    }
}

impl FakeDevice {
    fn shut_out(&self, how: &str) -> Result<(), FenceError> {
        let mut world = self.world.lock().unwrap();
        if world.cannot_fence {
            return Err(cannot_fence());
        }
        world.log.push(how.to_owned());
        Ok(())
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        if let Ok(mut world) = self.world.lock() {
            world.log.push("gone".to_owned());
        }
    }
}

fn cannot_fence() -> FenceError {
    FenceError { device: "fake".to_owned(), regions: 1, cause: io::Error::other("busy") }
}

/// The device is at fault, not the worker.
fn unplugged() -> ConnectError {
    ConnectError::Device { step: "reset", cause: io::Error::other("no such device") }
}

fn registrations(capacity: usize) -> (Registrations, SharedState) {
    let world = SharedState::default();
    world.lock().unwrap().capacity = capacity;
    let state = Arc::clone(&world);
    let open = move |anew| {
        let mut world = state.lock().unwrap();
        world.log.push(if anew { "open anew" } else { "open" }.to_owned());
        if world.is_unplugged {
            return Err(OpenError::Device(DeviceError::NoDevice));
        }
        let fake = FakeDevice { world: Arc::clone(&state), registered: BTreeSet::new(), kept: 0 };
        Ok(Box::new(fake) as Box<dyn WorkerDevice>)
    };
    (Registrations::new(Box::new(open)), world)
}

fn memories(count: u64) -> Memories {
    let accepted = |id| {
        let own = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        let memory = own.as_fd().try_clone_to_owned().unwrap();
        (RegionId(id), Arc::new(AcceptedRegion::accept(memory, RegionSize::ONE_PAGE).unwrap()))
    };
    (1..=count).map(accepted).collect()
}

/// LMAP number `id` with these regions.
fn lmap(id: u32, regions: impl IntoIterator<Item = u64>) -> proto::Lmap {
    let region = |region| proto::Region { region, bytes: 4096, ..proto::Region::default() };
    let replica = proto::Replica { regions: regions.into_iter().map(region).collect(), ..proto::Replica::default() };
    proto::Lmap { lmap: id, replicas: vec![replica], ..proto::Lmap::default() }
}

fn places(lmap: &proto::Lmap) -> Vec<(u64, u32)> {
    lmap.replicas[0].regions.iter().map(|region| (region.address, region.rkey)).collect()
}

fn end() -> Endpoint {
    Endpoint {
        qpn: QueuePairNumber::new(5).unwrap(),
        psn: psn(),
        gid: Some([1; 16]),
        lid: 0,
        mtu: PathMtu::B1024,
        reads: None,
    }
}

fn psn() -> PacketSequence {
    PacketSequence::from_random(1)
}

fn log(world: &SharedState) -> Vec<String> {
    world.lock().unwrap().log.clone()
}

#[test]
fn a_configuration_for_a_worker_has_addresses_and_keys() {
    let (mut registrations, world) = registrations(10);
    let mut config = lmap(1, 1..=2);

    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut config, &memories(2)), []);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);

    assert_eq!(places(&config), [(1 << 16, 1), (2 << 16, 2)]);
    assert_eq!(log(&world), ["open"], "once per worker");
    assert_eq!(registrations.next_deadline(), Nanos::NEVER);
}

#[test]
fn a_region_that_cannot_be_registered_is_named_with_the_remedy_and_the_others_go_on() {
    let (mut registrations, _) = registrations(2);
    let mut config = lmap(1, 1..=3);

    let failed = registrations.fill(Nanos::ZERO, WORKER, &mut config, &memories(3));

    assert!(matches!(&failed[..], [(RegionId(3), why)] if why.contains("raise it")), "{failed:?}");
    assert_eq!(places(&config), [(1 << 16, 1), (2 << 16, 2), (0, 0)]);
}

#[test]
fn a_region_that_was_dropped_already_is_neither_registered_nor_tried_again() {
    let (mut registrations, _) = registrations(10);
    let mut config = lmap(1, 1..=3);

    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut config, &memories(2)), []);

    assert_eq!(places(&config)[2], (0, 0));
    assert_eq!(registrations.next_deadline(), Nanos::NEVER);
}

#[test]
fn failed_registrations_are_retried_with_back_off() {
    let (mut registrations, world) = registrations(1);
    let memories = memories(4);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories).len(), 1);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(2, 3..=4), &memories).len(), 2);

    let mut now = Nanos::ZERO;
    for pause in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(registrations.next_deadline(), now.plus(Nanos::from_millis(pause)));
        assert_eq!(registrations.poll(now), [], "not before it is due");
        now = registrations.next_deadline();
        assert_eq!(registrations.poll(now), []);
    }
    world.lock().unwrap().capacity = 2;
    now = registrations.next_deadline();
    let first = Renewal { worker: WORKER, lmaps: AffectedLmaps::These([LmapId(1)].into()) };
    assert_eq!(registrations.poll(now), [first]);
    assert_eq!(registrations.fill(now, WORKER, &mut lmap(1, 1..=2), &memories), []);

    world.lock().unwrap().capacity = 4;
    assert_eq!(registrations.next_deadline(), now.plus(Nanos::from_millis(500)), "it begins anew with short pauses");
    let second = Renewal { worker: WORKER, lmaps: AffectedLmaps::These([LmapId(2)].into()) };
    assert_eq!(registrations.poll(registrations.next_deadline()), [second]);
    assert_eq!(registrations.next_deadline(), Nanos::NEVER);
}

#[test]
fn every_lmap_that_needs_a_region_is_sent_again_when_it_is_registered_late() {
    let (mut registrations, world) = registrations(1);
    let own = registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2));
    let over_several = registrations.fill(Nanos::ZERO, WORKER, &mut lmap(2, 2..=2), &memories(2));
    assert_eq!((own.len(), over_several.len()), (1, 1));

    world.lock().unwrap().capacity = 2;
    let renewals = registrations.poll(LATER);

    let lmaps = AffectedLmaps::These([LmapId(1), LmapId(2)].into());
    assert_eq!(renewals, [Renewal { worker: WORKER, lmaps }]);
}

#[test]
fn many_failed_registrations_are_retried_in_turns() {
    let (mut registrations, world) = registrations(0);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=150), &memories(150)).len(), 150);
    world.lock().unwrap().capacity = 150;

    let mut rounds = 0;
    while registrations.next_deadline() < Nanos::NEVER {
        assert_ne!(registrations.poll(registrations.next_deadline()), []);
        rounds += 1;
    }

    assert_eq!(rounds, 3, "64 at a time");
}

#[test]
fn what_is_no_longer_needed_is_not_retried() {
    let memories = memories(3);
    let (mut registrations, _) = registrations(0);
    let fill = |registrations: &mut Registrations| {
        registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=3), &memories).len()
    };

    assert_eq!(fill(&mut registrations), 3);
    registrations.forget(WORKER, LmapId(1));
    assert_eq!(registrations.next_deadline(), Nanos::NEVER, "the LMAP is gone");
    assert_eq!(fill(&mut registrations), 3);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, []), &memories), []);
    assert_eq!(registrations.next_deadline(), Nanos::NEVER, "the LMAP has changed");
    assert_eq!(fill(&mut registrations), 3);
    for id in 1..=3 {
        assert_eq!(registrations.deregister(Nanos::ZERO, RegionId(id)), 0);
    }
    assert_eq!(registrations.next_deadline(), Nanos::NEVER, "the regions are gone");
    assert_eq!(fill(&mut registrations), 3);
    registrations.stop(Nanos::ZERO, WORKER, true);
    assert_eq!(registrations.next_deadline(), Nanos::NEVER, "the worker is gone");
}

#[test]
fn a_worker_that_may_come_back_keeps_its_keys_and_a_fenced_one_does_not() {
    let (mut registrations, world) = registrations(10);
    let own = registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).unwrap();
    assert_eq!(own.qpn.get(), 99);

    registrations.stop(Nanos::ZERO, WORKER, false);
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_ok());
    assert_eq!(log(&world), ["open", "connect 5", "fence", "connect 5"]);

    registrations.stop(Nanos::ZERO, WORKER, true);
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_ok());
    assert_eq!(log(&world)[4..], ["end", "gone", "open", "connect 5"]);
}

#[test]
fn a_dropped_region_is_taken_from_every_worker() {
    let (mut registrations, world) = registrations(10);
    for worker in [0, 1] {
        assert_eq!(registrations.fill(Nanos::ZERO, WorkerId(worker), &mut lmap(1, [1]), &memories(1)), []);
    }

    assert_eq!(registrations.deregister(Nanos::ZERO, RegionId(1)), 0);

    assert_eq!(log(&world).iter().filter(|line| *line == "deregister region-1").count(), 2);
}

#[test]
fn a_lost_device_is_reopened_and_the_worker_configured_again_before_it_is_connected() {
    let (mut registrations, world) = registrations(10);
    let memories = memories(2);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories), []);
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_ok());

    world.lock().unwrap().is_unplugged = true;
    assert_eq!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).unwrap_err().why, chain(&unplugged()));
    let failed = registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories);
    assert_eq!(failed.len(), 2, "shown as long as it lasts: {failed:?}");
    let mut now = Nanos::ZERO;
    for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        assert_eq!(registrations.next_deadline(), now.plus(Nanos::from_millis(pause)));
        now = registrations.next_deadline();
        assert_eq!(registrations.poll(now), []);
        assert_eq!(
            registrations.connect(now, WORKER, psn(), &end()).unwrap_err().why,
            format!("{}; retrying", DeviceError::NoDevice),
            "asking does not hasten it"
        );
    }

    world.lock().unwrap().is_unplugged = false;
    now = registrations.next_deadline();
    assert_eq!(registrations.poll(now), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
    assert!(registrations.connect(now, WORKER, psn(), &end()).unwrap_err().why.contains("still being registered"));
    let mut config = lmap(1, 1..=2);
    assert_eq!(registrations.fill(now, WORKER, &mut config, &memories), []);
    assert_eq!(places(&config), [(1 << 16, 1), (2 << 16, 2)]);
    registrations.resent(WORKER);
    assert!(registrations.connect(now, WORKER, psn(), &end()).is_ok());
    assert_eq!((registrations.counts(), registrations.next_deadline()), ((1, 1), Nanos::NEVER));
    assert_eq!(log(&world).iter().filter(|line| *line == "open anew").count(), 9);
}

#[test]
fn a_worker_that_cannot_be_reached_costs_the_device_only_when_it_does_not_end() {
    let (mut registrations, world) = registrations(10);
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_ok());

    world.lock().unwrap().workers_unreachable = true;
    for _ in 0..3 {
        assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_err());
        assert_eq!(registrations.next_deadline(), Nanos::NEVER);
    }
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!(registrations.next_deadline(), Nanos::from_millis(100), "this end may have another address by now");
    assert_eq!(registrations.poll(LATER), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
}

#[test]
fn a_device_that_refuses_to_deregister_is_reported_and_given_up_at_the_next_connection() {
    let (mut registrations, world) = registrations(10);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
    world.lock().unwrap().cannot_deregister = true;

    let withdraw = |registrations: &mut Registrations| registrations.deregister(Nanos::ZERO, RegionId(1));
    assert_eq!((withdraw(&mut registrations), withdraw(&mut registrations)), (1, 0));
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!(registrations.poll(LATER), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
    assert_eq!(log(&world).last().unwrap(), "open anew");
}

#[test]
fn a_device_that_is_missing_at_first_is_opened_once_and_then_retried() {
    let (mut registrations, world) = registrations(10);
    world.lock().unwrap().is_unplugged = true;

    let failed = registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=3), &memories(3));
    assert!(failed.len() == 3 && failed.iter().all(|(_, why)| *why == DeviceError::NoDevice.to_string()), "{failed:?}");
    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_err());
    assert_eq!(log(&world), ["open"]);

    world.lock().unwrap().is_unplugged = false;
    assert_eq!(registrations.poll(LATER), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
}

//! What workers may read: on fakes, whose every call is known, and on the stand-in for a device.

mod on_stand_in;
mod registering;
mod unfenced;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use region::{AcceptedRegion, OwnedRegion};
use transport::verbs::Exposed;
use wire::id::{LmapId, RegionId, WorkerId};
use wire::layout::RegionSize;
use wire::proto::control as proto;
use wire::rdma::{Endpoint, PacketSequence, PathMtu, QueuePairNumber};
use wire::time::Nanos;

use super::{Expose, Exposures, Lmaps, Renewal, Unconnected};

const WORKER: WorkerId = WorkerId(0);
const LATER: Nanos = Nanos::from_secs(60);

type Memories = BTreeMap<RegionId, Arc<AcceptedRegion>>;

/// A device for tests: what it can, and what it was told, in order.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, by itself")]
struct World {
    log: Vec<String>,
    /// Regions that it has room for.
    room: usize,
    /// It refuses whatever is asked.
    is_unplugged: bool,
    /// Workers cannot be reached.
    is_cut: bool,
    /// It lets no region go.
    is_stuck: bool,
    /// It shuts nobody out.
    is_deaf: bool,
}

type Shared = Arc<Mutex<World>>;

#[derive(Debug)]
struct Fake {
    world: Shared,
    exposed: BTreeSet<RegionId>,
    kept: usize,
}

impl Expose for Fake {
    fn expose(&mut self, region: RegionId, _memory: &AcceptedRegion) -> Result<Exposed, String> {
        let room = self.world.lock().unwrap().room;
        if !self.exposed.contains(&region) && self.exposed.len() >= room {
            return Err("RLIMIT_MEMLOCK is too low: raise it".to_owned());
        }
        self.exposed.insert(region);
        Ok(Exposed { address: region.0 << 16, rkey: region.0 as u32 })
    }

    fn withdraw(&mut self, region: RegionId) -> Result<(), String> {
        let mut world = self.world.lock().unwrap();
        let is_kept = self.exposed.remove(&region) && world.is_stuck;
        self.kept += usize::from(is_kept);
        world.log.push(format!("withdraw {region}"));
        if is_kept && world.is_deaf { Err("deaf".to_owned()) } else { Ok(()) }
    }

    fn kept(&self) -> usize {
        self.kept
    }

    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, Unconnected> {
        let mut world = self.world.lock().unwrap();
        let is_own_device = world.is_unplugged || world.is_deaf || self.kept > 0;
        if is_own_device || world.is_cut {
            return Err(Unconnected { why: "refused".to_owned(), is_own_device });
        }
        world.log.push(format!("answer {}", peer.qpn.get()));
        Ok(Endpoint { psn, qpn: QueuePairNumber::new(99).unwrap(), ..*peer })
    }

    fn fence(&mut self) -> Result<(), String> {
        self.shut_out("fence")
    }

    fn end(&mut self) -> Result<(), String> {
        self.shut_out("end")
    }
}

impl Fake {
    fn shut_out(&self, how: &str) -> Result<(), String> {
        let mut world = self.world.lock().unwrap();
        if world.is_deaf {
            return Err("deaf".to_owned());
        }
        world.log.push(how.to_owned());
        Ok(())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Ok(mut world) = self.world.lock() {
            world.log.push("gone".to_owned());
        }
    }
}

fn exposures(room: usize) -> (Exposures, Shared) {
    let world = Shared::default();
    world.lock().unwrap().room = room;
    let of_fakes = Arc::clone(&world);
    let open = move |anew| {
        let mut world = of_fakes.lock().unwrap();
        world.log.push(if anew { "open anew" } else { "open" }.to_owned());
        if world.is_unplugged {
            return Err("no RDMA device".to_owned());
        }
        let fake = Fake { world: Arc::clone(&of_fakes), exposed: BTreeSet::new(), kept: 0 };
        Ok(Box::new(fake) as Box<dyn Expose>)
    };
    (Exposures::new(Box::new(open)), world)
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

fn log(world: &Shared) -> Vec<String> {
    world.lock().unwrap().log.clone()
}

#[test]
fn what_a_worker_is_told_has_addresses_and_keys() {
    let (mut exposures, world) = exposures(10);
    let mut told = lmap(1, 1..=2);

    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut told, &memories(2)), []);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);

    assert_eq!(places(&told), [(1 << 16, 1), (2 << 16, 2)]);
    assert_eq!(log(&world), ["open"], "once per worker");
    assert_eq!(exposures.next(), Nanos::NEVER);
}

#[test]
fn a_region_that_cannot_be_registered_is_named_with_the_remedy_and_the_others_go_on() {
    let (mut exposures, _) = exposures(2);
    let mut told = lmap(1, 1..=3);

    let failed = exposures.fill(Nanos::ZERO, WORKER, &mut told, &memories(3));

    assert!(matches!(&failed[..], [(RegionId(3), why)] if why.contains("raise it")), "{failed:?}");
    assert_eq!(places(&told), [(1 << 16, 1), (2 << 16, 2), (0, 0)]);
}

#[test]
fn a_region_that_was_dropped_already_is_neither_registered_nor_tried_again() {
    let (mut exposures, _) = exposures(10);
    let mut told = lmap(1, 1..=3);

    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut told, &memories(2)), []);

    assert_eq!(places(&told)[2], (0, 0));
    assert_eq!(exposures.next(), Nanos::NEVER);
}

#[test]
fn what_could_not_be_registered_is_tried_again_after_longer_and_longer_pauses_until_it_can() {
    let (mut exposures, world) = exposures(1);
    let memories = memories(4);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories).len(), 1);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(2, 3..=4), &memories).len(), 2);

    let mut now = Nanos::ZERO;
    for pause in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(exposures.next(), now.plus(Nanos::from_millis(pause)));
        assert_eq!(exposures.poll(now), [], "not before it is due");
        now = exposures.next();
        assert_eq!(exposures.poll(now), []);
    }
    world.lock().unwrap().room = 2;
    now = exposures.next();
    let first = Renewal { worker: WORKER, lmaps: Lmaps::These([LmapId(1)].into()) };
    assert_eq!(exposures.poll(now), [first]);
    assert_eq!(exposures.fill(now, WORKER, &mut lmap(1, 1..=2), &memories), []);

    world.lock().unwrap().room = 4;
    assert_eq!(exposures.next(), now.plus(Nanos::from_millis(500)), "it begins anew with short pauses");
    let second = Renewal { worker: WORKER, lmaps: Lmaps::These([LmapId(2)].into()) };
    assert_eq!(exposures.poll(exposures.next()), [second]);
    assert_eq!(exposures.next(), Nanos::NEVER);
}

#[test]
fn of_many_that_cannot_be_registered_each_has_its_turn() {
    let (mut exposures, world) = exposures(0);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=150), &memories(150)).len(), 150);
    world.lock().unwrap().room = 150;

    let mut rounds = 0;
    while exposures.next() < Nanos::NEVER {
        assert_ne!(exposures.poll(exposures.next()), []);
        rounds += 1;
    }

    assert_eq!(rounds, 3, "64 at a time");
}

#[test]
fn what_is_not_wanted_any_more_is_not_tried_again() {
    let memories = memories(3);
    let (mut exposures, _) = exposures(0);
    let fill = |exposures: &mut Exposures| exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=3), &memories).len();

    assert_eq!(fill(&mut exposures), 3);
    exposures.forget(WORKER, LmapId(1));
    assert_eq!(exposures.next(), Nanos::NEVER, "the LMAP is gone");
    assert_eq!(fill(&mut exposures), 3);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, []), &memories), []);
    assert_eq!(exposures.next(), Nanos::NEVER, "the LMAP has changed");
    assert_eq!(fill(&mut exposures), 3);
    for id in 1..=3 {
        assert_eq!(exposures.withdraw(Nanos::ZERO, RegionId(id)), 0);
    }
    assert_eq!(exposures.next(), Nanos::NEVER, "the regions are gone");
    assert_eq!(fill(&mut exposures), 3);
    exposures.stop(Nanos::ZERO, WORKER, true);
    assert_eq!(exposures.next(), Nanos::NEVER, "the worker is gone");
}

#[test]
fn a_worker_that_may_come_back_keeps_its_keys_and_a_fenced_one_does_not() {
    let (mut exposures, world) = exposures(10);
    let own = exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).unwrap();
    assert_eq!(own.qpn.get(), 99);

    exposures.stop(Nanos::ZERO, WORKER, false);
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_ok());
    assert_eq!(log(&world), ["open", "answer 5", "fence", "answer 5"]);

    exposures.stop(Nanos::ZERO, WORKER, true);
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_ok());
    assert_eq!(log(&world)[4..], ["end", "gone", "open", "answer 5"]);
}

#[test]
fn a_dropped_region_is_taken_from_every_worker() {
    let (mut exposures, world) = exposures(10);
    for worker in [0, 1] {
        assert_eq!(exposures.fill(Nanos::ZERO, WorkerId(worker), &mut lmap(1, [1]), &memories(1)), []);
    }

    assert_eq!(exposures.withdraw(Nanos::ZERO, RegionId(1)), 0);

    assert_eq!(log(&world).iter().filter(|line| *line == "withdraw region-1").count(), 2);
}

#[test]
fn a_device_that_goes_away_is_opened_again_and_the_worker_told_of_everything_before_it_is_connected() {
    let (mut exposures, world) = exposures(10);
    let memories = memories(2);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories), []);
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_ok());

    world.lock().unwrap().is_unplugged = true;
    assert_eq!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).unwrap_err(), "refused");
    let failed = exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories);
    assert_eq!(failed.len(), 2, "shown as long as it lasts: {failed:?}");
    let mut now = Nanos::ZERO;
    for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        assert_eq!(exposures.next(), now.plus(Nanos::from_millis(pause)));
        now = exposures.next();
        assert_eq!(exposures.poll(now), []);
        assert_eq!(
            exposures.answer(now, WORKER, psn(), &end()).unwrap_err(),
            "no RDMA device; it is tried again",
            "asking does not hasten it"
        );
    }

    world.lock().unwrap().is_unplugged = false;
    now = exposures.next();
    assert_eq!(exposures.poll(now), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
    assert!(exposures.answer(now, WORKER, psn(), &end()).unwrap_err().contains("still being registered"));
    let mut told = lmap(1, 1..=2);
    assert_eq!(exposures.fill(now, WORKER, &mut told, &memories), []);
    assert_eq!(places(&told), [(1 << 16, 1), (2 << 16, 2)]);
    exposures.told(WORKER);
    assert!(exposures.answer(now, WORKER, psn(), &end()).is_ok());
    assert_eq!((exposures.counts(), exposures.next()), ((1, 1), Nanos::NEVER));
    assert_eq!(log(&world).iter().filter(|line| *line == "open anew").count(), 9);
}

#[test]
fn a_worker_that_cannot_be_reached_costs_the_device_only_when_it_does_not_end() {
    let (mut exposures, world) = exposures(10);
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_ok());

    world.lock().unwrap().is_cut = true;
    for _ in 0..3 {
        assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_err());
        assert_eq!(exposures.next(), Nanos::NEVER);
    }
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!(exposures.next(), Nanos::from_millis(100), "this end may have another address by now");
    assert_eq!(exposures.poll(LATER), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
}

#[test]
fn a_device_that_keeps_a_region_is_named_and_given_up_when_the_worker_asks_again() {
    let (mut exposures, world) = exposures(10);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
    world.lock().unwrap().is_stuck = true;

    let withdraw = |exposures: &mut Exposures| exposures.withdraw(Nanos::ZERO, RegionId(1));
    assert_eq!((withdraw(&mut exposures), withdraw(&mut exposures)), (1, 0));
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!(exposures.poll(LATER), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
    assert_eq!(log(&world).last().unwrap(), "open anew");
}

#[test]
fn a_device_that_is_not_there_at_first_is_looked_for_once_and_then_again_by_itself() {
    let (mut exposures, world) = exposures(10);
    world.lock().unwrap().is_unplugged = true;

    let failed = exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=3), &memories(3));
    assert!(failed.len() == 3 && failed.iter().all(|(_, why)| why == "no RDMA device"), "{failed:?}");
    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_err());
    assert_eq!(log(&world), ["open"]);

    world.lock().unwrap().is_unplugged = false;
    assert_eq!(exposures.poll(LATER), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
}

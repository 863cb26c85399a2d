//! Regions for workers that read by RDMA: each of these has its own keys and its own queue pair, so that it can be shut out alone.

use std::collections::BTreeMap;

use region::AcceptedRegion;
use transport::verbs::{Device, DeviceChoice, Exposed, Exposure, Library};
use wire::id::{RegionId, WorkerId};
use wire::proto::control as proto;
use wire::rdma::{Endpoint, PacketSequence};

/// What one worker may read. The device's is [`Exposure`]; tests have one of their own.
pub trait Expose: Send + std::fmt::Debug {
    /// Lets the worker read a region: where, and with which key. The same again if it may already.
    ///
    /// # Errors
    ///
    /// Why not, and what can be done.
    fn expose(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<Exposed, String>;

    /// Takes a region away: when this has returned, no READ sees it.
    fn withdraw(&mut self, region: RegionId);

    /// Connects the worker whose end is `peer`, in place of whoever was connected; our own end, whose packets begin at `psn`.
    ///
    /// # Errors
    ///
    /// Why not; then nobody is connected.
    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, String>;

    /// Shuts the worker out until the next answer: when this has returned, none of its READs sees anything.
    fn fence(&mut self);
}

/// Makes what a worker may read, of nothing at first.
pub type Open = Box<dyn FnMut() -> Result<Box<dyn Expose>, String> + Send>;

impl Expose for Exposure {
    fn expose(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<Exposed, String> {
        Self::expose(self, region, memory).map_err(|error| told(&error))
    }

    fn withdraw(&mut self, region: RegionId) {
        Self::withdraw(self, region);
    }

    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, String> {
        Self::answer(self, psn, peer).map_err(|error| told(&error))
    }

    fn fence(&mut self) {
        Self::fence(self);
    }
}

/// An error and its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Opens the device that `choice` means. What comes out opens it again if it gives a worker nothing any more: a device may be unplugged and
/// come back. A worker that has something of the old one keeps it until it is fenced.
///
/// # Errors
///
/// What is missing, and how to get it.
pub fn device(choice: DeviceChoice) -> Result<Open, String> {
    let open = move || {
        let library = Library::load().map_err(|error| told(&error))?;
        Device::open(&library, &choice).map_err(|error| told(&error))
    };
    let mut known = Some(open()?);
    if let Some(device) = &known {
        let (name, port, gid_index, mtu) = (device.name(), device.port(), device.gid_index(), device.mtu().bytes());
        tracing::info!(device = name, port, gid_index, mtu, "regions are offered to RDMA");
    }
    Ok(Box::new(move || {
        let device = match known.take() {
            Some(device) => device,
            None => open()?,
        };
        let exposure = Exposure::new(&device).map_err(|error| told(&error))?;
        known = Some(device);
        Ok(Box::new(exposure) as Box<dyn Expose>)
    }))
}

/// A region that could not be registered, and why.
pub type Unregistered = (RegionId, String);

/// What every worker that reads by RDMA may read.
#[derive(Default)]
pub struct Exposures {
    open: Option<Open>,
    workers: BTreeMap<WorkerId, Box<dyn Expose>>,
}

impl std::fmt::Debug for Exposures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exposures").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Exposures {
    /// Nothing so far; `open` makes it for each worker. Without it, every worker fetches otherwise.
    #[must_use]
    pub fn new(open: Option<Open>) -> Self {
        Self { open, workers: BTreeMap::new() }
    }

    /// Puts addresses and keys into what `worker` is to be told. A region that cannot be registered stays without: it is named in the
    /// result, and the others are not touched.
    #[must_use]
    pub fn fill(
        &mut self,
        worker: WorkerId,
        lmap: &mut proto::Lmap,
        regions: &BTreeMap<RegionId, AcceptedRegion>,
    ) -> Vec<Unregistered> {
        let mut failed = Vec::new();
        // Once for all regions: a device that is not there is not looked for again for each.
        let mut exposure = self.of(worker);
        for told in lmap.replicas.iter_mut().flat_map(|replica| &mut replica.regions) {
            let id = RegionId(told.region);
            let exposed = match (&mut exposure, regions.get(&id)) {
                (Ok(exposure), Some(memory)) => exposure.expose(id, memory),
                // It is dropped already: the change that says so comes next.
                (Ok(_), None) => continue,
                (Err(why), _) => Err(why.clone()),
            };
            match exposed {
                Ok(Exposed { address, rkey }) => (told.address, told.rkey) = (address, rkey),
                Err(why) => failed.push((id, why)),
            }
        }
        failed
    }

    /// Connects a worker's queue pair; what it is to be told.
    pub fn answer(
        &mut self,
        worker: WorkerId,
        attempt: u32,
        psn: PacketSequence,
        peer: &Endpoint,
    ) -> proto::QueuePairAnswer {
        match self.of(worker).and_then(|exposure| exposure.answer(psn, peer)) {
            Ok(host) => proto::QueuePairAnswer { attempt, host: Some((&host).into()), problem: String::new() },
            Err(problem) => proto::QueuePairAnswer { attempt, host: None, problem },
        }
    }

    /// Takes a region away from every worker: when this has returned, no READ sees it.
    pub fn withdraw(&mut self, region: RegionId) {
        for exposure in self.workers.values_mut() {
            exposure.withdraw(region);
        }
    }

    /// Shuts a worker out. For good, everything that it had is let go; else it keeps its keys for when it connects again.
    pub fn stop(&mut self, worker: WorkerId, for_good: bool) {
        if let Some(exposure) = self.workers.get_mut(&worker) {
            exposure.fence();
        }
        if for_good {
            self.workers.remove(&worker);
        }
    }

    fn of(&mut self, worker: WorkerId) -> Result<&mut dyn Expose, String> {
        if !self.workers.contains_key(&worker) {
            let open = self.open.as_mut().ok_or("this host agent has no RDMA device")?;
            self.workers.insert(worker, open()?);
        }
        let exposure = self.workers.get_mut(&worker).ok_or("this host agent has no RDMA device")?;
        Ok(exposure.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::fd::AsFd as _;
    use std::sync::{Arc, Mutex};

    use region::OwnedRegion;
    use wire::layout::RegionSize;
    use wire::rdma::{PathMtu, QueuePairNumber};

    use super::*;

    /// What the fakes of one test were told, in order.
    type Log = Arc<Mutex<Vec<String>>>;

    /// A device that has room for so many regions.
    #[derive(Debug)]
    struct Fake {
        log: Log,
        room: usize,
        exposed: BTreeSet<RegionId>,
    }

    impl Expose for Fake {
        fn expose(&mut self, region: RegionId, _memory: &AcceptedRegion) -> Result<Exposed, String> {
            if !self.exposed.contains(&region) && self.exposed.len() >= self.room {
                return Err("RLIMIT_MEMLOCK is too low: raise it".to_owned());
            }
            self.exposed.insert(region);
            Ok(Exposed { address: region.0 << 16, rkey: region.0 as u32 })
        }

        fn withdraw(&mut self, region: RegionId) {
            self.exposed.remove(&region);
            self.log.lock().unwrap().push(format!("withdraw {region}"));
        }

        fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, String> {
            self.log.lock().unwrap().push(format!("answer {}", peer.qpn.get()));
            Ok(Endpoint { psn, qpn: QueuePairNumber::new(99).unwrap(), ..*peer })
        }

        fn fence(&mut self) {
            self.log.lock().unwrap().push("fence".to_owned());
        }
    }

    fn exposures(room: usize) -> (Exposures, Log) {
        let log = Log::default();
        let of_fakes = Arc::clone(&log);
        let open = move || {
            of_fakes.lock().unwrap().push("open".to_owned());
            let fake = Fake { log: Arc::clone(&of_fakes), room, exposed: BTreeSet::new() };
            Ok(Box::new(fake) as Box<dyn Expose>)
        };
        (Exposures::new(Some(Box::new(open))), log)
    }

    fn regions(count: u64) -> BTreeMap<RegionId, AcceptedRegion> {
        let accepted = |_: &u64| {
            let own = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
            AcceptedRegion::accept(own.as_fd().try_clone_to_owned().unwrap(), RegionSize::ONE_PAGE).unwrap()
        };
        (1..=count).map(|id| (RegionId(id), accepted(&id))).collect()
    }

    fn lmap(regions: u64) -> proto::Lmap {
        let region = |region| proto::Region { region, bytes: 4096, ..proto::Region::default() };
        let replica = proto::Replica { regions: (1..=regions).map(region).collect(), ..proto::Replica::default() };
        proto::Lmap { replicas: vec![replica], ..proto::Lmap::default() }
    }

    fn end() -> Endpoint {
        Endpoint {
            qpn: QueuePairNumber::new(5).unwrap(),
            psn: PacketSequence::from_random(1),
            gid: Some([1; 16]),
            lid: 0,
            mtu: PathMtu::B1024,
            reads: None,
        }
    }

    const WORKER: WorkerId = WorkerId(0);

    #[test]
    fn what_a_worker_is_told_has_addresses_and_keys() {
        let (mut exposures, log) = exposures(10);
        let mut told = lmap(2);

        assert_eq!(exposures.fill(WORKER, &mut told, &regions(2)), []);
        assert_eq!(exposures.fill(WORKER, &mut lmap(2), &regions(2)), []);

        let places: Vec<_> = told.replicas[0].regions.iter().map(|region| (region.address, region.rkey)).collect();
        assert_eq!(places, [(1 << 16, 1), (2 << 16, 2)]);
        assert_eq!(*log.lock().unwrap(), ["open"], "once per worker");
    }

    #[test]
    fn a_region_that_cannot_be_registered_is_named_with_the_remedy_and_the_others_go_on() {
        let (mut exposures, _) = exposures(2);
        let mut told = lmap(3);

        let failed = exposures.fill(WORKER, &mut told, &regions(3));

        assert!(matches!(&failed[..], [(RegionId(3), why)] if why.contains("raise it")), "{failed:?}");
        let addresses: Vec<_> = told.replicas[0].regions.iter().map(|region| region.address).collect();
        assert_eq!(addresses, [1 << 16, 2 << 16, 0]);
    }

    #[test]
    fn a_worker_that_may_come_back_keeps_its_keys_and_a_fenced_one_does_not() {
        let (mut exposures, log) = exposures(10);
        let psn = PacketSequence::from_random(7);
        let answer = exposures.answer(WORKER, 3, psn, &end());
        assert_eq!((answer.attempt, answer.host.map(|host| host.qpn), answer.problem.as_str()), (3, Some(99), ""));

        exposures.stop(WORKER, false);
        exposures.answer(WORKER, 4, psn, &end());
        assert_eq!(*log.lock().unwrap(), ["open", "answer 5", "fence", "answer 5"]);

        exposures.stop(WORKER, true);
        exposures.answer(WORKER, 5, psn, &end());
        assert_eq!(log.lock().unwrap()[4..], ["fence", "open", "answer 5"]);
    }

    #[test]
    fn a_dropped_region_is_taken_from_every_worker() {
        let (mut exposures, log) = exposures(10);
        for worker in [0, 1] {
            assert_eq!(exposures.fill(WorkerId(worker), &mut lmap(1), &regions(1)), []);
        }

        exposures.withdraw(RegionId(1));

        assert_eq!(log.lock().unwrap().iter().filter(|line| *line == "withdraw region-1").count(), 2);
    }

    #[test]
    fn without_a_device_the_answer_is_a_problem() {
        let mut exposures = Exposures::default();

        let answer = exposures.answer(WORKER, 1, PacketSequence::from_random(1), &end());

        assert_eq!((answer.host, answer.problem.as_str()), (None, "this host agent has no RDMA device"));
        assert_eq!(exposures.fill(WORKER, &mut lmap(2), &regions(2)).len(), 2);
        exposures.stop(WORKER, true);
    }
}

//! Registrations and a reader, each on a simulated device.

use std::sync::atomic::Ordering::Relaxed;

use transport::verbs::stand_in::{Faults, library, set_faults};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsReader};
use transport::{Access, FetchStatus, RegionBuffer, RegionError, RegionReader as _};
use wire::layout::Slot;

use super::super::device_of;
use super::*;

/// A host agent with the regions of some services, and a worker.
struct HostAndWorker {
    registrations: Registrations,
    reader: VerbsReader,
    services: Vec<OwnedRegion>,
    memories: Memories,
}

impl HostAndWorker {
    /// Regions 1 to `count`; the first slot of each holds its number. The worker is configured and connected.
    fn new(count: u64) -> Self {
        let open = device_of(|| Ok(library()), DeviceChoice::default()).unwrap();
        let device = Device::open(&library(), &DeviceChoice::default()).unwrap();
        let region = |id| {
            let region = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
            region.slot(Slot(0)).unwrap().store(id, Relaxed);
            region
        };
        let services: Vec<_> = (1..=count).map(region).collect();
        let accepted = |region: &OwnedRegion| {
            let memory = region.as_fd().try_clone_to_owned().unwrap();
            Arc::new(AcceptedRegion::accept(memory, region.size()).unwrap())
        };
        let memories = (1..).map(RegionId).zip(services.iter().map(accepted)).collect();
        let reader = VerbsReader::new(&device, ReaderLimits::default()).unwrap();
        let mut pair = Self { registrations: Registrations::new(open), reader, services, memories };
        pair.tell(Nanos::ZERO);
        pair.connect(Nanos::ZERO).unwrap();
        pair
    }

    /// Sends the worker all regions; it attaches them again.
    fn tell(&mut self, now: Nanos) {
        let mut config = lmap(1, self.memories.keys().map(|region| region.0));
        assert_eq!(self.registrations.fill(now, WORKER, &mut config, &self.memories), []);
        for region in &config.replicas[0].regions {
            let access = Access::Remote { address: region.address, rkey: region.rkey, bytes: region.bytes };
            self.reader.detach(RegionId(region.region));
            self.reader.attach(RegionId(region.region), RegionSize::ONE_PAGE, access).unwrap();
        }
    }

    fn connect(&mut self, now: Nanos) -> Result<(), String> {
        let worker = self.reader.reset(psn()).map_err(|error| error.to_string())?;
        let host = self.registrations.connect(now, WORKER, psn(), &worker).map_err(|failure| failure.why)?;
        self.reader.connect(&host).map_err(|error| error.to_string())
    }

    /// The first slots of these regions; `None` if revoked.
    fn read(&mut self, ids: &[u64]) -> Vec<Option<u64>> {
        let buffer = |id: &u64| RegionBuffer::new(RegionId(*id), RegionSize::ONE_PAGE);
        let mut batch: Vec<_> = ids.iter().map(buffer).collect();
        self.reader.fetch(&mut batch).unwrap();
        let value = |buffer: &RegionBuffer| match &buffer.status {
            FetchStatus::Fetched => Some(buffer.words[Slot(0).word()]),
            failed => {
                assert_eq!(*failed, FetchStatus::Failed(RegionError::Revoked));
                None
            }
        };
        batch.iter().map(value).collect()
    }
}

/// Sets faults until it is dropped.
struct FaultScope;

impl FaultScope {
    fn new(faults: Faults) -> Self {
        set_faults(faults);
        Self
    }
}

impl Drop for FaultScope {
    fn drop(&mut self) {
        set_faults(Faults::default());
    }
}

#[test]
fn regions_are_read_again_after_the_device_was_unplugged_and_plugged_in() {
    let mut pair = HostAndWorker::new(2);
    assert_eq!(pair.read(&[1, 2]), [Some(1), Some(2)]);
    let worker = pair.reader.reset(psn()).unwrap();

    let unplugged = FaultScope::new(Faults { unplugged: true, ..Faults::default() });
    assert!(pair.registrations.connect(Nanos::ZERO, WORKER, psn(), &worker).is_err());
    for _ in 0..3 {
        let now = pair.registrations.next_deadline();
        assert_eq!(pair.registrations.poll(now), [], "it is not back");
    }
    drop(unplugged);
    pair.services[0].slot(Slot(0)).unwrap().store(1000, Relaxed);
    let now = pair.registrations.next_deadline();
    assert_eq!(pair.registrations.poll(now), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
    assert!(pair.connect(now).unwrap_err().contains("still being registered"));
    pair.tell(now);
    pair.registrations.resent(WORKER);
    pair.connect(now).unwrap();

    assert_eq!(pair.read(&[1, 2]), [Some(1000), Some(2)]);
    assert_eq!(pair.registrations.counts(), (1, 1));
}

#[test]
fn a_region_that_the_device_did_not_deregister_is_not_readable_after_it_is_reopened() {
    let mut pair = HostAndWorker::new(2);
    let _stuck = FaultScope::new(Faults { no_deregister: true, ..Faults::default() });

    assert_eq!(pair.registrations.deregister(Nanos::ZERO, RegionId(1)), 1);
    pair.memories.remove(&RegionId(1));
    pair.services[0].slot(Slot(0)).unwrap().store(1000, Relaxed);
    assert!(pair.connect(Nanos::ZERO).unwrap_err().contains("refuses to deregister 1 regions"));

    let now = pair.registrations.next_deadline();
    assert_eq!(pair.registrations.poll(now), [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
    pair.tell(now);
    pair.registrations.resent(WORKER);
    pair.connect(now).unwrap();
    assert_eq!(pair.read(&[2, 1]), [Some(2), None], "what it was given before is worth nothing");
}

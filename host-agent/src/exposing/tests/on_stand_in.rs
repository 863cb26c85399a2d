//! With the exposures of a device, and a reader of another one: both are the stand-in.

use std::sync::atomic::Ordering::Relaxed;

use transport::verbs::stand_in::{Faults, library, set_faults};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsReader};
use transport::{Access, FetchStatus, RegionBuffer, RegionError, RegionReader as _};
use wire::layout::Slot;

use super::super::device_of;
use super::*;

/// A host agent's end with the regions of some services, and a worker's.
struct Both {
    exposures: Exposures,
    reader: VerbsReader,
    services: Vec<OwnedRegion>,
    memories: Memories,
}

impl Both {
    /// With regions 1 to `count`, whose first slots hold their numbers. The worker is told and connected.
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
        let mut both = Self { exposures: Exposures::new(open), reader, services, memories };
        both.tell(Nanos::ZERO);
        both.connect(Nanos::ZERO).unwrap();
        both
    }

    /// The worker is told of all regions that there are, and attaches them anew.
    fn tell(&mut self, now: Nanos) {
        let mut told = lmap(1, self.memories.keys().map(|region| region.0));
        assert_eq!(self.exposures.fill(now, WORKER, &mut told, &self.memories), []);
        for region in &told.replicas[0].regions {
            let access = Access::Remote { address: region.address, rkey: region.rkey, bytes: region.bytes };
            self.reader.detach(RegionId(region.region));
            self.reader.attach(RegionId(region.region), RegionSize::ONE_PAGE, access).unwrap();
        }
    }

    fn connect(&mut self, now: Nanos) -> Result<(), String> {
        let worker = self.reader.reset(psn()).map_err(|error| error.to_string())?;
        let host = self.exposures.answer(now, WORKER, psn(), &worker)?;
        self.reader.connect(&host).map_err(|error| error.to_string())
    }

    /// The first slots of these regions, as far as they are read.
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

/// Sets faults for as long as it lives.
struct During;

impl During {
    fn new(faults: Faults) -> Self {
        set_faults(faults);
        Self
    }
}

impl Drop for During {
    fn drop(&mut self) {
        set_faults(Faults::default());
    }
}

#[test]
fn regions_are_read_again_after_the_device_was_unplugged_and_came_back() {
    let mut both = Both::new(2);
    assert_eq!(both.read(&[1, 2]), [Some(1), Some(2)]);
    let worker = both.reader.reset(psn()).unwrap();

    let unplugged = During::new(Faults { unplugged: true, ..Faults::default() });
    assert!(both.exposures.answer(Nanos::ZERO, WORKER, psn(), &worker).is_err());
    for _ in 0..3 {
        let now = both.exposures.next();
        assert_eq!(both.exposures.poll(now), [], "it is not back");
    }
    drop(unplugged);
    both.services[0].slot(Slot(0)).unwrap().store(1000, Relaxed);
    let now = both.exposures.next();
    assert_eq!(both.exposures.poll(now), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
    assert!(both.connect(now).unwrap_err().contains("still being registered"));
    both.tell(now);
    both.exposures.told(WORKER);
    both.connect(now).unwrap();

    assert_eq!(both.read(&[1, 2]), [Some(1000), Some(2)]);
    assert_eq!(both.exposures.counts(), (1, 1));
}

#[test]
fn a_region_that_the_device_keeps_is_not_read_through_the_device_that_is_opened_again() {
    let mut both = Both::new(2);
    let _stuck = During::new(Faults { no_deregister: true, ..Faults::default() });

    assert_eq!(both.exposures.withdraw(Nanos::ZERO, RegionId(1)), 1);
    both.memories.remove(&RegionId(1));
    both.services[0].slot(Slot(0)).unwrap().store(1000, Relaxed);
    assert!(both.connect(Nanos::ZERO).unwrap_err().contains("does not let go of 1 regions"));

    let now = both.exposures.next();
    assert_eq!(both.exposures.poll(now), [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
    both.tell(now);
    both.exposures.told(WORKER);
    both.connect(now).unwrap();
    assert_eq!(both.read(&[2, 1]), [Some(2), None], "what it was given before is worth nothing");
}

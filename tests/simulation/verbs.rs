//! RDMA without a device: queue pairs, keys and READs between the agents of this process, with the failures of real
//! devices.
//!
//! - A READ succeeds only while both queue pairs are connected to each other with the packet numbers of this attempt.
//! - The first READ with an invalid key moves both queue pairs to the error state. Its region is reported, and the rest
//!   of the batch is flushed.
//! - Buffers of a lost batch, and of regions that were not read, contain garbage.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nic_agent::EffectError;
use transport::local::Region;
use transport::{
    Access, AttachError, BatchError, FetchStatus, LocalReader, RegionBuffer, RegionError, RegionReader as _,
};
use wire::id::{RegionId, WorkerId};
use wire::layout::RegionSize;
use wire::rdma::{Endpoint, PacketSequence, PathMtu, QueuePairNumber};

/// Content of a buffer that was not read.
const GARBAGE: u64 = 0x7ff0_dead_beef_0001;
/// One in so many registrations fails, as without enough locked memory.
const FAILING_REGISTRATION: u64 = 41;

#[derive(Debug)]
struct Registration {
    address: u64,
    rkey: u32,
    memory: Region,
}

/// The host's queue pair for one worker, and the registrations for that worker.
#[derive(Debug)]
struct HostEnd {
    number: QueuePairNumber,
    /// The worker's end, and the host's packet number for it.
    peer: Option<(Endpoint, PacketSequence)>,
    regions: BTreeMap<RegionId, Registration>,
}

#[derive(Debug, Default)]
struct State {
    ends: BTreeMap<WorkerId, HostEnd>,
    last_number: u32,
    registrations: u64,
    /// No registration fails.
    is_quiet: bool,
}

impl State {
    fn number(&mut self) -> QueuePairNumber {
        self.last_number += 1;
        QueuePairNumber::new(16 + self.last_number).expect("few are made")
    }

    fn end(&mut self, worker: WorkerId) -> &mut HostEnd {
        let number = self.number();
        self.ends.entry(worker).or_insert_with(|| HostEnd { number, peer: None, regions: BTreeMap::new() })
    }
}

/// All devices and the network between them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Fabric(Arc<Mutex<State>>);

impl Fabric {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no registration fails.
    pub fn be_quiet(&self) {
        self.state().is_quiet = true;
    }

    /// The host agent restarts: its queue pairs and registrations disappear.
    pub fn restart_host(&self) {
        self.state().ends.clear();
    }

    /// Registers a region for `worker`. Returns its address and key, also if it is registered already; `None` if the
    /// registration fails.
    pub fn register(&self, worker: WorkerId, region: RegionId, memory: &Region) -> Option<(u64, u32)> {
        let mut state = self.state();
        if let Some(known) = state.end(worker).regions.get(&region) {
            return Some((known.address, known.rkey));
        }
        state.registrations += 1;
        let count = state.registrations;
        if count.is_multiple_of(FAILING_REGISTRATION) && !state.is_quiet {
            return None;
        }
        let (address, rkey) = (count << 24, count as u32);
        state.end(worker).regions.insert(region, Registration { address, rkey, memory: memory.clone() });
        Some((address, rkey))
    }

    /// Removes all registrations of `region`: no READ succeeds any more.
    pub fn deregister(&self, region: RegionId) {
        for end in self.state().ends.values_mut() {
            end.regions.remove(&region);
        }
    }

    /// Connects the host's end for `worker`.
    pub fn connect(&self, worker: WorkerId, psn: PacketSequence, peer: Endpoint) -> Endpoint {
        let mut state = self.state();
        let end = state.end(worker);
        end.peer = Some((peer, psn));
        Endpoint { qpn: end.number, psn, ..peer }
    }

    /// Disconnects the host's end for `worker`; `for_good` also removes its registrations.
    pub fn stop(&self, worker: WorkerId, for_good: bool) {
        let mut state = self.state();
        if for_good {
            state.ends.remove(&worker);
        } else if let Some(end) = state.ends.get_mut(&worker) {
            end.peer = None;
        }
    }

    /// The host's queue pair for `worker` goes into error.
    pub fn break_end(&self, worker: WorkerId) {
        if let Some(end) = self.state().ends.get_mut(&worker) {
            end.peer = None;
        }
    }

    /// Removes registration number `at` of `worker` without notice, if there is one.
    pub fn revoke(&self, worker: WorkerId, at: usize) {
        if let Some(end) = self.state().ends.get_mut(&worker)
            && let Some(&region) = end.regions.keys().nth(at)
        {
            end.regions.remove(&region);
        }
    }

    /// Number of registrations.
    pub fn registrations(&self) -> usize {
        self.state().ends.values().map(|end| end.regions.len()).sum()
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Link {
    #[default]
    Down,
    Prepared(Endpoint),
    Up {
        own: Endpoint,
        host: Endpoint,
    },
}

#[derive(Clone, Copy, Debug)]
struct Remote {
    address: u64,
    rkey: u32,
    revoked: bool,
}

/// The RDMA device of a worker.
#[derive(Debug)]
pub struct Reader {
    worker: WorkerId,
    number: QueuePairNumber,
    fabric: Fabric,
    link: Link,
    regions: BTreeMap<RegionId, (RegionSize, Remote)>,
    /// Number of batches that will be flushed.
    pub flushed: u64,
}

impl Reader {
    pub fn new(worker: WorkerId, fabric: Fabric) -> Self {
        let number = fabric.state().number();
        Self { worker, number, fabric, link: Link::Down, regions: BTreeMap::new(), flushed: 0 }
    }

    pub fn reset(&mut self, psn: PacketSequence) -> Endpoint {
        let own = Endpoint { qpn: self.number, psn, gid: Some([1; 16]), lid: 0, mtu: PathMtu::B1024, reads: None };
        self.link = Link::Prepared(own);
        own
    }

    pub fn connect(&mut self, host: Endpoint) -> Result<(), EffectError> {
        let Link::Prepared(own) = self.link else { return Err("it was not reset".into()) };
        self.link = Link::Up { own, host };
        Ok(())
    }

    pub fn attach(&mut self, region: RegionId, size: RegionSize, address: u64, rkey: u32) -> Result<(), AttachError> {
        if self.regions.contains_key(&region) {
            return Err(AttachError::Attached(region));
        }
        self.regions.insert(region, (size, Remote { address, rkey, revoked: false }));
        Ok(())
    }

    pub fn detach(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }

    pub fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError> {
        for buffer in &mut *batch {
            buffer.words.fill(GARBAGE);
        }
        let Link::Up { own, host } = self.link else { return Err(BatchError::Lost(None)) };
        let fabric = self.fabric.clone();
        let mut state = fabric.state();
        let end = state
            .ends
            .get_mut(&self.worker)
            .filter(|end| end.number == host.qpn && end.peer.is_some_and(|(peer, psn)| peer == own && psn == host.psn));
        let (Some(end), 0) = (end, self.flushed) else {
            self.flushed = self.flushed.saturating_sub(1);
            self.link = Link::Down;
            return Err(BatchError::Lost(None));
        };
        let mut buffers = batch.iter_mut();
        for buffer in buffers.by_ref() {
            let read = self.read(end, buffer);
            let is_refused = read == Err(RegionError::Revoked) && matches!(self.link, Link::Down);
            buffer.status = read.map_or_else(FetchStatus::Failed, |()| FetchStatus::Fetched);
            if is_refused {
                end.peer = None;
                break;
            }
        }
        for flushed in buffers {
            flushed.status = FetchStatus::Failed(RegionError::Interrupted);
        }
        Ok(())
    }

    /// Reads one region. An invalid key takes the link down.
    fn read(&mut self, end: &HostEnd, buffer: &mut RegionBuffer) -> Result<(), RegionError> {
        let (size, remote) = self.regions.get_mut(&buffer.region).ok_or(RegionError::NotAttached)?;
        if remote.revoked {
            return Err(RegionError::Revoked);
        }
        let holds = |registered: &&Registration| (registered.address, registered.rkey) == (remote.address, remote.rkey);
        let Some(registered) = end.regions.values().find(holds) else {
            remote.revoked = true;
            self.link = Link::Down;
            return Err(RegionError::Revoked);
        };
        let mut memory = LocalReader::new();
        let attached = memory.attach(buffer.region, *size, Access::Memory(registered.memory.clone()));
        attached.expect("a region has the size that was announced");
        memory.fetch(core::slice::from_mut(buffer)).expect("nothing is cut here");
        match &buffer.status {
            FetchStatus::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

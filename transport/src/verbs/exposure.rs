//! Regions exposed to RDMA READs: the host's end.

use core::num::NonZeroU8;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

use region::{AcceptedRegion, SharedMapping};
use rustix::process::{Resource, getrlimit};
use wire::id::RegionId;
use wire::rdma::{Endpoint, PacketSequence};

use super::connect::{self, ConnectError, Role};
use super::device::Device;
use super::memory::{ProtectionDomain, Registered};
use super::queue_pair::QueuePair;
use super::reader::ResourceError;
use super::sys;

/// Where a worker finds a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Where it starts.
    pub address: u64,
    /// The right to read it.
    pub rkey: u32,
}

/// Why a region is not exposed. Others are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExposeError {
    /// It cannot be mapped.
    #[error("cannot map a region of {bytes} bytes")]
    Map {
        /// How large it is.
        bytes: usize,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Registered memory is pinned, and a process without CAP_IPC_LOCK may pin so much only.
    #[error(
        "cannot pin a region of {bytes} bytes: RLIMIT_MEMLOCK is {limit} bytes and {needed} are needed; raise it (systemd: LimitMEMLOCK=infinity, shell: ulimit -l)"
    )]
    MemoryLimit {
        /// How large the region is.
        bytes: usize,
        /// The limit as it is now.
        limit: u64,
        /// What this process has pinned already, and this region.
        needed: u64,
    },
    /// The device or the kernel refuses it.
    #[error("cannot register a region of {bytes} bytes")]
    Register {
        /// How large it is.
        bytes: usize,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
}

/// A worker cannot be shut out: its queue pair stays in service, whatever is tried.
#[derive(Debug, thiserror::Error)]
#[error(
    "{device} neither resets nor destroys a queue pair, and keeps {regions} regions registered: they may still be read"
)]
pub struct FenceError {
    /// Which device.
    pub device: String,
    /// How many regions can be read.
    pub regions: usize,
    /// What the device said when the queue pair was to be destroyed.
    #[source]
    pub cause: io::Error,
}

/// What one worker may read: regions, and the queue pair through which it does. Another worker's keys are worth nothing here.
#[derive(Debug)]
pub struct Exposure {
    device: Device,
    pd: Arc<ProtectionDomain>,
    /// None after the device has refused to reset it.
    queue_pair: Option<QueuePair>,
    regions: HashMap<RegionId, Registered<SharedMapping>>,
    /// Withdrawn, but the device has not let go of them: nobody is connected as long as there are any.
    kept: Vec<Registered<SharedMapping>>,
}

impl Exposure {
    /// Exposes nothing to nobody yet.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] if the device has no room for it.
    pub fn new(device: &Device) -> Result<Self, ResourceError> {
        let lacks = |what| move |cause| ResourceError { device: device.name().to_owned(), what, cause };
        let pd = ProtectionDomain::new(device.context()).map_err(lacks("a protection domain"))?;
        let queue_pair = QueuePair::new(&pd, 1).map_err(lacks("a queue pair"))?;
        Ok(Self { device: device.clone(), pd, queue_pair: Some(queue_pair), regions: HashMap::new(), kept: Vec::new() })
    }

    /// Lets the worker read `region`, which is `accepted`, from now on. The same again if it is exposed already.
    ///
    /// Pins the region's pages, whether the service or this process goes on using them or not.
    ///
    /// # Errors
    ///
    /// [`ExposeError`]; the other regions are not touched.
    pub fn expose(&mut self, region: RegionId, accepted: &AcceptedRegion) -> Result<Exposed, ExposeError> {
        if let Some(known) = self.regions.get(&region) {
            return Ok(exposed(known));
        }
        let bytes = accepted.size().bytes();
        let mapping = accepted.map().map_err(|cause| ExposeError::Map { bytes, cause })?;
        let registered =
            Registered::new(&self.pd, mapping, sys::ACCESS_REMOTE_READ).map_err(|cause| refused(bytes, cause))?;
        let place = exposed(&registered);
        self.regions.insert(region, registered);
        Ok(place)
    }

    /// Takes `region` away: when this has returned without an error, no READ sees that memory any more. Nothing happens if it is not exposed.
    ///
    /// A worker that still reads it loses its connection. So does a worker whose device does not let go of it: it is shut out then, until the
    /// device does, which each [`Exposure::answer`] tries again.
    ///
    /// # Errors
    ///
    /// [`FenceError`] if the device does not let go of it, and the worker cannot be shut out either.
    pub fn withdraw(&mut self, region: RegionId) -> Result<(), FenceError> {
        match self.regions.remove(&region).map(Registered::withdraw) {
            Some(Err((kept, _))) => {
                self.kept.push(kept);
                self.fence()
            }
            None | Some(Ok(())) => Ok(()),
        }
    }

    /// How many regions were withdrawn that the device has not let go of.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Tries again to withdraw what was kept.
    fn let_go(&mut self) -> Result<(), ConnectError> {
        let mut last = None;
        for region in core::mem::take(&mut self.kept) {
            if let Err((kept, cause)) = region.withdraw() {
                self.kept.push(kept);
                last = Some(cause);
            }
        }
        last.map_or(Ok(()), |cause| Err(ConnectError::Kept { regions: self.kept.len(), cause }))
    }

    /// How many regions are exposed.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Connects the worker whose end is `peer`, in place of whoever was connected. What the worker has to know; the packets of this end
    /// begin at `psn`, which is random. The device's address is what it is now.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; nobody is connected then, but with [`ConnectError::Unfenced`].
    pub fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError> {
        self.fence()?;
        self.let_go()?;
        let queue_pair = match &mut self.queue_pair {
            Some(queue_pair) => queue_pair,
            none => none.insert(QueuePair::new(&self.pd, 1).map_err(ConnectError::device("make"))?),
        };
        self.device = self.device.look_again()?;
        let own = connect::prepare(queue_pair, &self.device, Role::IsRead, psn)?;
        // The worker is told what both can: it need not know how that is found.
        let own = Endpoint { reads: NonZeroU8::new(connect::reads(&own, peer)), ..own };
        let connected = connect::connect(queue_pair, &self.device, &own, peer);
        if connected.is_err() {
            self.fence()?;
        }
        connected.map(|()| own)
    }

    /// Shuts the worker out: when this has returned without an error, none of its READs sees anything until the next [`Exposure::answer`].
    ///
    /// # Errors
    ///
    /// [`FenceError`]; try again, or [`Exposure::end`].
    pub fn fence(&mut self) -> Result<(), FenceError> {
        let Some(mut queue_pair) = self.queue_pair.take() else { return Ok(()) };
        if queue_pair.reset().is_ok() {
            self.queue_pair = Some(queue_pair);
            return Ok(());
        }
        let Err((queue_pair, cause)) = queue_pair.destroy() else { return Ok(()) };
        // A device that was unplugged refuses everything, and reads nothing.
        if self.device.is_gone() {
            return Ok(());
        }
        self.queue_pair = Some(queue_pair);
        Err(self.unfenced(cause))
    }

    /// Shuts the worker out for good. Where its queue pair cannot be put out of service, all regions are taken away from it: when this has
    /// returned without an error, none of its READs sees anything any more. Nothing is to be exposed afterwards.
    ///
    /// # Errors
    ///
    /// [`FenceError`]; try again.
    pub fn end(&mut self) -> Result<(), FenceError> {
        let Err(unfenced) = self.fence() else { return Ok(()) };
        self.kept.extend(self.regions.drain().filter_map(|(_, region)| region.withdraw().err()).map(|(kept, _)| kept));
        match self.let_go() {
            Ok(()) => Ok(()),
            Err(_) => Err(self.unfenced(unfenced.cause)),
        }
    }

    fn unfenced(&self, cause: io::Error) -> FenceError {
        let regions = self.regions.len() + self.kept.len();
        FenceError { device: self.device.name().to_owned(), regions, cause }
    }

    /// The host's end, for tests of its state.
    #[cfg(test)]
    pub(super) fn queue_pair(&self) -> Option<&QueuePair> {
        self.queue_pair.as_ref()
    }
}

fn exposed(registered: &Registered<SharedMapping>) -> Exposed {
    Exposed { address: registered.memory().base().addr().get() as u64, rkey: registered.rkey() }
}

fn refused(bytes: usize, cause: io::Error) -> ExposeError {
    let needed = pinned() + bytes as u64;
    // The same error says that the device has no room, which no limit of this process helps.
    match getrlimit(Resource::Memlock).current {
        Some(limit) if cause.kind() == io::ErrorKind::OutOfMemory && needed > limit => {
            ExposeError::MemoryLimit { bytes, limit, needed }
        }
        _ => ExposeError::Register { bytes, cause },
    }
}

/// Bytes that this process has pinned, all devices together; 0 where the system does not say.
fn pinned() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|number| number.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}

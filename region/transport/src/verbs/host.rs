//! The host's end: regions registered for a worker's RDMA READs, and the queue pair through which it reads.

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
use super::fence_error::FenceError;
use super::memory::{ProtectionDomain, Registration};
use super::queue_pair::QueuePair;
use super::reader::ResourceError;
use super::sys;

/// The address and the key by which a worker reads a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredRegion {
    /// The address of its first byte.
    pub address: u64,
    /// The remote key that READs of it need.
    pub rkey: u32,
}

/// Why a region was not registered. Other regions are not affected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Mapping the region failed.
    #[error("cannot map a region of {bytes} bytes")]
    Map {
        /// Size of the region.
        bytes: usize,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// Registered memory is pinned, and RLIMIT_MEMLOCK bounds what a process without CAP_IPC_LOCK may pin.
    #[error(
        "cannot pin a region of {bytes} bytes: RLIMIT_MEMLOCK is {limit} bytes and {needed} are needed; raise it (systemd: LimitMEMLOCK=infinity, shell: ulimit -l)"
    )]
    MemoryLimit {
        /// Size of the region.
        bytes: usize,
        /// The current limit, in bytes.
        limit: u64,
        /// Bytes that this process has pinned already, plus this region.
        needed: u64,
    },
    /// The device or the kernel refused the registration.
    #[error("cannot register a region of {bytes} bytes")]
    Register {
        /// Size of the region.
        bytes: usize,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
}

/// What one worker may read: registered regions, and the queue pair through which it reads. Keys of another worker do
/// not work here.
#[derive(Debug)]
pub struct VerbsHost {
    device: Device,
    pd: Arc<ProtectionDomain>,
    /// `None` after the device has refused to reset it.
    queue_pair: Option<QueuePair>,
    regions: HashMap<RegionId, Registration<SharedMapping>>,
    /// Regions that the device refused to deregister. No worker is connected while there are any.
    refused: Vec<Registration<SharedMapping>>,
}

impl VerbsHost {
    /// An end without regions and without a worker.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] if the device is out of protection domains or queue pairs.
    pub fn new(device: &Device) -> Result<Self, ResourceError> {
        let lacks = |what| move |cause| ResourceError { device: device.name().to_owned(), what, cause };
        let pd = ProtectionDomain::new(device.context()).map_err(lacks("a protection domain"))?;
        let queue_pair = QueuePair::new(&pd, 1).map_err(lacks("a queue pair"))?;
        Ok(Self {
            device: device.clone(),
            pd,
            queue_pair: Some(queue_pair),
            regions: HashMap::new(),
            refused: Vec::new(),
        })
    }

    /// Registers `region`, whose memory is `accepted`, for the worker. Returns the same location if it is registered
    /// already.
    ///
    /// Pins the region's pages until they are deregistered, even if the service ends.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]; the other regions stay registered.
    pub fn register(&mut self, region: RegionId, accepted: &AcceptedRegion) -> Result<RegisteredRegion, RegisterError> {
        if let Some(known) = self.regions.get(&region) {
            return Ok(location(known));
        }
        let bytes = accepted.size().bytes();
        let mapping = accepted.map().map_err(|cause| RegisterError::Map { bytes, cause })?;
        let registered = Registration::new(&self.pd, mapping, sys::ACCESS_REMOTE_READ)
            .map_err(|cause| register_error(bytes, cause))?;
        let location = location(&registered);
        self.regions.insert(region, registered);
        Ok(location)
    }

    /// Deregisters `region`: once this has returned without an error, no READ sees that memory any more. Does nothing
    /// if it is not registered.
    ///
    /// A worker that still reads the region loses its connection. If the device refuses to deregister it, the worker is
    /// fenced until the device has; each [`VerbsHost::answer`] tries again.
    ///
    /// # Errors
    ///
    /// [`FenceError`] if the device refuses to deregister the region and the worker cannot be fenced either.
    pub fn deregister(&mut self, region: RegionId) -> Result<(), FenceError> {
        match self.regions.remove(&region).map(Registration::deregister) {
            Some(Err((refused, _))) => {
                self.refused.push(refused);
                self.fence()
            }
            None | Some(Ok(())) => Ok(()),
        }
    }

    /// Regions that the device has refused to deregister so far.
    #[must_use]
    pub fn refused_deregistrations(&self) -> usize {
        self.refused.len()
    }

    /// Tries again to deregister what the device refused.
    fn retry_deregistration(&mut self) -> Result<(), ConnectError> {
        let mut last = None;
        for region in core::mem::take(&mut self.refused) {
            if let Err((refused, cause)) = region.deregister() {
                self.refused.push(refused);
                last = Some(cause);
            }
        }
        last.map_or(Ok(()), |cause| Err(ConnectError::StillRegistered { regions: self.refused.len(), cause }))
    }

    /// Regions that are registered.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Connects the worker whose endpoint is `peer`, and disconnects the worker before it. Returns this end's endpoint,
    /// to send to the worker. `psn`, which is random, is the first packet sequence number. The device's address is read
    /// anew.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; no worker is connected then, except with [`ConnectError::Unfenced`].
    pub fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError> {
        self.fence()?;
        self.retry_deregistration()?;
        let queue_pair = match &mut self.queue_pair {
            Some(queue_pair) => queue_pair,
            none => none.insert(QueuePair::new(&self.pd, 1).map_err(ConnectError::device("make"))?),
        };
        self.device = self.device.refresh()?;
        let own = connect::prepare(queue_pair, &self.device, Role::Responder, psn)?;
        // The worker gets the limit of both ends and need not compute it.
        let own = Endpoint { reads: NonZeroU8::new(connect::negotiated_reads(&own, peer)), ..own };
        let connected = connect::connect(queue_pair, &self.device, &own, peer);
        if connected.is_err() {
            self.fence()?;
        }
        connected.map(|()| own)
    }

    /// Fences the worker: once this has returned without an error, none of its READs sees anything until the next
    /// [`VerbsHost::answer`].
    ///
    /// # Errors
    ///
    /// [`FenceError`]; try again, or [`VerbsHost::end`].
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

    /// Fences the worker for good: once this has returned without an error, none of its READs sees anything any more.
    /// If the queue pair can be neither reset nor destroyed, all regions are deregistered. Do not register anything
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`FenceError`]; try again.
    pub fn end(&mut self) -> Result<(), FenceError> {
        let Err(unfenced) = self.fence() else { return Ok(()) };
        self.refused.extend(
            self.regions.drain().filter_map(|(_, region)| region.deregister().err()).map(|(refused, _)| refused),
        );
        match self.retry_deregistration() {
            Ok(()) => Ok(()),
            Err(_) => Err(self.unfenced(unfenced.cause)),
        }
    }

    fn unfenced(&self, cause: io::Error) -> FenceError {
        let regions = self.regions.len() + self.refused.len();
        FenceError { device: self.device.name().to_owned(), regions, cause }
    }

    /// The queue pair, for tests of its state.
    #[cfg(test)]
    pub(super) fn queue_pair(&self) -> Option<&QueuePair> {
        self.queue_pair.as_ref()
    }
}

fn location(registered: &Registration<SharedMapping>) -> RegisteredRegion {
    RegisteredRegion { address: registered.memory().base().addr().get() as u64, rkey: registered.rkey() }
}

fn register_error(bytes: usize, cause: io::Error) -> RegisterError {
    let needed = pinned() + bytes as u64;
    // A device that is out of memory regions returns the same error; then no limit of this process helps.
    match getrlimit(Resource::Memlock).current {
        Some(limit) if cause.kind() == io::ErrorKind::OutOfMemory && needed > limit => {
            RegisterError::MemoryLimit { bytes, limit, needed }
        }
        _ => RegisterError::Register { bytes, cause },
    }
}

/// Bytes that this process has pinned, for all devices together; 0 if the system does not report it.
fn pinned() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|number| number.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}

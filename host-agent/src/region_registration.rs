//! Registration of regions for workers that read by RDMA. Each worker has keys and a queue pair of its own, so that it
//! can be fenced alone.
//!
//! [`Registrations`] holds the state of each worker and what has to be retried; it gets the time as a parameter.
//! [`registrar`] is the thread that does the work: registering a large region takes milliseconds, and opening a device
//! takes longer.

mod held_releases;
pub mod registrar;
mod registrations;
#[cfg(test)]
mod tests;

use agent_runtime::chain;
use region::AcceptedRegion;
use transport::verbs::{ConnectError, Device, DeviceChoice, Library, RegisteredRegion, VerbsHost};
use wire::id::RegionId;
use wire::rdma::{Endpoint, PacketSequence};

pub(crate) use held_releases::MAX_BYTES as MAX_HELD_BYTES;
pub use registrations::{AffectedLmaps, Registrations, Renewal};

/// The device's side of one worker: registered regions, queue pair and fence. Implemented by [`VerbsHost`], and by
/// fakes in tests.
pub trait WorkerDevice: Send + std::fmt::Debug {
    /// Registers a region. Returns its address and key; the same ones if it is registered already.
    ///
    /// # Errors
    ///
    /// Why not, and what to do.
    fn register(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<RegisteredRegion, String>;

    /// Deregisters a region. After success no READ sees it.
    ///
    /// # Errors
    ///
    /// Why the worker may still read it.
    fn deregister(&mut self, region: RegionId) -> Result<(), String>;

    /// Number of regions that the device did not deregister. Until it does, the worker is fenced.
    fn refused_deregistrations(&self) -> usize;

    /// Connects the queue pair to the worker's end `peer`, in place of any earlier connection. Returns our end, whose
    /// packets begin at `psn`.
    ///
    /// # Errors
    ///
    /// Why not. Then no worker is connected, unless the earlier one cannot be fenced.
    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectFailure>;

    /// Fences the worker until the next [`Self::connect`]. After success none of its READs sees anything.
    ///
    /// # Errors
    ///
    /// Why the worker may still read.
    fn fence(&mut self) -> Result<(), String>;

    /// Fences the worker for good, and deregisters all regions if there is no other way. May be retried; nothing else
    /// is called afterwards.
    ///
    /// # Errors
    ///
    /// Why the worker may still read.
    fn revoke(&mut self) -> Result<(), String>;
}

/// Why a worker's queue pair could not be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// The error with its causes, in one line.
    pub why: String,
    /// Whether our own device failed, rather than the worker or its address.
    pub is_own_device: bool,
}

/// Opens a worker's side of the device, without regions. True: reopen the device, since the open one failed.
pub type OpenDevice = Box<dyn FnMut(bool) -> Result<Box<dyn WorkerDevice>, String> + Send>;

impl WorkerDevice for VerbsHost {
    fn register(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<RegisteredRegion, String> {
        Self::register(self, region, memory).map_err(|error| chain(&error))
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), String> {
        Self::deregister(self, region).map_err(|error| chain(&error))
    }

    fn refused_deregistrations(&self) -> usize {
        Self::refused_deregistrations(self)
    }

    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectFailure> {
        Self::answer(self, psn, peer).map_err(|error| ConnectFailure {
            why: chain(&error),
            is_own_device: ConnectError::is_of_own_device(&error),
        })
    }

    fn fence(&mut self) -> Result<(), String> {
        Self::fence(self).map_err(|error| chain(&error))
    }

    fn revoke(&mut self) -> Result<(), String> {
        Self::end(self).map_err(|error| chain(&error))
    }
}

/// Opens the device of `choice`. The result opens a worker's side of it, and can reopen the device: it may be unplugged
/// and come back.
///
/// # Errors
///
/// What is missing, and how to get it.
pub fn device(choice: DeviceChoice) -> Result<OpenDevice, String> {
    device_of(|| Library::load().map_err(|error| chain(&error)), choice)
}

fn device_of(
    mut library: impl FnMut() -> Result<Library, String> + Send + 'static,
    choice: DeviceChoice,
) -> Result<OpenDevice, String> {
    let mut open = move || Device::open(&library()?, &choice).map_err(|error| chain(&error));
    let first = open()?;
    let (name, port, gid_index, mtu) = (first.name(), first.port(), first.gid_index(), first.mtu().bytes());
    tracing::info!(device = name, port, gid_index, mtu, "RDMA device opened");
    let mut known = Some(first);
    Ok(Box::new(move |anew| {
        // Closed before it is opened again: an unplugged device disappears only when all its users have closed it.
        let device = match known.take().filter(|_| !anew) {
            Some(device) => device,
            None => open()?,
        };
        let exposure = VerbsHost::new(&device).map_err(|error| chain(&error))?;
        known = Some(device);
        Ok(Box::new(exposure) as Box<dyn WorkerDevice>)
    }))
}

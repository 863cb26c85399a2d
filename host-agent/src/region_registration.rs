//! Registration of regions for workers that read by RDMA. Each worker has keys and a queue pair of its own, so that it
//! can be fenced alone.
//!
//! [`Registrations`] holds the state of each worker and what has to be retried; it gets the time as a parameter.
//! [`registrar`] is the thread that does the work: registering a large region takes milliseconds, and opening a device
//! takes longer.

mod held_releases;
pub mod registrar;
mod registrations;
pub mod request;
#[cfg(test)]
mod tests;

use region::AcceptedRegion;
use transport::verbs::{
    ConnectError, Device, DeviceChoice, DeviceError, FenceError, Library, LoadError, RegisterError, RegisteredRegion,
    ResourceError, VerbsHost,
};
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
    /// [`RegisterError`]: why not, and what to do.
    fn register(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<RegisteredRegion, RegisterError>;

    /// Deregisters a region. After success no READ sees it.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: the worker may still read it.
    fn deregister(&mut self, region: RegionId) -> Result<(), FenceError>;

    /// Number of regions that the device did not deregister. Until it does, the worker is fenced.
    fn refused_deregistrations(&self) -> usize;

    /// Connects the queue pair to the worker's end `peer`, in place of any earlier connection. Returns our end, whose
    /// packets begin at `psn`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. Then no worker is connected, unless the earlier one cannot be fenced.
    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError>;

    /// Fences the worker until the next [`Self::connect`]. After success none of its READs sees anything.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: the worker may still read.
    fn fence(&mut self) -> Result<(), FenceError>;

    /// Fences the worker for good, and deregisters all regions if there is no other way. May be retried; nothing else
    /// is called afterwards.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: the worker may still read.
    fn revoke(&mut self) -> Result<(), FenceError>;
}

/// Why a worker's queue pair could not be connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ConnectFailure {
    /// The error with its causes, in one line.
    pub why: String,
    /// Whether our own device failed, rather than the worker or its address.
    pub is_own_device: bool,
}

/// Why a worker's side of the device was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The RDMA library is missing or too old.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// There is no device, or it cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device lacks what each worker needs.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// An earlier device does not fence the worker, for this reason. Until it does, no other is opened for it.
    #[error("{0}")]
    Unfenced(String),
}

/// Opens a worker's side of the device, without regions. True: reopen the device, since the open one failed.
pub type OpenDevice = Box<dyn FnMut(bool) -> Result<Box<dyn WorkerDevice>, OpenError> + Send>;

impl WorkerDevice for VerbsHost {
    fn register(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<RegisteredRegion, RegisterError> {
        Self::register(self, region, memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), FenceError> {
        Self::deregister(self, region)
    }

    fn refused_deregistrations(&self) -> usize {
        Self::refused_deregistrations(self)
    }

    fn connect(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, ConnectError> {
        Self::answer(self, psn, peer)
    }

    fn fence(&mut self) -> Result<(), FenceError> {
        Self::fence(self)
    }

    fn revoke(&mut self) -> Result<(), FenceError> {
        Self::end(self)
    }
}

/// Opens the device of `choice`. The result opens a worker's side of it, and can reopen the device: it may be unplugged
/// and come back.
///
/// # Errors
///
/// [`OpenError`]: what is missing, and how to get it.
pub fn device(choice: DeviceChoice) -> Result<OpenDevice, OpenError> {
    device_of(Library::load, choice)
}

fn device_of(
    mut library: impl FnMut() -> Result<Library, LoadError> + Send + 'static,
    choice: DeviceChoice,
) -> Result<OpenDevice, OpenError> {
    let mut open = move || Ok::<_, OpenError>(Device::open(&library()?, &choice)?);
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
        let exposure = VerbsHost::new(&device)?;
        known = Some(device);
        Ok(Box::new(exposure) as Box<dyn WorkerDevice>)
    }))
}

//! Regions for workers that read by RDMA: each of these has its own keys and its own queue pair, so that it can be shut out alone.
//!
//! [`Exposures`] knows what each worker may read, and what has to be tried again; it is given the time. [`registrar`] is the thread that
//! does it: registering a large region takes milliseconds, and opening a device more, during which nobody else is kept waiting.

mod exposures;
pub mod registrar;
#[cfg(test)]
mod tests;

use region::AcceptedRegion;
use transport::verbs::{ConnectError, Device, DeviceChoice, Exposed, Exposure, Library};
use wire::id::RegionId;
use wire::rdma::{Endpoint, PacketSequence};

pub use exposures::{Exposures, Lmaps, Renewal};

/// What one worker may read. The device's is [`Exposure`]; tests have one of their own.
pub trait Expose: Send + std::fmt::Debug {
    /// Lets the worker read a region: where, and with which key. The same again if it may already.
    ///
    /// # Errors
    ///
    /// Why not, and what can be done.
    fn expose(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<Exposed, String>;

    /// Takes a region away: when this has returned without an error, no READ sees it.
    ///
    /// # Errors
    ///
    /// Why the worker may still read.
    fn withdraw(&mut self, region: RegionId) -> Result<(), String>;

    /// How many regions were taken away that the device has not let go of: until it does, the worker is shut out.
    fn kept(&self) -> usize;

    /// Connects the worker whose end is `peer`, in place of whoever was connected; our own end, whose packets begin at `psn`.
    ///
    /// # Errors
    ///
    /// Why not; then nobody is connected, unless whoever was before cannot be shut out.
    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, Unconnected>;

    /// Shuts the worker out until the next answer: when this has returned without an error, none of its READs sees anything.
    ///
    /// # Errors
    ///
    /// Why the worker may still read.
    fn fence(&mut self) -> Result<(), String>;

    /// Shuts the worker out for good, and takes every region away if there is no other way. Can be tried again; is not asked for anything else.
    ///
    /// # Errors
    ///
    /// Why the worker may still read.
    fn end(&mut self) -> Result<(), String>;
}

/// Why a worker's queue pair is not connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconnected {
    /// In one line.
    pub why: String,
    /// It is the own device's fault, and not the worker's or that of its address.
    pub is_own_device: bool,
}

/// Makes what a worker may read, of nothing at first. True: of a device that is opened anew, since the one that is open does not do.
pub type Open = Box<dyn FnMut(bool) -> Result<Box<dyn Expose>, String> + Send>;

impl Expose for Exposure {
    fn expose(&mut self, region: RegionId, memory: &AcceptedRegion) -> Result<Exposed, String> {
        Self::expose(self, region, memory).map_err(|error| told(&error))
    }

    fn withdraw(&mut self, region: RegionId) -> Result<(), String> {
        Self::withdraw(self, region).map_err(|error| told(&error))
    }

    fn kept(&self) -> usize {
        Self::kept(self)
    }

    fn answer(&mut self, psn: PacketSequence, peer: &Endpoint) -> Result<Endpoint, Unconnected> {
        Self::answer(self, psn, peer)
            .map_err(|error| Unconnected { why: told(&error), is_own_device: ConnectError::is_of_own_device(&error) })
    }

    fn fence(&mut self) -> Result<(), String> {
        Self::fence(self).map_err(|error| told(&error))
    }

    fn end(&mut self) -> Result<(), String> {
        Self::end(self).map_err(|error| told(&error))
    }
}

/// An error and its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Opens the device that `choice` means. What comes out opens it again where the open one gives nothing any more: a device may be unplugged
/// and come back.
///
/// # Errors
///
/// What is missing, and how to get it.
pub fn device(choice: DeviceChoice) -> Result<Open, String> {
    device_of(|| Library::load().map_err(|error| told(&error)), choice)
}

fn device_of(
    mut library: impl FnMut() -> Result<Library, String> + Send + 'static,
    choice: DeviceChoice,
) -> Result<Open, String> {
    let mut open = move || Device::open(&library()?, &choice).map_err(|error| told(&error));
    let first = open()?;
    let (name, port, gid_index, mtu) = (first.name(), first.port(), first.gid_index(), first.mtu().bytes());
    tracing::info!(device = name, port, gid_index, mtu, "regions are offered to RDMA");
    let mut known = Some(first);
    Ok(Box::new(move |anew| {
        // Dropped before another one is opened: a device that was unplugged goes away only when nobody has it open.
        let device = match known.take().filter(|_| !anew) {
            Some(device) => device,
            None => open()?,
        };
        let exposure = Exposure::new(&device).map_err(|error| told(&error))?;
        known = Some(device);
        Ok(Box::new(exposure) as Box<dyn Expose>)
    }))
}

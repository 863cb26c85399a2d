//! RDMA: regions read by a device, without the processor of the host that they are on.
//!
//! A [`Library`] is loaded where it is installed, a [`Device`] opened where there is one; both say what is missing otherwise. The host
//! exposes regions to each worker by an [`Exposure`], the worker reads them by a [`VerbsReader`]; the two exchange their
//! [`Endpoint`](wire::rdma::Endpoint)s and the keys of regions over a connection of their own.
//!
//! Everything that depends on something owns it: a region's memory its registration, a registration its protection domain, a queue pair its
//! completion queue, all of them the open device, and that the library. What a READ fills belongs to the device until the READ is known to
//! be done, or the queue pair has been reset.

mod clock;
mod connect;
mod context;
mod device;
mod exposure;
mod library;
mod loss;
mod memory;
mod queue_pair;
mod reader;
mod reads;
#[cfg(any(test, feature = "stand-in"))]
pub mod stand_in;
mod status;
#[expect(missing_docs, reason = "names of a foreign header; each struct says which")]
pub mod sys;
#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests;

pub use connect::ConnectError;
pub use device::{Device, DeviceChoice, DeviceError, LinkLayer, Unusable};
pub use exposure::{ExposeError, Exposed, Exposure, FenceError};
pub use library::{Library, LoadError};
pub use loss::LostReason;
pub use reader::{ReaderLimits, ResourceError, VerbsReader};
pub use status::{Blame, Status};

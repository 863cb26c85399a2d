//! RDMA: a device reads regions without the processor of the host that they are on.
//!
//! [`Library`] loads libibverbs and [`Device`] opens a device; their errors name what is missing. The host registers
//! regions for each worker with a [`VerbsHost`], and the worker reads them with a [`VerbsReader`]. The two exchange
//! their [`Endpoint`](wire::rdma::Endpoint)s and the keys of regions over the control connection.
//!
//! Each object owns what it depends on: a registration its memory and its protection domain, a queue pair its
//! completion queue, all of them the open device, and the device the library. Memory that a READ fills belongs to the
//! device until the READ has completed or the queue pair has been reset.

mod clock;
mod connect;
mod context;
mod device;
mod fence_error;
mod host;
mod library;
mod loss;
mod memory;
mod path_mtu;
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
pub use device::{Device, DeviceChoice, DeviceError, LinkLayer, UnusableDevice};
pub use fence_error::FenceError;
pub use host::{RegisterError, RegisteredRegion, VerbsHost};
pub use library::{Library, LoadError};
pub use loss::LostReason;
pub use reader::{ReaderLimits, ResourceError, VerbsReader};
pub use status::{Blame, Status};

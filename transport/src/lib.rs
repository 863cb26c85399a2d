//! Fetching metric regions, whatever lies between: one trait, and one suite that every way has to pass (module `conformance`, behind the
//! feature of that name).
//!
//! * [`ShmReader`]: the reader is on the service's host and maps the same memory;
//! * [`VerbsReader`]: the reader is anywhere, and a device fetches them by RDMA READ;
//! * [`LocalReader`]: regions in this process, with faults on demand, for tests and simulation.
//!
//! [`attach`] is how a worker on the service's host gets at a region's memory.

pub mod attach;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fetch;
pub mod local;
mod shm;
pub mod verbs;

pub use fetch::{Access, AttachError, BatchError, FetchStatus, Loss, RegionBuffer, RegionError, RegionReader};
pub use local::LocalReader;
pub use shm::ShmReader;
pub use verbs::VerbsReader;

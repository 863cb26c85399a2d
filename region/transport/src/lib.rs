//! Transports that fetch metric regions: one trait, [`RegionReader`], and one suite that each implementation passes
//! (module `conformance`, behind the feature of that name).
//!
//! * [`ShmReader`]: the reader is on the service's host and maps the same memory;
//! * [`VerbsReader`]: the reader is on any machine, and a device fetches regions by RDMA READ;
//! * [`LocalReader`]: regions in this process, with faults on demand, for tests and simulation.
//!
//! A worker on the service's host gets a region's memory through [`attach`].

pub mod attach;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fetch;
pub mod local;
mod pages;
mod runs;
mod shm;
pub mod verbs;

pub use fetch::{Access, AttachError, BatchError, FetchStatus, Loss, RegionBuffer, RegionError, RegionReader};
pub use local::LocalReader;
pub use runs::Runs;
pub use shm::ShmReader;
pub use verbs::VerbsReader;

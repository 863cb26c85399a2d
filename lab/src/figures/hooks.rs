//! The cost of hooks: buffered spans, verdicts, remote write samples, and the whole path of a host.

pub mod agents;
pub mod memory;
pub mod path;
pub mod sockets;
pub mod tail;
pub mod traffic;
pub mod verdict;
pub mod writing;

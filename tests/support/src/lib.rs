//! Helpers for tests and tools of several members. No program for users links this crate.

pub mod captures;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod clock;
#[cfg(feature = "descriptors")]
pub mod descriptors;
#[cfg(feature = "frames")]
pub mod frames;
pub mod harness;
pub mod http;
#[cfg(feature = "namespaces")]
pub mod network;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod programs;
#[cfg(feature = "prometheus")]
pub mod prometheus;
pub mod recorded;
#[cfg(feature = "namespaces")]
pub mod relay;
pub mod sink;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;
pub mod wait;
#[cfg(feature = "webdriver")]
pub mod webdriver;

use std::path::{Path, PathBuf};

/// What the line begins with in which `lab missing` says why a subject cannot be run on this machine.
pub const MISSING: &str = "MISSING: ";

/// The workspace's root folder.
#[must_use]
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("tests/support lies two folders below the root").to_path_buf()
}

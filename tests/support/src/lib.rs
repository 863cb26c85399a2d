//! Helpers for tests and tools of several members. No program for users links this crate.

#[cfg(feature = "namespaces")]
pub mod network;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod programs;
#[cfg(feature = "namespaces")]
pub mod relay;
pub mod sink;

use std::path::{Path, PathBuf};

/// What the line begins with in which `lab missing` says why a subject cannot be run on this machine.
pub const MISSING: &str = "MISSING: ";

/// The workspace's root folder.
#[must_use]
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("tests/support lies two folders below the root").to_path_buf()
}

//! Reads the seals of a memfd.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};

/// `f_type` of tmpfs: a memfd of ordinary (not huge) pages.
const TMPFS: u64 = 0x0102_1994;

/// The seals of a memfd.
///
/// An error for any other file, and for a memfd of huge pages. A load from a hole in huge pages raises SIGBUS when the
/// machine's pool is empty, so a service could kill every reader.
pub(crate) fn seals(memory: BorrowedFd<'_>) -> io::Result<SealFlags> {
    let seals = fcntl_get_seals(memory)?;
    let system = fstatfs(memory)?.f_type as u64;
    if system != TMPFS {
        return Err(io::Error::other(format!("a file system of type {system:#x}, ordinary pages are {TMPFS:#x}")));
    }
    Ok(seals)
}

//! Which promises a descriptor's file keeps.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};

/// What `statfs` says of memory made of ordinary pages.
const TMPFS: u64 = 0x0102_1994;

/// The seals of a memfd.
///
/// An error for anything else, and for one of huge pages: a load from a hole in it raises SIGBUS when the machine's pool is empty, so that
/// its owner could end every reader.
pub(crate) fn seals(memory: BorrowedFd<'_>) -> io::Result<SealFlags> {
    let seals = fcntl_get_seals(memory)?;
    let system = fstatfs(memory)?.f_type as u64;
    if system != TMPFS {
        return Err(io::Error::other(format!("a file system of type {system:#x}, ordinary pages are {TMPFS:#x}")));
    }
    Ok(seals)
}

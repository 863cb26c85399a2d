//! Maps memory shared with untrusted processes. It is unmapped on drop, and accessed as atomic words only.
#![expect(unsafe_code, reason = "mapped memory has no safe interface")]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wire::layout::RegionSize;

use crate::sync::AtomicU64;

/// Access rights of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Loads only: a store raises SIGSEGV.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// A whole region in this process's memory, MAP_SHARED.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<c_void>,
    size: RegionSize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped once, by the only owner.
unsafe impl Send for Mapping {}
// SAFETY: shared references only give out atomic words.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes of `memory` from its start.
    ///
    /// The caller has checked that the file has that size and is sealed against shrinking: a load beyond its end raises
    /// SIGBUS.
    pub(crate) fn new(memory: BorrowedFd<'_>, size: RegionSize, rights: Rights) -> io::Result<Self> {
        let protection = match rights {
            Rights::Read => ProtFlags::READ,
            Rights::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: no address is asked for, so that no memory in use is replaced.
        let base = unsafe { mmap(null_mut(), size.bytes(), protection, MapFlags::SHARED, memory, 0) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, size })
    }

    pub(crate) const fn size(&self) -> RegionSize {
        self.size
    }

    pub(crate) const fn base(&self) -> NonNull<c_void> {
        self.base
    }

    /// Every word, header first. Storing to one is allowed only where the mapping was made with [`Rights::ReadWrite`].
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let first = self.base.cast::<AtomicU64>();
        // SAFETY: the mapping has size.words() words, page-aligned, zeroed at first; it stays as long as `self`, since
        // the file is sealed against shrinking. Others may write at any time, hence only ever atomics.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.size.words()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.size.bytes()) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

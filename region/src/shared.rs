//! A region as a device needs it, which copies it out without this process: see `AcceptedRegion::map`.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::io;
use std::os::fd::AsFd as _;

use wire::layout::RegionSize;

use crate::accepted::AcceptedRegion;
use crate::mapping::{Mapping, Rights};

/// A service's region in this process's memory, mapped the only way in which it can be registered for RDMA on every kernel: shared, so
/// that what the service writes is seen, and writable, which kernels before 6.2 insist on. Nothing here writes to it or reads it.
#[derive(Debug)]
pub struct SharedMapping(Mapping);

impl AcceptedRegion {
    /// Maps the whole region for a device. The mapping needs neither the descriptor nor the service any longer. Costs address space only:
    /// pages are charged to whoever touches them first, which the service has done.
    ///
    /// # Errors
    ///
    /// What the system said: no address space left.
    pub fn map(&self) -> io::Result<SharedMapping> {
        Mapping::new(self.as_fd(), self.size(), Rights::ReadWrite).map(SharedMapping)
    }
}

impl SharedMapping {
    /// Where it starts in this process's address space: page-aligned, valid as long as the mapping.
    #[must_use]
    pub const fn base(&self) -> NonNull<c_void> {
        self.0.base()
    }

    /// Its size, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.0.size()
    }
}

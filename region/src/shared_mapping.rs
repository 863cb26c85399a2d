//! A region mapped for RDMA: the device reads it without this process. See `AcceptedRegion::map`.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::io;
use std::os::fd::AsFd as _;

use wire::layout::RegionSize;

use crate::accepted_region::AcceptedRegion;
use crate::mapping::{Mapping, Rights};

/// A service's region, mapped so that it can be registered for RDMA on every kernel: shared, so that the device sees
/// the service's writes, and writable, which kernels before 6.2 require. This process neither reads nor writes it.
#[derive(Debug)]
pub struct SharedMapping(Mapping);

impl AcceptedRegion {
    /// Maps the whole region for a device. The mapping stays valid without the descriptor and the service. It costs
    /// address space only: pages are charged to the process that touched them first, which is the service.
    ///
    /// # Errors
    ///
    /// The error of `mmap`: no address space left.
    pub fn map(&self) -> io::Result<SharedMapping> {
        Mapping::new(self.as_fd(), self.size(), Rights::ReadWrite).map(SharedMapping)
    }
}

impl SharedMapping {
    /// The mapping's address in this process: page-aligned, valid as long as the mapping.
    #[must_use]
    pub const fn base(&self) -> NonNull<c_void> {
        self.0.base()
    }

    /// The size of the region, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.0.size()
    }
}

//! The host agent's side of a region: validates a descriptor received from a service before it is used.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SealFlags, Stat, fcntl_getfl, fstat, open};
use wire::layout::RegionSize;

use crate::seals::seals;

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Why a descriptor is not accepted as a region. It is closed in any case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// A file, a socket, a pipe, a device, or a memfd of huge pages, whose owner could kill readers by punching holes.
    #[error("the descriptor is no memfd of ordinary pages")]
    NotMemory(#[source] io::Error),
    /// Its owner could change its size while it is mapped or registered.
    #[error("the memfd has seals {found:#x}, F_SEAL_SHRINK and F_SEAL_GROW (0x6) are needed")]
    Unsealed {
        /// The seals that the memfd has (`F_GET_SEALS`).
        found: u32,
    },
    /// It could not be registered for RDMA again after a restart of the agent.
    #[error(
        "the memfd has seals {found:#x}: F_SEAL_WRITE and F_SEAL_FUTURE_WRITE are not allowed, RDMA needs a writable mapping"
    )]
    SealedAgainstWriting {
        /// The seals that the memfd has (`F_GET_SEALS`).
        found: u32,
    },
    /// Opened for reading only, or with `O_PATH`.
    #[error("the descriptor is not open for reading and writing, which RDMA needs")]
    Access,
    /// The file does not have the announced size.
    #[error("the memfd has {found} bytes, {} were announced", .announced.bytes())]
    Size {
        /// The announced size.
        announced: RegionSize,
        /// The file's size, in bytes.
        found: u64,
    },
    /// Part of it is not allocated. Whoever touches such a page first pays for it: a reader, or the agent that
    /// registers it for RDMA.
    #[error(
        "only {allocated} of the memfd's {} bytes are allocated: allocate all of them (fallocate) before it is announced",
        .announced.bytes()
    )]
    Sparse {
        /// The announced size.
        announced: RegionSize,
        /// Allocated memory, in bytes.
        allocated: u64,
    },
}

/// Memory of an accepted region that its service has freed (`fallocate`, `madvise`). Whoever maps the region and loads
/// from it allocates that memory again, at its own expense. A device that has registered the region goes on to read
/// what was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its service has freed {bytes} of its {} bytes since it was announced", .size.bytes())]
pub struct FreedMemory {
    /// Freed memory, in bytes.
    pub bytes: u64,
    /// The size of the region.
    pub size: RegionSize,
}

/// A region of a service: a memfd whose seals, access mode and size are validated. The service cannot change them
/// afterwards. All of its memory was allocated by the service, which can free pages later: see [`Self::freed`] and
/// `SparseMapping`.
///
/// Costs a descriptor and no memory. The agent never writes to the region.
#[derive(Debug)]
pub struct AcceptedRegion {
    memory: OwnedFd,
    size: RegionSize,
}

impl AcceptedRegion {
    /// Validates `memory`, announced with size `announced`. The content is not checked: it can change at any time.
    ///
    /// # Errors
    ///
    /// [`AcceptError`]; the descriptor is closed.
    pub fn accept(memory: OwnedFd, announced: RegionSize) -> Result<Self, AcceptError> {
        let seals = seals(memory.as_fd()).map_err(AcceptError::NotMemory)?;
        let found = seals.bits();
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(AcceptError::Unsealed { found });
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(AcceptError::SealedAgainstWriting { found });
        }
        let access = fcntl_getfl(&memory).map_err(|error| AcceptError::NotMemory(error.into()))?;
        if access & OFlags::RWMODE != OFlags::RDWR {
            return Err(AcceptError::Access);
        }
        let status = fstat(&memory).map_err(|error| AcceptError::NotMemory(error.into()))?;
        let (found, allocated) = (status.st_size as u64, allocated(&status));
        if found != announced.bytes() as u64 {
            return Err(AcceptError::Size { announced, found });
        }
        if allocated < found {
            return Err(AcceptError::Sparse { announced, allocated });
        }
        Ok(Self { memory, size: announced })
    }

    /// The size of the region, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.size
    }

    /// What the service has freed of the region and not allocated again. One system call. Memory in swap is not free.
    #[must_use]
    pub fn freed(&self) -> Option<FreedMemory> {
        // A descriptor that is open has a status.
        let allocated = fstat(&self.memory).map_or(u64::MAX, |status| allocated(&status));
        let bytes = (self.size.bytes() as u64).saturating_sub(allocated);
        (bytes > 0).then_some(FreedMemory { bytes, size: self.size })
    }

    /// A new descriptor of the same memory, open for reading only: for a reader that must not write.
    ///
    /// # Errors
    ///
    /// The error of `open`: no descriptor left, no `/proc`, or a mode of the memfd that forbids reading.
    pub fn reader_fd(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

/// Allocated memory of a file, in bytes.
fn allocated(status: &Stat) -> u64 {
    (status.st_blocks as u64).saturating_mul(BLOCK_BYTES)
}

impl AsFd for AcceptedRegion {
    /// The memfd as received, open for reading and writing.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

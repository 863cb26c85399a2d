//! A region from the host agent's side: what a service handed over, checked before anything is done with it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SealFlags, fcntl_getfl, fstat, open};
use wire::layout::RegionSize;

use crate::seals::seals;

/// Why a descriptor is not taken as a region. Whatever it is, it has been closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// A file, a socket, a pipe, a device, or a memfd of huge pages, whose owner could end readers by punching holes.
    #[error("the descriptor is no memfd of ordinary pages")]
    NotMemory(#[source] io::Error),
    /// Its owner could change its size while it is mapped or registered.
    #[error("the memfd has seals {found:#x}, F_SEAL_SHRINK and F_SEAL_GROW (0x6) are needed")]
    Unsealed {
        /// F_GET_SEALS.
        found: u32,
    },
    /// It could not be registered for RDMA again after a restart of the agent.
    #[error(
        "the memfd has seals {found:#x}: F_SEAL_WRITE and F_SEAL_FUTURE_WRITE are not allowed, RDMA needs a writable mapping"
    )]
    SealedAgainstWriting {
        /// F_GET_SEALS.
        found: u32,
    },
    /// Opened for reading, or only as a path.
    #[error("the descriptor is not open for reading and writing, which RDMA needs")]
    Access,
    /// Not what was announced.
    #[error("the memfd has {found} bytes, {} were announced", .announced.bytes())]
    Size {
        /// What was announced.
        announced: RegionSize,
        /// What the file has.
        found: u64,
    },
}

/// A region of a service: a memfd with the seals, the access and the size that it has to have. It cannot lose them again.
///
/// Holding one costs a descriptor and no memory. The agent promises not to write to it.
#[derive(Debug)]
pub struct AcceptedRegion {
    memory: OwnedFd,
    size: RegionSize,
}

impl AcceptedRegion {
    /// Takes `memory`, which was announced with `announced`. What is in it is not looked at: it can change at any time.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] with what is wrong; the descriptor is closed.
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
        let found = fstat(&memory).map_err(|error| AcceptError::NotMemory(error.into()))?.st_size as u64;
        if found != announced.bytes() as u64 {
            return Err(AcceptError::Size { announced, found });
        }
        Ok(Self { memory, size: announced })
    }

    /// Its size, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.size
    }

    /// A new descriptor of the same memory that is open for reading only, for a reader that this process does not trust to write.
    ///
    /// # Errors
    ///
    /// What the system said: no descriptor left, no `/proc`, or a mode of the memfd that forbids reading to this process.
    pub fn reader_fd(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

impl AsFd for AcceptedRegion {
    /// The memfd as it came, open for reading and writing.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

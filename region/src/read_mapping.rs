//! The reader's side of a region: mapped read-only, copied word by word.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fstat};
use wire::layout::RegionSize;

use crate::mapping::{Mapping, Rights};
use crate::seals::seals;
use crate::sync::Relaxed;

/// Why a region cannot be mapped for reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Not sealed: its owner could shrink it, and a load beyond its end would kill this process.
    #[error("not a memfd of ordinary pages that is sealed against shrinking")]
    Unsealed(#[source] Option<io::Error>),
    /// The file does not have the announced size.
    #[error("the region has {found} bytes, {} were announced", .announced.bytes())]
    Size {
        /// The announced size.
        announced: RegionSize,
        /// The file's size, in bytes.
        found: u64,
    },
    /// A system call failed.
    #[error("cannot map the region")]
    System(#[from] io::Error),
}

/// A buffer that is empty or longer than the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a buffer of {buffer} words for a region of {region}")]
pub struct BufferLengthError {
    /// Length of the buffer, in words.
    pub buffer: usize,
    /// Length of the region, in words.
    pub region: usize,
}

/// A region mapped read-only. The descriptor may be closed afterwards.
#[derive(Debug)]
pub struct ReadMapping(Mapping);

impl ReadMapping {
    /// Maps `memory`, announced with `size`.
    ///
    /// # Errors
    ///
    /// [`MapError`] unless it is a memfd of ordinary pages sealed against shrinking that has this size.
    pub fn map(memory: BorrowedFd<'_>, size: RegionSize) -> Result<Self, MapError> {
        let seals = seals(memory).map_err(|error| MapError::Unsealed(Some(error)))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MapError::Unsealed(None));
        }
        let found = fstat(memory).map_err(io::Error::from)?.st_size as u64;
        if found != size.bytes() as u64 {
            return Err(MapError::Size { announced: size, found });
        }
        Ok(Self(Mapping::new(memory, size, Rights::Read)?))
    }

    /// The size of the region, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.0.size()
    }

    /// Every word, header first, for loads only: a store raises SIGSEGV.
    pub(crate) fn words(&self) -> &[crate::sync::AtomicU64] {
        self.0.words()
    }

    /// Copies as many words of the region as fit into `words`, header first, in ascending order. Each word is atomic;
    /// the copy as a whole is not a snapshot of one moment.
    ///
    /// # Errors
    ///
    /// [`BufferLengthError`] if `words` is empty or longer than the region; nothing is copied then.
    pub fn copy_into(&self, words: &mut [u64]) -> Result<(), BufferLengthError> {
        let region = self.0.words();
        if words.is_empty() || words.len() > region.len() {
            return Err(BufferLengthError { buffer: words.len(), region: region.len() });
        }
        for (copy, word) in words.iter_mut().zip(region) {
            *copy = word.load(Relaxed);
        }
        Ok(())
    }
}

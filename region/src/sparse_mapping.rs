//! A region mapped for reading that tells which of its pages hold values.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use wire::layout::{PAGE_BYTES, RegionSize};

use crate::read_mapping::{MapError, ReadMapping};
use crate::sync::Relaxed;

/// A region mapped read-only, with its descriptor.
///
/// A load from a page that nobody has written to makes the system allocate that page, in the memory cgroup of the
/// process that loads. Whoever maps regions of others asks [`SparseMapping::next_data`] first.
#[derive(Debug)]
pub struct SparseMapping {
    mapping: ReadMapping,
    memory: OwnedFd,
}

impl SparseMapping {
    /// Maps `memory`, announced with `size`.
    ///
    /// # Errors
    ///
    /// As [`ReadMapping::map`].
    pub fn map(memory: OwnedFd, size: RegionSize) -> Result<Self, MapError> {
        let mapping = ReadMapping::map(memory.as_fd(), size)?;
        Ok(Self { mapping, memory })
    }

    /// The size of the region, which never changes.
    #[must_use]
    pub const fn size(&self) -> RegionSize {
        self.mapping.size()
    }

    /// Copies the words from `first` on into `words`, in ascending order, as [`ReadMapping::copy_into`]. Words beyond
    /// the region are left as they are.
    pub fn load(&self, first: usize, words: &mut [u64]) {
        let from = self.mapping.words().get(first..).unwrap_or_default();
        for (copy, word) in words.iter_mut().zip(from) {
            *copy = word.load(Relaxed);
        }
    }

    /// The first page from `page` on that holds no values; the number of pages if there is none. One system call.
    ///
    /// A page in swap holds values. If the system does not say, every page does.
    #[must_use]
    pub fn next_hole(&self, page: usize) -> usize {
        self.next(SeekFrom::Hole((page * PAGE_BYTES) as u64)).unwrap_or(self.pages())
    }

    /// The first page from `page` on that holds values; the number of pages if there is none. One system call.
    #[must_use]
    pub fn next_data(&self, page: usize) -> usize {
        match self.next(SeekFrom::Data((page * PAGE_BYTES) as u64)) {
            Ok(page) => page,
            Err(Errno::NXIO) => self.pages(),
            Err(_) => page,
        }
    }

    fn pages(&self) -> usize {
        self.size().bytes() / PAGE_BYTES
    }

    fn next(&self, position: SeekFrom) -> Result<usize, Errno> {
        seek(&self.memory, position).map(|at| at as usize / PAGE_BYTES)
    }
}

//! The trait that fetches regions, its buffers, and its errors.

use core::ops::Range;
use std::io;
use std::os::fd::OwnedFd;

use region::MapError;
use wire::id::RegionId;
use wire::layout::RegionSize;

use crate::local;
use crate::runs::Runs;
use crate::verbs::LostReason;

/// Reads metric regions: from shared memory, from this process, or over RDMA.
///
/// Regions are attached once and fetched many times. The caller owns the buffers, so that fetching allocates nothing.
pub trait RegionReader: Send {
    /// Its name in configuration and output: `shm`, `local`, `verbs`.
    fn name(&self) -> &'static str;

    /// Attaches `region`, so that it can be fetched. The descriptor in `access` is not needed afterwards.
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the region is not attached then, or is still attached as before.
    fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), AttachError>;

    /// Detaches `region`: once this has returned, no fetch touches its memory. Does nothing if it is not attached.
    fn detach(&mut self, region: RegionId);

    /// Fetches the runs that each buffer of `batch` names, and sets the status of each, in any order. A region may be
    /// in the batch twice.
    ///
    /// Each word is a value that it had at one point in time during the call; different words may be of different
    /// times. The contents of a buffer whose status is not [`FetchStatus::Fetched`] are undefined.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if the transport as a whole failed; every status is undefined then. A single region's failure is
    /// in its status.
    fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError>;
}

/// The buffer for one region's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionBuffer {
    /// The region to fetch.
    pub region: RegionId,
    /// The region's words that are wanted, run after run.
    pub words: Vec<u64>,
    /// Which words these are.
    pub runs: Runs,
    /// The outcome of the last fetch.
    pub status: FetchStatus,
}

impl RegionBuffer {
    /// A buffer for the whole of `region`, all zeros.
    #[must_use]
    pub fn new(region: RegionId, size: RegionSize) -> Self {
        Self::for_first(region, size.words())
    }

    /// A buffer for the first `words` words of `region`, all zeros: words after the last slot in use need not be read.
    /// Fetching fails with [`RegionError::Length`] unless `words` is between 1 and the region's length.
    #[must_use]
    pub fn for_first(region: RegionId, words: usize) -> Self {
        Self::for_runs(region, Runs::first(words))
    }

    /// A buffer for these words of `region`, all zeros. Fetching fails with [`RegionError::Length`] unless there is a
    /// run, and all of them are within the region.
    #[must_use]
    pub fn for_runs(region: RegionId, runs: Runs) -> Self {
        Self { region, words: vec![0; runs.words()], runs, status: FetchStatus::Pending }
    }

    /// Checks that the buffer is for words of a region that has `words`.
    pub(crate) fn check(&self, words: usize) -> Result<(), RegionError> {
        let fits = !self.words.is_empty() && self.words.len() == self.runs.words() && self.runs.end() <= words;
        if fits { Ok(()) } else { Err(RegionError::Length { buffer: self.runs.end(), region: words }) }
    }

    /// Each run, as a range of the region's words, with its part of the buffer.
    pub(crate) fn parts(&mut self) -> impl Iterator<Item = (Range<usize>, &mut [u64])> {
        let mut rest = &mut self.words[..];
        self.runs.iter().map(move |run| {
            let (part, after) = core::mem::take(&mut rest).split_at_mut(run.len());
            rest = after;
            (run, part)
        })
    }
}

/// The outcome of fetching one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchStatus {
    /// Not fetched yet.
    Pending,
    /// The buffer holds the region.
    Fetched,
    /// The fetch failed; the buffer is undefined.
    Failed(RegionError),
}

/// Why one region was not fetched. Other regions of the batch are not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The region is not attached: attach it first.
    #[error("the region is not attached")]
    NotAttached,
    /// The buffer is empty or reaches beyond the region.
    #[error("a buffer for words up to {buffer} of a region of {region}")]
    Length {
        /// End of what the buffer is for, in words from the region's start.
        buffer: usize,
        /// Words of the region.
        region: usize,
    },
    /// The host agent has revoked the right to read it. Wait for a configuration without it, or attach it anew.
    #[error("the right to read the region is revoked")]
    Revoked,
    /// Pages that held values are free: its service has punched a hole into it. Reading it would allocate them again,
    /// at the reader's expense. Leave it.
    #[error(
        "{pages} of its pages were freed after they had been read, which only the service can do: it is not read any more. Restart the service"
    )]
    Punched {
        /// Number of such pages.
        pages: usize,
    },
    /// No response in time. Try again.
    #[error("no response in time")]
    Timeout,
    /// Another region of the batch cost the connection. Connect again, and try again.
    #[error("the connection ended before the region was read")]
    Interrupted,
}

/// Why nothing was fetched. Connect again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The connection to the peer is lost.
    #[error("the transport has lost its peer")]
    Lost(#[source] Option<io::Error>),
}

/// The reason under which the loss of a batch is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There was no connection: an earlier loss is not repaired yet, or the first connection is not up yet.
    Unconnected,
    /// The peer did not respond any more.
    Unanswered,
    /// The connection ended with some other error.
    Broken,
    /// The device at this end delivered no completion.
    Silent,
    /// The device at this end refused an operation.
    Device,
}

impl Loss {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 5] = [Self::Unconnected, Self::Unanswered, Self::Broken, Self::Silent, Self::Device];

    /// Its value of the label `reason` in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unconnected => "unconnected",
            Self::Unanswered => "unanswered",
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Device => "device",
        }
    }
}

impl BatchError {
    /// The reason under which it is counted; [`Loss::Broken`] if the transport states none.
    #[must_use]
    pub fn loss(&self) -> Loss {
        let Self::Lost(cause) = self;
        let reason = cause.as_ref().and_then(io::Error::get_ref).and_then(|cause| cause.downcast_ref::<LostReason>());
        reason.map_or(Loss::Broken, LostReason::loss)
    }
}

/// How a reader accesses a region's memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Access {
    /// A memfd, open for reading.
    Descriptor(OwnedFd),
    /// Memory of this process.
    Memory(local::Region),
    /// By RDMA READ.
    Remote {
        /// Address of the region's first byte on its host.
        address: u64,
        /// The remote key that READs need.
        rkey: u32,
        /// Its length, as its host reports it.
        bytes: u64,
    },
}

impl Access {
    /// Its description for error messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Descriptor(_) => "a descriptor",
            Self::Memory(_) => "memory of this process",
            Self::Remote { .. } => "an address and a key",
        }
    }
}

/// Why a region cannot be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A region with this id is attached: detach it first.
    #[error("{0} is attached already")]
    Attached(RegionId),
    /// The configuration is for another transport.
    #[error("the {reader} reader needs {needed}, not {given}")]
    Access {
        /// Name of the reader, see [`RegionReader::name`].
        reader: &'static str,
        /// The kind of access that the reader supports.
        needed: &'static str,
        /// The kind of access that it got.
        given: &'static str,
    },
    /// The size differs from the announced one.
    #[error("the region has {found} bytes, {} were announced", .announced.bytes())]
    Size {
        /// The announced size.
        announced: RegionSize,
        /// The actual size, in bytes.
        found: u64,
    },
    /// Its memory cannot be mapped.
    #[error(transparent)]
    Map(MapError),
}

impl From<MapError> for AttachError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Size { announced, found } => Self::Size { announced, found },
            other => Self::Map(other),
        }
    }
}

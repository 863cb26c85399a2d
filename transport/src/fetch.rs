//! What fetching is, and how it can fail.

use std::io;
use std::os::fd::OwnedFd;

use region::MapError;
use wire::id::RegionId;
use wire::layout::RegionSize;

use crate::local;
use crate::verbs::LostReason;

/// Reads metric regions: from shared memory, from this process, over RDMA.
///
/// Regions are attached once and fetched many times. Whoever uses one owns the buffers, so that fetching allocates nothing.
pub trait RegionReader: Send {
    /// What it is called in configuration and output: `shm`, `local`, `verbs`.
    fn name(&self) -> &'static str;

    /// Makes `region` known, so that it can be fetched from now on. The descriptor in `access` is not needed afterwards.
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the region is not attached then, or still attached as it was before.
    fn attach(&mut self, region: RegionId, size: RegionSize, access: Access) -> Result<(), AttachError>;

    /// Forgets `region`: once this has returned, no fetch touches its memory. Nothing happens if it is not attached.
    fn detach(&mut self, region: RegionId);

    /// Fetches every region of `batch`, as far as its buffer is long, and sets the status of each, in any order. A region may stand in it twice.
    ///
    /// Each word of a buffer is as it was at one moment of the call; the whole is not of any one moment. What is in a buffer whose status is
    /// not [`FetchStatus::Fetched`] means nothing.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if the transport as a whole failed: no status means anything then. A single region's failure is in its status.
    fn fetch(&mut self, batch: &mut [RegionBuffer]) -> Result<(), BatchError>;
}

/// Where a region's words go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionBuffer {
    /// Which region.
    pub region: RegionId,
    /// Its words, header first: all of them, or as many of the first ones as somebody wants.
    pub words: Vec<u64>,
    /// How the last fetch went.
    pub status: FetchStatus,
}

impl RegionBuffer {
    /// A buffer for the whole of `region`, all zeros.
    #[must_use]
    pub fn new(region: RegionId, size: RegionSize) -> Self {
        Self::for_first(region, size.words())
    }

    /// A buffer for the first `words` words of `region`, all zeros: what lies behind the last slot in use need not be read. At least one, and no
    /// more than the region has, or fetching it fails with [`RegionError::Length`].
    #[must_use]
    pub fn for_first(region: RegionId, words: usize) -> Self {
        Self { region, words: vec![0; words], status: FetchStatus::Pending }
    }
}

/// How the fetch of one region went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchStatus {
    /// Not fetched yet.
    Pending,
    /// The buffer holds the region.
    Fetched,
    /// It does not.
    Failed(RegionError),
}

/// Why one region was not fetched. The others were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// Attach it first.
    #[error("the region is not attached")]
    NotAttached,
    /// Make a buffer of at least one word and at most the region's size.
    #[error("a buffer of {buffer} words for a region of {region}")]
    Length {
        /// Words of the buffer.
        buffer: usize,
        /// Words of the region.
        region: usize,
    },
    /// Its owner's agent has revoked the right to read it. Wait for a configuration without it, or attach it anew.
    #[error("the right to read the region is revoked")]
    Revoked,
    /// No answer in time. Try again.
    #[error("no answer in time")]
    Timeout,
    /// Another region of the batch cost the connection. Connect again, and try again.
    #[error("the connection ended before the region was read")]
    Interrupted,
}

/// Why nothing was fetched. Connect again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The other end is gone.
    #[error("the transport has lost its other end")]
    Lost(#[source] Option<io::Error>),
}

/// What the loss of a batch is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There was no connection when it was to be fetched: another loss is not over yet, or nobody has connected so far.
    Unconnected,
    /// The other end did not answer any more.
    Unanswered,
    /// The connection ended with some other error.
    Broken,
    /// The device at this end said nothing.
    Silent,
    /// The device at this end refused.
    Device,
}

impl Loss {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::Unconnected, Self::Unanswered, Self::Broken, Self::Silent, Self::Device];

    /// What it is called in metrics.
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
    /// What it is counted as; [`Loss::Broken`] of a transport that does not say.
    #[must_use]
    pub fn loss(&self) -> Loss {
        let Self::Lost(cause) = self;
        let reason = cause.as_ref().and_then(io::Error::get_ref).and_then(|cause| cause.downcast_ref::<LostReason>());
        reason.map_or(Loss::Broken, LostReason::loss)
    }
}

/// How to get at a region's memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Access {
    /// A memfd, open for reading.
    Descriptor(OwnedFd),
    /// In this process.
    Memory(local::Region),
    /// By RDMA READ.
    Remote {
        /// Where the region starts in the address space of its memory region.
        address: u64,
        /// The right to read it.
        rkey: u32,
        /// How long it is, as its host says.
        bytes: u64,
    },
}

impl Access {
    /// What it is, in errors.
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
    /// Detach it first.
    #[error("{0} is attached already")]
    Attached(RegionId),
    /// The configuration is for another transport.
    #[error("the {reader} reader needs {needed}, not {given}")]
    Access {
        /// [`RegionReader::name`].
        reader: &'static str,
        /// What it can use.
        needed: &'static str,
        /// What it got.
        given: &'static str,
    },
    /// Another region than the one that was announced.
    #[error("the region has {found} bytes, {} were announced", .announced.bytes())]
    Size {
        /// What was announced.
        announced: RegionSize,
        /// What it has.
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

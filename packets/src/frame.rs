//! Frames as they were captured, and what gives them out.

use std::io;

use thiserror::Error;

/// Ethernet's header with two tags.
const LONGEST_HEADER: u32 = 14 + 8;

/// What a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
    /// What Linux puts before packets of any interface ("cooked", version 1).
    Cooked,
}

impl Link {
    /// The kind that captures give this number, if it is one of those that are known here.
    #[must_use]
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            // LINKTYPE_RAW, and what the BSDs write for it, LINKTYPE_IPV4, LINKTYPE_IPV6.
            101 | 12 | 14 | 228 | 229 => Some(Self::Ip),
            113 => Some(Self::Cooked),
            _ => None,
        }
    }

    /// The number that captures have for it.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::Ip => 101,
            Self::Cooked => 113,
        }
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What was captured of it: the beginning.
    pub bytes: &'a [u8],
    /// How long it was on the wire, in bytes.
    pub length: u32,
    /// When it passed, in nanoseconds since 1970, by the clock of whoever captured it.
    pub time_ns: u64,
    /// What it begins with.
    pub link: Link,
}

impl Frame<'_> {
    /// Whether a card or the kernel put it together (TSO, GSO, GRO) from several that the wire carries: it is longer than a packet of `mtu` bytes behind the
    /// longest link header, Ethernet's with two tags. Of a "cooked" frame nobody knows: it may be of another interface.
    #[must_use]
    pub fn is_put_together(&self, mtu: u32) -> bool {
        self.length > mtu.saturating_add(LONGEST_HEADER) && self.link != Link::Cooked
    }
}

/// What came of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// So many frames; 0 if none came in time.
    Frames(u64),
    /// There will be no more.
    End,
}

/// What a source knows of frames that it did and did not give out, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Frames given out.
    pub frames: u64,
    /// Frames of links that are not known here.
    pub foreign: u64,
    /// Frames that the kernel dropped, since nobody took them in time.
    pub dropped: u64,
    /// How many times the kernel stopped taking frames, since there was no room.
    pub stopped: u64,
    /// Frames left out since a card was to stamp them and had not.
    pub unstamped: u64,
}

/// Why there are no more frames.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The system's fault.
    #[error("cannot read frames")]
    Io(#[from] io::Error),
    /// Neither pcap nor pcapng.
    #[error("this is neither a pcap nor a pcapng file")]
    NoCapture,
    /// A file that was cut, or that something broke.
    #[error("the capture is broken after {frames} frames: {why}")]
    Broken {
        /// Frames before.
        frames: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// All its frames are of a link that is not known here.
    #[error("a capture of links of kind {0}; Ethernet (1), IP (101) and Linux cooked (113) are possible")]
    Link(u32),
}

/// Whatever gives out frames: a file, an interface, a generator. Times do not have to rise.
pub trait Source {
    /// Gives some frames to `take`, in their order. Waits at most as long as the source was made to wait.
    ///
    /// # Errors
    ///
    /// [`SourceError`]; frames that came before were given out.
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError>;

    /// What became of the frames so far.
    fn counts(&mut self) -> SourceCounts;
}

/// All frames until the end of `source`.
///
/// # Errors
///
/// As [`Source::read`].
pub fn read_all(source: &mut dyn Source, take: &mut dyn FnMut(&Frame<'_>)) -> Result<(), SourceError> {
    while source.read(take)? != Progress::End {}
    Ok(())
}

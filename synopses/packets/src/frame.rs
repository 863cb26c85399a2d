//! Captured frames, and the trait of their sources.

use std::io;

use thiserror::Error;

/// Ethernet's header with two tags.
const LONGEST_HEADER: u32 = 14 + 8;

/// Link type: the header that a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
    /// The Linux "cooked" header of captures on all interfaces, version 1.
    Cooked,
}

impl Link {
    /// The link type with this number in capture files; `None` if it is not supported.
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

    /// Its number in capture files.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::Ip => 101,
            Self::Cooked => 113,
        }
    }
}

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The captured bytes, from the frame's beginning.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes.
    pub length: u32,
    /// Timestamp in nanoseconds since 1970, by the capturing clock.
    pub time_ns: u64,
    /// Link type of the interface or capture.
    pub link: Link,
}

impl Frame<'_> {
    /// Whether a NIC or the kernel merged it from several frames on the wire (TSO, GSO, GRO): it is longer than `mtu`
    /// bytes and the longest link header, Ethernet's with two tags. Always false for a "cooked" frame, which may be of
    /// another interface.
    #[must_use]
    pub fn is_merged(&self, mtu: u32) -> bool {
        self.length > mtu.saturating_add(LONGEST_HEADER) && self.link != Link::Cooked
    }
}

/// Result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// This many frames; 0 if none arrived in time.
    Frames(u64),
    /// The source has ended.
    End,
}

/// A source's counts of frames since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Frames delivered so far.
    pub frames: u64,
    /// Frames with an unsupported link type.
    pub unknown_link: u64,
    /// Frames that the kernel dropped because they were not read in time.
    pub dropped: u64,
    /// How often the kernel paused capturing because all blocks were full.
    pub stopped: u64,
    /// Frames skipped because they lack a hardware timestamp.
    pub unstamped: u64,
}

/// Why reading frames failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An error of the operating system.
    #[error("cannot read frames")]
    Io(#[from] io::Error),
    /// Not a pcap or pcapng file.
    #[error("this is neither a pcap nor a pcapng file")]
    NoCapture,
    /// A truncated or corrupt file.
    #[error("the capture is corrupt after {frames} frames: {why}")]
    Corrupt {
        /// Number of frames before the error.
        frames: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// All frames have an unsupported link type.
    #[error("a capture of links of kind {0}; Ethernet (1), IP (101) and Linux cooked (113) are possible")]
    Link(u32),
}

/// A source of frames: a file, an interface or a generator. Timestamps need not be in order.
pub trait Source {
    /// Passes some frames to `take`, in order. Waits at most for the time that the source was configured with.
    ///
    /// # Errors
    ///
    /// [`SourceError`]. Frames before the error have been passed on.
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError>;

    /// Counts of frames so far.
    fn counts(&mut self) -> SourceCounts;
}

/// Passes all frames of `source` to `take`, until its end.
///
/// # Errors
///
/// The same as [`Source::read`].
pub fn read_all(source: &mut dyn Source, take: &mut dyn FnMut(&Frame<'_>)) -> Result<(), SourceError> {
    while source.read(take)? != Progress::End {}
    Ok(())
}

//! Sources of frames: the trait of files, interfaces and generators.

use std::io;

use thiserror::Error;

use crate::frame::Frame;

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

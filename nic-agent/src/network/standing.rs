//! How each interface is read, for whoever asks the agent: written once a look by the threads that read it, never per packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packets::SourceCounts;

/// One interface.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    name: String,
    rings: AtomicU64,
    hardware: AtomicBool,
    frames: AtomicU64,
    dropped: AtomicU64,
    unstamped: AtomicU64,
    oversized: AtomicU64,
}

/// What stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stands {
    /// Rings that it is read by; 0 while it cannot be.
    pub(crate) rings: u64,
    /// Whether times are the card's.
    pub(crate) hardware: bool,
    /// Frames taken.
    pub(crate) frames: u64,
    /// Frames that the kernel dropped.
    pub(crate) dropped: u64,
    /// Frames left out since the card had not stamped them.
    pub(crate) unstamped: u64,
    /// Frames taken that were put together from several.
    pub(crate) oversized: u64,
}

/// All interfaces that streams are on.
pub(crate) type Interfaces = Arc<[Arc<Standing>]>;

impl Standing {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// It is read by so many rings.
    pub(super) fn read_by(&self, rings: usize, hardware: bool) {
        self.rings.store(rings as u64, Ordering::Relaxed);
        self.hardware.store(hardware, Ordering::Relaxed);
    }

    /// What one ring saw between two looks.
    pub(super) fn add(&self, now: SourceCounts, before: SourceCounts, oversized: u64) {
        self.frames.fetch_add(now.frames - before.frames, Ordering::Relaxed);
        self.dropped.fetch_add(now.dropped - before.dropped, Ordering::Relaxed);
        self.unstamped.fetch_add(now.unstamped - before.unstamped, Ordering::Relaxed);
        self.oversized.fetch_add(oversized, Ordering::Relaxed);
    }

    pub(crate) fn stands(&self) -> Stands {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Stands {
            rings: of(&self.rings),
            hardware: self.hardware.load(Ordering::Relaxed),
            frames: of(&self.frames),
            dropped: of(&self.dropped),
            unstamped: of(&self.unstamped),
            oversized: of(&self.oversized),
        }
    }
}

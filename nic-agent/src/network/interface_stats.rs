//! Counters of each interface, for the metrics endpoint. The threads that read it update them a few times a second, not
//! per packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packets::SourceCounts;

/// Counters of one interface, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct InterfaceStats {
    name: String,
    rings: AtomicU64,
    hardware: AtomicBool,
    frames: AtomicU64,
    dropped: AtomicU64,
    unstamped: AtomicU64,
    oversized: AtomicU64,
}

/// The values of [`InterfaceStats`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceSnapshot {
    /// Rings that read the interface; 0 while it cannot be read.
    pub(crate) rings: u64,
    /// Whether timestamps are the card's.
    pub(crate) hardware: bool,
    /// Frames read by all rings.
    pub(crate) frames: u64,
    /// Frames that the kernel dropped.
    pub(crate) dropped: u64,
    /// Frames ignored because the card had not timestamped them.
    pub(crate) unstamped: u64,
    /// Frames read that a card or the kernel had merged from several.
    pub(crate) oversized: u64,
}

/// All interfaces with streams.
pub(crate) type Interfaces = Arc<[Arc<InterfaceStats>]>;

impl InterfaceStats {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Name of the interface.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the number of rings, and whether timestamps are the card's.
    pub(super) fn set_rings(&self, rings: usize, hardware: bool) {
        self.rings.store(rings as u64, Ordering::Relaxed);
        self.hardware.store(hardware, Ordering::Relaxed);
    }

    /// Adds what one ring counted between two polls.
    pub(super) fn add(&self, now: SourceCounts, before: SourceCounts, oversized: u64) {
        self.frames.fetch_add(now.frames - before.frames, Ordering::Relaxed);
        self.dropped.fetch_add(now.dropped - before.dropped, Ordering::Relaxed);
        self.unstamped.fetch_add(now.unstamped - before.unstamped, Ordering::Relaxed);
        self.oversized.fetch_add(oversized, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> InterfaceSnapshot {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        InterfaceSnapshot {
            rings: of(&self.rings),
            hardware: self.hardware.load(Ordering::Relaxed),
            frames: of(&self.frames),
            dropped: of(&self.dropped),
            unstamped: of(&self.unstamped),
            oversized: of(&self.oversized),
        }
    }
}

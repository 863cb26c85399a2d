//! Counters of each interface, for the metrics endpoint. The threads that read it update them a few times a second, not
//! per packet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::Count;
use packets::SourceCounts;

/// Counters of one interface, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct InterfaceStats {
    name: String,
    rings: AtomicU64,
    hardware: AtomicBool,
    frames: Count,
    dropped: Count,
    unstamped: Count,
    oversized: Count,
    /// Why it cannot be read; empty if it can, or nobody has tried yet.
    problem: Mutex<String>,
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

/// All interfaces with streams. They come and go with streams of policies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces(Arc<Mutex<Vec<Arc<InterfaceStats>>>>);

impl Interfaces {
    /// The counters of each, by name.
    pub(crate) fn all(&self) -> Vec<Arc<InterfaceStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `stats` are of one more.
    pub(super) fn add(&self, stats: Arc<InterfaceStats>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(stats);
        all.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// The interface `name` is not read any more.
    pub(super) fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|stats| stats.name != name);
    }
}

impl InterfaceStats {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Name of the interface.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets why it cannot be read; empty: it can.
    pub(super) fn set_problem(&self, why: &str) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if *problem != why {
            why.clone_into(&mut problem);
        }
    }

    /// Why it cannot be read; empty if it can, or nobody has tried yet.
    pub(super) fn problem(&self) -> String {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the number of rings, and whether timestamps are the card's.
    pub(super) fn set_rings(&self, rings: usize, hardware: bool) {
        self.rings.store(rings as u64, Ordering::Relaxed);
        self.hardware.store(hardware, Ordering::Relaxed);
    }

    /// Adds what one ring counted between two polls.
    pub(super) fn add(&self, now: SourceCounts, before: SourceCounts, oversized: u64) {
        self.frames.add(now.frames - before.frames);
        self.dropped.add(now.dropped - before.dropped);
        self.unstamped.add(now.unstamped - before.unstamped);
        self.oversized.add(oversized);
    }

    pub(crate) fn snapshot(&self) -> InterfaceSnapshot {
        InterfaceSnapshot {
            rings: self.rings.load(Ordering::Relaxed),
            hardware: self.hardware.load(Ordering::Relaxed),
            frames: self.frames.get(),
            dropped: self.dropped.get(),
            unstamped: self.unstamped.get(),
            oversized: self.oversized.get(),
        }
    }
}

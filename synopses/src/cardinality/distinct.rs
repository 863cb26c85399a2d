//! The verbs of all cardinality synopses.

use thiserror::Error;

use super::settings::{Hash, Settings};
use crate::digest::Digest;

/// How many items a register has, and so how they were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Few, counted by empty registers.
    Small,
    /// Enough for the registers' own estimate.
    Middle,
    /// So many that 32-bit hashes coincide, and were corrected for that.
    Large,
}

/// Distinct items at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Distinct items in the window, finite and not negative. For baselines: since the last reset.
    pub count: f64,
    /// New distinct items per second, which is the count by the window's length.
    pub rate: f64,
    /// How they were counted.
    pub range: Range,
    /// Whether there were more items than hashes of 32 bits can tell apart: the count is a lower bound.
    pub saturated: bool,
    /// Whether the synopsis has run for as long as it looks back (W, or 2W for [`super::StHll`]).
    pub warm: bool,
}

/// Items by what became of them since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Items inserted, late ones included.
    pub inserted: u64,
    /// Items before the latest time that were still inserted.
    pub late: u64,
    /// Items so late that they were dropped.
    pub dropped: u64,
    /// How often all was forgotten, since [`super::TsPcsa::prune`] was not called in time.
    pub overdue: u64,
}

impl Tally {
    pub(super) const fn add(&mut self, other: Self) {
        self.inserted = self.inserted.saturating_add(other.inserted);
        self.late = self.late.saturating_add(other.late);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.overdue = self.overdue.saturating_add(other.overdue);
    }
}

/// A count of distinct items in a window that slides. See the [module](super).
pub trait Cardinality: Clone {
    /// Adds an item at a time in nanoseconds. Times may go back a little ([`Tally::late`]). O(1), now and then O(m).
    fn insert(&mut self, digest: Digest, now_ns: u64);

    /// Distinct items in the last `window_ns` nanoseconds before `now_ns`; a time before the latest item's is taken as
    /// that. O(m), for time stamps O(m K).
    ///
    /// # Errors
    ///
    /// [`EstimateError`] if the synopsis does not answer for this window.
    fn estimate(&self, now_ns: u64, window_ns: u64) -> Result<Estimate, EstimateError>;

    /// What all synopses have in common.
    fn settings(&self) -> &Settings;

    /// Items by what became of them.
    fn tally(&self) -> Tally;

    /// Forgets everything and starts at `now_ns`.
    fn reset(&mut self, now_ns: u64);

    /// Adds what another synopsis saw: items that both saw count once. Both are taken to the later one's time. O(m),
    /// for time stamps O(m K).
    ///
    /// # Errors
    ///
    /// [`MergeError`] if a setting differs on which registers depend.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;

    /// Allocated bytes, whatever is stored.
    fn memory_bytes(&self) -> usize;
}

/// The synopsis does not answer for this window.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// There is one window only.
    #[error("a window of {asked_ns} ns, only {only_ns} ns is possible: use Sliding HLL or TS-PCSA for others")]
    FixedWindow {
        /// The window asked for.
        asked_ns: u64,
        /// The only possible one.
        only_ns: u64,
    },
    /// Older items are forgotten.
    #[error("a window of {asked_ns} ns, at most {most_ns} ns is possible")]
    WindowTooLong {
        /// The window asked for.
        asked_ns: u64,
        /// The longest possible one.
        most_ns: u64,
    },
    /// Times are not that precise.
    #[error("a window of {asked_ns} ns, at least {least_ns} ns is possible")]
    WindowTooShort {
        /// The window asked for.
        asked_ns: u64,
        /// The shortest possible one.
        least_ns: u64,
    },
    /// Stale time stamps may look fresh: call [`super::TsPcsa::prune`], which forgets everything.
    #[error("not pruned for {since_ns} ns, at most {most_ns} ns is possible")]
    Overdue {
        /// Time since the last pruning.
        since_ns: u64,
        /// The longest possible time.
        most_ns: u64,
    },
}

/// Why two synopses were not merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A setting differs.
    #[error("{what}: {ours} here, {theirs} there")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// Its value here.
        ours: u64,
        /// Its value in the other synopsis.
        theirs: u64,
    },
    /// The hashes or their seeds differ.
    #[error("items are hashed in different ways, or with different seeds")]
    Hash,
}

/// Fails if a setting differs.
pub(super) const fn same(what: &'static str, ours: u64, theirs: u64) -> Result<(), MergeError> {
    if ours == theirs { Ok(()) } else { Err(MergeError::Setting { what, ours, theirs }) }
}

/// Fails if the common settings do not allow a merge. The start may differ.
pub(super) fn alike(ours: &Settings, theirs: &Settings) -> Result<(), MergeError> {
    same("registers", ours.registers as u64, theirs.registers as u64)?;
    same("window in nanoseconds", ours.window_ns, theirs.window_ns)?;
    let hash = |settings: &Settings| match settings.hash {
        Hash::Seeded(seed) => Some(seed),
        Hash::Ready32 => None,
    };
    if hash(ours) == hash(theirs) { Ok(()) } else { Err(MergeError::Hash) }
}

/// Fails unless `asked_ns` is above 0 and at most the window W.
pub(super) const fn within(asked_ns: u64, least_ns: u64, most_ns: u64) -> Result<(), EstimateError> {
    if asked_ns > most_ns {
        return Err(EstimateError::WindowTooLong { asked_ns, most_ns });
    }
    if asked_ns < least_ns {
        return Err(EstimateError::WindowTooShort { asked_ns, least_ns });
    }
    Ok(())
}

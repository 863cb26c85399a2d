//! What one peer relays of other runs.

use std::collections::BTreeMap;

use wire::time::{Nanos, UnixNanos};

use crate::coherence::entry_log::{EntryLog, is_plausible};
use crate::coherence::item::{Entry, Run};
use crate::coherence::message::Entries;
use crate::coherence::refusal::Refusal;

/// Runs that one peer may relay within the last minutes.
const MAX_RUNS: usize = 1_024;
/// A run may have appended so many entries more than this node heard it announce: its last ones, before it died, and
/// those of a time when the two did not reach each other.
const WINDOW: u64 = 1 << 16;

#[derive(Debug)]
struct Position {
    next: u64,
    touched: Nanos,
}

/// Positions in the logs of other runs up to which a peer has relayed them. Relayed entries are carried out and not
/// stored: they move no log, and nobody takes them for said by their run. Other peers' positions are their own. So what
/// a peer invents costs no honest one a word. Memory: at most 1,024 runs.
#[derive(Debug, Default)]
pub(super) struct Hearsay(BTreeMap<Run, Position>);

impl Hearsay {
    /// The entries of `block` to apply, as far as neither their run nor this peer has said them before. None while the
    /// run `speaks` for itself: it sends them, and if it dies, the peer relays them again.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unannounced`] for numbers beyond what the run itself has announced, [`Refusal::TooManyRuns`]. Then
    /// nothing is applied.
    pub(super) fn receive(
        &mut self,
        block: Entries,
        log: &mut EntryLog,
        speaks: bool,
        (remember, now, wall): (Nanos, Nanos, UnixNanos),
    ) -> Result<Vec<Entry>, Refusal> {
        let Entries { run, first, entries } = block;
        let end = first.saturating_add(entries.len() as u64);
        // A run that never spoke to this node died before it came, or is out of its reach.
        if log.announced(&run).is_some_and(|announced| end > announced.saturating_add(WINDOW)) {
            return Err(Refusal::Unannounced);
        }
        let known = self.known(&run, log);
        if speaks || end <= known {
            return Ok(Vec::new());
        }
        if !self.0.contains_key(&run) && self.0.len() >= MAX_RUNS {
            return Err(Refusal::TooManyRuns);
        }
        self.0.insert(run, Position { next: end, touched: now });
        let new: Vec<_> = entries.into_iter().skip(known.saturating_sub(first) as usize).collect();
        let (plausible, implausible): (Vec<_>, Vec<_>) =
            new.into_iter().partition(|entry| is_plausible(entry.at, remember, wall));
        log.count_implausible(implausible.len() as u64);
        Ok(plausible)
    }

    /// The number up to which entries of `run` are known, from itself or from this peer.
    pub(super) fn known(&self, run: &Run, log: &EntryLog) -> u64 {
        log.next(run).max(self.next(run))
    }

    /// The position up to which the peer has relayed `run`; 0 for an unknown one.
    pub(super) fn next(&self, run: &Run) -> u64 {
        self.0.get(run).map_or(0, |position| position.next)
    }

    /// Positions of all runs that the peer has relayed.
    pub(super) fn positions(&self) -> impl Iterator<Item = (&Run, u64)> {
        self.0.iter().map(|(run, position)| (run, position.next))
    }

    /// Forgets positions that have not moved for `age`.
    pub(super) fn forget(&mut self, age: Nanos, now: Nanos) {
        self.0.retain(|_, position| now.since(position.touched).is_none_or(|still| still <= age));
    }
}

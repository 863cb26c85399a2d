//! Recent entries of all nodes: applied here once and in order, and relayed to peers that lack them.

use std::collections::{BTreeMap, VecDeque};

use wire::time::Nanos;

use crate::coherence::item::{Entry, Item, Run};
use crate::coherence::message::{Entries, VersionVector};
use crate::time::UnixNanos;

/// Largest plausible difference between clocks of two nodes. An entry from further in the future is not applied.
const SPREAD: Nanos = Nanos::from_secs(10);
/// Bytes that an encoded entry takes at most, without its reason.
const ENTRY_BYTES: usize = 160;

/// Runs of all nodes within the last minutes.
const MAX_RUNS: usize = 4_096;

/// An entry that was not known before.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// The run that appended it.
    pub run: Run,
    /// The entry itself, to be applied.
    pub entry: Entry,
}

/// Entries of one run.
#[derive(Debug, Default)]
struct Log {
    /// Number of the oldest entry that is remembered.
    first: u64,
    /// Entries, each with the monotonic time at which it arrived.
    entries: VecDeque<(Nanos, Entry)>,
    /// When the last one arrived.
    touched: Nanos,
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// Recent entries of all runs, those of this node included. Memory: about 100 bytes for each entry, at most `most`
/// entries.
#[derive(Debug)]
pub struct EntryLog {
    logs: BTreeMap<Run, Log>,
    remember: Nanos,
    most: usize,
    entries: usize,
    missed: u64,
    implausible: u64,
    shed: u64,
}

impl EntryLog {
    /// An empty log. Keeps entries for `remember`, at most `most` of them.
    #[must_use]
    pub const fn new(remember: Nanos, most: usize) -> Self {
        Self { logs: BTreeMap::new(), remember, most, entries: 0, missed: 0, implausible: 0, shed: 0 }
    }

    /// Appends `entry` to the log of `run`, the run of this node. Returns its number.
    pub fn append(&mut self, run: &Run, entry: Entry, now: Nanos) -> u64 {
        let log = self.logs.entry(run.clone()).or_default();
        let number = log.next();
        log.entries.push_back((now, entry));
        log.touched = now;
        self.entries += 1;
        number
    }

    /// Adds the entries of `block` that are new, in order, and returns those to apply. Duplicates are skipped, gaps are
    /// counted as missed, entries that are too old or from the future are counted and not applied.
    pub fn receive(&mut self, block: Entries, now: Nanos, wall: UnixNanos) -> Vec<NewEntry> {
        let Entries { run, first, entries } = block;
        // What a new run appended before is not missed: it is as old as that.
        let new = !self.logs.contains_key(&run);
        if new && self.logs.len() >= MAX_RUNS {
            self.implausible += entries.len() as u64;
            return Vec::new();
        }
        let log = self.logs.entry(run.clone()).or_default();
        if first > log.next() {
            self.missed += if new { 0 } else { first - log.next() };
            self.entries -= log.entries.len();
            log.entries.clear();
            log.first = first;
        }
        let known = (log.next() - first) as usize;
        let oldest = wall.minus(self.remember);
        let mut new_entries = Vec::new();
        for entry in entries.into_iter().skip(known) {
            if entry.at < oldest || entry.at > wall.plus(SPREAD) {
                self.implausible += 1;
            } else {
                new_entries.push(NewEntry { run: run.clone(), entry: entry.clone() });
            }
            log.entries.push_back((now, entry));
            log.touched = now;
            self.entries += 1;
        }
        new_entries
    }

    /// The version vector of this node: its position in the log of each run.
    #[must_use]
    pub fn versions(&self) -> VersionVector {
        self.logs.iter().map(|(run, log)| (run.clone(), log.next())).collect()
    }

    /// Whether a peer with `versions` lacks an entry that may be sent now: entries of the run `own` at once, those of
    /// other runs if they arrived before `relayed`.
    pub fn has_for(&self, versions: &VersionVector, own: &Run, theirs: Option<&Run>, relayed: Nanos) -> bool {
        self.lacking(versions, own, theirs, relayed).next().is_some()
    }

    /// Entries that a peer with `versions` lacks, up to `bytes` of them.
    pub fn for_peer(
        &self,
        versions: &VersionVector,
        own: &Run,
        theirs: Option<&Run>,
        relayed: Nanos,
        mut bytes: usize,
    ) -> Vec<Entries> {
        let mut all = Vec::new();
        for (run, log, start, end) in self.lacking(versions, own, theirs, relayed) {
            let most = (bytes / ENTRY_BYTES).min(end - start);
            if most == 0 {
                break;
            }
            bytes -= most * ENTRY_BYTES;
            let entries = log.entries.range(start..start + most).map(|(_, entry)| entry.clone()).collect();
            all.push(Entries { run: run.clone(), first: log.first + start as u64, entries });
        }
        all
    }

    fn lacking(
        &self,
        versions: &VersionVector,
        own: &Run,
        theirs: Option<&Run>,
        relayed: Nanos,
    ) -> impl Iterator<Item = (&Run, &Log, usize, usize)> {
        self.logs.iter().filter(move |(run, _)| Some(*run) != theirs).filter_map(move |(run, log)| {
            let have = versions.get(run).copied().unwrap_or(0);
            let start = have.saturating_sub(log.first) as usize;
            // The run that appended an entry sends it first: a relay by two nodes would waste the second copy.
            let end =
                if run == own { log.entries.len() } else { log.entries.partition_point(|(came, _)| *came <= relayed) };
            (start < end).then_some((run, log, start, end))
        })
    }

    /// Drops entries that are too old or too many. Each is shown to `gone` with its run and number.
    pub fn forget(&mut self, now: Nanos, wall: UnixNanos, mut gone: impl FnMut(&Run, u64, &Item)) {
        let (oldest, remember) = (wall.minus(self.remember), self.remember);
        let mut excess = self.entries.saturating_sub(self.most);
        for (run, log) in &mut self.logs {
            while let Some((_, entry)) = log.entries.front() {
                let old = entry.at < oldest;
                if !old && excess == 0 {
                    break;
                }
                self.shed += u64::from(!old);
                excess = excess.saturating_sub(1);
                gone(run, log.first, &entry.item);
                log.entries.pop_front();
                log.first += 1;
                self.entries -= 1;
            }
        }
        // The position is kept twice as long as any node remembers the entries, so that none is taken for new again.
        let stale = |log: &Log| now.since(log.touched).is_some_and(|age| age.0 > remember.0.saturating_mul(2));
        self.logs.retain(|_, log| !log.entries.is_empty() || !stale(log));
    }

    /// Entries that are remembered.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether no entry is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that no node had any more when this node asked for them.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Entries that were not applied because of their time.
    #[must_use]
    pub const fn implausible(&self) -> u64 {
        self.implausible
    }

    /// Entries that were dropped early because there were too many.
    #[must_use]
    pub const fn shed(&self) -> u64 {
        self.shed
    }
}

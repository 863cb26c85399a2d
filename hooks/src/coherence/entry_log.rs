//! Recent entries of all nodes: applied here once and in order, and relayed to peers that lack them.
//!
//! A log has only what its run said itself. What a peer relays of a run is carried out and not stored ([`Hearsay`]): so
//! nobody but the run can clear its log, move it, or make this node take its next words for known.
//!
//! [`Hearsay`]: crate::coherence::hearsay::Hearsay

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::coherence::item::{Entry, Item, Run, RunId};
use crate::coherence::message::{Entries, VersionVector};

/// Largest plausible difference between clocks of two nodes. An entry from further in the future is not applied.
const SPREAD: Nanos = Nanos::from_secs(10);
/// Bytes that an encoded entry takes at most, without its names and its reason.
const ENTRY_BYTES: usize = 100;
/// Bytes of a message that a run may take which is relayed, however many others are.
const MIN_SHARE: usize = 16 << 10;
/// Memory of an entry, without its names and its reason.
const ENTRY_MEMORY: usize = 120;

/// Runs of all nodes within the last minutes.
const MAX_RUNS: usize = 4_096;
/// Runs of one node of which entries are remembered. Of more, the one that was silent for longest is forgotten.
const MAX_RUNS_OF_NODE: usize = 8;

/// Whether an entry from `at` is young enough to be applied, and not from the future.
pub(super) fn is_plausible(at: UnixNanos, remember: Nanos, wall: UnixNanos) -> bool {
    at >= wall.minus(remember) && at <= wall.plus(SPREAD)
}

#[derive(Debug)]
struct StoredEntry {
    /// Monotonic time at which it arrived.
    came: Nanos,
    memory: usize,
    entry: Entry,
}

/// Entries of one run.
#[derive(Debug, Default)]
struct Log {
    /// Number of the oldest entry that is remembered.
    first: u64,
    entries: VecDeque<StoredEntry>,
    /// Memory of the entries in bytes.
    memory: usize,
    /// How many entries the run says that it has appended.
    announced: u64,
    /// Entries have arrived. What the run appended before that is not missed: it is as old as that.
    begun: bool,
    /// When the run spoke last.
    touched: Nanos,
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn push(&mut self, entry: Entry, now: Nanos) {
        let memory = ENTRY_MEMORY + entry.item.heap_bytes();
        self.memory += memory;
        self.entries.push_back(StoredEntry { came: now, memory, entry });
        self.touched = now;
    }

    /// The entries from `start` to `end`, as many as fit into `bytes` of a message, and the bytes that they take.
    fn pack(&self, start: usize, end: usize, bytes: usize) -> (Vec<Entry>, usize) {
        let (mut entries, mut reasons, mut taken) = (Vec::new(), BTreeSet::new(), 0);
        for StoredEntry { entry, .. } in self.entries.range(start..end) {
            // A block has each reason once.
            let reason = entry.item.reason().filter(|reason| reasons.insert(Arc::as_ptr(reason)));
            let size = ENTRY_BYTES + entry.item.name_bytes() + reason.map_or(0, |reason| reason.heap_bytes());
            if taken + size > bytes {
                break;
            }
            taken += size;
            entries.push(entry.clone());
        }
        (entries, taken)
    }

    /// Drops the oldest entry. Returns its number and itself.
    fn pop(&mut self) -> Option<(u64, Entry)> {
        let StoredEntry { memory, entry, .. } = self.entries.pop_front()?;
        self.memory -= memory;
        self.first += 1;
        Some((self.first - 1, entry))
    }
}

/// Recent entries of all runs, those of this node included. Memory: at most `memory` bytes of entries. If that is too
/// little, the runs that take most of it lose their oldest entries: one that says too much takes nothing from others.
#[derive(Debug)]
pub struct EntryLog {
    logs: BTreeMap<Run, Log>,
    remember: Nanos,
    memory: usize,
    missed: u64,
    implausible: u64,
    shed: u64,
}

impl EntryLog {
    /// An empty log. Keeps entries for `remember`, at most `memory` bytes of them.
    #[must_use]
    pub const fn new(remember: Nanos, memory: usize) -> Self {
        Self { logs: BTreeMap::new(), remember, memory, missed: 0, implausible: 0, shed: 0 }
    }

    /// Appends `entry` to the log of `run`, the run of this node. Returns its number.
    pub fn append(&mut self, run: &Run, entry: Entry, now: Nanos) -> u64 {
        let log = self.logs.entry(run.clone()).or_default();
        let number = log.next();
        log.push(entry, now);
        log.begun = true;
        number
    }

    /// `run` itself says that it has appended so many entries.
    pub fn announce(&mut self, run: &Run, appended: u64, now: Nanos) {
        if !self.logs.contains_key(run) {
            self.make_room(&run.node);
        }
        let log = self.logs.entry(run.clone()).or_default();
        log.announced = log.announced.max(appended);
        log.touched = now;
    }

    /// Adds the entries of `block`, which its run itself sent, as far as they are new, in order. Returns those to
    /// apply. Duplicates are skipped, gaps are counted as missed, entries that are too old or from the future are
    /// counted and not applied. Entries of a run that has not [announced](Self::announce) itself are skipped.
    pub fn receive(&mut self, block: Entries, now: Nanos, wall: UnixNanos) -> Vec<Entry> {
        let Entries { run, first, entries } = block;
        let Some(log) = self.logs.get_mut(&run) else { return Vec::new() };
        if first > log.next() {
            self.missed += if log.begun { first - log.next() } else { 0 };
            log.entries.clear();
            (log.first, log.memory) = (first, 0);
        }
        log.begun |= !entries.is_empty();
        let known = (log.next() - first) as usize;
        let mut new = Vec::new();
        for entry in entries.into_iter().skip(known) {
            if is_plausible(entry.at, self.remember, wall) {
                new.push(entry.clone());
            } else {
                self.implausible += 1;
            }
            log.push(entry, now);
        }
        new
    }

    /// Entries that peers relayed were not applied because of their time.
    pub(super) const fn count_implausible(&mut self, entries: u64) {
        self.implausible += entries;
    }

    /// The position of this node in the log of `run`: it has all entries with a lower number from the run itself. 0 for
    /// an unknown run.
    #[must_use]
    pub fn next(&self, run: &Run) -> u64 {
        self.logs.get(run).map_or(0, Log::next)
    }

    /// How many entries `run` has announced or sent; `None` if it has never spoken to this node.
    #[must_use]
    pub fn announced(&self, run: &Run) -> Option<u64> {
        self.logs.get(run).map(|log| log.announced.max(log.next()))
    }

    /// The elements of `versions` about runs that this node knows; the others say nothing that it can use.
    #[must_use]
    pub fn known(&self, versions: VersionVector) -> VersionVector {
        let shared = |(run, next)| Some((self.logs.get_key_value(&run)?.0.clone(), next));
        versions.into_iter().filter_map(shared).collect()
    }

    /// The version vector of this node: its position in the log of each run, those that spoke last first.
    #[must_use]
    pub fn versions(&self) -> Vec<(&Run, u64)> {
        let mut logs: Vec<_> = self.logs.iter().collect();
        logs.sort_by_key(|(_, log)| core::cmp::Reverse(log.touched));
        logs.into_iter().map(|(run, log)| (run, log.next())).collect()
    }

    /// Whether a peer with `versions` lacks an entry of a `wanted` run that may be sent now: entries of the run `own`
    /// at once, those of other runs if they arrived before `relayed`.
    pub fn has_for(&self, versions: &VersionVector, own: &Run, wanted: impl Fn(&Run) -> bool, relayed: Nanos) -> bool {
        self.lacking(versions, own, wanted, relayed).next().is_some()
    }

    /// Entries of `wanted` runs that a peer with `versions` lacks, up to about `bytes`; those of the run `own` before
    /// all others. Each other run has a share: long entries of one do not keep those of another from being relayed.
    pub fn for_peer(
        &self,
        versions: &VersionVector,
        own: &Run,
        wanted: impl Fn(&Run) -> bool,
        relayed: Nanos,
        mut bytes: usize,
    ) -> Vec<Entries> {
        let mut lacking: Vec<_> = self.lacking(versions, own, wanted, relayed).collect();
        lacking.sort_by_key(|(run, ..)| *run != own);
        let (mut all, mut left) = (Vec::new(), lacking.len());
        let mut add = |(run, log, start, _): &(&Run, &Log, usize, usize), entries| {
            all.push(Entries { run: (*run).clone(), first: log.first + *start as u64, entries });
        };
        let mut is_empty = true;
        for piece in &lacking {
            let (run, log, start, end) = piece;
            let share = if *run != own {
                (bytes / left).max(MIN_SHARE).min(bytes)
            } else if left > 1 {
                bytes / 4 * 3
            } else {
                bytes
            };
            left -= 1;
            let (entries, taken) = log.pack(*start, *end, share);
            bytes -= taken;
            if !entries.is_empty() {
                is_empty = false;
                add(piece, entries);
            }
        }
        // An entry that is longer than any share goes alone.
        if let Some(piece) = lacking.first().filter(|_| is_empty) {
            let (_, log, start, _) = piece;
            add(piece, log.entries.range(*start..=*start).map(|stored| stored.entry.clone()).collect());
        }
        all
    }

    fn lacking(
        &self,
        versions: &VersionVector,
        own: &Run,
        wanted: impl Fn(&Run) -> bool,
        relayed: Nanos,
    ) -> impl Iterator<Item = (&Run, &Log, usize, usize)> {
        self.logs.iter().filter_map(move |(run, log)| {
            let have = versions.get(run).copied().unwrap_or(0);
            let start = have.saturating_sub(log.first) as usize;
            // The run that appended an entry sends it first: a relay by two nodes would waste the second copy.
            let is_due = |stored: &StoredEntry| stored.came <= relayed;
            let end = if run == own { log.entries.len() } else { log.entries.partition_point(is_due) };
            (start < end && wanted(run)).then_some((run, log, start, end))
        })
    }

    /// Drops entries that are too old or too many. Each is shown to `gone` with its run and number.
    pub fn forget(&mut self, now: Nanos, wall: UnixNanos, mut gone: impl FnMut(&Run, u64, &Item)) {
        let (oldest, remember) = (wall.minus(self.remember), self.remember);
        for (run, log) in &mut self.logs {
            while log.entries.front().is_some_and(|stored| stored.entry.at < oldest) {
                if let Some((number, entry)) = log.pop() {
                    gone(run, number, &entry.item);
                }
            }
        }
        if self.memory() > self.memory {
            let most = self.share();
            for (run, log) in &mut self.logs {
                while log.memory > most
                    && let Some((number, entry)) = log.pop()
                {
                    self.shed += 1;
                    gone(run, number, &entry.item);
                }
            }
        }
        // The position is kept twice as long as any node remembers the entries, so that none is taken for new again.
        let stale = |log: &Log| now.since(log.touched).is_some_and(|age| age.0 > remember.0.saturating_mul(2));
        self.logs.retain(|_, log| !log.entries.is_empty() || !stale(log));
    }

    /// The largest memory of one run with which all runs together stay within the limit.
    fn share(&self) -> usize {
        let mut sizes: Vec<usize> = self.logs.values().map(|log| log.memory).collect();
        sizes.sort_unstable();
        let (mut left, mut runs) = (self.memory, sizes.len());
        for size in sizes {
            if size > left / runs {
                return left / runs;
            }
            left -= size;
            runs -= 1;
        }
        usize::MAX
    }

    /// Forgets the run that was silent for longest, if `node`, or all nodes together, have as many runs as they may.
    fn make_room(&mut self, node: &Arc<str>) {
        let id = |number: NonZeroU64| Run { node: Arc::clone(node), id: RunId(number) };
        let all_of_node = id(NonZeroU64::MIN)..=id(NonZeroU64::MAX);
        let longest = |(_, log): &(&Run, &Log)| log.touched;
        let victim = if self.logs.range(all_of_node.clone()).count() >= MAX_RUNS_OF_NODE {
            self.logs.range(all_of_node).min_by_key(longest)
        } else if self.logs.len() >= MAX_RUNS {
            self.logs.iter().min_by_key(longest)
        } else {
            None
        };
        if let Some(run) = victim.map(|(run, _)| run.clone()) {
            self.logs.remove(&run);
        }
    }

    /// Entries that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.logs.values().map(|log| log.entries.len()).sum()
    }

    /// Whether no entry is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.logs.values().all(|log| log.entries.is_empty())
    }

    /// Memory of the remembered entries, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.logs.values().map(|log| log.memory).sum()
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

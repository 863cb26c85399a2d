//! What every node said lately: applied here once and in order, and told on to whoever lacks it.

use std::collections::{BTreeMap, VecDeque};

use wire::time::Nanos;

use crate::coherence::item::{Entry, Item, Run};
use crate::coherence::words::{Digest, Said};
use crate::time::UnixNanos;

/// Clocks of nodes differ by less; what was said later than this from now is of a wrong clock.
const SPREAD: Nanos = Nanos::from_secs(10);
/// Bytes that an entry takes on the way, at the most but for its reason.
const ENTRY_BYTES: usize = 160;

/// Runs of all nodes within the last minutes.
const MOST_RUNS: usize = 4_096;

/// Something new.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Who said it.
    pub run: Run,
    /// What, and when.
    pub entry: Entry,
}

/// What one run said.
#[derive(Debug, Default)]
struct Log {
    /// The number of the oldest entry that is remembered.
    first: u64,
    /// With the time, by one's own clock, at which each came.
    entries: VecDeque<(Nanos, Entry)>,
    /// When the last one came.
    touched: Nanos,
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// Memory of what was said, one's own words included. Memory: about 100 bytes for an entry, `most` of them.
#[derive(Debug)]
pub struct Follower {
    logs: BTreeMap<Run, Log>,
    remember: Nanos,
    most: usize,
    entries: usize,
    missed: u64,
    implausible: u64,
    shed: u64,
}

impl Follower {
    /// Nothing heard. Remembers what was said in the last `remember`, `most` entries at the most.
    #[must_use]
    pub const fn new(remember: Nanos, most: usize) -> Self {
        Self { logs: BTreeMap::new(), remember, most, entries: 0, missed: 0, implausible: 0, shed: 0 }
    }

    /// This node, whose run is `run`, says `entry`. Returns its number.
    pub fn say(&mut self, run: &Run, entry: Entry, now: Nanos) -> u64 {
        let log = self.logs.entry(run.clone()).or_default();
        let number = log.next();
        log.entries.push_back((now, entry));
        log.touched = now;
        self.entries += 1;
        number
    }

    /// Takes what `said` has that is new, in order. What comes again is passed over, what cannot come any more is counted as missed, what is
    /// too old or of the future is counted and not applied.
    pub fn take(&mut self, said: Said, now: Nanos, day: UnixNanos) -> Vec<Heard> {
        let Said { run, first, entries } = said;
        // Of a run of which nothing is known, what was before is not missed: it is as old as that.
        let new = !self.logs.contains_key(&run);
        if new && self.logs.len() >= MOST_RUNS {
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
        let oldest = day.minus(self.remember);
        let mut heard = Vec::new();
        for entry in entries.into_iter().skip(known) {
            if entry.said < oldest || entry.said > day.plus(SPREAD) {
                self.implausible += 1;
            } else {
                heard.push(Heard { run: run.clone(), entry: entry.clone() });
            }
            log.entries.push_back((now, entry));
            log.touched = now;
            self.entries += 1;
        }
        heard
    }

    /// What this node has of each run.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.logs.iter().map(|(run, log)| (run.clone(), log.next())).collect()
    }

    /// Whether someone with `digest` lacks something that may be told: of `own` run at once, of others what came before `relayed`.
    pub fn has_for(&self, digest: &Digest, own: &Run, theirs: Option<&Run>, relayed: Nanos) -> bool {
        self.lacking(digest, own, theirs, relayed).next().is_some()
    }

    /// What someone with `digest` lacks, up to `bytes` of it.
    pub fn for_peer(
        &self,
        digest: &Digest,
        own: &Run,
        theirs: Option<&Run>,
        relayed: Nanos,
        mut bytes: usize,
    ) -> Vec<Said> {
        let mut all = Vec::new();
        for (run, log, start, end) in self.lacking(digest, own, theirs, relayed) {
            let most = (bytes / ENTRY_BYTES).min(end - start);
            if most == 0 {
                break;
            }
            bytes -= most * ENTRY_BYTES;
            let entries = log.entries.range(start..start + most).map(|(_, entry)| entry.clone()).collect();
            all.push(Said { run: run.clone(), first: log.first + start as u64, entries });
        }
        all
    }

    fn lacking(
        &self,
        digest: &Digest,
        own: &Run,
        theirs: Option<&Run>,
        relayed: Nanos,
    ) -> impl Iterator<Item = (&Run, &Log, usize, usize)> {
        self.logs.iter().filter(move |(run, _)| Some(*run) != theirs).filter_map(move |(run, log)| {
            let have = digest.get(run).copied().unwrap_or(0);
            let start = have.saturating_sub(log.first) as usize;
            // Whoever said it says it first: two nodes that tell the same to a third waste the second time.
            let end =
                if run == own { log.entries.len() } else { log.entries.partition_point(|(came, _)| *came <= relayed) };
            (start < end).then_some((run, log, start, end))
        })
    }

    /// Forgets what was said too long ago, or is too much; decisions are shown to `gone` with their run and number.
    pub fn forget(&mut self, now: Nanos, day: UnixNanos, mut gone: impl FnMut(&Run, u64, &Item)) {
        let (oldest, remember) = (day.minus(self.remember), self.remember);
        let mut excess = self.entries.saturating_sub(self.most);
        for (run, log) in &mut self.logs {
            while let Some((_, entry)) = log.entries.front() {
                let old = entry.said < oldest;
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
        // The number stays twice as long as anybody remembers the entries, so that nothing is taken for new again.
        let stale = |log: &Log| now.since(log.touched).is_some_and(|age| age.0 > remember.0.saturating_mul(2));
        self.logs.retain(|_, log| !log.entries.is_empty() || !stale(log));
    }

    /// Entries that are remembered.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that nobody had any more when this node could be told.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Entries that were not applied because of their time.
    #[must_use]
    pub const fn implausible(&self) -> u64 {
        self.implausible
    }

    /// Entries that were forgotten early because there were too many.
    #[must_use]
    pub const fn shed(&self) -> u64 {
        self.shed
    }
}

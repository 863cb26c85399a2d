//! Stream-Summary against a heap and a scan of all entries, with the same coins.

use super::*;
use crate::rap::Admission;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

/// How the least entry is found.
#[derive(Clone, Copy, Debug)]
enum Search {
    Scan,
    Heap,
}

/// RAP as its paper prints it. Of equal counts the one that has lasted longest comes first.
struct Printed {
    settings: Settings,
    search: Search,
    /// Key, count since admission, count, and when the count last changed.
    entries: Vec<(Digest, u64, u64, u64)>,
    heap: BTreeSet<(u64, u64, usize)>,
    coins: Coins,
    rejected: u64,
}

impl Printed {
    fn new(settings: Settings, search: Search) -> Self {
        let coins = Coins::new(settings.seed);
        Self { settings, search, entries: Vec::new(), heap: BTreeSet::new(), coins, rejected: 0 }
    }

    fn change(&mut self, at: usize, digest: Digest, since: u64, weight: u64, now: u64) {
        let (.., count, changed) = self.entries[at];
        self.heap.remove(&(count, changed, at));
        self.heap.insert((count + weight, now, at));
        self.entries[at] = (digest, since + weight, count + weight, now);
    }

    fn insert(&mut self, digest: Digest, weight: u64, now: u64) {
        if let Some(at) = self.entries.iter().position(|entry| entry.0 == digest) {
            let since = self.entries[at].1;
            return self.change(at, digest, since, weight, now);
        }
        if self.entries.len() < self.settings.entries {
            self.entries.push((digest, 0, 0, now));
            return self.change(self.entries.len() - 1, digest, 0, weight, now);
        }
        let scanned = (0..self.entries.len()).min_by_key(|at| (self.entries[*at].2, self.entries[*at].3));
        let at = match self.search {
            Search::Scan => scanned,
            Search::Heap => self.heap.first().map(|least| least.2),
        };
        let at = at.expect("a full table has entries");
        if self.coins.admit(self.settings.admission, self.entries[at].2, weight) {
            self.change(at, digest, 0, weight, now);
        } else {
            self.rejected += weight;
        }
    }
}

proptest! {
    #[test]
    fn summary_heap_and_scan_agree(
        keys in prop::collection::vec((0_u64..30, 1_u64..4), 0..400), entries in 1_usize..12, law in 0_usize..3, seed: u64
    ) {
        let admission = [Admission::InverseOfNext, Admission::Inverse, Admission::PowerOfTwo][law];
        let settings = Settings { entries, admission, seed };
        let mut rap = Rap::new(settings).expect("possible");
        let mut printed = [Search::Scan, Search::Heap].map(|search| Printed::new(settings, search));
        for (now, (key, weight)) in (1..).zip(keys) {
            rap.insert_weighted(Digest(key), NonZeroU64::new(weight).expect("at least 1"));
            for one in &mut printed {
                one.insert(Digest(key), weight, now);
                prop_assert_eq!(one.coins.drawn, rap.coins_drawn());
                let mut theirs = one.entries.clone();
                theirs.sort_unstable_by_key(|entry| (entry.2, entry.3));
                let theirs = theirs.iter().map(|(digest, since, count, _)| HeavyHitter { digest: *digest, count: *count, since: *since });
                prop_assert!(rap.entries().eq(theirs), "{:?}", one.search);
                prop_assert_eq!(one.rejected, rap.tally().rejected);
            }
        }
    }

    #[test]
    fn entries_refilled_keep_their_order(counts in prop::collection::vec(1_u64..9, 0..12)) {
        let mut counts = counts;
        counts.sort_unstable();
        let entries: Vec<_> =
            (0..).zip(&counts).map(|(key, count)| HeavyHitter { digest: Digest(key), count: *count, since: 1 }).collect();
        let mut summary = StreamSummary::new(12, 5);
        summary.refill(entries.clone());
        prop_assert!(summary.iter().eq(entries.iter().copied()));
        prop_assert!(entries.iter().all(|entry| summary.find(entry.digest).map(|at| summary.get(at)) == Some(*entry)));
    }
}

#[test]
fn counts_saturate_and_then_nobody_enters() {
    let mut rap = Rap::new(Settings { entries: 2, ..Settings::default() }).expect("possible");
    for key in [1, 2, 1, 2] {
        rap.insert_weighted(Digest(key), NonZeroU64::MAX);
    }
    (0..1_000).for_each(|key| rap.insert(Digest(100 + key)));

    let counts: Vec<_> = rap.top(9).iter().map(|entry| (entry.digest.0, entry.count, entry.since)).collect();
    assert_eq!(counts, [(1, u64::MAX, u64::MAX), (2, u64::MAX, u64::MAX)]);
    assert_eq!((rap.coins_drawn(), rap.tally().inserted), (0, u64::MAX));
}

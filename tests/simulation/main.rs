//! A simulation of both agents and many services in virtual time, with faults drawn from a seed: late messages, broken
//! connections that lose messages in flight, restarts and stalls of every component, operator calls at any time,
//! unreadable memory, and machine sleep. Workers read shared memory, or use RDMA with queue pairs that break, lost
//! replies and revoked keys. The invariants:
//!
//! - No value is attributed to another metric, however often slots are reused. This holds for gauges, counters, up-down
//!   counters and histograms, of services and of process metrics (`values.rs`). It is checked where values arrive and
//!   where they are read (`fetches.rs`), so that a host agent that releases slots too early is detected even if the
//!   wrong values would be dropped later.
//! - No increment is negative, counted twice, or lost, unless its fetch was discarded. Discarded fetches are counted by
//!   reason. A second, independent evaluation of the same words checks this for each cell (`fetches.rs`).
//! - Every dispatched verdict belongs to its LMAP and that LMAP's current configuration, with or without reasons. It
//!   was sent once, and the order is kept.
//! - The host agent never sends a message that the worker does not accept.
//! - Every region that was not read and every verdict that a slow hook lost is counted.
//! - Counts of ticks, verdicts and rows agree with ledgers outside the agents (`ledger.rs`).
//! - After the last service has left, everything is freed.
//!
//! Messages are not reordered within a connection, as with TCP and Unix streams; epochs depend on it. Messages on
//! different paths are reordered: replies of the regions socket come before or after messages of the stream, and jobs
//! end in any order. Services have faulty headers but never faulty values, which would affect only themselves and
//! cannot be told from other values.
//!
//! Clocks: agents decide by a monotonic clock (`clock.rs` of each), which jumps forward when the machine sleeps. A
//! worker's wall clock jumps in both directions. A test of the ticker shows that a monotonic clock that goes back costs
//! at most an interval.
//!
//! Seeds run on all processors; 10,000 take a little more than a minute of processor time in a release build.
//! `UVIEW_SEEDS` sets their number, `UVIEW_SEED` runs a single one.

mod fetches;
mod hooks;
mod host;
mod ledger;
mod link;
mod node;
mod operators;
mod service;
mod stats;
mod values;
mod verbs;
mod world;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use stats::RunStats;
use wire::time::Nanos;
use world::World;

const LENGTH: Nanos = Nanos::from_secs(12);

/// Prints the seed if its run panics.
struct SeedReporter(u64);

impl Drop for SeedReporter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0} failed: run again with UVIEW_SEED={0}", self.0);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how a person asks for one seed")]
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number of seeds, or a seed"))
}

fn play(seed: u64) -> RunStats {
    let named = SeedReporter(seed);
    let mut world = World::new(seed);
    world.run(LENGTH);
    drop(named);
    world.stats
}

/// Runs all `seeds` on as many threads as the machine has processors, each in a world of its own.
fn play_all(seeds: Range<u64>) -> RunStats {
    let next = AtomicU64::new(seeds.start);
    let some = || {
        let mut stats = RunStats::default();
        loop {
            // Relaxed: only the number matters; the statistics are synchronised by joining the thread.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return stats;
            }
            stats.add(&play(seed));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let mut all = RunStats::default();
        for thread in threads {
            all.add(&thread.join().expect("a seed failed, and is named above"));
        }
        all
    })
}

#[test]
fn nothing_is_misattributed_or_leaked_whatever_goes_wrong() {
    let seeds = match from_environment("UVIEW_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("UVIEW_SEEDS").unwrap_or(500),
    };
    let count = seeds.end - seeds.start;
    let all = play_all(seeds);

    println!("{count} seeds: {all:?}");
    if count >= 100 {
        let least = all.values.min(all.verdicts).min(all.released).min(all.late_ticks).min(all.lost_by_slow_hooks);
        let least = least.min(all.connections).min(all.revoked).min(all.lost_with_connections).min(all.calls);
        let least = least.min(all.moved).min(all.models / 4).min(4 * all.left).min(4 * all.drained);
        let least =
            all.discarded.into_iter().fold(least, u64::min).min(all.of_processes / 100).min(all.increments / 400);
        assert!(
            least > count && all.by_verbs > 100 * count && all.values.min(all.compared).min(all.places) > 800 * count,
            "the simulation does little: {all:?}"
        );
    }
}

/// Whether a run with the injected bug fails because a value is attributed to another metric.
fn is_caught(seed: u64) -> bool {
    let outcome = std::panic::catch_unwind(|| World::careless(seed).run(LENGTH));
    let why = outcome.err().and_then(|why| why.downcast::<String>().ok());
    why.is_some_and(|why| why.contains("stands under"))
}

#[test]
fn a_host_agent_that_releases_slots_too_early_is_caught() {
    let caught = (0..300).position(is_caught);
    println!("caught by seed {caught:?}");
    assert!(caught.is_some(), "the bug is not detected in 300 runs");
}

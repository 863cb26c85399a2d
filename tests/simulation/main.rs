//! Both agents and many services in virtual time, with faults drawn from a seed: messages late, connections broken with what was under way,
//! every part restarted or stalled, operators' calls at any time, memory that cannot be read, a machine that sleeps. A worker reads shared
//! memory, or by RDMA with queue pairs that break, answers that are lost, keys that are none any more. Whatever happens:
//!
//! - no value ever stands under another metric's name, however often slots are reused: gauges, counters, up-down counters, histograms, those of
//!   a service and those that the host agent measures of its process (`values.rs`); not where it arrives, and not where it is read (`looks.rs`),
//!   so that a host agent that gives slots back too early is caught although what comes of it would be dropped,
//! - no increment is below 0, counted twice, or lost unless its look was discarded; what is discarded is counted by its reason: cell by cell
//!   as a second reader of the same words has it (`looks.rs`),
//! - no verdict is about another LMAP or another configuration, with or without reasons; each was sent, once, in this order,
//! - the host agent never says what a worker does not take,
//! - every region that was not read and every verdict that a slow hook lost is counted,
//! - ticks, verdicts and rows come out even with books that are kept outside the agents (`books.rs`),
//! - when the last service is gone, everything is freed.
//!
//! Nothing is reordered within a connection: that is what TCP and Unix streams promise, and epochs are counted on it. What is reordered is
//! what goes different ways: the regions socket's answers come before or after the stream's messages, jobs end in any order. Services lie in
//! their headers, and never in their values, which would hurt nobody else and look like any other value.
//!
//! Clocks: what agents decide by is the time since their start, which the kernel never sets back (`clock.rs` of each); it jumps forward when a
//! machine sleeps. A worker's time of day jumps in both directions. That a clock which goes back all the same costs no more than an interval
//! is a test of the ticker's.
//!
//! Seeds are played on all processors; 10,000 take a little more than a minute of one in a release build. `UVIEW_SEEDS` says how many are played,
//! `UVIEW_SEED` plays one.

mod books;
mod hooks;
mod host;
mod link;
mod looks;
mod node;
mod operators;
mod service;
mod values;
mod verbs;
mod world;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::time::Nanos;
use world::{Seen, World};

const LENGTH: Nanos = Nanos::from_secs(12);

/// Says which seed failed, when it does.
struct Named(u64);

impl Drop for Named {
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

fn play(seed: u64) -> Seen {
    let named = Named(seed);
    let mut world = World::new(seed);
    world.run(LENGTH);
    drop(named);
    world.seen
}

/// Plays all of `seeds` on as many threads as the machine has processors: each is a world of its own.
fn play_all(seeds: Range<u64>) -> Seen {
    let next = AtomicU64::new(seeds.start);
    let some = || {
        let mut seen = Seen::default();
        loop {
            // Relaxed: a number that each thread draws once; what was seen is joined with the thread.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return seen;
            }
            seen.add(&play(seed));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let mut all = Seen::default();
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
        let least =
            all.discarded.into_iter().fold(least, u64::min).min(all.of_processes / 100).min(all.increments / 400);
        assert!(
            least > count && all.by_verbs > 100 * count && all.values.min(all.compared).min(all.places) > 800 * count,
            "the simulation does little: {all:?}"
        );
    }
}

/// Whether a run with such a host agent fails because a value stands under another metric's name.
fn is_caught(seed: u64) -> bool {
    let outcome = std::panic::catch_unwind(|| World::careless(seed).run(LENGTH));
    let why = outcome.err().and_then(|why| why.downcast::<String>().ok());
    why.is_some_and(|why| why.contains("stands under"))
}

#[test]
fn a_host_agent_that_gives_slots_back_too_early_is_caught() {
    let caught = (0..300).position(is_caught);
    println!("caught by seed {caught:?}");
    assert!(caught.is_some(), "it is not seen in 300 runs");
}

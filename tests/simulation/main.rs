//! Both agents and many services in virtual time, with faults drawn from a seed: messages late, connections broken with what was under way,
//! every part restarted or stalled, operators' calls at any time, memory that cannot be read, a machine that sleeps. A worker reads shared
//! memory, or by RDMA with queue pairs that break, answers that are lost, keys that are none any more. Whatever happens:
//!
//! - no value ever stands under another metric's name, however often slots are reused,
//! - no verdict is about another LMAP or another configuration, with or without reasons; each was sent, once, in this order,
//! - the host agent never says what a worker does not take,
//! - every region that was not read and every verdict that a slow hook lost is counted,
//! - ticks, verdicts and rows come out even with books that are kept outside the agents (`books.rs`),
//! - when the last service is gone, everything is freed.
//!
//! Nothing is reordered within a connection: that is what TCP and Unix streams promise, and epochs are counted on it. What is reordered is
//! what goes different ways: the regions socket's answers come before or after the stream's messages, jobs end in any order. The agents'
//! clock never goes back, a worker's time of day jumps in both directions. Not played here: counters and histograms (every value is a gauge
//! that says whose it is), regions of the host agent itself, services that lie about their headers.
//!
//! 500 seeds take about a minute of a debug build. `UVIEW_SEEDS` says how many seeds are played, `UVIEW_SEED` plays one.

mod books;
mod hooks;
mod host;
mod link;
mod node;
mod operators;
mod service;
mod verbs;
mod world;

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

#[test]
fn nothing_is_misattributed_or_leaked_whatever_goes_wrong() {
    let seeds = match from_environment("UVIEW_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("UVIEW_SEEDS").unwrap_or(500),
    };
    let mut all = Seen::default();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let seen = play(seed);
        all.values += seen.values;
        all.verdicts += seen.verdicts;
        all.released += seen.released;
        all.restarts += seen.restarts;
        all.late_ticks += seen.late_ticks;
        all.lost_by_slow_hooks += seen.lost_by_slow_hooks;
        all.by_verbs += seen.by_verbs;
        all.connections += seen.connections;
        all.revoked += seen.revoked;
        all.lost_with_connections += seen.lost_with_connections;
        all.calls += seen.calls;
    }

    println!("{count} seeds: {all:?}");
    if count >= 100 {
        let least = all.values.min(all.verdicts).min(all.released).min(all.late_ticks).min(all.lost_by_slow_hooks);
        let least = least.min(all.connections).min(all.revoked).min(all.lost_with_connections).min(all.calls);
        assert!(
            least > count && all.by_verbs > 100 * count && all.values > 800 * count,
            "the simulation does little: {all:?}"
        );
    }
}

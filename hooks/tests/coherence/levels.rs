//! A member that lies about what it has evicted takes nothing from what others keep: against the same seed without it.

use hooks::coherence::Refusal;
use hooks::tracing::{Author, LossReason, Policy, Rank, TraceId};

use crate::liar::Liar;
use crate::node::Plan;
use crate::world::{NODES, World};

/// When the last spans and messages have long arrived.
const END: u64 = 100_000;
const MEMORY: usize = 10 << 20;

/// Requests of twenty seconds, of which payment is in alarm for ten by LMAPs of the nodes `watchers`; the last node has
/// `last` bytes of memory.
fn alarm(seed: u64, last: usize, watchers: &[usize], liar: Option<Liar>) -> World {
    let plan = |bytes, skew| Plan { bytes, decisions: 1 << 14, skew, span_bytes: 200, budget: 1 << 32 };
    let mut world = World::new([plan(MEMORY, 50), plan(MEMORY, -50), plan(last, 0)], seed);
    (world.liar, world.watchers) = (liar, watchers.to_vec());
    world.shop.longest = 600;
    let verdicts: Vec<_> = (65..75).collect();

    world.run(&[(0, 40), (60_000, 150), (80_000, 0)], &verdicts, END);

    assert_eq!(world.kept().2, 0, "seed {seed}: kept in part without a mark");
    world
}

/// Traces that were kept because of LMAPs.
fn by_lmaps(world: &World) -> usize {
    world.backend.policies.values().filter(|policy| **policy == Policy::Lmap).count()
}

/// Asserts that each span that is kept in `alone` is in `beside`, too.
fn nothing_is_missing(alone: &World, beside: &World, seed: u64) {
    let is_missing = |(trace, spans): &(&TraceId, &u64)| {
        let found = beside.backend.spans.get(*trace).copied().unwrap_or(0);
        **spans & !found != 0
    };
    let missing = alone.backend.spans.iter().filter(is_missing).count();
    let (lmap, all) = (by_lmaps(alone), alone.backend.spans.len());
    assert_eq!(missing, 0, "seed {seed}: of {all} traces, {lmap} by LMAPs; {} beside the liar", by_lmaps(beside));
}

/// Asserts that each node heard the liar claim that it has evicted nearly all, and speak in the names of others.
fn is_heard(world: &World, seed: u64) {
    for node in &world.nodes {
        for why in [Refusal::Level, Refusal::Impostor] {
            let refused = node.member.refusals().count(why);
            assert!(refused > 50, "seed {seed}: {why:?}: {refused}");
        }
    }
}

/// Payment's LMAP is at a node where requests enter, at another one, or at one where none do.
#[test]
fn whatever_a_member_says_that_it_has_evicted_all_that_is_kept_without_it_is_kept() {
    for seed in 1..=6 {
        let watchers = [(seed % 3) as usize];
        let alone = alarm(seed, MEMORY, &watchers, None);
        assert!(by_lmaps(&alone) > 300, "seed {seed}: {} by LMAPs", by_lmaps(&alone));

        let beside = alarm(seed, MEMORY, &watchers, Some(Liar::short(seed)));

        is_heard(&beside, seed);
        nothing_is_missing(&alone, &beside, seed);
    }
}

/// That says whatever harms, not only what it has evicted.
#[test]
fn all_that_is_kept_without_a_member_that_lies_is_kept_beside_it() {
    for seed in 7..=8 {
        let alone = alarm(seed, MEMORY, &[NODES - 1], None);

        let beside = alarm(seed, MEMORY, &[NODES - 1], Some(Liar::new(seed)));

        is_heard(&beside, seed);
        nothing_is_missing(&alone, &beside, seed);
    }
}

/// The last node has a tenth of the memory, and the LMAP of payment: what it has evicted is passed over for it, and the
/// others are whole. What the liar has evicted changes nothing of that.
#[test]
fn the_level_of_an_honest_node_holds_for_what_it_asks_for_beside_one_that_lies() {
    for seed in 9..=10 {
        let alone = alarm(seed, MEMORY / 10, &[NODES - 1], None);
        let passed_over = |world: &World| world.nodes.iter().map(|n| n.keeper.policies().passed_over()).sum::<u64>();
        let evicted = alone.nodes[NODES - 1].keeper.buffer().account().lost(LossReason::Evicted).spans;
        assert!(evicted > 100 && passed_over(&alone) > 100, "seed {seed}: {evicted}, {}", passed_over(&alone));
        assert!(by_lmaps(&alone) > 20, "seed {seed}: {} by LMAPs", by_lmaps(&alone));

        let beside = alarm(seed, MEMORY / 10, &[NODES - 1], Some(Liar::short(seed)));

        nothing_is_missing(&alone, &beside, seed);
        assert_eq!(by_lmaps(&beside), by_lmaps(&alone), "seed {seed}");
        for node in &beside.nodes[..NODES - 1] {
            let level = node.member.peer_eviction_levels(node.now(END)).of(Author::named("node-2"));
            assert!(level > Some(Rank::at(0)), "seed {seed}: it is heard");
        }
    }
}

//! The status of the agent, for operators' API and page.

use wire::id::LmapId;
use wire::proto::operators as proto;

use crate::node::Node;
use crate::open_problems::ProblemSources;

/// Agent, workers, each LMAP's last summary, and problems. Waits for no long work.
pub(crate) fn status(node: &Node, sources: &ProblemSources) -> proto::StatusReply {
    let now = node.clock().now();
    let (mut status, delivered) = node.inspect(|plane, dispatch| {
        let mut status = plane.status();
        status.lmaps.iter_mut().for_each(|lmap| lmap.members = plane.members(LmapId(lmap.lmap), now));
        (status, dispatch.delivered())
    });
    status.problems.extend(node.reloads.problem());
    env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
    status.uptime_ms = now.as_millis();
    let edges = node.counts.iter().map(|(name, _, value)| (name.to_owned(), value));
    status.counters.extend(edges);
    status.notes.extend(sources.notes());
    // What is wrong for all comes before what is wrong with one service.
    status.problems.splice(..0, sources.lines(node));
    for (name, value) in [
        ("delivered_verdicts", delivered.verdicts),
        ("lost_verdicts", delivered.lost_verdicts),
        ("delivered_rows", delivered.rows),
        ("lost_rows", delivered.lost_rows),
    ] {
        status.counters.insert(name.to_owned(), value);
    }
    status.problems.extend(sources.edge.iter().flat_map(|edge| edge.refused_gossip()));
    status
}

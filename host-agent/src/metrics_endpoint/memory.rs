//! `/metrics` of the agent's own memory: what its edges keep, its resident set, and what it accounts for of that.

use core::fmt;
use std::sync::Arc;

use agent_runtime::account::Account;
use otlp::{Edge, Signal};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encoding::gauge;
use crate::node::Node;
use crate::open_problems::ProblemSources;

/// What glibc adds to what is kept, in percent, with 100 services of 1,000 counters that change their names
/// (docs/bounds.md).
const ALLOCATOR_PERCENT: u64 = 58;

/// What the agent keeps, and its resident set.
#[derive(Debug)]
pub(super) struct MemoryMetrics {
    pub(super) node: Arc<Node>,
    pub(super) sources: Arc<ProblemSources>,
}

impl Collector for MemoryMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let incidents = self.sources.incidents.as_ref().map_or(0, |incidents| incidents.bytes());
        let (choices, left_out) = self.node.inspect(|plane, _| (plane.choice_bytes(), plane.left_out_series()));
        let refused = self.sources.watched.objects.as_ref().map_or(0, |objects| objects.refused());
        for (name, help, value) in [
            ("incident_bytes", "Bytes of records of incidents.", incidents),
            ("choice_bytes", "Bytes of metrics that operators have chosen for LMAPs.", choices),
            ("left_out_series", "Series that LMAPs over several services leave out: limit or name.", left_out),
            ("refused_objects", "Custom resources that there was no room for.", refused as usize),
        ] {
            gauge(&mut encoder, name, help, value)?;
        }
        let Some(account) = Account::now((self.kept() + incidents) as u64, ALLOCATOR_PERCENT) else { return Ok(()) };
        account
            .gauges()
            .into_iter()
            .try_for_each(|(name, help, bytes)| gauge(&mut encoder, name, &format!("{help}."), bytes as usize))
    }
}

impl MemoryMetrics {
    /// Bytes of all that is counted in bytes, but for incidents.
    fn kept(&self) -> usize {
        let of_node = self.node.inspect(|plane, dispatch| {
            let (verdicts, rows) = dispatch.bytes();
            plane.kept_bytes() + verdicts + rows
        });
        let samples: usize = self.sources.remotes.iter().map(|remote| remote.queued_bytes()).sum();
        of_node + samples + self.sources.edge.as_deref().map_or(0, of_edge)
    }
}

/// Bytes of OTLP requests, buffered spans and log records, and gossip.
fn of_edge(edge: &Edge) -> usize {
    let queued: usize = Signal::ALL.into_iter().map(|signal| edge.queued_bytes(signal)).sum();
    let tails = edge.tenants().filter_map(|(id, _)| edge.with_tail_of(id, |tail, _| tail.memory() + tail.log_memory()));
    let gossip = edge.with_member(|member, _| member.log().memory()).unwrap_or(0);
    edge.receiving_bytes() + queued + tails.sum::<usize>() + gossip
}

//! What a run of the simulation has exercised.

use host_agent::control_plane::Counters;

use crate::node::Node;

/// Statistics of a run, to check that it exercised everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunStats {
    pub values: u64,
    pub verdicts: u64,
    pub released: u64,
    pub restarts: u64,
    pub late_ticks: u64,
    pub lost_by_slow_hooks: u64,
    /// Regions fetched by RDMA.
    pub by_verbs: u64,
    pub connections: u64,
    pub revoked: u64,
    /// Verdicts and rows lost with a connection.
    pub lost_with_connections: u64,
    /// LMAPs that moved without a gap.
    pub moved: u64,
    /// Models that the host agent took.
    pub models: u64,
    /// Workers that left in good order.
    pub left: u64,
    /// Workers that operators drained.
    pub drained: u64,
    /// Successful operator calls.
    pub calls: u64,
    /// Values of counters and histograms.
    pub increments: u64,
    /// Values of process metrics.
    pub of_processes: u64,
    /// Cells compared with the fetched words.
    pub compared: u64,
    /// Places compared with the metric that wrote them.
    pub places: u64,
    /// Discarded samples by reason.
    pub discarded: [u64; 3],
}

impl RunStats {
    /// Adds the statistics of another run.
    pub fn add(&mut self, more: &Self) {
        self.values += more.values;
        self.verdicts += more.verdicts;
        self.released += more.released;
        self.restarts += more.restarts;
        self.late_ticks += more.late_ticks;
        self.lost_by_slow_hooks += more.lost_by_slow_hooks;
        self.by_verbs += more.by_verbs;
        self.connections += more.connections;
        self.revoked += more.revoked;
        self.lost_with_connections += more.lost_with_connections;
        self.moved += more.moved;
        self.models += more.models;
        self.left += more.left;
        self.drained += more.drained;
        self.calls += more.calls;
        self.increments += more.increments;
        self.of_processes += more.of_processes;
        self.compared += more.compared;
        self.places += more.places;
        self.discarded.iter_mut().zip(more.discarded).for_each(|(all, more)| *all += more);
    }

    /// Adds the counters of a run of the host agent.
    pub fn count_host(&mut self, counters: &Counters) {
        self.moved += counters.moved_lmaps;
        self.models += counters.taken_models;
        self.left += counters.left_workers;
    }

    /// Adds the counters of a worker.
    pub fn count(&mut self, node: &Node) {
        let status = node.worker.status();
        self.late_ticks += status.counters.late_ticks;
        self.connections += status.counters.connections;
        self.revoked += status.counters.revoked_regions;
        let (cells, places) = node.compared();
        self.compared += cells;
        self.places += places;
        self.discarded.iter_mut().zip(status.discarded).for_each(|(all, more)| *all += more);
        if status.transport == "verbs" {
            self.by_verbs += status.counters.fetched_regions;
        }
    }
}

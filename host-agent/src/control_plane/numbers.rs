//! Numbers of replicas and LMAPs.

use wire::id::{LmapId, ReplicaId};

/// The numbers that were given out. None is given out twice in a run of the agent.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last_replica: u32,
    last_lmap: u32,
}

impl Numbers {
    pub(super) fn next_replica(&mut self) -> ReplicaId {
        self.last_replica += 1;
        ReplicaId(self.last_replica)
    }

    pub(super) fn next_lmap(&mut self) -> LmapId {
        self.last_lmap += 1;
        LmapId(self.last_lmap)
    }
}

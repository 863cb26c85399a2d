//! Regions of which their services have freed memory. A worker that maps a region notices it. One that reads by RDMA
//! does not: the device goes on to read the memory that was registered, and values stand still. So this agent looks.
//!
//! Memory that a service frees and allocates again between two looks goes unnoticed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_runtime::ticks::ticks;
use wire::id::RegionId;

use crate::node::Node;

/// Interval between two steps of the sweep.
const EVERY: Duration = Duration::from_secs(1);
/// Regions that are looked at at a time: a system call each.
const ROUND: usize = 1_024;

/// Before all regions: their ids begin at 1.
const FIRST: RegionId = RegionId(0);

/// Looks at all regions, some at a time, until the task is dropped.
pub(crate) async fn watch(node: Arc<Node>) {
    let mut beat = ticks(EVERY);
    let mut sweep = RegionSweep { after: FIRST, reported: BTreeSet::new() };
    loop {
        beat.tick().await;
        sweep.go_on(&node);
    }
}

/// A sweep over all regions, under way.
#[derive(Debug)]
struct RegionSweep {
    /// The last region that was looked at.
    after: RegionId,
    /// Regions that were reported and are there: each is reported once.
    reported: BTreeSet<RegionId>,
}

impl RegionSweep {
    /// Looks at the next regions.
    fn go_on(&mut self, node: &Node) {
        let regions = node.regions_after(self.after, ROUND);
        let ids: BTreeSet<_> = regions.iter().map(|(id, _)| *id).collect();
        let last = ids.last().copied().filter(|_| ids.len() == ROUND);
        let is_looked_at = |id: &RegionId| *id > self.after && last.is_none_or(|last| *id <= last);
        self.reported.retain(|id| !is_looked_at(id) || ids.contains(id));
        self.after = last.unwrap_or(FIRST);
        for (id, region) in regions {
            let Some(freed) = region.freed().filter(|_| self.reported.insert(id)) else { continue };
            node.counts.freed_regions.one_more();
            tracing::warn!(region = %id, %freed, "a service has freed memory of its region");
            node.plane(|plane, _| plane.region_damaged(id, &freed));
        }
    }
}

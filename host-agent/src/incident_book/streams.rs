//! Streams of packets as evidence: each of their metrics is fetched while an incident goes on, as for who looks at
//! them.

use std::collections::BTreeSet;

use agent_runtime::lock;
use incidents::streams::StreamLook;
use wire::id::LmapId;

use super::IncidentBook;
use crate::node::{Node, Onlooker};

impl IncidentBook {
    /// Looks at the streams that matter to incidents that go on; at none without any.
    pub(super) fn look_at_streams(&self, node: &Node) {
        let known: Vec<(LmapId, String)> =
            node.inspect(|plane, _| plane.packet_streams().map(|(lmap, name)| (lmap, name.to_owned())).collect());
        let wanted: BTreeSet<&str> = {
            let recorder = lock(&self.recorder);
            recorder.wanted_streams(known.iter().map(|(_, name)| name.as_str())).into_iter().collect()
        };
        let looked: Vec<_> = known.iter().filter(|(_, name)| wanted.contains(name.as_str())).collect();
        node.look_at(Onlooker::Incidents, looked.iter().map(|(lmap, _)| *lmap).collect());
        if looked.is_empty() {
            return;
        }
        let seen: Vec<_> = node.inspect(|plane, _| {
            looked.iter().filter_map(|(lmap, name)| Some((name, plane.each_column(*lmap)?))).collect()
        });
        let looks: Vec<_> =
            seen.iter().map(|(service, (at, metrics))| StreamLook { service, at: *at, metrics }).collect();
        lock(&self.recorder).streams(&looks);
    }
}

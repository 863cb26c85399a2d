//! What this agent samples of services: as replicas of them, as often as they are fetched while something seems wrong.

use region::OwnedRegion;
use tokio::sync::watch;
use wire::name::{InstanceName, ServiceName};
use wire::registration::PlacedSeries;
use wire::time::Interval;

use super::{Node, State};
use crate::cgroup_metrics::PaceSender;
use crate::control_plane::{ConnectionId, Paces};

impl Node {
    /// As [`Self::agent_replica`], with values that all change every `every`: rows of the service are as far apart; and
    /// as often as every `fastest` while it is fetched as often.
    pub(crate) fn agent_sampler(
        &self,
        service: ServiceName,
        instance: InstanceName,
        region: &OwnedRegion,
        series: Vec<PlacedSeries>,
        (every, fastest): (Option<Interval>, Option<Interval>),
    ) -> ConnectionId {
        let joined = |state: &mut State, _| {
            let id = state.next_connection();
            state.plane.agent_replica(id, service, instance);
            state.plane.agent_changes_every(id, every);
            if let Some(fastest) = fastest {
                state.plane.agent_fastest(id, fastest);
            }
            id
        };
        let id = self.with(joined).0;
        self.add_agent_region(id, region, series);
        id
    }

    /// Services that are fetched faster, now and whenever they change.
    pub(crate) fn paces(&self) -> watch::Receiver<Paces> {
        self.paces.subscribe()
    }

    /// Tells the thread of cgroups by `sender` from now on.
    pub(crate) fn pace_cgroups_with(&self, sender: PaceSender) {
        self.lock().cgroups = Some(sender);
    }

    /// Tells everything that samples.
    pub(super) fn tell_paces(&self, state: &State, paces: Paces) {
        if let Some(requests) = &state.requests {
            requests.follow(Paces::clone(&paces));
        }
        if let Some(cgroups) = &state.cgroups {
            cgroups.send(Paces::clone(&paces));
        }
        self.paces.send_replace(paces);
    }
}

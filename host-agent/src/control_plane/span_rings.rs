//! Span rings of services: accepted within the same limits as regions, and read by this agent. Memory that services
//! take back, of rings and of regions.

use wire::id::RegionId;
use wire::layout::{RegionSize, VERSION};

use super::action::{Action, ConnectionId};
use super::refusal::RegionRefusal;
use super::replica::Replica;
use super::services::Descriptor;
use super::state::ControlPlane;

impl ControlPlane {
    pub(super) fn add_span_ring(
        &mut self,
        connection: ConnectionId,
        size: RegionSize,
        layout_version: u64,
        first_ticket: u64,
        descriptor: &Descriptor,
    ) -> Result<(), RegionRefusal> {
        let region = match descriptor {
            Descriptor::None => return Err(RegionRefusal::NoDescriptor),
            Descriptor::Refused(reason) => return Err(RegionRefusal::Descriptor(reason.clone())),
            Descriptor::Accepted(region) => *region,
        };
        if layout_version > VERSION {
            return Err(RegionRefusal::Layout(layout_version));
        }
        let Some(service) = self.service_of(connection) else { return Ok(()) };
        let registered = self.replicas_of(&service).map(Replica::bytes).sum::<u64>();
        let (bytes, limit) = (registered + size.bytes() as u64, self.settings.limits.bytes_per_service);
        if bytes > limit {
            return Err(RegionRefusal::Bytes { bytes, limit });
        }
        let Some(owner) = self.owner_of(connection) else { return Ok(()) };
        self.shares.check_region(owner, size)?;
        if let Some(replica) = self.connections.replica_mut(connection) {
            replica.add_span_ring(size)?;
            self.shares.add_region(owner, size);
            let instance = replica.instance.clone();
            let read = Action::ReadSpans { connection, service, instance, owner, region, size, first_ticket };
            self.actions.push(read);
            self.counters.accepted_regions += 1;
        }
        Ok(())
    }

    /// The ring of a replica is not read any more. Its service is told `why`.
    pub fn ring_given_up(&mut self, connection: ConnectionId, why: &dyn core::error::Error) {
        self.refuse(connection, "span ring", why);
    }

    /// Memory of a region was lost: `why` is for the status.
    pub fn region_damaged(&mut self, region: RegionId, why: &dyn core::error::Error) {
        let owner = self.connections.replicas().find(|replica| replica.regions().any(|(_, of)| of.id == region));
        if let Some(Replica { service, instance, .. }) = owner {
            let line = format!("{service} {instance}: {region}: {why}: its values may stand still, or are not read");
            self.problems.push(&line);
        }
    }
}

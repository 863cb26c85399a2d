//! A replica of a service whose region the agent fills with what a source says: a scraped endpoint, or an exporter.

use std::sync::atomic::Ordering;

use exposition::Target;
use region::OwnedRegion;
use wire::layout::{RegionSize, Slot};
use wire::name::{InstanceName, ServiceName};
use wire::registration::PlacedSeries;
use wire::time::Nanos;

use crate::config::changes_every;
use crate::control_plane::ConnectionId;
use crate::node::Node;

pub(crate) type Failure = Box<dyn core::error::Error + Send + Sync>;

/// A region of the agent, which is a replica of a service.
#[derive(Debug)]
pub(crate) struct FilledRegion {
    connection: ConnectionId,
    region: OwnedRegion,
}

impl FilledRegion {
    /// A replica with `series` in as many slots, whose values change every `every`. `name` names its memory; `write`
    /// fills it before anybody reads it.
    pub(crate) fn create(
        name: &'static str,
        (service, instance): (ServiceName, InstanceName),
        (slots, series): (u32, Vec<PlacedSeries>),
        every: Nanos,
        write: impl FnOnce(&OwnedRegion),
        node: &Node,
    ) -> Result<Self, Failure> {
        let region = OwnedRegion::create(name, RegionSize::for_slots(slots.max(1))?)?;
        write(&region);
        let connection = node.agent_sampler(service, instance, &region, series, changes_every(every));
        Ok(Self { connection, region })
    }

    /// The replica with the chosen series of `target`.
    pub(crate) fn of_target(
        name: &'static str,
        who: (ServiceName, InstanceName),
        target: &Target,
        every: Nanos,
        node: &Node,
    ) -> Result<Self, Failure> {
        let what = (target.slots(), target.placed());
        Self::create(name, who, what, every, |region| write(target, region), node)
    }

    /// Writes the values of a scrape or an export.
    pub(crate) fn write(&self, target: &Target) {
        write(target, &self.region);
        self.region.beat();
    }

    /// Writes gauges, in the slots from 0 on.
    pub(crate) fn write_gauges(&self, values: impl IntoIterator<Item = f64>) {
        for (slot, value) in (0..).zip(values) {
            store(&self.region, Slot(slot), value.to_bits());
        }
        self.region.beat();
    }

    /// Removes it from the service.
    pub(crate) fn leave(self, node: &Node) {
        node.service_gone(self.connection);
    }
}

fn write(target: &Target, region: &OwnedRegion) {
    target.store(|slot, value| store(region, slot, value));
}

fn store(region: &OwnedRegion, slot: Slot, value: u64) {
    if let Some(slot) = region.slot(slot) {
        // Relaxed: values are independent of each other.
        slot.store(value, Ordering::Relaxed);
    }
}

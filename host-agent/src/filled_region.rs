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

/// When the values of a region are sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// Time between two samples.
    pub(crate) every: Nanos,
    /// The shortest such time, while something seems wrong with the service; `None`: it is always the same.
    pub(crate) fastest: Option<Nanos>,
    /// When the first one was taken.
    pub(crate) first: Nanos,
}

/// A region of the agent, which is a replica of a service.
#[derive(Debug)]
pub(crate) struct FilledRegion {
    connection: ConnectionId,
    region: OwnedRegion,
}

impl FilledRegion {
    /// A replica with `series` in as many slots, whose values are sampled so. `name` names its memory; `write` fills it
    /// before anybody reads it.
    pub(crate) fn create(
        name: &'static str,
        (service, instance): (ServiceName, InstanceName),
        (slots, series): (u32, Vec<PlacedSeries>),
        Sampling { every, fastest, first }: Sampling,
        write: impl FnOnce(&OwnedRegion),
        node: &Node,
    ) -> Result<Self, Failure> {
        let region = OwnedRegion::create(name, RegionSize::for_slots(slots.max(1))?)?;
        write(&region);
        region.sampled(first);
        let pace = (changes_every(every), fastest.and_then(changes_every));
        let connection = node.agent_sampler(service, instance, &region, series, pace);
        Ok(Self { connection, region })
    }

    /// The replica with the chosen series of `target`.
    pub(crate) fn of_target(
        name: &'static str,
        who: (ServiceName, InstanceName),
        target: &Target,
        sampling: Sampling,
        node: &Node,
    ) -> Result<Self, Failure> {
        let what = (target.slots(), target.placed());
        Self::create(name, who, what, sampling, |region| write(target, region), node)
    }

    /// Writes the values of a scrape or an export of `time`.
    pub(crate) fn write(&self, target: &Target, time: Nanos) {
        write(target, &self.region);
        self.region.sampled(time);
    }

    /// Writes gauges of `time`, in the slots from 0 on.
    pub(crate) fn write_gauges(&self, values: impl IntoIterator<Item = f64>, time: Nanos) {
        for (slot, value) in (0..).zip(values) {
            store(&self.region, Slot(slot), value.to_bits());
        }
        self.region.sampled(time);
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

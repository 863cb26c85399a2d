//! Regions of a target in its service.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use exposition::Target;
use region::OwnedRegion;
use wire::layout::{RegionSize, Slot};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, NameError, Unit};
use wire::registration::{PlacedSeries, Shards};
use wire::time::Nanos;

use super::TargetPlan;
use crate::config::changes_every;
use crate::control_plane::ConnectionId;
use crate::node::Node;

/// Whether a target answers, as in Prometheus.
const UP: &str = "up";
/// Scrapes that failed since the last one that succeeded. Rises while the target is down: for a detector, a constant
/// that moves once, as `up` does, is no alarm, and one that keeps moving is.
const FAILURES: &str = "scrape_failures";
/// Seconds that a scrape took, and samples in it. They tell how the others are measured.
const TOOK: &str = "scrape_duration_seconds";
const SAMPLES: &str = "scrape_samples_scraped";

type Failure = Box<dyn core::error::Error + Send + Sync>;

/// A region of the agent in the service of a target.
#[derive(Debug)]
pub(super) struct TargetReplica {
    connection: ConnectionId,
    region: OwnedRegion,
}

impl TargetReplica {
    fn create(
        plan: (&TargetPlan, InstanceName),
        (slots, series): (u32, Vec<PlacedSeries>),
        every: Nanos,
        write: impl FnOnce(&OwnedRegion),
        node: &Node,
    ) -> Result<Self, Failure> {
        let (plan, instance) = plan;
        let region = OwnedRegion::create("uview-prometheus", RegionSize::for_slots(slots.max(1))?)?;
        write(&region);
        let every = changes_every(every);
        let connection = node.agent_sampler(plan.service.clone(), instance, &region, series, every);
        Ok(Self { connection, region })
    }

    /// The replica with the chosen series of `target`, which change every `every`.
    pub(super) fn of_values(plan: &TargetPlan, target: &Target, every: Nanos, node: &Node) -> Result<Self, Failure> {
        let what = (target.slots(), target.placed());
        Self::create((plan, plan.instance.clone()), what, every, |region| write(target, region), node)
    }

    /// The replica that says whether the target is up.
    pub(super) fn of_health(plan: &TargetPlan, every: Nanos, node: &Node) -> Result<Self, Failure> {
        let instance = InstanceName::new(&format!("{}/scrape", plan.instance))?;
        let series = health(plan)?;
        Self::create((plan, instance), (4, series), every, |_| {}, node)
    }

    /// Writes the values of a scrape.
    pub(super) fn write(&self, target: &Target) {
        write(target, &self.region);
        self.region.beat();
    }

    /// Writes how many scrapes have failed in a row, how long the last one took, and how many samples it had.
    pub(super) fn write_health(&self, failures: u32, took: Nanos, samples: usize) {
        let up = f64::from(u8::from(failures == 0));
        for (slot, value) in (0..).zip([up, f64::from(failures), took.0 as f64 / 1e9, samples as f64]) {
            store(&self.region, Slot(slot), value.to_bits());
        }
        self.region.beat();
    }

    /// Removes it from the service.
    pub(super) fn leave(self, node: &Node) {
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

fn health(plan: &TargetPlan) -> Result<Vec<PlacedSeries>, NameError> {
    let labels = Labels::new(plan.settings.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    let all = [
        (UP, "", Group::Service),
        (FAILURES, "", Group::Service),
        (TOOK, "s", Group::Measurement),
        (SAMPLES, "", Group::Measurement),
    ];
    (0..)
        .zip(all)
        .map(|(slot, (name, unit, group))| {
            let series = Series {
                name: MetricName::new(name)?,
                labels: labels.clone(),
                kind: Kind::Gauge,
                unit: if unit.is_empty() { None } else { Some(Unit::new(unit)?) },
                group,
                parts_per_unit: NonZeroU64::MIN,
            };
            Ok(PlacedSeries { series, region: 0, first: Slot(slot), shards: Shards::ONE, declared: Declaration::NONE })
        })
        .collect()
}

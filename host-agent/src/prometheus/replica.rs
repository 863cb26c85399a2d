//! Regions of a target in its service.

use std::num::NonZeroU64;

use exposition::Target;
use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, NameError, Unit};
use wire::registration::{PlacedSeries, Shards};
use wire::time::Nanos;

use super::plan::TargetPlan;
use crate::filled_region::{Failure, FilledRegion, Sampling};
use crate::node::Node;

/// Names the memory of regions.
const MEMORY: &str = "uview-prometheus";
/// Whether a target answers, as in Prometheus.
const UP: &str = "up";
/// Scrapes that failed since the last one that succeeded. Rises while the target is down: for a detector, a constant
/// that moves once, as `up` does, is no alarm, and one that keeps moving is.
const FAILURES: &str = "scrape_failures";
/// Seconds that a scrape took, and samples in it. They tell how the others are measured.
const TOOK: &str = "scrape_duration_seconds";
const SAMPLES: &str = "scrape_samples_scraped";

/// The replica with the chosen series of `target`, which is scraped so.
pub(super) fn of_values(
    plan: &TargetPlan,
    target: &Target,
    sampling: Sampling,
    node: &Node,
) -> Result<FilledRegion, Failure> {
    let who = (plan.service.clone(), plan.instance.clone());
    FilledRegion::of_target(MEMORY, who, target, sampling, node)
}

/// The replica that says whether the target is up.
pub(super) fn of_health(plan: &TargetPlan, sampling: Sampling, node: &Node) -> Result<FilledRegion, Failure> {
    let instance = InstanceName::new(&format!("{}/scrape", plan.instance))?;
    let series = health(plan)?;
    FilledRegion::create(MEMORY, (plan.service.clone(), instance), (4, series), sampling, |_| {}, node)
}

/// Writes at `now` how many scrapes have failed in a row, how long the last one took, and how many samples it had.
pub(super) fn write_health(region: &FilledRegion, failures: u32, (took, samples): (Nanos, usize), now: Nanos) {
    let up = f64::from(u8::from(failures == 0));
    region.write_gauges([up, f64::from(failures), took.0 as f64 / 1e9, samples as f64], now);
}

fn health(plan: &TargetPlan) -> Result<Vec<PlacedSeries>, NameError> {
    let labels = Labels::new(plan.settings.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    let all = [
        (UP, "", Group::Service),
        (FAILURES, "", Group::Health),
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

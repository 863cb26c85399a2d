//! Series for the tests of the control plane.

use std::num::NonZeroU64;

use agent_runtime::access::Identity;
use wire::histogram::Scale;
use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{Labels, MetricName};
use wire::registration::{PlacedSeries, Shards};

fn series(name: &str, kind: Kind) -> Series {
    Series {
        name: MetricName::new(name).unwrap(),
        labels: Labels::default(),
        kind,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    }
}

pub fn counter(name: &str) -> Series {
    series(name, Kind::Counter)
}

pub fn gauge(name: &str) -> Series {
    series(name, Kind::Gauge)
}

pub fn histogram(name: &str) -> Series {
    series(name, Kind::Histogram(Scale::DEFAULT))
}

pub fn labelled(series: Series, key: &str, value: &str) -> Series {
    Series { labels: Labels::new([(key, value)]).unwrap(), ..series }
}

pub fn placed(series: Series, region: u32, first: u32) -> PlacedSeries {
    PlacedSeries { series, region, first: Slot(first), shards: Shards::ONE, declared: Declaration::NONE }
}

/// Who runs the workers of tests.
pub(super) const OWNER: Identity = Identity::User { uid: 1000, groups: Vec::new() };

//! Series and events for the tests of the control plane, and of what takes its events.

use std::num::NonZeroU64;

use agent_runtime::access::Identity;
use wire::control::{Episode, State, Verdict};
use wire::histogram::Scale;
use wire::id::{Epoch, LmapId, WorkerId};
use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series, Statistic};
use wire::name::{Labels, MetricName, ServiceName};
use wire::registration::{PlacedSeries, Shards};
use wire::time::{Nanos, UnixNanos};

use super::{Event, NamedReason};

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

/// What LMAP 1 of `service` says of itself, armed: a score of 12, above its threshold of 4.
pub fn event(service: &str, episode: Episode, at: UnixNanos) -> Event {
    let verdict = Verdict {
        lmap: LmapId(1),
        epoch: Epoch(1),
        score: 12.0,
        gamma: Some(4.0),
        state: State::Armed,
        episode,
        reasons: Vec::new(),
        groups: Vec::new(),
        row: None,
        silent: Vec::new(),
        features: None,
    };
    Event {
        worker: WorkerId(0),
        service: ServiceName::new(service).unwrap(),
        at,
        verdict,
        reasons: Vec::new(),
        breakdown: None,
        silent: Vec::new(),
        suspicion: None,
        columns: None,
        concerned: Vec::new(),
    }
}

/// `series` made the whole score.
pub fn reason(series: Series, statistic: Statistic, [seen, expected]: [f64; 2]) -> NamedReason {
    let (about, replica) = (String::new(), String::new());
    NamedReason { series, statistic, share: 1.0, seen, expected, since: Nanos::ZERO, about, replica }
}

/// Who runs the workers of tests.
pub(super) const OWNER: Identity = Identity::User { uid: 1000, groups: Vec::new() };

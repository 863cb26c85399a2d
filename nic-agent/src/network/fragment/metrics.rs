//! The metrics of a fragment.

use std::num::NonZeroU32;
use std::path::Path;

use client::{Client, Counter, Gauge, Group};

use super::super::stream_service::stream_service;
use super::state::EpochResult;
use crate::config::FragmentConfig;

const HEAVIEST: &str = "network.fragment.heaviest";

/// The metrics of this node's fragment.
#[derive(Debug)]
pub(crate) struct FragmentMetrics {
    heaviest: Gauge,
    // How good the figures are. No detector watches them.
    occupancy: Gauge,
    agreed: Gauge,
    unknown: Gauge,
    pub(super) merged_flag: Gauge,
    passed: Counter,
    counted: Counter,
    oversized: Counter,
    // Last: dropping it unregisters the metrics.
    client: Client,
}

impl FragmentMetrics {
    pub(crate) fn new(config: &FragmentConfig, socket: &Path) -> Self {
        let interval_ms: NonZeroU32 = config.epoch_ms;
        let client = client::connect(stream_service(&config.service(), socket, interval_ms));
        let gauge = |name: &str, unit: &str, group| client.gauge(name).unit(unit).group(group).register();
        let counter = |name: &str| client.counter(name).unit("{packet}").group(Group::Measurement).register();
        Self {
            heaviest: gauge(HEAVIEST, "{packet}", Group::Network),
            occupancy: gauge("network.fragment.occupancy", "1", Group::Measurement),
            agreed: gauge("network.fragment.agreed", "1", Group::Measurement),
            unknown: gauge("network.fragment.unknown", "{flow}", Group::Measurement),
            merged_flag: gauge("network.flag.oversized", "1", Group::Measurement),
            passed: counter("network.fragment.passed"),
            counted: counter("network.fragment.counted"),
            oversized: counter("network.fragment.oversized"),
            client,
        }
    }

    /// Writes an epoch: whom the heaviest flow is, then the values.
    pub(crate) fn write(&self, found: &EpochResult) {
        let top = found.heaviest.first();
        let subject = top.map(|(flow, estimate)| format!("{flow} (at most {} packets)", estimate.count));
        self.client.set_subject(HEAVIEST, &subject.unwrap_or_default());
        self.heaviest.set(top.map_or(f64::NAN, |(_, estimate)| estimate.count as f64));
        self.occupancy.set(found.occupancy);
        self.agreed.set(if found.paths == 0 { f64::NAN } else { found.agreed as f64 / found.paths as f64 });
        self.unknown.set(found.unknown as f64);
        self.merged_flag.set(f64::from(u8::from(found.oversized > 0)));
        self.passed.add(found.passed);
        self.counted.add(found.counted);
        self.oversized.add(found.oversized);
        self.client.changed();
    }
}

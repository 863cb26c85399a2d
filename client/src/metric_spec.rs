//! A metric as a service specifies it.

use wire::metric::{Aggregation, AggregationError, Declaration, Group, Kind};
use wire::registration::Shards;

/// A metric as the service specifies it, not yet validated.
#[derive(Clone, Debug)]
pub struct MetricSpec {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) kind: Kind,
    pub(crate) unit: Option<String>,
    pub(crate) group: Group,
    pub(crate) parts_per_unit: u64,
    pub(crate) shards: Shards,
    pub(crate) aggregation: Option<String>,
    pub(crate) read_every_ms: u32,
}

impl MetricSpec {
    /// What is declared about the metric.
    pub(crate) fn declaration(&self) -> Result<Declaration, AggregationError> {
        let declared = Declaration::from_message("", self.read_every_ms);
        match &self.aggregation {
            Some(text) => declared.aggregated(Aggregation::parse(text)?),
            None => Ok(declared),
        }
    }

    /// Number of slots of the series.
    pub(crate) const fn slots(&self) -> u32 {
        self.shards.slots(self.kind)
    }

    /// Parts of the unit in a second: converts a duration to a value.
    pub(crate) fn parts_per_second(&self) -> u64 {
        let units_per_second = match self.unit.as_deref() {
            Some("ms") => 1_000,
            Some("us") => 1_000_000,
            Some("ns") => 1_000_000_000,
            _ => 1,
        };
        self.parts_per_unit.max(1).saturating_mul(units_per_second)
    }
}

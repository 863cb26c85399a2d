//! What a worker was sent about an LMAP last.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::{LmapSpec, MetricSpec};
use wire::id::{Epoch, MetricId, ReplicaId};
use wire::name::{InstanceName, ServiceName};
use wire::time::Interval;

/// The configuration last sent to a worker.
#[derive(Debug)]
pub struct SentConfig {
    pub epoch: Epoch,
    pub interval: Interval,
    /// Sorted by id.
    pub metrics: Vec<MetricSpec>,
    pub replicas: BTreeMap<ReplicaId, InstanceName>,
    /// The columns' titles, in the order of a row.
    pub columns: Arc<[String]>,
    /// The services that it watches, if they are several.
    pub services: Vec<ServiceName>,
}

impl SentConfig {
    pub fn new(epoch: Epoch, spec: LmapSpec, services: Vec<ServiceName>) -> Self {
        let columns = spec
            .metrics
            .iter()
            .flat_map(|m| m.series.kind.statistics().iter().map(|&statistic| m.series.column_title(statistic)))
            .collect();
        let replicas = spec.replicas.into_iter().map(|replica| (replica.id, replica.instance)).collect();
        Self { epoch, interval: spec.interval, metrics: spec.metrics, replicas, columns, services }
    }

    /// The configuration of `metric`, as sent.
    pub fn metric(&self, metric: MetricId) -> Option<&MetricSpec> {
        let at = self.metrics.binary_search_by_key(&metric, |spec| spec.id).ok()?;
        self.metrics.get(at)
    }
}

//! What a worker was sent about an LMAP last.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::{LmapSpec, MetricSpec};
use wire::id::{Epoch, MetricId, ReplicaId};
use wire::name::{InstanceName, ServiceName};
use wire::time::Interval;

use super::footprint;
use crate::span_columns;

/// The configuration last sent to a worker.
#[derive(Debug)]
pub struct SentConfig {
    pub epoch: Epoch,
    pub interval: Interval,
    /// Least time between two fetches while something seems wrong.
    pub fastest: Option<Interval>,
    /// Whether it had an operator's model.
    pub has_model: bool,
    /// Sorted by id.
    pub metrics: Vec<MetricSpec>,
    pub replicas: BTreeMap<ReplicaId, InstanceName>,
    /// The columns' titles, in the order of a row.
    pub columns: Arc<[String]>,
    /// The services that it watches, if they are several.
    pub services: Vec<ServiceName>,
    /// Bytes of its metrics and titles.
    kept_bytes: usize,
}

impl SentConfig {
    pub fn new(epoch: Epoch, spec: LmapSpec, services: Vec<ServiceName>) -> Self {
        let columns: Arc<[String]> = spec
            .metrics
            .iter()
            .flat_map(|m| m.series.kind.statistics().iter().map(|&statistic| m.series.column_title(statistic)))
            .collect();
        let replicas = spec.replicas.into_iter().map(|replica| (replica.id, replica.instance)).collect();
        let texts = spec.metrics.iter().map(|metric| footprint::of_copy(&metric.series)).sum::<usize>();
        let titles = columns.iter().map(|title| size_of::<String>() + title.capacity()).sum::<usize>();
        let kept_bytes = spec.metrics.capacity() * size_of::<MetricSpec>() + texts + titles;
        let (interval, fastest, has_model) = (spec.interval, spec.fastest, !spec.model.is_empty());
        Self { epoch, interval, fastest, has_model, metrics: spec.metrics, replicas, columns, services, kept_bytes }
    }

    /// Bytes that its metrics and titles take, as they were asked for.
    pub const fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The name of `replica`; `None` if there is none, or if it is that of spans, which are of all replicas.
    pub fn replica_name(&self, replica: ReplicaId) -> Option<&str> {
        let name = self.replicas.get(&replica)?.as_str();
        Some(name).filter(|name| *name != span_columns::INSTANCE)
    }

    /// The configuration of `metric`, as sent.
    pub fn metric(&self, metric: MetricId) -> Option<&MetricSpec> {
        let at = self.metrics.binary_search_by_key(&metric, |spec| spec.id).ok()?;
        self.metrics.get(at)
    }
}

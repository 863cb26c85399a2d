//! What the controller counts, and its `/metrics`.

use core::fmt;
use std::sync::Arc;

use agent_runtime::Count;
use agent_runtime::account::ResidentSet;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::known::ClusterView;
use crate::lease::Leadership;

/// Events since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Statuses that were written.
    pub(crate) written: Count,
    /// Writes refused because the object had changed meanwhile.
    pub(crate) conflicts: Count,
    /// Writes that the API server put off.
    pub(crate) throttled: Count,
    /// Writes that failed otherwise.
    pub(crate) failed: Count,
    /// Reports of nodes that are gone, which were deleted.
    pub(crate) forgotten: Count,
    /// Events that were made.
    pub(crate) events: Count,
    /// Requests for metrics that were answered.
    pub(crate) answered: Count,
    /// Readings of host agents that failed.
    pub(crate) unread: Count,
}

/// The values of `/metrics`, read at each scrape.
#[derive(Debug)]
pub(crate) struct ControllerMetrics {
    pub(crate) counts: Arc<Counts>,
    pub(crate) known: Arc<ClusterView>,
    pub(crate) leadership: Arc<Leadership>,
}

impl Collector for ControllerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Counts { written, conflicts, throttled, failed, forgotten, events, answered, unread } = &*self.counts;
        for (name, help, count) in [
            ("written_statuses", "Statuses of Lmaps and policies that were written.", written),
            ("conflicting_writes", "Writes refused because the object had changed meanwhile; tried again.", conflicts),
            ("throttled_writes", "Writes that the API server put off; tried again.", throttled),
            ("failed_writes", "Writes of statuses and events, and deletions, that failed; tried again.", failed),
            ("deleted_reports", "Reports of nodes that are gone, which were deleted.", forgotten),
            ("events", "Events about Lmaps and policies that were made.", events),
            ("metric_requests", "Requests for metrics of objects that were answered.", answered),
            ("failed_agent_reads", "Readings of host agents that failed: their metrics are absent.", unread),
        ] {
            let metric = ConstCounter::new(count.get());
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let [lmaps, policies, synopses, nodes, refused] = self.known.sizes();
        for (name, help, value) in [
            ("acting", "1 while this replica has the lease, and writes.", usize::from(self.leadership.holds())),
            ("lmaps", "Lmaps that are known.", lmaps),
            ("sampling_policies", "SamplingPolicies that are known.", policies),
            ("synopsis_policies", "SynopsisPolicies that are known.", synopses),
            ("reporting_nodes", "Nodes whose report is known.", nodes),
            ("refused_objects", "Objects that there was no room for.", refused),
        ] {
            let metric = ConstGauge::new(value as i64);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let Some(resident) = ResidentSet::now() else { return Ok(()) };
        let metric = ConstGauge::new(resident.total() as i64);
        let help = "Bytes of this process in memory.";
        metric.encode(encoder.encode_descriptor("resident_bytes", help, None, metric.metric_type())?)
    }
}

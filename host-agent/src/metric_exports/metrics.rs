//! `/metrics` of exporters.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use exposition::Discard;
use otlp::Edge;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::{Exports, sizes};
use crate::metrics_endpoint::encoding::{counter, gauge};

/// Collects the values of all exporters on each scrape.
#[derive(Debug)]
pub(crate) struct ExportMetrics {
    pub(crate) exports: Arc<Exports>,
    pub(crate) edge: Arc<Edge>,
}

impl Collector for ExportMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counts, of_edge, e) = (&self.exports.counts, &self.edge.counts, &mut encoder);
        let points = counts.points.get();
        counter(e, "otlp_points", "Points of OTLP metrics that were looked at.", points)?;
        let exports = counts.exports.get();
        counter(e, "otlp_exports", "Exports of OTLP metrics that were looked at, of each replica.", exports)?;
        let mut family = e.encode_descriptor(
            "discarded_otlp_points",
            "Points of OTLP metrics that are not watched, by reason.",
            None,
            MetricType::Counter,
        )?;
        for (why, count) in Discard::ALL.into_iter().zip(&counts.discarded) {
            let labels = [("reason", why.name())];
            ConstCounter::new(count.get()).encode(family.encode_family(&labels)?)?;
        }
        let help = "Resources with OTLP metrics that are not watched: too many replicas, or a name that none may have.";
        counter(e, "refused_otlp_exports", help, counts.refused.get())?;
        let help = "Requests with OTLP metrics that are not watched: too many wait.";
        counter(e, "unwatched_otlp_metrics", help, of_edge.unwatched_metrics.get())?;
        let help = "Resources with OTLP metrics whose sender may not use their service's name: they are not watched.";
        counter(e, "unverified_otlp_metrics", help, of_edge.unverified_metrics.get())?;
        let (exporters, series, watched) = {
            let services = &self.exports.state().services;
            let (exporters, series) = sizes(services);
            let all = services.values().flat_map(BTreeMap::values);
            (exporters, series, all.map(super::Exporter::watched_series).sum())
        };
        gauge(&mut encoder, "otlp_exporters", "Replicas that export OTLP metrics.", exporters)?;
        gauge(&mut encoder, "otlp_series", "Series of OTLP metrics that are known.", series)?;
        gauge(&mut encoder, "watched_otlp_series", "Series of OTLP metrics with columns of their own.", watched)
    }
}

//! `/metrics` of exporters.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use agent_runtime::Count;
use exposition::{Discard, ExcludedSeries, Exclusion};
use otlp::Edge;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Exports, REFUSALS, sizes};
use crate::metrics_endpoint::encoding::{counter, counters_by_reason, gauge, gauges_by_reason};

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
        let help = "Points of OTLP metrics that are not watched, by reason.";
        let discarded = Discard::ALL.into_iter().map(Discard::name).zip(counts.discarded.iter().map(Count::get));
        counters_by_reason(e, ("discarded_otlp_points", help), discarded)?;
        let help = "Resources with OTLP metrics that are not watched: too many replicas, or a name that none may have.";
        let refused = REFUSALS.into_iter().zip(counts.refused.iter().map(Count::get));
        counters_by_reason(e, ("refused_otlp_exports", help), refused)?;
        let help = "Requests with OTLP metrics that are not watched: too many wait.";
        counter(e, "unwatched_otlp_metrics", help, of_edge.unwatched_metrics.get())?;
        let help = "Resources with OTLP metrics whose sender may not use their service's name: they are not watched.";
        counter(e, "unverified_otlp_metrics", help, of_edge.unverified_metrics.get())?;
        let (exporters, series, watched, excluded) = {
            let services = &self.exports.state().services;
            let (exporters, series) = sizes(services);
            let all = || services.values().flat_map(BTreeMap::values);
            let excluded = all().fold(ExcludedSeries::default(), |sum, exporter| sum.and(exporter.excluded_series()));
            (exporters, series, all().map(super::Exporter::watched_series).sum(), excluded)
        };
        gauge(&mut encoder, "otlp_exporters", "Replicas that export OTLP metrics.", exporters)?;
        gauge(&mut encoder, "otlp_series", "Series of OTLP metrics that are known.", series)?;
        gauge(&mut encoder, "watched_otlp_series", "Series of OTLP metrics with columns of their own.", watched)?;
        let help = "Series of OTLP metrics that no column has, by reason.";
        let excluded = Exclusion::REASONS.into_iter().zip(excluded.counts());
        gauges_by_reason(&mut encoder, ("unwatched_otlp_series", help), excluded)
    }
}

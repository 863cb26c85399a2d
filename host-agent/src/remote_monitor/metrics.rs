//! `/metrics` of remote monitors.

use core::fmt;
use std::sync::Arc;

use hooks::sampling::{SampleLossReason, Series, SuppressionReason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::RemoteMonitor;
use crate::metrics_endpoint::encoding;

/// The two series, with their label.
const SERIES: [(Series, &str); 2] = [(Series::Baseline, "baseline"), (Series::Dense, "dense")];

/// Collects the values on each scrape.
#[derive(Debug)]
pub struct MonitorMetrics(pub Arc<RemoteMonitor>);

/// Labels, and the value.
type Values = Vec<(Vec<(&'static str, &'static str)>, u64)>;

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: Values,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        let one = metric.encode_family(&labels)?;
        match kind {
            MetricType::Gauge => ConstGauge::new(value.cast_signed()).encode(one)?,
            _ => ConstCounter::new(value).encode(one)?,
        }
    }
    Ok(())
}

impl Collector for MonitorMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (totals, counters, (replayed, hidden), bytes) = {
            let shipper = self.0.lock();
            let totals = SERIES.map(|(series, label)| (label, shipper.totals(series)));
            (totals, *shipper.counters(), shipper.replayed_and_hidden(), shipper.queued_bytes())
        };
        let each = |value: fn(&remote_write::shipper::LedgerTotals) -> u64| -> Values {
            totals.iter().map(|(label, totals)| (vec![("series", *label)], value(totals))).collect()
        };
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        let e = &mut encoder;
        family(e, "seen_samples", "Values of all rows, per series.", counter, each(|totals| totals.seen))?;
        family(e, "sent_samples", "Samples that the remote monitor accepted.", counter, each(|totals| totals.sent))?;
        let help = "Samples buffered in case an anomaly follows.";
        family(e, "buffered_samples", help, gauge, each(|totals| totals.waiting))?;
        family(e, "queued_samples", "Samples queued for the remote monitor.", gauge, each(|totals| totals.queued))?;
        let by_reason =
            |reasons: Vec<&'static str>, values: fn(&remote_write::shipper::LedgerTotals) -> &[u64]| -> Values {
                let of = |(label, totals): &(&'static str, remote_write::shipper::LedgerTotals)| {
                    let reasons = reasons.iter().zip(values(totals));
                    reasons.map(|(why, value)| (vec![("series", *label), ("reason", *why)], *value)).collect::<Vec<_>>()
                };
                totals.iter().flat_map(of).collect()
            };
        let reasons = SuppressionReason::ALL.map(SuppressionReason::name).to_vec();
        let help = "Samples left out on purpose, by reason.";
        family(e, "suppressed_samples", help, counter, by_reason(reasons, |totals| &totals.suppressed))?;
        let reasons = SampleLossReason::ALL.map(SampleLossReason::name).to_vec();
        family(e, "lost_samples", "Samples lost, by reason.", counter, by_reason(reasons, |totals| &totals.lost))?;
        let otlp = self.0.is_otlp();
        let name = |of_remote_write, of_otlp| if otlp { of_otlp } else { of_remote_write };
        if !otlp {
            let help = "Switches to the other version of remote write.";
            encoding::counter(e, "remote_write_fallbacks", help, counters.fallbacks)?;
        }
        for (name, help, value) in [
            (
                name("remote_writes", "requests"),
                "Requests to the remote monitor, including retries.",
                counters.requests,
            ),
            (
                name("failed_remote_writes", "failed_requests"),
                "Requests to the remote monitor that failed and are retried.",
                counters.failed,
            ),
            (
                name("refused_remote_writes", "refused_requests"),
                "Requests refused for good, in whole or in part.",
                counters.refused,
            ),
            (name("remote_write_bytes", "bytes"), "Bytes of requests to the remote monitor.", counters.bytes),
            ("replayed_rows", "Rows received twice, or from before the agent's start.", replayed),
            ("seen_exemplars", "Kept traces to be sent to the remote monitor as exemplars.", counters.exemplars),
            ("sent_exemplars", "Exemplars that the remote monitor accepted.", counters.sent_exemplars),
            ("lost_exemplars", "Exemplars not sent, or not accepted.", counters.lost_exemplars),
            ("mismatched_rows", "Rows with a wrong number of values.", counters.misfits),
        ] {
            encoding::counter(e, name, help, value)?;
        }
        encoding::gauge(e, "queued_sample_bytes", "Memory of samples queued for the remote monitor.", bytes)?;
        let help = "Columns not sent: their Prometheus name collides.";
        encoding::gauge(e, "colliding_columns", help, hidden)
    }
}

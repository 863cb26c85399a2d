//! What `/metrics` says about samples and the remote monitor.

use core::fmt;
use std::sync::Arc;

use hooks::sampling::{LostSample, Series, Suppressed};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::RemoteWriting;
use crate::metrics_endpoint;

/// The two series as a label.
const SERIES: [(Series, &str); 2] = [(Series::Baseline, "baseline"), (Series::Dense, "dense")];

/// Reads everything when asked.
#[derive(Debug)]
pub struct Exported(pub Arc<RemoteWriting>);

/// Values by their labels.
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

impl Collector for Exported {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (books, counters, (replayed, hidden), bytes) = {
            let shipper = self.0.lock();
            let books = SERIES.map(|(series, label)| (label, shipper.books(series)));
            (books, *shipper.counters(), shipper.replayed_and_hidden(), shipper.waiting_bytes())
        };
        let each = |value: fn(&remote_write::shipper::Books) -> u64| -> Values {
            books.iter().map(|(label, books)| (vec![("series", *label)], value(books))).collect()
        };
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        let e = &mut encoder;
        family(
            e,
            "seen_samples",
            "Values of all rows, for each of the two series; of the baseline also what is made of no row.",
            counter,
            each(|books| books.seen),
        )?;
        family(e, "sent_samples", "Samples that the remote monitor took.", counter, each(|books| books.sent))?;
        let help = "Samples kept for the case that something happens next.";
        family(e, "waiting_samples", help, gauge, each(|books| books.waiting))?;
        family(e, "queued_samples", "Samples to be sent.", gauge, each(|books| books.handed))?;
        let by_reason = |reasons: Vec<&'static str>, values: fn(&remote_write::shipper::Books) -> &[u64]| -> Values {
            let of = |(label, books): &(&'static str, remote_write::shipper::Books)| {
                let reasons = reasons.iter().zip(values(books));
                reasons.map(|(why, value)| (vec![("series", *label), ("reason", *why)], *value)).collect::<Vec<_>>()
            };
            books.iter().flat_map(of).collect()
        };
        let reasons = Suppressed::ALL.map(Suppressed::name).to_vec();
        let help = "Samples not sent although everything works, by reason.";
        family(e, "suppressed_samples", help, counter, by_reason(reasons, |books| &books.suppressed))?;
        let reasons = LostSample::ALL.map(LostSample::name).to_vec();
        family(e, "lost_samples", "Samples lost, by reason.", counter, by_reason(reasons, |books| &books.lost))?;
        let otlp = self.0.is_otlp();
        let name = |of_remote_write, of_otlp| if otlp { of_otlp } else { of_remote_write };
        if !otlp {
            let help = "Changes to the other version of remote write.";
            metrics_endpoint::counter(e, "remote_write_fallbacks", help, counters.fallbacks)?;
        }
        for (name, help, value) in [
            (name("remote_writes", "requests"), "Requests to the remote monitor, each attempt.", counters.requests),
            (name("failed_remote_writes", "failed_requests"), "Requests that have to be made again.", counters.failed),
            (
                name("refused_remote_writes", "refused_requests"),
                "Requests of which something was refused for good.",
                counters.refused,
            ),
            (name("remote_write_bytes", "bytes"), "Bytes of requests to the remote monitor.", counters.bytes),
            (
                "replayed_rows",
                "Rows that a worker sent again, or from before the agent's start: not counted.",
                replayed,
            ),
            ("seen_exemplars", "Kept traces that were to be shown to the remote monitor.", counters.exemplars),
            ("sent_exemplars", "Kept traces that the remote monitor took, as far as it says.", counters.sent_exemplars),
            (
                "lost_exemplars",
                "Kept traces that the remote monitor was not shown or did not take.",
                counters.lost_exemplars,
            ),
            ("misfit_rows", "Rows with another number of values than columns.", counters.misfits),
        ] {
            metrics_endpoint::counter(e, name, help, value)?;
        }
        metrics_endpoint::gauge(e, "queued_sample_bytes", "Memory of samples to be sent.", bytes)?;
        let help = "Columns not sent because another one has their name in Prometheus' alphabet.";
        metrics_endpoint::gauge(e, "hidden_columns", help, hidden)
    }
}

//! Durations from spans as histograms, for remote monitors and `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use hooks::paths::{BOUNDS, Durations};
use otlp::Edge;
use remote_write::reading::Histogram;
use remote_write::series::Exemplar;
use wire::time::Nanos;

use crate::span_columns::{DURATION, OPERATION};

/// Label with the service's name.
const SERVICE: &str = "service.name";
/// Bucket bounds in seconds.
static SECONDS: LazyLock<Arc<[f64]>> = LazyLock::new(|| BOUNDS.map(seconds).into());

/// Histograms by service, one per operation.
pub(crate) type ByService = BTreeMap<String, Vec<Histogram>>;

/// Division, not multiplication: 100 µs become exactly 0.0001.
fn seconds(length: Nanos) -> f64 {
    length.0 as f64 / 1e9
}

/// The histograms of `edge` as of now; empty if spans are not counted. Spans wait while they are copied: a few words
/// per operation.
pub(crate) fn read(edge: &Edge) -> ByService {
    let copied = edge.with_span_metrics(|metrics| {
        let of = |(_, name, rate): (_, &str, &hooks::paths::Rate)| (name.to_owned(), rate.classes.clone());
        let services =
            metrics.services().map(|service| (service.name().to_owned(), service.operations().map(of).collect()));
        services.collect::<Vec<(String, Vec<_>)>>()
    });
    let histograms = |(service, operations): (String, Vec<(String, Durations)>)| {
        let of = |(operation, durations): &(String, Durations)| histogram(&service, operation, durations);
        let histograms = operations.iter().map(of).collect();
        (service, histograms)
    };
    copied.into_iter().flatten().map(histograms).collect()
}

fn histogram(service: &str, operation: &str, durations: &Durations) -> Histogram {
    let exemplar = |kept: Option<hooks::paths::Exemplar>| {
        kept.map(|kept| Exemplar::new(&kept.trace.to_string(), seconds(kept.took), kept.at.millis() as i64))
    };
    Histogram {
        name: DURATION,
        unit: "s",
        help: "Durations of requests, from SERVER and CONSUMER spans before anything is sampled.",
        labels: vec![(SERVICE.to_owned(), service.to_owned()), (OPERATION.to_owned(), operation.to_owned())],
        bounds: Arc::clone(&SECONDS),
        counts: durations.counts().to_vec(),
        sum: seconds(durations.sum()),
        exemplars: durations.exemplars().map(exemplar).collect(),
    }
}

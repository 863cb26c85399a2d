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

/// Name of an operation, its durations, and for each class the address of its exemplar's incident.
type Operation = (String, Durations, Vec<Option<String>>);

/// Division, not multiplication: 100 µs become exactly 0.0001.
fn seconds(length: Nanos) -> f64 {
    length.0 as f64 / 1e9
}

/// The histograms of `edge` as of now; empty if spans are not counted. Spans wait while they are copied: a few words
/// per operation.
pub(crate) fn read(edge: &Edge) -> ByService {
    let copied = edge.with_span_metrics(|metrics| {
        let of = |(_, name, rate): (_, &str, &hooks::paths::Rate)| {
            let incidents = rate.classes.exemplars().map(|kept| metrics.incident(&kept?).map(ToOwned::to_owned));
            (name.to_owned(), rate.classes.clone(), incidents.collect())
        };
        let services =
            metrics.services().map(|service| (service.name().to_owned(), service.operations().map(of).collect()));
        services.collect::<Vec<(String, Vec<Operation>)>>()
    });
    let histograms = |(service, operations): (String, Vec<Operation>)| {
        let of = |operation: &Operation| histogram(&service, operation);
        let histograms = operations.iter().map(of).collect();
        (service, histograms)
    };
    copied.into_iter().flatten().map(histograms).collect()
}

fn histogram(service: &str, (operation, durations, incidents): &Operation) -> Histogram {
    let exemplar = |(kept, incident): (Option<hooks::paths::Exemplar>, &Option<String>)| {
        let kept = kept?;
        let exemplar = Exemplar::new(&kept.trace.to_string(), seconds(kept.took), kept.at.millis() as i64);
        Some(exemplar.with_incident(incident.as_deref().unwrap_or_default()))
    };
    Histogram {
        name: DURATION,
        unit: "s",
        help: "Durations of requests, from SERVER and CONSUMER spans before anything is sampled.",
        labels: vec![(SERVICE.to_owned(), service.to_owned()), (OPERATION.to_owned(), operation.clone())],
        bounds: Arc::clone(&SECONDS),
        counts: durations.counts().to_vec(),
        sum: seconds(durations.sum()),
        exemplars: durations.exemplars().zip(incidents).map(exemplar).collect(),
    }
}

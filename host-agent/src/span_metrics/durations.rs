//! What is counted of spans as histograms for a remote monitor and for whoever scrapes this agent.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use hooks::paths::{BOUNDS, Durations};
use otlp::Edge;
use remote_write::series::Exemplar;
use remote_write::steady::Histogram;
use wire::time::Nanos;

use super::{DURATION, OPERATION};

/// The label that names the service.
const SERVICE: &str = "service.name";
/// Bounds in seconds.
static SECONDS: LazyLock<Arc<[f64]>> = LazyLock::new(|| BOUNDS.map(seconds).into());

/// One histogram for each operation, by service.
pub(crate) type ByService = BTreeMap<String, Vec<Histogram>>;

/// A literal's quotient, not a product, so that 100 µs are 0.0001 and nothing beside it.
fn seconds(length: Nanos) -> f64 {
    length.0 as f64 / 1e9
}

/// What `edge` counted by now; nothing where it counts nothing. Spans wait while it is copied: some words for each operation.
pub(crate) fn read(edge: &Edge) -> ByService {
    let copied = edge.count(|derived| {
        let of = |(_, name, rate): (_, &str, &hooks::paths::Rate)| (name.to_owned(), rate.classes.clone());
        let services =
            derived.services().map(|service| (service.name().to_owned(), service.operations().map(of).collect()));
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

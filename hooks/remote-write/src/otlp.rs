//! Encodes samples as OTLP metrics: the body of an `ExportMetricsServiceRequest`.
//!
//! A service is a resource, a column or a histogram a metric, a series a set of attributes, a sample a data point. A
//! series ends with a data point without a value, with the flag `NO_RECORDED_VALUE`.

mod message;

use std::collections::BTreeMap;

use prost::Message as _;

use crate::naming::MetricType;
use crate::series::{Attachment, Distribution as SampleDistribution, Exemplar, Point, Series, ServiceNumber};
use message::{
    AnyValue, Data, Distribution, Gauge, Histogram, KeyValue, Metric, Number, Request, Resource, ResourceMetrics,
    Scope, ScopeMetrics, Sum,
};

/// Name of the instrumentation scope.
const SCOPE: &str = "uview";
/// Aggregation temporality: sums count from their start time.
const CUMULATIVE: i32 = 2;
/// Data point flag: there is no value any more.
const NO_RECORDED_VALUE: u32 = 1;

/// Metrics of one service, by name and type, each with its series.
type Metrics<'a> = BTreeMap<(&'a str, MetricType), Vec<&'a [Point]>>;

/// Encodes a request with `points`, grouped by series, each in order of time. Not compressed.
pub(crate) fn encode(points: &[Point], into: &mut Vec<u8>) {
    let mut services: BTreeMap<ServiceNumber, Metrics<'_>> = BTreeMap::new();
    for points in points.chunk_by(|one, next| one.series.number == next.series.number) {
        let series = &points[0].series;
        let metrics = services.entry(series.owner.service).or_default();
        metrics.entry((series.name(), series.kind)).or_default().push(points);
    }
    let request = Request { resource_metrics: services.values().map(resource_metrics).collect() };
    into.clear();
    // Writing into a vector does not fail.
    _ = request.encode(into);
}

fn resource_metrics(metrics: &Metrics<'_>) -> ResourceMetrics {
    let first = metrics.values().flatten().find_map(|points| points.first());
    let attributes = first.map(|point| pairs(point.series.resource())).unwrap_or_default();
    let scope = Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let metrics = metrics.iter().map(|((name, kind), series)| metric(name, *kind, series)).collect();
    ResourceMetrics {
        resource: Some(Resource { attributes }),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics }],
    }
}

fn metric(name: &str, kind: MetricType, series: &[&[Point]]) -> Metric {
    let metadata = series.first().and_then(|points| points.first()).map(|point| &point.series);
    let text = |of: fn(&Series) -> &str| metadata.map(|series| of(series).to_owned()).unwrap_or_default();
    let points = series.iter().copied().flatten();
    let data = match kind {
        MetricType::Gauge => Data::Gauge(Gauge { data_points: points.map(number).collect() }),
        MetricType::Counter => Data::Sum(Sum {
            data_points: points.map(number).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricType::Histogram => Data::Histogram(Histogram {
            data_points: points.map(distribution).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Metric { name: name.to_owned(), description: text(Series::help), unit: text(Series::unit), data: Some(data) }
}

fn number(point: &Point) -> Number {
    Number {
        start_time_unix_nano: nanos(point.series.start_ms),
        time_unix_nano: nanos(point.at_ms),
        as_double: (!point.is_stale_marker()).then(|| f64::from_bits(point.bits)),
        attributes: attributes(&point.series),
        flags: if point.is_stale_marker() { NO_RECORDED_VALUE } else { 0 },
    }
}

fn distribution(point: &Point) -> Distribution {
    let common = Distribution {
        start_time_unix_nano: nanos(point.series.start_ms),
        time_unix_nano: nanos(point.at_ms),
        attributes: attributes(&point.series),
        ..Distribution::default()
    };
    let Some(Attachment::Distribution(SampleDistribution { counts, bounds, sum, exemplars })) =
        point.attachment.as_deref()
    else {
        return Distribution { flags: NO_RECORDED_VALUE, ..common };
    };
    Distribution {
        count: counts.iter().sum(),
        sum: Some(*sum),
        bucket_counts: counts.clone(),
        explicit_bounds: bounds.to_vec(),
        exemplars: exemplars.iter().filter_map(exemplar).collect(),
        ..common
    }
}

fn exemplar(exemplar: &Exemplar) -> Option<message::Exemplar> {
    let digits = exemplar.trace().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let trace_id = digits.map(byte).collect::<Option<Vec<u8>>>()?;
    // As on root spans.
    let incident = Some(("uview.incident", exemplar.incident())).filter(|(_, address)| !address.is_empty());
    Some(message::Exemplar {
        time_unix_nano: nanos(exemplar.at_ms),
        as_double: Some(exemplar.value),
        trace_id,
        filtered_attributes: pairs(incident.into_iter()),
    })
}

/// All labels of a series except its name.
fn attributes(series: &Series) -> Vec<KeyValue> {
    pairs(series.labels().filter(|(name, _)| *name != "__name__"))
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<KeyValue> {
    let pair = |(key, value): (&str, &str)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { string_value: Some(value.to_owned()) }),
    };
    pairs.map(pair).collect()
}

fn nanos(millis: i64) -> u64 {
    u64::try_from(millis).unwrap_or(0).saturating_mul(1_000_000)
}

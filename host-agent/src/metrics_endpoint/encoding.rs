//! How single values are written as OpenMetrics.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Writes a counter without labels.
pub(crate) fn counter(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), core::fmt::Error> {
    let metric = ConstCounter::new(value);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}

/// Writes a gauge without labels.
pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: usize,
) -> Result<(), core::fmt::Error> {
    let metric = ConstGauge::new(value as i64);
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}

/// Writes a counter with the label `reason`: a value for each.
pub(crate) fn counters_by_reason(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (&'static str, u64)>,
) -> Result<(), core::fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (reason, value) in values {
        ConstCounter::new(value).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    Ok(())
}

/// Writes a gauge with the label `reason`: a value for each.
pub(crate) fn gauges_by_reason(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (&'static str, usize)>,
) -> Result<(), core::fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (reason, value) in values {
        ConstGauge::new(value as i64).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    Ok(())
}

/// `value` within the quotes of a label.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

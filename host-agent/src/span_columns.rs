//! The series that are made of spans: their names, and their slots in a region. Pure.

use std::num::NonZeroU64;

use hooks::paths::Rate;
use otlp::SpanMetrics;
use wire::metric::{Group, Kind, Series, Statistic};
use wire::name::{Labels, MetricName, NameError, Unit};

/// Names follow OpenTelemetry's span metrics. The request rate is the count of the durations.
pub(crate) const DURATION: &str = "traces.span.metrics.duration";
/// Name for the count of [`DURATION`] where that name is a histogram.
const CALLS: &str = "traces.span.metrics.calls";
/// Requests whose span has an error status.
pub(crate) const ERRORS: &str = "traces.span.metrics.errors";
/// Instance name of the replica with a service's span metrics.
pub(crate) const INSTANCE: &str = "spans";
/// Label with the operation's name.
pub(crate) const OPERATION: &str = "span.name";
/// Slots of an operation: its errors, then the histogram of its durations.
pub const SLOTS: u32 = 1 + SpanMetrics::SCALE.slots();

/// The series of the operation `name`: its errors, then its durations.
///
/// # Errors
///
/// [`NameError`] if `name` cannot be the value of a label.
pub fn series(name: &str) -> Result<[Series; 2], NameError> {
    let labels = Labels::new([(OPERATION, name)])?;
    let series = |metric, kind, unit, parts_per_unit| {
        let (name, labels, unit) = (MetricName::new(metric)?, labels.clone(), Some(Unit::new(unit)?));
        Ok(Series { name, labels, kind, unit, group: Group::Service, parts_per_unit })
    };
    let micros = NonZeroU64::new(1_000_000).unwrap_or(NonZeroU64::MIN);
    Ok([
        series(ERRORS, Kind::Counter, "{request}", NonZeroU64::MIN)?,
        series(DURATION, Kind::Histogram(SpanMetrics::SCALE), "s", micros)?,
    ])
}

/// The values of an operation's [`SLOTS`], in their order.
pub fn values(rate: &Rate) -> impl Iterator<Item = u64> {
    core::iter::once(rate.errors).chain(rate.duration.iter().copied())
}

/// Whether a metric of this name is made of spans.
pub(crate) fn is_of_spans(metric: &str) -> bool {
    metric == DURATION || metric == ERRORS
}

/// The series of a column as a remote monitor gets it. There, `…duration…_count` belongs to the histogram with buckets,
/// so the request count of rows is named calls, as in OpenTelemetry's span metrics.
pub(crate) fn for_monitors(series: &Series, statistic: Statistic) -> (Series, Statistic) {
    let calls = (series.name.as_str() == DURATION && statistic == Statistic::Count)
        .then(|| Some((MetricName::new(CALLS).ok()?, Unit::new("{call}").ok()?)))
        .flatten();
    match calls {
        Some((name, unit)) => {
            let calls = Series {
                name,
                unit: Some(unit),
                kind: Kind::Counter,
                parts_per_unit: NonZeroU64::MIN,
                ..series.clone()
            };
            (calls, Statistic::Increment)
        }
        None => (series.clone(), statistic),
    }
}

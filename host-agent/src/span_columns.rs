//! Names of the columns that are made of spans. Pure.

use std::num::NonZeroU64;

use wire::metric::{Kind, Series, Statistic};
use wire::name::{MetricName, Unit};

/// Names follow OpenTelemetry's span metrics. The request rate is the count of the durations.
pub(crate) const DURATION: &str = "traces.span.metrics.duration";
/// Name for the count of [`DURATION`] where that name is a histogram.
const CALLS: &str = "traces.span.metrics.calls";
/// Requests whose span has an error status.
pub(crate) const ERRORS: &str = "traces.span.metrics.errors";
/// Label with the operation's name.
pub(crate) const OPERATION: &str = "span.name";

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

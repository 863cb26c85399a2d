//! From the SDK's buckets to those of a region. Pure.

use wire::histogram::Scale;

/// Buckets with something in them: lower and upper bound, in the metric's unit, and the count.
pub(super) trait Buckets: Iterator<Item = (f64, f64, u64)> {}

impl<B: Iterator<Item = (f64, f64, u64)>> Buckets for B {}

/// The least and the largest value, as far as known.
type Range = (Option<f64>, Option<f64>);

/// Buckets with explicit upper `bounds`; `counts` has one more, for what lies beyond.
pub(super) fn explicit(
    bounds: impl Iterator<Item = f64>,
    counts: impl Iterator<Item = u64>,
    range: Range,
) -> impl Buckets {
    let mut low = f64::NEG_INFINITY;
    let upper = bounds.chain(std::iter::repeat(f64::INFINITY));
    let all = upper.zip(counts).map(move |(high, count)| (std::mem::replace(&mut low, high), high, count));
    narrowed(all, range)
}

/// Buckets of OpenTelemetry's exponential histogram of `scale`: those of positive values from `offset` on, and what
/// counts `at_zero`.
pub(super) fn exponential(
    scale: i8,
    (offset, counts): (i32, impl Iterator<Item = u64>),
    at_zero: u64,
    range: Range,
) -> impl Buckets {
    // Bucket i is (base^i, base^(i + 1)], with a base of 2^(2^-scale).
    let bound = move |index: i64| (index as f64 * f64::from(-i32::from(scale)).exp2()).exp2();
    let positive = (i64::from(offset)..).zip(counts).map(move |(index, count)| (bound(index), bound(index + 1), count));
    narrowed(std::iter::once((f64::NEG_INFINITY, 0.0, at_zero)).chain(positive), range)
}

/// Leaves empty buckets out; no other bucket ends below 0, or outside of `range`.
fn narrowed(buckets: impl Buckets, (least, largest): Range) -> impl Buckets {
    let least = least.unwrap_or(0.0).max(0.0);
    buckets.filter(|(_, _, count)| *count > 0).map(move |(low, high, count)| {
        let low = low.max(least);
        let high = high.min(largest.unwrap_or(f64::INFINITY));
        // Without a largest value, what lies beyond the last bound lies at it.
        let high = if high.is_finite() { high.max(low) } else { low };
        (low, high, count)
    })
}

/// Spreads `count` values evenly over the region's buckets between `low` and `high`, in parts of the unit. The counts
/// that `add` gets have the sum `count`.
pub(super) fn spread(scale: Scale, (low, high): (f64, f64), count: u64, mut add: impl FnMut(u32, u64)) {
    let (first, last) = (scale.bucket(low.round() as u64), scale.bucket(high.round() as u64));
    let mut added = 0;
    for bucket in first..last {
        let share = ((scale.lower_bound(bucket + 1) as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let below = ((share * count as f64).round() as u64).clamp(added, count);
        if below > added {
            add(bucket, below - added);
        }
        added = below;
    }
    if count > added {
        add(last, count - added);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
    use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
    use opentelemetry_sdk::metrics::{Aggregation, Instrument, PeriodicReader, SdkMeterProvider, Stream, Temporality};
    use proptest::prelude::*;

    use super::*;

    fn spread_over(low: f64, high: f64, count: u64) -> Vec<(u32, u64)> {
        let mut counts = Vec::new();
        spread(Scale::DEFAULT, (low, high), count, |bucket, count| counts.push((bucket, count)));
        counts
    }

    #[test]
    fn values_are_spread_evenly_between_the_bounds() {
        // Four buckets per power of two: 64 to 80 to 96 to 112 to 128.
        let first = Scale::DEFAULT.bucket(64);
        assert_eq!(spread_over(64.0, 128.0, 8), [(first, 2), (first + 1, 2), (first + 2, 2), (first + 3, 2)]);
        assert_eq!(spread_over(64.0, 64.0, 8), [(first, 8)]);
        assert_eq!(spread_over(70.0, 70.4, 1), [(first, 1)]);
        let beyond = Scale::DEFAULT.buckets();
        assert_eq!(spread_over(1e30, 1e31, 3), [(beyond, 3)]);
    }

    #[test]
    fn least_and_largest_value_narrow_the_outer_buckets() {
        let buckets = |range| explicit([5.0, 10.0].into_iter(), [1, 0, 2].into_iter(), range).collect::<Vec<_>>();

        assert_eq!(buckets((Some(2.0), Some(40.0))), [(2.0, 5.0, 1), (10.0, 40.0, 2)]);
        assert_eq!(buckets((None, None)), [(0.0, 5.0, 1), (10.0, 10.0, 2)]);
        assert_eq!(buckets((Some(-3.0), Some(f64::INFINITY)))[0], (0.0, 5.0, 1));
    }

    #[test]
    fn an_exponential_bucket_lies_between_powers_of_its_base() {
        let buckets: Vec<_> = exponential(1, (-2, [1, 0, 0, 4].into_iter()), 7, (None, None)).collect();

        assert_eq!(buckets.len(), 3);
        assert_eq!(buckets[0], (0.0, 0.0, 7));
        assert_eq!((buckets[1].0, buckets[1].2), (0.5, 1));
        assert!((buckets[2].0 - 2_f64.sqrt()).abs() < 1e-9 && (buckets[2].1 - 2.0).abs() < 1e-9);
    }

    /// Keeps the buckets of the exponential histogram that it is given, with bounds as they are computed here.
    #[derive(Clone, Debug, Default)]
    struct BucketExporter(Arc<Mutex<Vec<(f64, f64, u64)>>>);

    impl PushMetricExporter for BucketExporter {
        async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
            let metric = metrics.scope_metrics().next().unwrap().metrics().next().unwrap();
            let AggregatedMetrics::F64(MetricData::ExponentialHistogram(data)) = metric.data() else {
                unreachable!("the view asks for it: {metric:?}")
            };
            let point = data.data_points().next().unwrap();
            let positive = point.positive_bucket();
            let counts = (positive.offset(), positive.counts());
            let buckets = exponential(point.scale(), counts, point.zero_count(), (None, None));
            *self.0.lock().unwrap() = buckets.collect();
            Ok(())
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
            Ok(())
        }

        fn temporality(&self) -> Temporality {
            Temporality::Delta
        }
    }

    /// What the SDK makes of `values`, in at most so many `buckets`.
    fn of_the_sdk(values: &[f64], buckets: u32) -> Vec<(f64, f64, u64)> {
        let aggregation =
            Aggregation::Base2ExponentialHistogram { max_size: buckets, max_scale: 20, record_min_max: false };
        let view = move |_: &Instrument| Stream::builder().with_aggregation(aggregation.clone()).build().ok();
        let kept = BucketExporter::default();
        let reader = PeriodicReader::builder(kept.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).with_view(view).build();
        let histogram = provider.meter("test").f64_histogram("h").build();
        for value in values {
            histogram.record(*value, &[]);
        }
        provider.force_flush().unwrap();
        std::mem::take(&mut *kept.0.lock().unwrap())
    }

    /// Whether `value` lies in (low, high], but for rounding: the SDK finds its bucket by a logarithm.
    fn lies_in(value: f64, (low, high): (f64, f64)) -> bool {
        low * (1.0 - 1e-12) <= value && value <= high * (1.0 + 1e-12)
    }

    #[test]
    fn a_value_that_the_sdk_counts_lies_between_the_bounds_of_its_bucket() {
        for value in [1e-9, 0.25, 0.3, 1.0, 1.000_001, 2.0, 3.0, 1_000.0, 1_024.0, 123_456.789, 1e15] {
            let buckets = of_the_sdk(&[value], 160);

            let [(low, high, 1)] = buckets[..] else { unreachable!("{value}: {buckets:?}") };
            assert!(lies_in(value, (low, high)) && high / low < 1.000_001, "{value} {low} {high}");
        }
    }

    #[test]
    fn each_bucket_of_the_sdk_holds_as_many_values_as_lie_between_its_bounds() {
        // From 1 µs to 100 s in seven scales: the fewer buckets, the wider they are.
        let values: Vec<_> = (0..2_000).map(|n| 1e-6 * 1e8_f64.powf(f64::from(n) / 2_000.0) * 1.000_37).collect();
        for most in [4, 10, 20, 40, 80, 160, 320] {
            let buckets = of_the_sdk(&values, most);

            assert!(buckets.len() > most as usize / 2 - 1 && buckets.len() <= most as usize, "{most}");
            for (low, high, count) in buckets {
                let there = values.iter().filter(|value| low < **value && **value <= high).count();
                assert_eq!(there as u64, count, "{most}: {low} to {high}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_value_is_lost_or_made_up(low in -1e12..1e12, width in 0.0..1e12, count in 0_u64..1_000_000) {
            let counts = spread_over(low, low + width, count);

            prop_assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), count);
            prop_assert!(counts.iter().all(|(bucket, _)| *bucket <= Scale::DEFAULT.buckets()));
        }
    }
}

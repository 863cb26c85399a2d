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

/// Buckets of OpenTelemetry's exponential histogram of `scale`: the counts of positive values from bucket `first` on,
/// of negative values by how far these are from 0, from bucket `nearest` on, and what is `at_zero`.
pub(super) fn exponential(
    scale: i8,
    (first, positive): (i32, impl Iterator<Item = u64>),
    (nearest, negative): (i32, impl Iterator<Item = u64>),
    at_zero: u64,
    range: Range,
) -> impl Buckets {
    // Bucket i is (base^i, base^(i + 1)], with a base of 2^(2^-scale).
    let bound = move |index: i64| (index as f64 * f64::from(-i32::from(scale)).exp2()).exp2();
    let above = (i64::from(first)..).zip(positive).map(move |(index, count)| (bound(index), bound(index + 1), count));
    let below = (i64::from(nearest)..).zip(negative);
    let below = below.map(move |(index, count)| (-bound(index + 1), -bound(index), count));
    // What is at 0 has no width, wherever the least value lies.
    let zeros = std::iter::once((0.0, 0.0, at_zero)).filter(|(_, _, count)| *count > 0);
    zeros.chain(narrowed(below.chain(above), range))
}

/// Leaves empty buckets out; no other bucket reaches beyond `range`.
fn narrowed(buckets: impl Buckets, (least, largest): Range) -> impl Buckets {
    let (least, largest) = (least.unwrap_or(f64::NEG_INFINITY), largest.unwrap_or(f64::INFINITY));
    buckets.filter(|(_, _, count)| *count > 0).map(move |(low, high, count)| {
        let (low, high) = (low.max(least), high.min(largest));
        match (low.is_finite(), high.is_finite()) {
            (true, true) => (low, high.max(low), count),
            // Without a largest value, what lies beyond the last bound lies at it.
            (true, false) => (low, low, count),
            // Without a least value, what lies below the first bound is from 0 on, if that bound allows it.
            (false, true) => (high.min(0.0), high, count),
            (false, false) => (0.0, 0.0, count),
        }
    })
}

/// Values on one side of 0: between which bounds, by how far these are from 0, and how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SideBucket {
    /// Whether the values are below 0.
    pub(super) is_below: bool,
    /// The nearer bound, at least 0.
    pub(super) near: f64,
    /// The farther bound, which is finite.
    pub(super) far: f64,
    /// How many values there are, at least 1.
    pub(super) count: u64,
}

/// What a bucket has below 0, and from 0 on. One with 0 inside is divided by its width.
pub(super) fn sides((low, high, count): (f64, f64, u64)) -> impl Iterator<Item = SideBucket> {
    let below = if low >= 0.0 {
        0
    } else if high <= 0.0 {
        count
    } else {
        ((count as f64 * (-low / (high - low))).round() as u64).min(count)
    };
    let side = |is_below, near: f64, far: f64, count| SideBucket { is_below, near: near.max(0.0), far, count };
    let both = [side(true, -high, -low, below), side(false, low, high, count - below)];
    both.into_iter().filter(|side| side.count > 0)
}

/// What values on one side of 0 sum up to if they are in the middle of their buckets; `None` if there are none.
type SideSum = Option<f64>;

/// Sums of values on both sides of 0, those below without their sign.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    below: SideSum,
    above: SideSum,
}

impl Sums {
    /// Adds what is in `bucket`.
    pub(super) fn add(&mut self, bucket: &SideBucket) {
        let sum = if bucket.is_below { &mut self.below } else { &mut self.above };
        *sum = Some(sum.unwrap_or(0.0) + bucket.count as f64 * f64::midpoint(bucket.near, bucket.far));
    }

    /// The sums below 0 and from 0 on, if all values make `sum`: what is below 0 is in the middle of its buckets,
    /// unless nothing else is there to make up the sum. A sum that is no finite number is in neither.
    pub(super) fn of(self, sum: f64) -> (f64, f64) {
        match (self.below, self.above) {
            _ if !sum.is_finite() => (0.0, 0.0),
            (Some(_), None) => ((-sum).max(0.0), 0.0),
            (Some(below), Some(_)) if below + sum >= 0.0 => (below, below + sum),
            (Some(_), Some(_)) => (-sum, 0.0),
            (None, _) => (0.0, sum.max(0.0)),
        }
    }
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
        assert_eq!(buckets((Some(-3.0), Some(f64::INFINITY))), [(-3.0, 5.0, 1), (10.0, 10.0, 2)]);
    }

    #[test]
    fn without_a_least_value_what_is_below_the_first_bound_lies_from_zero_on_if_it_can() {
        let first = |bounds: &[f64]| {
            let counts = std::iter::repeat_n(1, bounds.len() + 1);
            explicit(bounds.iter().copied(), counts, (None, None)).next()
        };

        assert_eq!(first(&[5.0, 10.0]), Some((0.0, 5.0, 1)));
        assert_eq!(first(&[0.0, 10.0]), Some((0.0, 0.0, 1)));
        assert_eq!(first(&[-5.0, 10.0]), Some((-5.0, -5.0, 1)));
        assert_eq!(first(&[]), Some((0.0, 0.0, 1)));
    }

    #[test]
    fn a_bucket_is_what_it_has_on_each_side_of_zero() {
        let of = |bucket| sides(bucket).map(|of| (of.is_below, of.near, of.far, of.count)).collect::<Vec<_>>();

        assert_eq!(of((1.0, 2.0, 3)), [(false, 1.0, 2.0, 3)]);
        assert_eq!(of((0.0, 0.0, 3)), [(false, 0.0, 0.0, 3)]);
        assert_eq!(of((-2.0, -1.0, 3)), [(true, 1.0, 2.0, 3)]);
        assert_eq!(of((-2.0, 0.0, 3)), [(true, 0.0, 2.0, 3)]);
        assert_eq!(of((-1.0, 3.0, 8)), [(true, 0.0, 1.0, 2), (false, 0.0, 3.0, 6)]);
    }

    #[test]
    fn the_sums_of_both_sides_make_the_sum_of_all() {
        let sums = |buckets: &[(f64, f64, u64)]| {
            let mut sums = Sums::default();
            buckets.iter().copied().flat_map(sides).for_each(|side| sums.add(&side));
            sums
        };
        let both = sums(&[(-2.0, -1.0, 4), (1.0, 3.0, 2), (5.0, 5.0, 1)]);

        assert_eq!(both.of(3.5), (6.0, 9.5));
        assert_eq!(both.of(-6.0), (6.0, 0.0));
        assert_eq!(both.of(-7.0), (7.0, 0.0), "more is below 0 than the buckets say");
        assert_eq!(sums(&[(-2.0, -1.0, 4)]).of(-7.0), (7.0, 0.0));
        assert_eq!(sums(&[(1.0, 3.0, 2)]).of(5.0), (0.0, 5.0));
        assert_eq!(sums(&[(1.0, 3.0, 2)]).of(-5.0), (0.0, 0.0));
        assert_eq!([f64::NAN, f64::INFINITY].map(|sum| both.of(sum)), [(0.0, 0.0); 2]);
    }

    #[test]
    fn an_exponential_bucket_lies_between_powers_of_its_base() {
        let (positive, negative) = ((-2, [1, 0, 0, 4].into_iter()), (0, [0, 3].into_iter()));
        let buckets: Vec<_> = exponential(1, positive, negative, 7, (Some(-1.5), None)).collect();

        assert_eq!(buckets.len(), 4);
        assert_eq!(buckets[0], (0.0, 0.0, 7));
        // From -2 on, but nothing is below the least value.
        assert_eq!((buckets[1].0, buckets[1].2), (-1.5, 3));
        assert!((buckets[1].1 + 2_f64.sqrt()).abs() < 1e-9);
        assert_eq!((buckets[2].0, buckets[2].2), (0.5, 1));
        assert!((buckets[3].0 - 2_f64.sqrt()).abs() < 1e-9 && (buckets[3].1 - 2.0).abs() < 1e-9);
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
            let [positive, negative] =
                [point.positive_bucket(), point.negative_bucket()].map(|side| (side.offset(), side.counts()));
            let buckets = exponential(point.scale(), positive, negative, point.zero_count(), (None, None));
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
    fn negative_values_of_the_sdk_lie_where_positive_ones_do_on_the_other_side() {
        let values = [1e-9, 0.3, 1.0, 2.0, 1_000.0];
        let mirrored: Vec<_> =
            of_the_sdk(&values, 160).into_iter().map(|(low, high, count)| (-high, -low, count)).collect();

        assert_eq!(of_the_sdk(&values.map(|value| -value), 160), mirrored);
        let zeros = of_the_sdk(&[0.0, -1.0, 0.0, 1.0], 160);
        assert_eq!((zeros[0], zeros.len()), ((0.0, 0.0, 2), 3));
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
            let on_both_sides = sides((low, low + width, count)).map(|side| side.count).sum::<u64>();
            prop_assert_eq!(on_both_sides, count);
        }
    }
}

//! From slots to rows: headers, counters, gauges, histograms, several replicas.

use wire::id::Generation;
use wire::layout::{HeaderWord, VERSION};

use super::*;
use transport::{BatchError, RegionError};

use crate::region_limits::RegionLimits;

/// A node with one LMAP whose rows are subscribed to, after its first tick.
fn watched(metrics: Vec<MetricSpec>, replicas: u32) -> Node {
    let mut node = Node::new(WorkerSettings::default());
    node.set(&lmap(metrics, replicas));
    node.alive();
    node.watch_rows();
    node
}

/// Equal, or both missing.
fn same(row: &[f64], expected: &[f64]) -> bool {
    row.len() == expected.len() && row.iter().zip(expected).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
}

#[track_caller]
fn assert_row(node: &mut Node, expected: &[f64]) {
    let rows = node.rows();
    assert!(matches!(&rows[..], [row] if same(row, expected)), "{rows:?} is not {expected:?}");
}

#[test]
fn a_row_has_one_value_per_column_in_the_order_of_metrics_and_statistics() {
    let kinds = [Kind::Counter, Kind::UpDownCounter, Kind::Gauge, Kind::Histogram(Scale::DEFAULT)];
    let metrics = (1..).zip(kinds).map(|(id, kind)| metric(id, &format!("metric.{id}"), kind)).collect();
    let mut node = watched(metrics, 1);

    node.add(1, 0, 3);
    node.store(1, 1, (-4_i64).cast_unsigned());
    node.store(1, 2, 2.5_f64.to_bits());
    let (bucket, sum) = (Scale::DEFAULT.bucket(8), Scale::DEFAULT.sum_slot());
    node.add(1, 3 + bucket, 2);
    node.add(1, 3 + sum, 16);
    node.alive();

    let p99 = 8.0 + 2.0 * 0.99;
    assert_row(&mut node, &[3.0, -4.0, 2.5, 2.0, 8.0, p99]);
}

#[test]
fn a_region_is_fetched_as_far_as_its_last_slot_in_use_and_its_header_at_the_least() {
    let histogram = Kind::Histogram(Scale::DEFAULT);
    let mut spec = lmap(vec![metric(1, "a", Kind::Counter), metric(2, "b", histogram), metric(3, "c", Kind::Gauge)], 2);
    spec.replicas[0].places[2].first = Slot(7); // before the end of what lies at slot 1
    spec.replicas[1].places.clear();
    let mut node = Node::new(WorkerSettings::default());
    node.set(&spec);
    while let Step::SleepUntil(deadline) = node.worker.poll(node.now) {
        node.now = deadline;
    }

    let mut lengths: Vec<_> = node.worker.batch().iter().map(|buffer| (buffer.region.0, buffer.words.len())).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(1, Slot(1 + histogram.slots()).word()), (2, Slot(0).word())]);
}

#[test]
fn pages_between_slots_in_use_are_neither_fetched_nor_paid_for_and_values_are_found() {
    let kinds = [Kind::Counter, Kind::Histogram(Scale::DEFAULT), Kind::Gauge];
    let metrics = (1..).zip(kinds).map(|(id, kind)| metric(id, &format!("metric.{id}"), kind)).collect();
    let mut spec = lmap(metrics, 1);
    let size = RegionSize::new(16 << 20).unwrap();
    let (histogram, last) = (Slot(700_000), Slot(size.slots() - 1));
    spec.replicas[0].regions[0].size = size;
    spec.replicas[0].places[1].first = histogram;
    spec.replicas[0].places[2].first = last;
    let limits = RegionLimits { regions: 10, bytes: 32 << 10 };
    let mut node = Node::new(WorkerSettings { regions: limits, ..WorkerSettings::default() });
    node.set(&spec);
    node.alive();
    node.watch_rows();

    node.add(1, 0, 3);
    let (bucket, sum) = (Scale::DEFAULT.bucket(8), Scale::DEFAULT.sum_slot());
    node.add(1, histogram.0 + bucket, 2);
    node.add(1, histogram.0 + sum, 16);
    node.store(1, last.0, 2.5_f64.to_bits());
    node.alive();

    assert_row(&mut node, &[3.0, 2.0, 8.0, 8.0 + 2.0 * 0.99, 2.5]);
    let more = MetricSpec { every: NonZeroU32::MIN, ..metric(4, "more", Kind::Counter) };
    spec.metrics.push(more);
    spec.replicas[0].places.push(MetricPlace { metric: MetricId(4), region: RegionId(1), first: Slot(400_000) });
    node.set(&spec);
    node.add(1, 0, 5);
    node.add(1, histogram.0 + bucket, 1);
    node.add(1, histogram.0 + sum, 8);
    node.alive();
    let rows = node.rows();
    let row = rows.last().unwrap();
    assert_eq!((row[0], row[1], row[4]), (5.0, 1.0, 2.5), "values go on at other places of the buffer: {row:?}");
    while let Step::SleepUntil(deadline) = node.worker.poll(node.now) {
        node.now = deadline;
    }
    assert!(node.worker.batch()[0].words.len() < 2048);
}

#[test]
fn replicas_are_put_together_as_asked() {
    let gauge = |id, name: &str, aggregation| MetricSpec { aggregation, ..metric(id, name, Kind::Gauge) };
    let spread = MetricName::new("spread").unwrap();
    let metrics = vec![
        gauge(1, "a", Aggregation::Max),
        gauge(2, "b", Aggregation::Min),
        gauge(3, "c", Aggregation::Sum),
        gauge(4, "d", Aggregation::Mean),
        gauge(5, "e", Aggregation::Named(spread.clone())),
        gauge(6, "f", Aggregation::parse("p25").unwrap()),
        gauge(7, "g", Aggregation::parse("(max - min) / count").unwrap()),
    ];
    let mut settings = WorkerSettings::default();
    settings.aggregations.add(spread, |values: &[f64]| values[values.len() - 1] - values[0]);
    let mut node = Node::new(settings);
    node.set(&lmap(metrics, 3));
    node.watch_rows();

    for (region, value) in [(1, 1.0_f64), (2, 5.0), (3, 6.0)] {
        (0..7).for_each(|slot| node.store(region, slot, value.to_bits()));
    }
    node.alive();

    assert_row(&mut node, &[6.0, 1.0, 12.0, 4.0, 5.0, 3.0, 5.0 / 3.0]);
}

/// A column that no replica registers.
fn derived(id: u32, name: &str, formula: &str) -> MetricSpec {
    let aggregation = Aggregation::Derived(wire::name::Formula::new(formula).unwrap());
    MetricSpec { aggregation, ..metric(id, name, Kind::Gauge) }
}

#[test]
fn a_derived_column_is_computed_from_other_columns_and_missing_if_it_is_no_number() {
    let routes = |id, route: &str| {
        let mut of = metric(id, "errors", Kind::Counter);
        of.series.labels = wire::name::Labels::new([("route", route)]).unwrap();
        of
    };
    let mut spec = lmap(vec![routes(1, "/"), routes(2, "/pay"), metric(3, "requests", Kind::Counter)], 2);
    spec.metrics.push(derived(4, "ratio", "errors / requests"));
    spec.metrics.push(derived(5, "pay", r#"`errors{route="/pay"}` / requests"#));
    spec.metrics.push(derived(6, "missing", "errors / ratio"));
    let mut node = Node::new(WorkerSettings::default());
    node.set(&spec);
    node.watch_rows();
    node.alive();
    assert_row(&mut node, &[f64::NAN; 6]);
    for (region, errors) in [(1, 1), (2, 2)] {
        node.store(region, 0, errors);
        node.store(region, 1, 3 * errors);
        node.store(region, 2, 8 * errors);
    }
    node.alive();

    assert_row(&mut node, &[3.0, 9.0, 24.0, 0.5, 0.375, f64::NAN]);
    node.alive();
    assert_row(&mut node, &[0.0, 0.0, 0.0, f64::NAN, f64::NAN, f64::NAN]);
}

#[test]
fn an_aggregation_that_nobody_knows_is_a_missing_metric_and_not_a_refused_lmap() {
    let mut node = Node::new(WorkerSettings::default());
    let aggregation = Aggregation::Named(MetricName::new("mode").unwrap());
    let spec = lmap(vec![metric(1, "a", Kind::Gauge), MetricSpec { aggregation, ..metric(2, "b", Kind::Gauge) }], 1);
    node.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));

    let refused = node.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    node.watch_rows();
    node.alive();

    assert!(matches!(refused, UnexpectedMessage::Aggregation { lmap: LmapId(1), .. }), "{refused}");
    assert_row(&mut node, &[0.0, f64::NAN]);
}

#[test]
fn histograms_of_all_replicas_are_one_histogram() {
    let mut node = watched(vec![metric(1, "latency", Kind::Histogram(Scale::DEFAULT))], 2);

    let (quick, slow, sum) = (Scale::DEFAULT.bucket(4), Scale::DEFAULT.bucket(1000), Scale::DEFAULT.sum_slot());
    node.add(1, quick, 98);
    node.add(1, sum, 98 * 4);
    node.add(2, slow, 2);
    node.add(2, sum, 2 * 1000);
    node.alive();

    let rows = node.rows();
    let [count, mean, p99] = rows[0][..] else { panic!("{rows:?}") };
    assert_eq!((count, mean), (100.0, 23.92));
    assert!((896.0..=1024.0).contains(&p99), "the slow replica's values are the tail, not {p99}");
}

#[test]
fn a_metric_that_is_looked_at_every_third_tick_holds_its_value_between() {
    let every = NonZeroU32::new(3).unwrap();
    let mut node =
        watched(vec![MetricSpec { every, ..metric(1, "a", Kind::Counter) }, metric(2, "b", Kind::Counter)], 1);

    for _ in 0..7 {
        node.add(1, 0, 10);
        node.add(1, 1, 10);
        node.alive();
    }

    let slow: Vec<f64> = node.rows().iter().map(|row| row[0]).collect();
    assert!(slow[0].is_nan() && slow[1].is_nan());
    assert_eq!(slow[2..], [10.0, 10.0, 10.0, 10.0, 10.0], "per interval");
}

#[test]
fn a_changed_generation_discards_one_sample_of_that_replica_and_is_counted() {
    let mut node = watched(vec![metric(1, "a", Kind::Counter), metric(2, "b", Kind::Gauge)], 1);

    let mut rows = Vec::new();
    for generation in [1, 2, 2, 2] {
        node.regions[&RegionId(1)].set_generation(Generation(generation));
        node.add(1, 0, 5);
        node.alive();
        rows.extend(node.rows());
    }

    assert_eq!(rows.len(), 3, "nothing was fresh in one tick, so that there is no row");
    assert_eq!(rows[0][0], 5.0);
    assert!(rows[1][0].is_nan() && rows[1][1] == 0.0, "slots may mean something else: no increment across the change");
    assert_eq!(rows[2][0], 5.0);
    assert_eq!(node.summary().0.discarded_generation, 1);
}

#[test]
fn a_region_with_a_hole_for_a_header_is_discarded_and_counted() {
    let mut node = watched(vec![metric(1, "a", Kind::Gauge)], 2);
    node.store(1, 0, 3.0_f64.to_bits());
    node.store(2, 0, 7.0_f64.to_bits());
    node.alive();
    assert_row(&mut node, &[5.0]);

    node.regions[&RegionId(2)].punch();
    for _ in 0..5 {
        node.alive();
    }

    assert!(node.rows()[..5].iter().all(|row| row[0] == 5.0 || row[0] == 3.0), "a hole is not a zero");
    let (summary, _) = node.summary();
    assert!(summary.discarded_header > 5);
    assert_eq!(summary.silent_replicas, [2], "no heartbeat either");
    let (status, lmap) = (node.worker.status(), node.worker.runtimes[&LmapId(1)].regions.discarded);
    assert!(lmap.header >= summary.discarded_header);
    assert_eq!((status.discarded[1], status.silent_replicas), (lmap.header, 1));

    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();
    let after = node.worker.status();
    assert_eq!((after.discarded, after.silent_replicas), (status.discarded, 0), "a total never falls");
}

#[test]
fn a_region_that_cannot_be_read_for_a_moment_neither_dips_nor_jumps() {
    let mut node = watched(vec![metric(1, "a", Kind::Counter)], 2);

    for tick in 0..6 {
        node.regions[&RegionId(2)].fail((tick == 3).then_some(RegionError::Timeout));
        node.add(1, 0, 10);
        node.add(2, 0, 10);
        node.alive();
    }

    let messages = node.take_messages();
    let problems: Vec<_> = messages.iter().filter(|message| matches!(message, ToHost::RegionProblem(_))).collect();
    assert_eq!(problems.len(), 1);
    node.messages = messages;
    assert_eq!(node.rows().concat(), [20.0; 6]);
    let (summary, counters) = node.summary();
    assert_eq!((summary.discarded_unread, counters.failed_regions), (1, 1));
}

#[test]
fn a_batch_that_failed_as_a_whole_is_counted_and_nobody_is_judged_by_it() {
    let mut node = watched(vec![metric(1, "a", Kind::Counter)], 1);
    node.add(1, 0, 5);
    node.alive();

    assert_eq!(node.worker.poll(node.now.plus(INTERVAL)), Step::Fetch);
    node.now = node.now.plus(INTERVAL);
    let refused = node.worker.fetched(node.now, UnixNanos(0), &Err(BatchError::Lost(None)));
    assert!(refused.is_empty());
    node.add(1, 0, 10);
    node.alive();

    assert_eq!(node.rows().concat(), [5.0, 5.0], "per interval");
    assert_eq!(node.worker.status().counters.failed_batches, 1);
}

#[test]
fn increments_after_a_late_tick_are_per_interval() {
    let mut node = watched(vec![metric(1, "a", Kind::Counter)], 1);

    node.now = node.now.plus(Nanos::from_millis(400));
    node.add(1, 0, 40);
    node.alive();

    assert_row(&mut node, &[10.0]);
}

#[test]
fn values_that_are_no_numbers_are_missing() {
    let mut node = watched(metrics(4), 1);

    node.store(1, 1, f64::NAN.to_bits());
    node.store(1, 3, f64::NEG_INFINITY.to_bits());
    node.alive();

    assert_row(&mut node, &[0.0, f64::NAN, 0.0, f64::NAN]);
}

#[test]
fn random_words_never_panic_and_never_give_a_score_that_is_none() {
    let mut node = Node::new(quick());
    let mut spec = lmap(metrics(20), 2);
    spec.metrics.push(metric(21, "latency", Kind::Histogram(Scale::DEFAULT)));
    for replica in &mut spec.replicas {
        let region = replica.regions[0].id;
        replica.places.push(MetricPlace { metric: MetricId(21), region, first: Slot(20) });
    }
    node.set(&spec);
    let mut seeds = crate::seeds::Seeds::new(5);

    for tick in 0..200 {
        for region in [1, 2] {
            (0..146).for_each(|slot| node.store(region, slot, seeds.draw() >> (seeds.draw() % 64)));
        }
        if tick % 50 == 49 {
            node.regions.values().for_each(|region| region.set_generation(Generation(seeds.draw())));
        }
        node.alive();
    }

    assert!(node.verdicts().iter().all(|verdict| verdict.score.is_finite() && verdict.score >= 0.0));
    assert!(node.summary().0.samples > 190);
}

#[test]
fn a_region_of_another_layout_version_is_discarded_and_counted() {
    let mut node = watched(vec![metric(1, "a", Kind::Gauge)], 2);
    node.store(1, 0, 3.0_f64.to_bits());
    node.store(2, 0, 7.0_f64.to_bits());
    node.alive();
    assert_row(&mut node, &[5.0]);

    node.regions[&RegionId(2)].header(HeaderWord::Version).store(VERSION + 1, Relaxed);
    node.store(2, 0, 1e9_f64.to_bits());
    for _ in 0..5 {
        node.alive();
    }

    assert!(
        node.rows()[..5].iter().all(|row| row[0] == 5.0 || row[0] == 3.0),
        "slots of an unknown layout are no values"
    );
    let (summary, _) = node.summary();
    assert!(summary.discarded_header > 5);
}

#[test]
fn a_summary_is_sent_when_a_row_is_due_whenever_the_session_began() {
    let mut node = Node::new(WorkerSettings::default());
    node.worker.disconnected(node.now);
    node.now = Nanos::from_millis(1_234);
    node.welcome(2);
    node.set(&lmap(metrics(2), 1));

    let mut woken = Vec::new();
    while node.now < Nanos::from_millis(4_250) {
        match node.worker.poll(node.now) {
            Step::SleepUntil(deadline) => {
                node.act();
                woken.push(deadline.as_millis());
                node.now = deadline;
            }
            Step::Fetch => node.fetch(),
        }
    }

    assert_eq!(woken, (13..=43).map(|tenths| 100 * tenths).collect::<Vec<u64>>(), "rows only");
    let summaries = node.take_messages().iter().filter(|message| matches!(message, ToHost::Summary(_))).count();
    assert_eq!(summaries, 4, "at once, and at 2, 3 and 4 s");
}

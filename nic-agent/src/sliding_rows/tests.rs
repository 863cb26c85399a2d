use core::num::{NonZeroU32, NonZeroU64};
use std::collections::BTreeMap;

use proptest::prelude::*;
use transport::{FetchStatus, Runs};
use wire::control::{DetectorSpec, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec};
use wire::histogram::Scale;
use wire::id::{LmapId, MetricId, Owner, RegionId, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::{Aggregation, Group, Kind, Series, TickDivider};
use wire::name::{Formula, InstanceName, Labels, MetricName, ServiceName};

use super::*;
use crate::aggregation::Aggregations;

const PARTS: u32 = 5;
const FETCH: Nanos = Nanos::from_millis(20);
/// Slots of a region: two counters, a gauge, an up-down counter, a histogram.
const SLOTS: usize = 4 + Scale::DEFAULT.slots() as usize;

fn interval() -> Interval {
    Interval::new(Nanos(FETCH.0 * u64::from(PARTS))).unwrap()
}

fn metric(id: u32, kind: Kind, aggregation: Option<Aggregation>, every: u32) -> MetricSpec {
    let series = Series {
        name: MetricName::new(&format!("m{id}")).unwrap(),
        labels: Labels::default(),
        kind,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    let aggregation = aggregation.unwrap_or_else(|| Aggregation::default_for(kind));
    MetricSpec { id: MetricId(id), series, aggregation, every: TickDivider::new(every).unwrap() }
}

/// All kinds of columns over `replicas`: two counters (the second aggregated by its maximum), a gauge, an up-down
/// counter that is read every third row, a histogram, and an expression.
fn spec(replicas: u64) -> LmapSpec {
    let metrics = vec![
        metric(1, Kind::Counter, None, 1),
        metric(2, Kind::Counter, Some(Aggregation::Max), 1),
        metric(3, Kind::Gauge, None, 1),
        metric(4, Kind::UpDownCounter, None, 3),
        metric(5, Kind::Histogram(Scale::DEFAULT), None, 1),
        metric(6, Kind::Gauge, Some(Aggregation::Derived(Formula::new("m1 / (m2 + 1)").unwrap())), 1),
    ];
    let replica = |id: u64| ReplicaSpec {
        id: ReplicaId(id as u32),
        instance: InstanceName::new(&format!("cart-{id}")).unwrap(),
        owner: Owner::Agent,
        regions: vec![RegionSpec {
            id: RegionId(id),
            size: RegionSize::ONE_PAGE,
            heartbeat: true,
            address: 0,
            rkey: 0,
            sample_times: false,
        }],
        places: (1..=5)
            .map(|metric| MetricPlace { metric: MetricId(metric), region: RegionId(id), first: Slot(metric - 1) })
            .collect(),
    };
    LmapSpec {
        id: LmapId(1),
        service: ServiceName::new("cart").unwrap(),
        interval: interval(),
        heartbeat: Nanos::from_millis(100),
        replicas: (1..=replicas).map(replica).collect(),
        metrics,
        model: Vec::new(),
        detector: DetectorSpec::default(),
        several_services: false,
        fastest: None,
    }
}

fn columns(spec: &LmapSpec) -> Columns {
    let runs = Runs::first(RegionSize::ONE_PAGE.words());
    let regions: BTreeMap<_, _> =
        spec.replicas.iter().zip(0..).map(|(replica, at)| (replica.regions[0].id, (at, runs.clone()))).collect();
    Columns::new(spec, &regions, &Aggregations::default(), 5)
}

/// What one replica does in one part of an interval.
#[derive(Clone, Debug)]
struct Activity {
    added: [u64; 2],
    gauge: f64,
    step: i64,
    durations: Vec<u64>,
    observation: Observation,
}

fn part() -> impl Strategy<Value = Activity> {
    let observation = prop_oneof![20 => Just(Observation::Fresh), 1 => Just(Observation::Unread)];
    let durations = prop::collection::vec(1_u64..1_000_000, 0..4);
    let counts = [0_u64..1_000, 0_u64..1_000];
    (counts, -1e6..1e6_f64, -50_i64..50, durations, observation).prop_map(
        |(added, gauge, step, durations, observation)| Activity { added, gauge, step, durations, observation },
    )
}

/// The regions of all replicas while they do something.
struct World {
    slots: Vec<Vec<u64>>,
}

impl World {
    fn new(replicas: usize) -> Self {
        Self { slots: vec![vec![0; SLOTS]; replicas] }
    }

    fn pass(&mut self, parts: &[Activity]) {
        for (slots, part) in self.slots.iter_mut().zip(parts) {
            slots[0] += part.added[0];
            slots[1] += part.added[1];
            slots[2] = part.gauge.to_bits();
            slots[3] = slots[3].wrapping_add_signed(part.step);
            for &duration in &part.durations {
                slots[4 + Scale::DEFAULT.bucket(duration) as usize] += 1;
                slots[4 + Scale::DEFAULT.sum_slot() as usize] += duration;
            }
        }
    }

    fn buffers(&self) -> Vec<RegionBuffer> {
        let header = Slot(0).word();
        let words = |slots: &Vec<u64>| {
            let mut words = vec![0; RegionSize::ONE_PAGE.words()];
            words[header..header + SLOTS].copy_from_slice(slots);
            words
        };
        let buffer = |(slots, region)| {
            let words = words(slots);
            let runs = Runs::first(words.len());
            RegionBuffer { region: RegionId(region), words, runs, status: FetchStatus::Fetched }
        };
        self.slots.iter().zip(1..).map(buffer).collect()
    }
}

fn observations(parts: &[Activity]) -> Vec<Observation> {
    parts.iter().map(|part| part.observation).collect()
}

/// The bits of each value, one for all that are missing.
fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| if value.is_nan() { u64::MAX } else { value.to_bits() }).collect()
}

#[test]
fn counters_of_a_sliding_row_are_the_sum_of_its_parts() {
    let (spec, mut world) = (spec(1), World::new(1));
    let mut rows = columns(&spec);
    let mut sliding = SlidingRows::new(interval(), NonZeroU32::new(PARTS).unwrap());
    let added = [3_u64, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53];
    let mut last_row = Nanos::ZERO;
    rows.read(&world.buffers(), &[Observation::Fresh], ObservationTime::of_row(Nanos::ZERO, interval()));

    for (fetch, added) in added.iter().enumerate() {
        let now = Nanos(FETCH.0 * (fetch as u64 + 1));
        world.slots[0][0] += added;
        let covered =
            |fetches: usize| self::added_by(&[3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53], fetch, fetches);
        if sliding.is_between(now) {
            let row = sliding.read(&rows, last_row, &world.buffers(), &[Observation::Fresh], now).unwrap();
            let since_row = fetch % PARTS as usize + 1;
            let (fetches, part) = if fetch < PARTS as usize { (since_row, row.part) } else { (PARTS as usize, 1.0) };
            assert_eq!(row.part, part);
            assert!((row.values[0] * part - covered(fetches) as f64).abs() < 1e-9, "{row:?} after {fetch}");
        } else {
            rows.read(&world.buffers(), &[Observation::Fresh], ObservationTime::of_row(now, interval()));
            assert_eq!(rows.row()[0], covered(PARTS as usize) as f64);
            last_row = now;
        }
    }
}

/// The sum of the last `fetches` of `added`, up to number `fetch`.
fn added_by(added: &[u64], fetch: usize, fetches: usize) -> u64 {
    added[fetch + 1 - fetches..=fetch].iter().sum()
}

#[test]
fn a_late_row_before_it_makes_a_partial_row_longer_and_none_is_longer_than_an_interval() {
    let (spec, world) = (spec(1), World::new(1));
    let (rows, fresh) = (columns(&spec), [Observation::Fresh]);
    let mut sliding = SlidingRows::new(interval(), NonZeroU32::new(PARTS).unwrap());
    let now = Nanos(interval().length().0 * 7 + FETCH.0 * 2);
    let mut part = |last_row: u64| {
        sliding.restart();
        sliding.read(&rows, Nanos(last_row), &world.buffers(), &fresh, now).map(|row| row.part)
    };

    assert_eq!(part(now.0 - 2 * FETCH.0), Some(0.4));
    assert_eq!(part(now.0 - FETCH.0), Some(0.2), "the row was late");
    assert_eq!(part(now.0 - 7 * FETCH.0), None, "a row was missed");
}

/// The counter, and whether the gauge is there, of each row between two others while a sampler writes 100 at the third
/// of five fetches: with its part. `observed` is what is seen of the sampler's last write, from its number and its
/// time.
fn with_a_sampler(observed: impl Fn(u64, Nanos) -> Observation) -> Vec<(u64, f64, f64, bool)> {
    let (spec, mut world) = (spec(1), World::new(1));
    let mut rows = columns(&spec);
    let mut sliding = SlidingRows::new(interval(), NonZeroU32::new(PARTS).unwrap());
    let (mut writes, mut written, mut last_row, mut found) = (0, Nanos::ZERO, Nanos::ZERO, Vec::new());
    for fetch in 0..25_u64 {
        let now = Nanos(FETCH.0 * fetch);
        if fetch % u64::from(PARTS) == 3 {
            world.slots[0][0] += 100;
            world.slots[0][2] = 7.0_f64.to_bits();
            (writes, written) = (writes + 1, now);
        }
        let observations = [observed(writes, written)];
        if !sliding.is_between(now) {
            let row = rows.read(&world.buffers(), &observations, ObservationTime::of_row(now, interval()));
            assert!(fetch < 10 || row[0] == 100.0, "{row:?}");
            last_row = now;
        } else if fetch > 10 {
            let row = sliding.read(&rows, last_row, &world.buffers(), &observations, now).unwrap();
            found.push((fetch, row.part, row.values[0], row.values[2].is_finite()));
        }
    }
    found
}

#[test]
fn what_a_sampler_writes_that_does_not_say_when_is_missing_in_partial_rows_and_whole_in_all_others() {
    for (fetch, part, counter, has_gauge) in with_a_sampler(|writes, _| Observation::Sampled(writes)) {
        let is_whole = part == 1.0;
        assert_eq!((is_whole, has_gauge), (fetch > 15, is_whole), "fetch {fetch}");
        assert!(if is_whole { counter == 100.0 } else { counter.is_nan() }, "fetch {fetch}: {counter}");
    }
}

#[test]
fn what_a_sampler_writes_that_says_when_is_per_interval_of_its_time_and_old_levels_are_missing() {
    let found = with_a_sampler(|_, written| Observation::Timed(written.0 / 1_000));

    assert!(found.iter().all(|(_, _, counter, _)| counter.is_nan() || *counter == 100.0), "{found:?}");
    let told: Vec<_> =
        found.iter().filter(|(_, _, counter, _)| counter.is_finite()).map(|(fetch, ..)| *fetch).collect();
    assert_eq!(told, [13, 14, 16, 17, 18, 19, 21, 22, 23, 24]);
    // The sample before is of fetch 8: for three parts of five that is two too many, for four it is one.
    let levels: Vec<_> = found.iter().filter(|(.., has_gauge)| *has_gauge).map(|(fetch, ..)| *fetch).collect();
    assert_eq!(levels, [14, 16, 17, 18, 19, 21, 22, 23, 24]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A set of columns that observes at the same place of every interval sees, from its second row on, what columns at
    /// the learnt interval see that have observed nothing but those fetches: for all kinds, aggregations, strides and
    /// expressions, and with fetches that failed. The LMAP's own rows are as if nobody had fetched between them.
    #[test]
    fn sliding_rows_are_the_rows_at_the_learnt_interval_where_they_coincide(
        parts in prop::collection::vec(prop::collection::vec(part(), 2), 40),
        first in 1..PARTS as usize,
    ) {
        let (spec, mut world) = (spec(2), World::new(2));
        let (mut rows, mut alone) = (columns(&spec), columns(&spec));
        let mut same: Vec<Option<Columns>> = (0..PARTS).map(|_| None).collect();
        let mut sliding = SlidingRows::new(interval(), NonZeroU32::new(PARTS).unwrap());
        let fresh = [Observation::Fresh; 2];
        let start = ObservationTime::of_row(Nanos::ZERO, interval());
        rows.read(&world.buffers(), &fresh, start);
        alone.read(&world.buffers(), &fresh, start);
        let mut last_row = Nanos::ZERO;

        for (fetch, of) in parts.iter().enumerate().map(|(at, of)| (at + 1, of)) {
            world.pass(of);
            let (now, buffers, observations) = (Nanos(FETCH.0 * fetch as u64), world.buffers(), observations(of));
            let time = ObservationTime::of_row(now, interval());
            let place = fetch % PARTS as usize;
            if place == 0 {
                rows.read(&buffers, &observations, time);
                alone.read(&buffers, &observations, time);
                prop_assert_eq!(bits(rows.row()), bits(alone.row()));
                last_row = now;
            } else if place >= first || fetch > PARTS as usize {
                rows.pass(&observations);
                let from = rows.clone();
                let Some(row) = sliding.read(&rows, last_row, &buffers, &observations, now) else { continue };
                let columns = same[place].get_or_insert(from);
                if row.part < 1.0 {
                    // What it covers is judged by the other tests. Both go on from the same observation.
                    let partial = ObservationTime { parts: PARTS, ..time };
                    columns.read(&buffers, &observations, partial);
                } else {
                    columns.read(&buffers, &observations, time);
                }
                prop_assert_eq!(bits(row.values), bits(columns.row()));
            }
        }
    }

    /// Counters over a whole interval are the sums of what was added, to the last unit; gauges and up-down counters
    /// are what they are.
    #[test]
    fn sliding_rows_sum_counters_exactly_and_take_gauges_as_they_are(
        parts in prop::collection::vec(part().prop_map(|part| Activity { observation: Observation::Fresh, ..part }), 25),
    ) {
        let (spec, mut world) = (spec(1), World::new(1));
        let mut rows = columns(&spec);
        let mut sliding = SlidingRows::new(interval(), NonZeroU32::new(PARTS).unwrap());
        rows.read(&world.buffers(), &[Observation::Fresh], ObservationTime::of_row(Nanos::ZERO, interval()));
        let mut last_row = Nanos::ZERO;

        for (at, of) in parts.iter().enumerate() {
            world.pass(std::slice::from_ref(of));
            let now = Nanos(FETCH.0 * (at as u64 + 1));
            if !sliding.is_between(now) {
                rows.read(&world.buffers(), &[Observation::Fresh], ObservationTime::of_row(now, interval()));
                last_row = now;
                continue;
            }
            let row = sliding.read(&rows, last_row, &world.buffers(), &[Observation::Fresh], now).unwrap();
            prop_assert_eq!(row.values[2], of.gauge);
            if row.part == 1.0 {
                let whole = &parts[at + 1 - PARTS as usize..=at];
                for counter in [0, 1] {
                    let sum: u64 = whole.iter().map(|part| part.added[counter]).sum();
                    prop_assert_eq!(row.values[counter], sum as f64);
                }
                let count: usize = whole.iter().map(|part| part.durations.len()).sum();
                prop_assert_eq!(row.values[4], count as f64);
            }
        }
    }
}

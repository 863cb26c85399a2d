use super::*;

use core::num::NonZeroU64;

use transport::FetchStatus;
use wire::control::{DetectorSpec, RegionSpec, ReplicaSpec};
use wire::histogram::Scale;
use wire::id::{LmapId, Owner, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::{Aggregation, Group, Series as Title};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::time::{Interval, Nanos};

use crate::outlier::{Deviation, ReplicaValues};

const OBSERVATIONS_HELD: u32 = 2;

fn metric(id: u32, kind: Kind, aggregation: Aggregation, every: u32) -> MetricSpec {
    let series = Title {
        name: MetricName::new(&format!("metric.{id}")).unwrap(),
        labels: Labels::default(),
        kind,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    MetricSpec { id: MetricId(id), series, aggregation, every: TickDivider::new(every).unwrap() }
}

fn replica(id: u32, regions: &[u64], places: Vec<wire::control::MetricPlace>) -> ReplicaSpec {
    let region = |id: &u64| RegionSpec {
        id: RegionId(*id),
        size: RegionSize::ONE_PAGE,
        heartbeat: true,
        address: 0,
        rkey: 0,
        sample_times: false,
    };
    let instance = InstanceName::new(&format!("cart-{id}")).unwrap();
    ReplicaSpec {
        id: ReplicaId(id),
        instance,
        owner: Owner::Agent,
        regions: regions.iter().map(region).collect(),
        places,
    }
}

fn place(metric: u32, region: u64, first: u32) -> wire::control::MetricPlace {
    wire::control::MetricPlace { metric: MetricId(metric), region: RegionId(region), first: Slot(first) }
}

fn interval() -> Interval {
    Interval::new(Nanos::from_millis(10)).unwrap()
}

fn spec(metrics: Vec<MetricSpec>, replicas: Vec<ReplicaSpec>) -> LmapSpec {
    LmapSpec {
        id: LmapId(1),
        service: ServiceName::new("cart").unwrap(),
        interval: interval(),
        heartbeat: Nanos::from_millis(100),
        metrics,
        replicas,
        model: Vec::new(),
        detector: DetectorSpec::default(),
        several_services: false,
        fastest: None,
    }
}

fn regions(spec: &LmapSpec) -> BTreeMap<RegionId, usize> {
    let ids = spec.replicas.iter().flat_map(|replica| replica.regions.iter().map(|region| region.id));
    ids.zip(0..).collect()
}

/// The index of each region, whose buffer holds the whole of it.
fn whole(spec: &LmapSpec) -> BTreeMap<RegionId, (usize, Runs)> {
    let runs = Runs::first(RegionSize::ONE_PAGE.words());
    regions(spec).into_iter().map(|(region, at)| (region, (at, runs.clone()))).collect()
}

fn buffer(region: u64, words: Vec<u64>) -> RegionBuffer {
    let runs = Runs::first(words.len());
    RegionBuffer { region: RegionId(region), words, runs, status: FetchStatus::Fetched }
}

fn at(millis: u64) -> ObservationTime {
    ObservationTime::of_row(Nanos::from_millis(millis), interval())
}

/// One metric, in several replicas with one region each.
struct SingleMetric(Columns);

impl SingleMetric {
    fn new(kind: Kind, replicas: u32) -> Self {
        let replicas = (1..=replicas).map(|id| replica(id, &[u64::from(id)], vec![place(1, u64::from(id), 0)]));
        let spec = spec(vec![metric(1, kind, Aggregation::Sum, 1)], replicas.collect());
        Self(Columns::new(&spec, &whole(&spec), &Aggregations::default(), OBSERVATIONS_HELD))
    }

    /// The first column; `None` if it is missing.
    fn observe_all(&mut self, millis: u64, observations: &[(Observation, u64)]) -> Option<f64> {
        let words = |slot| [vec![0; 8], vec![slot], vec![0; 125]].concat();
        let buffers: Vec<_> = observations.iter().zip(1..).map(|((_, slot), id)| buffer(id, words(*slot))).collect();
        let observations: Vec<_> = observations.iter().map(|(observation, _)| *observation).collect();
        Some(self.0.read(&buffers, &observations, at(millis))[0]).filter(|value| !value.is_nan())
    }

    fn observe(&mut self, millis: u64, observation: Observation, slot: u64) -> Option<f64> {
        self.observe_all(millis, &[(observation, slot)])
    }

    fn fresh(&mut self, millis: u64, slot: u64) -> Option<f64> {
        self.observe(millis, Observation::Fresh, slot)
    }
}

#[test]
fn a_counters_first_look_and_its_reset_are_missing() {
    let mut counter = SingleMetric::new(Kind::Counter, 1);

    assert_eq!(counter.fresh(0, 1_000_000), None);
    assert_eq!(counter.fresh(10, 1_000_005), Some(5.0));
    assert_eq!(counter.fresh(20, 3), None);
    assert_eq!(counter.fresh(30, 4), Some(1.0));
}

#[test]
fn increments_are_per_interval_whatever_the_time_between() {
    let mut counter = SingleMetric::new(Kind::Counter, 1);

    assert_eq!(counter.fresh(0, 0), None);
    assert_eq!(counter.fresh(30, 15), Some(5.0), "two ticks late");
    assert_eq!(counter.observe(40, Observation::Unread, 0), None);
    assert_eq!(counter.fresh(50, 25), Some(5.0), "after one that could not be read");
    assert_eq!(counter.fresh(50, 26), None, "no time has passed");
    assert_eq!(counter.fresh(62, 31), Some(5.0), "a little late is on time");
}

#[test]
fn a_counter_of_several_words_grows_by_what_all_of_them_grow() {
    let places = [0, 8, 16, 24].map(|first| place(1, 1, first)).to_vec();
    let spec = spec(vec![metric(1, Kind::Counter, Aggregation::Sum, 1)], vec![replica(1, &[1], places)]);
    let mut columns = Columns::new(&spec, &whole(&spec), &Aggregations::default(), OBSERVATIONS_HELD);
    let mut read = |millis, shards: [u64; 4]| {
        let slots = shards.iter().flat_map(|shard| [*shard, 99, 99, 99, 99, 99, 99, millis]);
        let words = [0; 8].into_iter().chain(slots).collect();
        columns.read(&[buffer(1, words)], &[Observation::Fresh], at(millis)).to_vec()
    };

    assert!(read(0, [5, 0, 1_000, 7])[0].is_nan());

    assert_eq!(read(10, [6, 0, 1_000, 10]), [4.0]);
    assert_eq!(read(20, [6, 2, 1_001, 10]), [3.0]);
    assert_eq!(read(40, [6, 2, 1_001, 10]), [0.0]);
}

#[test]
fn words_of_a_counter_are_summed_before_replicas_are_aggregated() {
    let places = |region| [0, 8].map(|first| place(1, region, first)).to_vec();
    let replicas = vec![replica(1, &[1], places(1)), replica(2, &[2], places(2))];
    let spec = spec(vec![metric(1, Kind::Counter, Aggregation::Max, 1)], replicas);
    let mut columns = Columns::new(&spec, &whole(&spec), &Aggregations::default(), OBSERVATIONS_HELD);
    let mut read = |millis, words: [[u64; 2]; 2]| {
        let region = |[one, other]: [u64; 2]| [vec![0; 8], vec![one], vec![0; 7], vec![other], vec![0; 7]].concat();
        let buffers = [buffer(1, region(words[0])), buffer(2, region(words[1]))];
        columns.read(&buffers, &[Observation::Fresh; 2], at(millis))[0]
    };

    assert!(read(0, [[0, 0], [0, 0]]).is_nan());

    assert_eq!(read(10, [[3, 4], [5, 0]]), 7.0);
    assert_eq!(read(20, [[3, 4], [6, 9]]), 10.0);
}

#[test]
fn a_counter_that_is_read_less_often_is_its_mean_increment_and_never_a_burst() {
    let every = |every| {
        let metrics = vec![metric(1, Kind::Counter, Aggregation::Sum, every)];
        let spec = spec(metrics, vec![replica(1, &[1], vec![place(1, 1, 0)])]);
        let mut columns = Columns::new(&spec, &whole(&spec), &Aggregations::default(), OBSERVATIONS_HELD);
        let read = |tick: u64| {
            // One a row, and ten more in rows 6 to 8.
            let words = [vec![0; 8], vec![tick + 10 * tick.saturating_sub(5).min(3)]].concat();
            columns.read(&[buffer(1, words)], &[Observation::Fresh], at(10 * tick))[0]
        };
        (0..12).map(read).collect::<Vec<_>>()
    };

    assert_eq!(every(1)[1..], [1.0, 1.0, 1.0, 1.0, 1.0, 11.0, 11.0, 11.0, 1.0, 1.0, 1.0]);
    assert_eq!(every(4)[4..], [1.0, 1.0, 1.0, 1.0, 8.5, 8.5, 8.5, 8.5]);
    assert!(every(4)[..4].iter().all(|value| value.is_nan()));
}

#[test]
fn what_was_read_before_a_discarded_look_is_forgotten() {
    for observation in [Observation::Discarded, Observation::Silent] {
        let mut counter = SingleMetric::new(Kind::Counter, 1);
        assert_eq!(counter.fresh(0, 0), None);
        assert_eq!(counter.fresh(10, 1), Some(1.0));

        assert_eq!(counter.observe(20, observation, 900), None);

        assert_eq!(counter.fresh(30, 1000), None);
        assert_eq!(counter.fresh(40, 1002), Some(2.0));
    }
}

#[test]
fn a_region_that_is_sampled_has_a_new_value_only_when_it_was_written() {
    let mut counter = SingleMetric::new(Kind::Counter, 1);

    assert_eq!(counter.observe(0, Observation::Sampled(1), 0), None);
    assert_eq!(counter.observe(10, Observation::Sampled(2), 5), Some(5.0));
    assert_eq!(counter.observe(20, Observation::Sampled(2), 5), None, "the sampler is a little late");
    assert_eq!(counter.observe(30, Observation::Sampled(4), 15), Some(5.0), "and has been here twice since");
    for tick in 4..50 {
        assert_eq!(counter.observe(10 * tick, Observation::Sampled(4), 15), None, "it is gone: that is no load of 0");
    }
}

#[test]
fn a_replicas_value_is_held_for_some_looks_but_not_that_of_a_silent_one() {
    let word = f64::to_bits;
    let mut gauge = SingleMetric::new(Kind::Gauge, 2);
    assert_eq!(gauge.observe_all(0, &[(Observation::Fresh, word(2.5)), (Observation::Fresh, word(1.0))]), Some(3.5));

    for (observations, sum) in [(1, 2.5), (2, 2.5), (3, 0.0)] {
        let found = gauge.observe_all(10 * observations, &[(Observation::Unread, 0), (Observation::Fresh, word(0.0))]);
        assert_eq!(found, Some(sum), "after {observations} observations");
    }
    assert_eq!(gauge.observe_all(40, &[(Observation::Unread, 0), (Observation::Unread, 0)]), None, "nothing is new");
    assert_eq!(gauge.observe_all(50, &[(Observation::Fresh, word(1.0)), (Observation::Fresh, word(0.0))]), Some(1.0));
    assert_eq!(gauge.observe_all(60, &[(Observation::Silent, word(9.0)), (Observation::Fresh, word(0.0))]), Some(0.0));
}

#[test]
fn gauges_that_are_no_numbers_are_missing_and_steps_go_below_zero() {
    let mut gauge = SingleMetric::new(Kind::Gauge, 1);
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(gauge.fresh(0, 1.0_f64.to_bits()), Some(1.0));
        assert_eq!(gauge.fresh(0, wrong.to_bits()), None);
    }

    assert_eq!(SingleMetric::new(Kind::UpDownCounter, 1).fresh(0, u64::MAX), Some(-1.0));
}

#[test]
fn a_histogram_counts_per_interval() {
    let mut histogram = SingleMetric::new(Kind::Histogram(Scale::DEFAULT), 1);

    assert_eq!(histogram.fresh(0, 7), None);
    assert_eq!(histogram.fresh(20, 13), Some(3.0));
    assert_eq!(histogram.fresh(30, 12), None, "a bucket shrank");
}

#[test]
fn a_region_that_is_shorter_than_said_is_not_read() {
    for kind in [Kind::Gauge, Kind::Counter, Kind::Histogram(Scale::DEFAULT)] {
        let mut one = SingleMetric::new(kind, 1);
        for millis in [0, 10] {
            let row = one.0.read(&[buffer(1, vec![0; 8])], &[Observation::Fresh], at(millis));
            assert!(row[0].is_nan());
        }
    }
}

#[test]
fn a_column_that_no_replica_has_any_more_is_missing() {
    let gauge = || vec![metric(1, Kind::Gauge, Aggregation::Sum, 1)];
    let spec = |metrics, places| spec(metrics, vec![replica(1, &[1], places)]);
    let columns = |spec: &LmapSpec| Columns::new(spec, &whole(spec), &Aggregations::default(), OBSERVATIONS_HELD);
    let mut before = columns(&spec(gauge(), vec![place(1, 1, 0)]));
    let buffers = [buffer(1, vec![0; 9])];
    assert_eq!(before.read(&buffers, &[Observation::Fresh], at(0)), [0.0]);

    let mut after = columns(&spec(gauge(), vec![])).take_over(before);

    assert!(after.read(&buffers, &[Observation::Fresh], at(10))[0].is_nan());
}

#[test]
fn a_column_names_the_replica_that_does_not_do_what_it_usually_does() {
    for kind in [Kind::Counter, Kind::Histogram(Scale::DEFAULT)] {
        let mut one = SingleMetric::new(kind, 2);
        let fresh = |slots: [u64; 2]| slots.map(|slot| (Observation::Fresh, slot));
        for tick in 0..=16 {
            one.observe_all(10 * tick, &fresh([5 * tick, 20 * tick]));
            one.0.learn_usual();
        }
        let mut outlier = |tick: u64, slots| {
            let seen = one.observe_all(10 * tick, &fresh(slots)).unwrap();
            one.0.outlier(0, Deviation { seen, expected: 25.0 }, &mut ReplicaValues::default())
        };

        assert_eq!(outlier(17, [170, 340]), Some(ReplicaId(1)), "{kind:?}: 90 in place of 5");
        assert_eq!(outlier(18, [185, 400]), None, "{kind:?}: both three times as much");
    }
}

#[test]
fn the_words_of_a_replica_are_one_value_that_stands_out() {
    let places = |region| [0, 8].map(|first| place(1, region, first)).to_vec();
    let replicas = vec![replica(1, &[1], places(1)), replica(2, &[2], places(2))];
    let spec = spec(vec![metric(1, Kind::Counter, Aggregation::Max, 1)], replicas);
    let mut columns = Columns::new(&spec, &whole(&spec), &Aggregations::default(), OBSERVATIONS_HELD);
    let read = |columns: &mut Columns, tick: u64, words: [[u64; 2]; 2]| {
        let region = |[one, other]: [u64; 2]| [vec![0; 8], vec![one], vec![0; 7], vec![other], vec![0; 7]].concat();
        let buffers = [buffer(1, region(words[0])), buffer(2, region(words[1]))];
        columns.read(&buffers, &[Observation::Fresh; 2], at(10 * tick))[0]
    };
    for tick in 0..=16 {
        read(&mut columns, tick, [[4 * tick, 3 * tick], [2 * tick, 6 * tick]]);
        columns.learn_usual();
    }

    let seen = read(&mut columns, 17, [[4 * 17, 3 * 17], [2 * 16 + 40, 6 * 17]]);

    assert_eq!(seen, 46.0);
    let found = columns.outlier(0, Deviation { seen, expected: 8.0 }, &mut ReplicaValues::default());
    assert_eq!(found, Some(ReplicaId(2)));
}

#[test]
fn what_was_usual_of_a_replica_that_was_alone_is_known_when_another_one_comes() {
    let of = |replicas: u32| {
        let replicas = (1..=replicas).map(|id| replica(id, &[u64::from(id)], vec![place(1, u64::from(id), 0)]));
        spec(vec![metric(1, Kind::Counter, Aggregation::Sum, 1)], replicas.collect())
    };
    let columns = |spec: &LmapSpec| Columns::new(spec, &whole(spec), &Aggregations::default(), OBSERVATIONS_HELD);
    let region = |id, slot: u64| buffer(id, [vec![0; 8], vec![slot]].concat());
    let mut alone = columns(&of(1));
    for tick in 0..3 {
        alone.read(&[region(1, 5 * tick)], &[Observation::Fresh], at(10 * tick));
    }

    let mut both = columns(&of(2)).take_over(alone);
    both.read(&[region(1, 15), region(2, 0)], &[Observation::Fresh; 2], at(30));
    let seen = both.read(&[region(1, 20), region(2, 80)], &[Observation::Fresh; 2], at(40))[0];

    let found = both.outlier(0, Deviation { seen, expected: 10.0 }, &mut ReplicaValues::default());
    assert_eq!((seen, found), (85.0, Some(ReplicaId(2))));
}

/// SplitMix64, a generator of numbers.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.throw().is_multiple_of(many)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[(self.throw() % all.len() as u64) as usize].clone()
    }
}

const METRICS: u32 = 24;
const REPLICAS: u32 = 3;

/// Up to three replicas with two regions each, and most of the metrics in most of them. Nearly all series keep their
/// location between configurations.
fn configuration(dice: &mut Dice) -> LmapSpec {
    let small = Kind::Histogram(Scale::new(0, 4).unwrap());
    let named = Aggregation::Named(MetricName::new("last").unwrap());
    let unknown = Aggregation::Named(MetricName::new("unknown").unwrap());
    let [quantile, formula] = ["p75", "max - min / count"].map(|text| Aggregation::parse(text).unwrap());
    let [sum, mean, max, min] = [Aggregation::Sum, Aggregation::Mean, Aggregation::Max, Aggregation::Min];
    let aggregations = [sum, mean, max, min, quantile, formula, named, unknown];
    let mut metrics = Vec::new();
    for id in 1..=METRICS {
        if id % 7 == 0 && dice.one_in(2) {
            continue;
        }
        let usual = [Kind::Counter, Kind::Counter, Kind::Gauge, Kind::UpDownCounter, small][(id / 3 % 5) as usize];
        let kind = if dice.one_in(40) { dice.of(&[Kind::Counter, Kind::Gauge, small]) } else { usual };
        let aggregation = if dice.one_in(3) { dice.of(&aggregations) } else { Aggregation::default_for(kind) };
        metrics.push(metric(id, kind, aggregation, if dice.one_in(10) { 3 } else { 1 }));
    }
    let mut replicas = Vec::new();
    for id in 1..=REPLICAS {
        if id > 1 && dice.one_in(2) {
            continue;
        }
        let of = [u64::from(10 * id), u64::from(10 * id + 1)];
        let mut places = Vec::new();
        for metric in &metrics {
            if dice.one_in(12) {
                continue;
            }
            let wide = matches!(metric.series.kind, Kind::Histogram(_));
            let MetricId(at) = metric.id;
            let first = if wide { 100 + 7 * at } else { at } + if dice.one_in(30) { 200 } else { 0 };
            let region = of[(at / 12 % 2) as usize];
            places.push(place(at, region, first));
            if metric.series.kind == Kind::Counter && at.is_multiple_of(5) {
                places.push(place(at, region, first + 50));
            }
        }
        replicas.push(replica(id, &of, places));
    }
    spec(metrics, replicas)
}

/// Writes the slots as a service does in an interval. With `wild`, it also does what no service should.
fn write(words: &mut [u64], wild: bool, dice: &mut Dice) {
    let strange = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 52, f64::NAN.to_bits(), f64::NEG_INFINITY.to_bits()];
    for word in words.iter_mut().skip(8) {
        *word = match dice.throw() % 400 {
            0 if wild => dice.of(&strange),
            1 if wild => word.wrapping_add(dice.throw()),
            2 if wild => dice.throw(),
            3..100 => *word,
            _ => word.wrapping_add(dice.throw() % 100),
        };
    }
}

fn some_observation(written: u64, wild: bool, dice: &mut Dice) -> Observation {
    match dice.throw() % 12 {
        0 if wild => Observation::Unread,
        1 if wild => Observation::Discarded,
        2 if wild => Observation::Silent,
        3 if wild => Observation::Sampled(written),
        _ => Observation::Fresh,
    }
}

#[test]
fn rows_are_those_that_series_by_series_would_give_whatever_happens() {
    let mut aggregations = Aggregations::default();
    aggregations.add(MetricName::new("last").unwrap(), |values: &[f64]| values[values.len() - 1]);
    let (mut quick, mut close) = (0, 0);
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut spec = configuration(&mut dice);
        let mut scalars = Columns::new(&spec, &whole(&spec), &aggregations, OBSERVATIONS_HELD);
        let mut plain = reference::Columns::new(&spec, &regions(&spec), &aggregations, OBSERVATIONS_HELD);
        let mut state: BTreeMap<RegionId, Vec<u64>> = BTreeMap::new();
        let (mut now, mut wild, mut sampled, mut written) = (1000, false, false, 0);
        for step in 0..120 {
            if dice.one_in(12) {
                (wild, sampled) = (dice.one_in(2), dice.one_in(6));
            }
            if dice.one_in(25) {
                spec = configuration(&mut dice);
                scalars = Columns::new(&spec, &whole(&spec), &aggregations, OBSERVATIONS_HELD).take_over(scalars);
                plain =
                    reference::Columns::new(&spec, &regions(&spec), &aggregations, OBSERVATIONS_HELD).take_over(plain);
            }
            now += if wild { dice.of(&[10, 10, 10, 9, 12, 0, 25, 400]) } else { dice.of(&[10, 9, 11, 14]) };
            written += u64::from(dice.one_in(2));
            let (mut buffers, mut observations) = (Vec::new(), Vec::new());
            for id in spec.replicas.iter().flat_map(|replica| replica.regions.iter().map(|region| region.id)) {
                let words = state.entry(id).or_insert_with(|| vec![1 << 40; RegionSize::ONE_PAGE.words()]);
                write(words, wild, &mut dice);
                buffers.push(buffer(id.0, words.clone()));
                observations.push(if sampled {
                    Observation::Sampled(written)
                } else {
                    some_observation(written, wild, &mut dice)
                });
            }

            let expected = plain.read(&buffers, &observations, at(now)).to_vec();
            let found = scalars.read(&buffers, &observations, at(now));

            let bits = |row: &[f64]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(found), bits(&expected), "seed {seed}, step {step}: {found:?}, expected {expected:?}");
            let (exact, all) = scalars.scalars.exact_runs();
            (quick, close) = (quick + exact, close + all - exact);
        }
    }
    assert!(quick > 25_000 && close > 25_000, "{quick} runs of series were exact, {close} were not");
}

#[test]
fn a_count_of_distinct_things_is_an_estimate_and_no_pool() {
    let of = |name: &str| {
        let mut metric = metric(1, Kind::Gauge, Aggregation::Sum, 1);
        (metric.series.name, metric.series.group) = (MetricName::new(name).unwrap(), Group::Network);
        let found: Vec<_> = ColumnInfo::all(&metric, Nanos::from_millis(500)).map(|info| info.column).collect();
        (found[0].estimated, found[0].pool)
    };

    assert_eq!(["network.sources.distinct", "network.loss"].map(of), [(true, false), (false, false)]);
}

#[test]
fn of_a_histogram_of_requests_the_count_is_load() {
    let of = |name: &str, kind| {
        let mut metric = metric(1, kind, Aggregation::Sum, 1);
        metric.series.name = MetricName::new(name).unwrap();
        ColumnInfo::all(&metric, Nanos::from_millis(500)).map(|info| info.column.load).collect::<Vec<_>>()
    };

    assert_eq!(of("http.server.request.duration", Kind::Histogram(Scale::DEFAULT)), [true, false, false]);
    assert_eq!([Kind::Counter, Kind::Gauge].map(|kind| of("http.server.requests", kind)), [[true], [false]]);
}

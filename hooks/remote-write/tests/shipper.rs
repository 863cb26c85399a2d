//! Rows in, requests out, against receivers that are strict, down, slow or wrong, in virtual time: the ledger always
//! balances, and nothing is ever out of order.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

#[path = "shipper/clock.rs"]
mod clock;
mod fixtures;

use core::num::NonZeroU64;

use fixtures::{Labels, ReceivedSeries};
use hooks::sampling::{Row, SampleLossReason, SamplingPolicy, SamplingRule, Series as Resolution};
use remote_write::encoding::Version;
use remote_write::feed::Column;
use remote_write::queue::QueueLimits;
use remote_write::reply::Reply;
use remote_write::series::{STALE_NAN, ServiceNumber};
use remote_write::shipper::{Delivery, Shipper, ShipperSettings, Step, Timestamp, VersionPolicy};
use wire::backoff::RetryRule;
use wire::metric::{Group, Kind, Series};
use wire::name::MetricName;
use wire::time::{Interval, Nanos, UnixNanos};

const BEGIN: u64 = 1_700_000_000;

fn settings() -> ShipperSettings {
    ShipperSettings {
        instance: "node-1".into(),
        labels: vec![("cluster".into(), "c".into())],
        rule: SamplingRule { policy: SamplingPolicy::Score { theta: 1.0 }, budget: None, ..SamplingRule::default() },
        queue: QueueLimits::default(),
        version: VersionPolicy::Negotiated,
        retry: RetryRule::default(),
        began: UnixNanos::from_secs(BEGIN),
    }
}

fn at(seconds: f64) -> Timestamp {
    let monotonic = Nanos((seconds * 1e9) as u64);
    Timestamp { monotonic, wall: UnixNanos::from_secs(BEGIN).plus(monotonic) }
}

fn second() -> Interval {
    Interval::new(Nanos::from_secs(1)).unwrap()
}

fn column(name: &str, kind: Kind) -> Column {
    let series = Series {
        name: MetricName::new(name).unwrap(),
        labels: wire::name::Labels::default(),
        kind,
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    Column { series, statistic: kind.statistics()[0] }
}

fn columns() -> Vec<Column> {
    vec![column("requests", Kind::Counter), column("queue", Kind::Gauge)]
}

fn has(labels: &Labels, name: &str, value: &str) -> bool {
    labels.iter().any(|pair| pair.0 == name && pair.1 == value)
}

/// A shipper, a receiver, and what it received.
struct Simulation {
    shipper: Shipper,
    stored: ReceivedSeries,
    refusals: Vec<String>,
    /// Reply instead of accepting the request.
    instead: Option<Reply>,
    knows_two: bool,
    requests: u64,
}

fn http_reply(status: u16, samples_written: Option<u64>) -> Reply {
    Reply::Http {
        status,
        samples_written,
        exemplars_written: None,
        any_written: samples_written.is_some(),
        retry_after: None,
    }
}

impl Simulation {
    fn new(settings: ShipperSettings) -> Self {
        let shipper = Shipper::new(settings).unwrap();
        let (stored, refusals) = (ReceivedSeries::default(), Vec::new());
        Self { shipper, stored, refusals, instead: None, knows_two: true, requests: 0 }
    }

    fn watch(&mut self, name: &str, now: Timestamp) -> ServiceNumber {
        let service = self.shipper.service(name, second());
        self.shipper.set_columns(service, &columns(), second(), now);
        service
    }

    fn row(&mut self, service: ServiceNumber, now: Timestamp, values: &[f64], score: f64) {
        self.shipper.row(service, &Row { at: now.wall, values, score: Some(score) }, now);
        self.check();
    }

    /// Sends what is due, and replies.
    fn step(&mut self, now: Timestamp) -> Option<Delivery> {
        let (version, body) = match self.shipper.poll(now.monotonic) {
            Step::Wait(_) => return None,
            Step::Send(request) => (request.version, request.body.to_vec()),
        };
        self.requests += 1;
        self.check();
        let answer = match &self.instead {
            Some(answer) => answer.clone(),
            // A receiver of 1.0 decodes 2.0 as an empty message.
            None if version == Version::V2 && !self.knows_two => http_reply(204, None),
            None => match self.stored.take(version, &body) {
                Ok(written) => http_reply(204, Some(written).filter(|_| self.knows_two)),
                Err(why) => {
                    self.refusals.push(why);
                    http_reply(400, None)
                }
            },
        };
        let delivery = self.shipper.complete(&answer, now, 0.5);
        self.check();
        Some(delivery)
    }

    fn drain(&mut self, now: Timestamp) {
        while self.step(now).is_some_and(|delivery| !matches!(delivery, Delivery::Retry(_))) {}
    }

    fn check(&self) {
        for series in [Resolution::Baseline, Resolution::Dense] {
            assert!(self.shipper.totals(series).balances(), "{:?}", self.shipper.totals(series));
        }
    }
}

#[test]
fn a_service_has_a_baseline_and_while_it_is_in_trouble_a_dense_series_with_what_came_before() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    for second in 1..=200_u32 {
        let now = at(f64::from(second));
        let score = if (100..110).contains(&second) { 2.0 } else { 0.1 };
        simulation.row(cart, now, &[10.0, f64::from(second)], score);
        simulation.drain(now);
    }
    simulation.drain(at(300.0));

    let series = &simulation.stored.series;
    assert_eq!(simulation.refusals, [] as [String; 0]);
    assert_eq!(series.len(), 4);
    let find = |name: &str, dense: bool| {
        let wanted =
            |labels: &Labels| has(labels, "__name__", name) && has(labels, "uview_resolution", "dense") == dense;
        let (labels, samples) = series.iter().find(|(labels, _)| wanted(labels)).unwrap();
        for (name, value) in [("job", "cart"), ("instance", "node-1"), ("cluster", "c")] {
            assert!(has(labels, name, value), "{labels:?}");
        }
        let second = |at: i64| at / 1000 - BEGIN as i64;
        samples.iter().map(|(at, bits)| (second(*at), f64::from_bits(*bits))).collect::<Vec<_>>()
    };
    // Wall-clock multiples of 30 s, after the first row.
    let offset = 30 - (BEGIN % 30) as i64;
    let times: Vec<_> = find("queue", false).iter().map(|(second, _)| *second).collect();
    assert_eq!(
        times,
        core::iter::once(1).chain((0..7).map(|n| offset + 30 * n)).filter(|&s| s <= 200).collect::<Vec<_>>()
    );
    // 30 rows before, 10 of trouble, 5 more.
    let dense = find("queue", true);
    assert_eq!(dense.first(), Some(&(70, 70.0)));
    assert_eq!((dense.len(), dense.last()), (45, Some(&(114, 114.0))));
    // A counter is the sum of the rows, before the trigger as well.
    let sums = find("requests_total", true);
    assert!(sums.iter().all(|&(second, sum)| sum == 10.0 * second as f64), "{sums:?}");
    assert!(find("requests_total", false).iter().all(|&(second, sum)| sum == 10.0 * second as f64));
}

#[test]
fn a_receiver_of_one_is_sent_one_and_nothing_is_lost_on_the_way() {
    for first in [None, Some(http_reply(415, None)), Some(http_reply(400, None))] {
        let mut simulation = Simulation { knows_two: false, ..Simulation::new(settings()) };
        let cart = simulation.watch("cart", at(0.0));
        simulation.row(cart, at(1.0), &[1.0, 2.0], 0.0);
        simulation.instead = first;

        assert_eq!(simulation.step(at(3.0)), Some(Delivery::OtherVersion(Version::V1)));
        simulation.instead = None;
        assert_eq!(simulation.step(at(3.0)), Some(Delivery::Accepted(2)));

        let totals = simulation.shipper.totals(Resolution::Baseline);
        assert_eq!((totals.seen, totals.sent, totals.queued), (2, 2, 0));
        assert_eq!((simulation.shipper.counters().fallbacks, simulation.shipper.version()), (1, Version::V1));
        // An hour later 2.0 is tried again.
        simulation.knows_two = true;
        simulation.row(cart, at(3700.0), &[1.0, 2.0], 0.0);
        assert_eq!(simulation.step(at(3702.0)), Some(Delivery::Accepted(2)));
        assert_eq!(simulation.shipper.version(), Version::V2);
    }
}

#[test]
fn a_partial_write_is_counted_by_the_sample_and_never_sent_again() {
    let mut simulation = Simulation::new(settings());
    let (cart, shop) = (simulation.watch("cart", at(0.0)), simulation.watch("shop", at(0.0)));
    simulation.row(cart, at(1.0), &[1.0, 2.0], 0.0);
    simulation.row(shop, at(1.0), &[1.0, 2.0], 0.0);
    simulation.instead = Some(http_reply(400, Some(3)));

    assert_eq!(simulation.step(at(3.0)), Some(Delivery::Refused { written: 3, refused: 1 }));
    simulation.instead = None;
    assert_eq!(simulation.step(at(3.0)), None);

    let totals = simulation.shipper.totals(Resolution::Baseline);
    assert_eq!((totals.sent, totals.queued, totals.lost[SampleLossReason::Refused as usize]), (3, 0, 1));
    assert_eq!(simulation.shipper.counters().refused, 1);
}

#[test]
fn a_receiver_that_is_down_for_ten_minutes_gets_what_it_missed_in_order_and_memory_stays_bounded() {
    let queue = QueueLimits { bytes: 65_536, ..QueueLimits::default() };
    let rule = SamplingRule { policy: SamplingPolicy::Every, ..settings().rule };
    let mut simulation = Simulation::new(ShipperSettings { queue, rule, ..settings() });
    let services: Vec<_> = (0..5).map(|n| simulation.watch(&format!("s{n}"), at(0.0))).collect();
    let mut most = 0;
    for second in 1..=1200_u32 {
        let now = at(f64::from(second));
        let down = (200..800).contains(&second);
        simulation.instead = down.then_some(if second % 3 == 0 { http_reply(503, None) } else { Reply::None });
        for service in &services {
            simulation.row(*service, now, &[1.0, 2.0], 0.0);
        }
        simulation.drain(now);
        most = most.max(simulation.shipper.queued_bytes());
        assert!(most <= 65_536);
    }
    simulation.drain(at(1300.0));

    assert_eq!(simulation.refusals, [] as [String; 0]);
    let (dense, baseline) =
        (simulation.shipper.totals(Resolution::Dense), simulation.shipper.totals(Resolution::Baseline));
    assert_eq!((dense.seen, baseline.seen), (12_000, 12_000));
    let full = dense.lost[SampleLossReason::QueueFull as usize];
    assert!(full > 0 && dense.sent + full + dense.lost[SampleLossReason::TooOld as usize] == 12_000, "{dense:?}");
    assert_eq!(simulation.stored.samples("uview_resolution", Some("dense")), dense.sent);
    assert_eq!(simulation.stored.samples("uview_resolution", None), baseline.sent);
    // Ten minutes of back-off up to half a minute.
    assert!(simulation.shipper.counters().failed < 60, "{:?}", simulation.shipper.counters());
    assert!(most > 60_000, "{most}");
}

#[test]
fn what_waited_too_long_for_a_receiver_that_is_down_is_lost_for_its_age() {
    let queue = QueueLimits { age: Nanos::from_secs(60), ..QueueLimits::default() };
    let mut simulation = Simulation::new(ShipperSettings { queue, ..settings() });
    let cart = simulation.watch("cart", at(0.0));
    simulation.instead = Some(Reply::None);
    simulation.row(cart, at(1.0), &[1.0, 2.0], 0.0);
    for second in 2..100_u32 {
        simulation.step(at(f64::from(second)));
    }

    let totals = simulation.shipper.totals(Resolution::Baseline);
    assert_eq!((totals.queued, totals.lost[SampleLossReason::TooOld as usize]), (0, 2));
    assert_eq!(simulation.shipper.queued_bytes(), 0);
}

#[test]
fn a_service_that_goes_ends_its_series_and_one_that_comes_back_goes_on_after_the_end() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    simulation.row(cart, at(1.0), &[5.0, 2.0], 0.0);
    // The end is timed by this machine's clock, which is behind the one that rows are timed by.
    simulation.shipper.end(cart, at(0.5));
    let again = simulation.watch("cart", at(0.6));
    assert_eq!(again, cart, "something of it still waits: the same line");
    simulation.row(again, at(1.0005), &[7.0, 3.0], 0.0);
    simulation.row(again, at(40.0), &[7.0, 3.0], 0.0);
    simulation.drain(at(50.0));
    simulation.shipper.end(again, at(60.0));
    simulation.drain(at(70.0));

    assert_eq!(simulation.refusals, [] as [String; 0]);
    let queue =
        simulation.stored.series.iter().find(|(labels, _)| labels.iter().any(|(_, value)| value == "queue")).unwrap();
    let decoded_series: Vec<_> =
        queue.1.iter().map(|&(at, bits)| (at - 1000 * BEGIN as i64, bits == STALE_NAN)).collect();
    assert_eq!(decoded_series, [(1000, false), (1001, true), (40_000, false), (60_000, true)]);
    assert_eq!(simulation.shipper.services().count(), 0);
    let totals = simulation.shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, totals.sent), (6, 4));
    assert!(totals.balances());

    // Nothing of it is left: it gets a new number, and rows from before its end are still not sent.
    let third = simulation.watch("cart", at(61.0));
    assert_ne!(third, cart);
    simulation.row(third, at(59.0), &[1.0, 1.0], 0.0);
    simulation.row(third, at(62.0), &[1.0, 1.0], 0.0);
    simulation.drain(at(80.0));
    assert_eq!(simulation.refusals, [] as [String; 0]);
    assert_eq!(simulation.shipper.totals(Resolution::Baseline).lost[SampleLossReason::OutOfOrder as usize], 4);
}

#[test]
fn rows_of_a_worker_that_connects_again_count_once_and_those_of_the_future_are_lost() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    for second in [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0] {
        simulation.row(cart, at(second), &[1.0, 2.0], 0.0);
    }
    let early = UnixNanos::from_secs(BEGIN - 5);
    simulation.shipper.row(cart, &Row { at: early, values: &[1.0, 2.0], score: None }, at(4.0));
    let late = UnixNanos::from_secs(BEGIN + 4000);
    simulation.shipper.row(cart, &Row { at: late, values: &[1.0, 2.0], score: None }, at(4.0));
    simulation.check();

    let totals = simulation.shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, simulation.shipper.replayed_and_hidden()), (10, (4, 0)));
    assert_eq!(totals.lost[SampleLossReason::OutOfOrder as usize], 0);
    assert_eq!(totals.lost[SampleLossReason::Ahead as usize], 2);
}

#[test]
fn ticks_that_were_missed_are_made_up_for_in_sums_and_long_silences_are_not() {
    let mut simulation = Simulation::new(ShipperSettings {
        rule: SamplingRule { policy: SamplingPolicy::Every, ..settings().rule },
        ..settings()
    });
    let cart = simulation.watch("cart", at(0.0));
    // 4 per second: one tick was missed before the third row, and then there was nothing for a minute.
    for second in [1.0, 2.0, 4.0, 64.0] {
        simulation.row(cart, at(second), &[4.0, f64::NAN], 0.0);
    }
    simulation.drain(at(70.0));

    let dense =
        simulation.stored.series.iter().find(|(labels, _)| labels.iter().any(|(_, value)| value == "dense")).unwrap();
    let sums: Vec<_> = dense.1.iter().map(|(_, bits)| f64::from_bits(*bits)).collect();
    assert_eq!(sums, [4.0, 8.0, 16.0, 20.0]);
}

#[test]
fn two_metrics_that_become_the_same_name_are_not_mixed() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.shipper.service("cart", second());
    let columns = [column("queue.length", Kind::Gauge), column("queue-length", Kind::Gauge)];
    simulation.shipper.set_columns(cart, &columns, second(), at(0.0));
    simulation.row(cart, at(1.0), &[1.0, 2.0], 0.0);
    simulation.drain(at(3.0));

    assert_eq!(simulation.shipper.replayed_and_hidden(), (0, 1));
    assert_eq!(simulation.stored.series.values().next().unwrap()[0].1, 1.0_f64.to_bits());
    assert_eq!(simulation.shipper.totals(Resolution::Baseline).seen, 1);
}

#[test]
fn a_row_of_another_width_is_counted_and_changes_nothing() {
    let mut simulation = Simulation::new(settings());
    let cart = simulation.watch("cart", at(0.0));
    simulation.row(cart, at(1.0), &[1.0], 0.0);

    assert_eq!(simulation.shipper.counters().misfits, 1);
    assert_eq!(simulation.shipper.totals(Resolution::Baseline).seen, 0);
    assert_eq!(simulation.shipper.complete(&Reply::None, at(1.0), 0.0), Delivery::Unexpected);
}

/// A few thousand random steps: services start and end, columns change, clocks jump, receivers fail. Deterministic per
/// seed.
#[test]
fn whatever_a_receiver_does_nothing_is_out_of_order_and_every_sample_is_accounted_for() {
    for seed in 1..=40_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let queue = QueueLimits { bytes: 65_536, batch: 50, ..QueueLimits::default() };
        let policy = SamplingPolicy::Either { theta: 1.0, delta: 1.0 };
        let rule = SamplingRule { policy, budget: Some(0.5), ..SamplingRule::default() };
        let mut simulation =
            Simulation { knows_two: next(2) == 0, ..Simulation::new(ShipperSettings { queue, rule, ..settings() }) };
        let mut alive = [None; 4];
        let (mut time, mut behind) = (1.0, 0.0);
        for _ in 0..2000 {
            time += next(1500) as f64 / 1000.0;
            // The monotonic clock never goes back; the wall clock does.
            let now = Timestamp { monotonic: at(time).monotonic, wall: at(time - behind).wall };
            let place = next(4) as usize;
            let service = *alive[place].get_or_insert_with(|| simulation.watch(&format!("s{place}"), now));
            match next(40) {
                0 => {
                    simulation.shipper.end(service, now);
                    alive[place] = None;
                }
                1 => {
                    let kept = usize::try_from(next(3)).unwrap();
                    simulation.shipper.set_columns(service, &columns()[..kept], second(), now);
                }
                2 => simulation.shipper.set_columns(service, &columns(), second(), now),
                3 => simulation.shipper.set_alarm(service, next(2) == 0),
                4 => behind = next(3) as f64 * 0.4,
                _ => {
                    let values = [next(9) as f64, next(5) as f64];
                    simulation.row(service, now, &values, next(20) as f64 / 10.0);
                }
            }
            simulation.instead = match next(8) {
                0 => Some(http_reply(500 + next(5) as u16, None)),
                1 => Some(http_reply(429, None)),
                2 => Some(Reply::None),
                3 if next(20) == 0 => Some(http_reply(404, None)),
                _ => None,
            };
            simulation.step(now);
        }
        simulation.instead = None;
        (0..100_u32).for_each(|n| simulation.drain(at(time + f64::from(n))));

        assert_eq!(simulation.refusals, [] as [String; 0], "seed {seed}");
        let (baseline, dense) =
            (simulation.shipper.totals(Resolution::Baseline), simulation.shipper.totals(Resolution::Dense));
        assert_eq!((baseline.queued, dense.queued), (0, 0), "seed {seed}");
        assert_eq!(simulation.stored.samples("uview_resolution", None), baseline.sent, "seed {seed}");
        assert_eq!(simulation.stored.samples("uview_resolution", Some("dense")), dense.sent, "seed {seed}");
        assert!(baseline.sent > 50 && dense.sent > 50, "seed {seed}: {baseline:?} {dense:?}");
    }
}

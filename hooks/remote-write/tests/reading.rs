//! Values beside rows: `up`, histograms with buckets, and exemplars.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

mod fixtures;

use fixtures::{Labels, ReceivedSeries};
use hooks::sampling::{SampleLossReason, SamplingRule, Series as Resolution};
use prost::Message as _;
use remote_write::encoding::Version;
use remote_write::message::{Exemplar as SentExemplar, WriteRequest};
use remote_write::queue::QueueLimits;
use remote_write::reading::{Histogram, Reading};
use remote_write::reply::Reply;
use remote_write::series::{Exemplar, STALE_NAN, ServiceNumber};
use remote_write::shipper::{Delivery, Shipper, ShipperSettings, Step, Timestamp, VersionPolicy};
use wire::backoff::RetryRule;
use wire::time::{Interval, Nanos, UnixNanos};

const BEGIN: u64 = 1_700_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp { monotonic: Nanos::from_secs(seconds), wall: UnixNanos::from_secs(BEGIN + seconds) }
}

fn shipper(version: Version) -> (Shipper, ServiceNumber) {
    let mut shipper = Shipper::new(ShipperSettings {
        instance: "node-1".into(),
        labels: vec![("cluster".into(), "c".into())],
        rule: SamplingRule::default(),
        queue: QueueLimits { linger: Nanos::ZERO, ..QueueLimits::default() },
        version: VersionPolicy::Only(version),
        retry: RetryRule::default(),
        began: at(0).wall,
    })
    .unwrap();
    let service = shipper.service("cart", Interval::new(Nanos::from_secs(1)).unwrap());
    (shipper, service)
}

fn histogram(operation: &str, counts: [u64; 3]) -> Histogram {
    Histogram {
        name: "traces.span.metrics.duration",
        unit: "s",
        help: "how long requests took",
        labels: vec![("span.name".into(), operation.into())],
        bounds: [0.005, 1.0].into(),
        counts: counts.to_vec(),
        sum: 0.5,
        exemplars: vec![None; 3],
    }
}

fn reading(up: Option<bool>, histograms: Vec<Histogram>) -> Reading {
    Reading { up, histograms }
}

/// The body of the request that is due.
fn body(shipper: &mut Shipper, now: Timestamp) -> Option<Vec<u8>> {
    match shipper.poll(now.monotonic) {
        Step::Wait(_) => None,
        Step::Send(request) => Some(request.body.to_vec()),
    }
}

fn answer(status: u16, exemplars_written: Option<u64>) -> Reply {
    let samples_written = (status < 300).then_some(1_000);
    Reply::Http { status, samples_written, exemplars_written, any_written: true, retry_after: None }
}

fn balances(shipper: &Shipper) {
    let totals = shipper.totals(Resolution::Baseline);
    assert!(totals.balances(), "{totals:?}");
}

/// Name, operation and bound.
fn title(labels: &Labels) -> String {
    let of = |name: &str| labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    [of("__name__"), of("span_name"), of("le")].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_histogram_has_buckets_that_add_up_and_ends_with_its_operation_and_up_with_its_service() {
    let (mut shipper, cart) = shipper(Version::V2);
    let mut stored = ReceivedSeries::default();
    let mut send = |shipper: &mut Shipper, now: Timestamp| {
        let body = body(shipper, now).unwrap();
        stored.take(Version::V2, &body).unwrap();
        assert!(matches!(shipper.complete(&answer(204, None), now, 0.0), Delivery::Accepted(_)));
        balances(shipper);
        core::mem::take(&mut stored.series)
    };
    let pay = "traces_span_metrics_duration_seconds";

    shipper.read(
        cart,
        &reading(Some(true), vec![histogram("POST /pay", [2, 3, 1]), histogram("GET /x", [1, 0, 0])]),
        at(1),
    );
    balances(&shipper);
    let first = send(&mut shipper, at(1));

    assert_eq!(first.len(), 11);
    for labels in first.keys() {
        for pair in [("job", "cart"), ("instance", "node-1"), ("cluster", "c")] {
            assert!(labels.contains(&(pair.0.to_owned(), pair.1.to_owned())), "{labels:?}");
        }
        assert!(labels.iter().all(|(name, _)| name != "uview_resolution"));
    }
    let value = |title_wanted: &str| {
        let (_, samples) = first.iter().find(|(labels, _)| title(labels) == title_wanted).unwrap();
        f64::from_bits(samples[0].1)
    };
    let of_pay = [
        "_bucket POST /pay 0.005",
        "_bucket POST /pay 1.0",
        "_bucket POST /pay +Inf",
        "_count POST /pay",
        "_sum POST /pay",
    ];
    assert_eq!(of_pay.map(|title| value(&format!("{pay}{title}"))), [2.0, 5.0, 6.0, 6.0, 0.5]);
    assert_eq!(value("up"), 1.0);

    // The service hangs, and one operation is forgotten.
    shipper.read(cart, &reading(Some(false), vec![histogram("POST /pay", [2, 4, 1])]), at(31));
    let second = send(&mut shipper, at(31));
    let ended: Vec<_> = second.iter().filter(|(_, samples)| samples[0].1 == STALE_NAN).map(|(l, _)| title(l)).collect();
    assert_eq!(ended.len(), 5);
    assert!(ended.iter().all(|title| title.contains("GET /x")), "{ended:?}");
    let up = second.iter().find(|(labels, _)| title(labels) == "up").unwrap().1[0];
    assert_eq!(up, (at(31).wall.millis() as i64, 0));

    // The service is gone: a later reading is ignored.
    shipper.end(cart, at(40));
    shipper.read(cart, &reading(Some(true), vec![histogram("POST /pay", [3, 4, 1])]), at(41));
    let third = send(&mut shipper, at(42));
    assert_eq!(third.len(), 6);
    assert!(third.values().all(|samples| samples.len() == 1 && samples[0].1 == STALE_NAN), "{third:?}");
    let totals = shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, totals.sent), (17, 17));
    assert_eq!(shipper.totals(Resolution::Dense).seen, 0);
}

#[test]
fn services_are_read_once_in_an_interval_whatever_the_clock_does_and_never_out_of_order() {
    let (mut shipper, cart) = shipper(Version::V2);
    // BEGIN is 20 s after a multiple of 30 s.
    let due: Vec<_> = [0, 5, 9, 10, 39, 40, 41, 11, 12].map(|second| shipper.is_reading_due(at(second).wall)).to_vec();
    assert_eq!(due, [true, false, false, true, false, true, false, true, false]);

    shipper.read(cart, &reading(Some(true), Vec::new()), at(40));
    shipper.read(cart, &reading(Some(true), vec![histogram("a", [1, 0, 0])]), at(11));

    let totals = shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, totals.queued, totals.lost[SampleLossReason::OutOfOrder as usize]), (7, 1, 6));
    balances(&shipper);
}

#[test]
fn a_trace_is_sent_once_beside_its_bucket_and_what_became_of_it_is_counted() {
    let (mut shipper, cart) = shipper(Version::V1);
    let kept = |trace: &str, at_ms: i64| Some(Exemplar::new(trace, 0.25, at_ms));
    let sent = |shipper: &mut Shipper, exemplars: [Option<Exemplar>; 3], second: u64, answer: &Reply| {
        let exemplars = exemplars.to_vec();
        shipper.read(cart, &reading(None, vec![Histogram { exemplars, ..histogram("a", [1, 1, 1]) }]), at(second));
        let body = body(shipper, at(second)).unwrap();
        let message = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let request = WriteRequest::decode(&message[..]).unwrap();
        shipper.complete(answer, at(second), 0.0);
        balances(shipper);
        let shown = |sent: &SentExemplar| {
            (sent.labels[0].name.clone(), sent.labels[0].value.clone(), sent.value, sent.timestamp)
        };
        request.timeseries.iter().flat_map(|series| &series.exemplars).map(shown).collect::<Vec<_>>()
    };
    let counted = |shipper: &Shipper| {
        let counters = shipper.counters();
        (counters.exemplars, counters.sent_exemplars, counters.lost_exemplars)
    };

    let first = sent(&mut shipper, [None, kept("ab", 5), None], 1, &answer(204, None));
    assert_eq!(first, [("trace_id".to_owned(), "ab".to_owned(), 0.25, 5)]);
    assert_eq!(counted(&shipper), (1, 1, 0));
    // The same again, and one that is older than the receiver's last.
    assert_eq!(sent(&mut shipper, [None, kept("ab", 5), None], 31, &answer(204, None)), []);
    assert_eq!(sent(&mut shipper, [None, kept("cd", 4), None], 61, &answer(204, None)), []);
    // Another bucket is another series.
    assert_eq!(sent(&mut shipper, [kept("cd", 4), None, None], 91, &answer(400, None)).len(), 1);
    assert_eq!(counted(&shipper), (2, 1, 1));
    assert_eq!(sent(&mut shipper, [kept("ef", 6), kept("ef", 6), None], 121, &answer(204, Some(1))).len(), 2);
    assert_eq!(counted(&shipper), (4, 2, 2));
}

//! Tail sampling in virtual time: requests and verdicts in, requests with kept traces out.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use hooks::paths::Exemplar;
use hooks::tracing::{BudgetRule, Limits, Metric, OrderKey, Switches, Threshold, TraceId};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::{Finding, KeptRequest, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::{service_of, text_of, traces};
use wire::time::{Nanos, UnixNanos};

/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
}

fn tail(switches: Switches) -> TailSampler {
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, ..Limits::default() },
        key: OrderKey::new(7),
        switches,
        budget: BudgetRule::default(),
        frontends: vec!["frontend".to_owned()],
        node: "node-7".to_owned(),
    };
    TailSampler::new(&settings, at(0)).unwrap()
}

fn none() -> Switches {
    Switches { floor: None, ..Switches::default() }
}

fn span(trace: u64, id: u8, parent: u8, name: &str, when: Timestamp) -> Span {
    support::otlp::span(trace.into(), id, parent, name, when.wall.0)
}

fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

/// A request through the frontend and `service`; the frontend's span comes last.
fn ask(tail: &mut TailSampler, trace: u64, service: &str, name: &str, when: Timestamp) {
    tail.ingest(&request(service, vec![span(trace, 2, 1, "handle", when)]), when).unwrap();
    tail.ingest(&request("frontend", vec![span(trace, 1, 0, name, when)]), when).unwrap();
}

/// All exported spans, with their service.
fn kept(tail: &mut TailSampler) -> Vec<(String, Span)> {
    let mut kept = Vec::new();
    for batch in tail.take_batches() {
        let request = ExportTraceServiceRequest::decode(&batch.request[..]).unwrap();
        let before = kept.len();
        for resource in request.resource_spans {
            let service = service_of(&resource).to_owned();
            kept.extend(resource.scope_spans.into_iter().flat_map(|s| s.spans).map(|span| (service.clone(), span)));
        }
        assert_eq!(kept.len() - before, batch.spans);
    }
    kept
}

fn attribute_of(span: &Span, key: &str) -> Option<String> {
    text_of(&span.attributes, key).map(str::to_owned)
}

fn finding(service: &str, when: Timestamp) -> Finding<'_> {
    let metric = Metric {
        title: "request.duration.p99".into(),
        unit: "s".into(),
        seen: 0.18,
        expected: 0.02,
        of_distribution: true,
        replica: "".into(),
    };
    Finding {
        service,
        from: when.wall,
        at: when.wall,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics: vec![metric],
        incident: "".into(),
    }
}

#[test]
fn a_verdict_keeps_what_went_through_its_service_then_and_says_why() {
    let mut tail = tail(none());
    // Paths are learnt from a sixteenth of the traces that leave the buffer.
    for number in 1..=200 {
        ask(&mut tail, number * 2, "payment", "POST /pay", at(number));
        ask(&mut tail, number * 2 + 1, "catalog", "GET /list", at(number));
    }
    tail.tick(at(61_000));
    let mut paths: Vec<_> = tail.paths().map(|(service, name, through)| (service, name, through.len())).collect();
    paths.sort_unstable();
    assert_eq!(paths, [("frontend", "GET /list", 2), ("frontend", "POST /pay", 2)]);
    let listed = tail.operations(at(62_000).monotonic);
    let second = Nanos::from_secs(1);
    assert_eq!((listed[1].operation.as_str(), listed[1].requests), ("POST /pay", 200));
    let passed = |service: &str, called: &str| otlp::PathService {
        service: service.to_owned(),
        age: second,
        called: vec![called.to_owned()],
    };
    assert_eq!(listed[1].services, [passed("frontend", "POST /pay"), passed("payment", "handle")]);
    assert!(kept(&mut tail).is_empty());
    assert!(tail.take_kept_requests().is_empty(), "400 traces were dropped");

    for (second, trace) in (70..80).zip(1_000..) {
        ask(&mut tail, trace, "payment", "POST /pay", at(second * 1_000));
        ask(&mut tail, trace + 1_000, "catalog", "GET /list", at(second * 1_000));
    }
    assert!(tail.take_kept_requests().is_empty(), "20 traces are undecided");
    tail.verdict(finding("payment", at(75_000)), at(80_000));
    tail.tick(at(80_100));

    let kept = kept(&mut tail);
    let mut traces: Vec<u64> =
        kept.iter().map(|(_, span)| u128::from_be_bytes(span.trace_id[..].try_into().unwrap()) as u64).collect();
    traces.sort_unstable();
    // The verdict's second and the one before, both spans of each; nothing that did not go through payment.
    assert_eq!(traces, [1_004, 1_004, 1_005, 1_005]);
    let mut requests = tail.take_kept_requests();
    requests.sort_by_key(|kept| (kept.exemplar.at, kept.operation.clone()));
    let (took, trace) = (Nanos::from_millis(20), |trace: u128| TraceId::new(trace.to_be_bytes()).unwrap());
    let expected = [74_u64, 75].map(|second| {
        let (trace, at) = (trace(930 + u128::from(second)), at(second * 1_000).wall.plus(took));
        let exemplar = Exemplar { trace, took, at, incident: None };
        let of = |service: &str, operation: &str| KeptRequest {
            service: service.to_owned(),
            operation: operation.to_owned(),
            exemplar,
            incident: String::new(),
        };
        [of("frontend", "POST /pay"), of("payment", "handle")]
    });
    assert_eq!(requests, expected.concat());
    let roots: Vec<_> = kept.iter().filter(|(service, _)| service == "frontend").collect();
    let reason = "payment: score 12.0, threshold 4.0; request.duration.p99 180 ms, expected 20 ms";
    assert_eq!(roots.len(), 2);
    assert!(roots.iter().all(|(_, root)| attribute_of(root, "uview.reason").as_deref() == Some(reason)), "{roots:?}");
    assert!(tail.account().balances());
}

#[test]
fn the_floor_passes_at_once_what_it_keeps_and_says_its_share() {
    let mut tail = tail(Switches { floor: Threshold::keeping(0.5).ok(), error: false, ..none() });
    // The lower 56 bits decide: all ones are kept at any probability, all zeroes only at 1.
    ask(&mut tail, (1 << 56) - 1, "payment", "POST /pay", at(0));
    ask(&mut tail, 1 << 60, "payment", "POST /pay", at(0));

    let kept = kept(&mut tail);

    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|(_, span)| span.trace_state == "ot=th:8"));
    assert_eq!(tail.account().waiting.spans, 2);
}

#[test]
fn new_resources_without_end_are_refused_and_known_ones_are_not() {
    let mut tail = tail(none());
    ask(&mut tail, 1, "payment", "POST /pay", at(0));
    let long = "x".repeat(120_000);
    let mut refused = 0;
    for number in 0..200 {
        let counts = tail.ingest(&request(&format!("{long}{number}"), vec![span(2, 1, 0, "a", at(1))]), at(1)).unwrap();
        refused += counts.over_limit;
    }

    assert!(refused > 50, "{refused}");
    assert_eq!(tail.over_limit(), refused);
    let known = tail.ingest(&request("payment", vec![span(3, 1, 0, "a", at(2))]), at(2)).unwrap();
    assert_eq!((known.accepted, known.over_limit), (1, 0));
    // Their spans have left the buffer: the resources are forgotten.
    tail.tick(at(100_000));
    let later = tail.ingest(&request("new", vec![span(4, 1, 0, "a", at(100_000))]), at(100_000)).unwrap();
    assert_eq!((later.accepted, later.over_limit), (1, 0));
}

#[test]
fn what_is_no_request_leaves_nothing_behind() {
    let mut tail = tail(none());
    let mut bytes = request("payment", vec![span(1, 1, 0, "a", at(0)), span(2, 1, 0, "a", at(0))]);
    bytes.pop();

    assert!(tail.ingest(&bytes, at(0)).is_err());

    assert_eq!(tail.account().seen.spans, 0);
}

//! What an operator wants of single services, from spans to kept traces: in virtual time, with a sampler of its own.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::tracing::{
    BudgetRule, Limits, OrderKey, Policy, Randomness, ServicePolicies, ServiceRule, Switches, Threshold, TraceId,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{Finding, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::{text, traces};
use wire::time::{Nanos, UnixNanos};

/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(NOON).plus(monotonic) }
}

/// A sampler without a floor whose `service` has a rule.
fn tail(service: &str, share: Option<f64>, policies: Option<&[Policy]>) -> TailSampler {
    let switches = Switches { floor: None, ..Switches::default() };
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, ..Limits::default() },
        key: OrderKey::new(7),
        switches,
        budget: BudgetRule::default(),
        frontends: vec!["frontend".to_owned()],
        node: "node-7".to_owned(),
    };
    let mut tail = TailSampler::new(&settings, at(0)).unwrap();
    let policies = policies.map(|policies| policies.iter().copied().collect());
    let rule = ServiceRule { by: "SamplingPolicy shop/some".to_owned(), share, policies };
    let mut services = ServicePolicies::default();
    services.insert(service, &rule, &switches).unwrap();
    tail.set_service_policies(Arc::new(services));
    tail
}

fn span(trace: u128, id: u8, parent: u8, when: Timestamp) -> Span {
    support::otlp::span(trace, id, parent, "POST /pay", when.wall.0)
}

fn send(tail: &mut TailSampler, service: &str, span: Span, when: Timestamp) {
    tail.ingest(&traces(service, vec![span]).encode_to_vec(), when).unwrap();
}

/// A request through the frontend and `service`; the frontend's span comes last.
fn ask(tail: &mut TailSampler, trace: u128, service: &str, when: Timestamp) {
    send(tail, service, span(trace, 2, 1, when), when);
    send(tail, "frontend", span(trace, 1, 0, when), when);
}

/// Spans and reason of each kept trace.
fn kept(tail: &mut TailSampler) -> BTreeMap<u128, (usize, String)> {
    let mut kept: BTreeMap<u128, (usize, String)> = BTreeMap::new();
    for batch in tail.take_batches() {
        let request = ExportTraceServiceRequest::decode(&batch.request[..]).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let entry = kept.entry(u128::from_be_bytes(span.trace_id[..].try_into().unwrap())).or_default();
            entry.0 += 1;
            let reason = span.attributes.into_iter().find(|attribute| attribute.key == "uview.reason");
            if let Some(Value::StringValue(reason)) = reason.and_then(|reason| reason.value?.value) {
                entry.1 = reason;
            }
        }
    }
    kept
}

/// An id whose lower bits are spread.
fn spread(number: u64) -> u128 {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) | 1 << 127
}

#[test]
fn a_share_of_one_services_traces_is_kept_whole_and_says_who_wants_it() {
    let mut tail = tail("payment", Some(0.25), None);
    let quarter = Threshold::keeping(0.25).unwrap();
    let mut expected = Vec::new();
    for number in 0..400_u64 {
        let trace = spread(number);
        let keeps = quarter.keeps(Randomness::of(TraceId::new(trace.to_be_bytes()).unwrap()));
        ask(&mut tail, trace, if number % 2 == 0 { "payment" } else { "catalog" }, at(number * 100));
        if keeps && number % 2 == 0 {
            expected.push(trace);
        }
    }

    let kept = kept(&mut tail);

    expected.sort_unstable();
    assert_eq!(kept.keys().copied().collect::<Vec<_>>(), expected, "of payment a quarter, of catalog nothing");
    assert!((30..70).contains(&kept.len()), "{}", kept.len());
    let reason = "asked for: 25 % by SamplingPolicy shop/some";
    assert!(kept.values().all(|(spans, why)| *spans == 2 && why == reason), "{kept:?}");
    assert!(tail.account().balances());
}

#[test]
fn a_share_stops_where_the_budget_has_nothing_to_spare_and_errors_are_kept_still() {
    let mut tail = tail("payment", Some(1.0), None);
    let mut large = span(1, 2, 1, at(0));
    large.attributes = vec![text("body", &"x".repeat(100_000))];
    for number in 1..100_u128 {
        let trace_id = number.to_be_bytes().to_vec();
        send(&mut tail, "payment", Span { trace_id, ..large.clone() }, at(0));
    }
    // 1 MB/s for 10 s, of which 60 % are in common: a fifth of that, 1.2 MB, and the trace that goes beyond it.
    assert_eq!(kept(&mut tail).len(), 12);

    let failed = Some(Status { code: 2, ..Status::default() });
    send(&mut tail, "payment", Span { status: failed, ..span(1_000, 2, 1, at(0)) }, at(0));
    assert_eq!(kept(&mut tail).keys().copied().collect::<Vec<_>>(), [1_000]);
}

#[test]
fn a_service_has_fewer_reasons_and_those_of_others_stay() {
    let mut tail = tail("payment", None, Some(&[Policy::Lmap]));
    let failed = || Some(Status { code: 2, ..Status::default() });
    let asking = || vec![text("uview.trigger", "refund")];

    send(&mut tail, "payment", Span { status: failed(), ..span(1, 2, 1, at(0)) }, at(0));
    send(&mut tail, "payment", Span { attributes: asking(), ..span(2, 2, 1, at(0)) }, at(0));
    send(&mut tail, "catalog", Span { status: failed(), ..span(3, 2, 1, at(0)) }, at(0));
    send(&mut tail, "catalog", Span { attributes: asking(), ..span(4, 2, 1, at(0)) }, at(0));
    // The caller's error is the caller's.
    send(&mut tail, "payment", Span { status: failed(), ..span(5, 2, 1, at(0)) }, at(0));
    send(&mut tail, "frontend", Span { status: failed(), ..span(5, 1, 0, at(0)) }, at(0));

    let kept = kept(&mut tail);
    assert_eq!(kept.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(kept[&5], (2, "frontend: POST /pay ended in an error".to_owned()));

    tail.set_service_policies(Arc::default());
    send(&mut tail, "payment", Span { status: failed(), ..span(6, 2, 1, at(0)) }, at(0));
    assert_eq!(self::kept(&mut tail).keys().copied().collect::<Vec<_>>(), [6], "without the rule all is as configured");
}

/// How many traces are kept of ten through `payment`, of which its LMAP says that they are anomalous.
fn kept_by_lmap(policies: &[Policy]) -> usize {
    let mut tail = tail("payment", None, Some(policies));
    // Paths are learnt from a sixteenth of the traces that leave the buffer.
    (1..=200).for_each(|number| ask(&mut tail, number, "payment", at(number as u64)));
    tail.tick(at(61_000));
    (0..10).for_each(|number| ask(&mut tail, 1_000 + number, "payment", at(70_500)));
    let when = at(70_600);
    let finding = Finding {
        service: "payment",
        from: when.wall,
        at: when.wall,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics: Vec::new(),
        incident: "".into(),
    };
    tail.verdict(finding, at(71_000));
    tail.tick(at(72_000));
    kept(&mut tail).len()
}

#[test]
fn the_lmap_of_a_service_keeps_traces_unless_it_is_left_out() {
    assert_eq!(kept_by_lmap(&[Policy::Lmap]), 10);
    assert_eq!(kept_by_lmap(&[Policy::Error, Policy::Latency, Policy::Trigger]), 0);
}

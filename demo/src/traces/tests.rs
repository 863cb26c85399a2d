use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use support::otlp::{attribute, text, traces};

use super::example::whole_trace;
use super::*;
use crate::clock::Clock;

#[test]
fn a_trace_is_whole_unless_something_is_missing_that_its_spans_speak_of() {
    assert!(whole_trace().is_whole());

    for (at, missing) in whole_trace().spans.iter().enumerate() {
        let mut trace = whole_trace();
        trace.spans.remove(at);
        assert!(!trace.is_whole(), "without {missing:?}");
    }
    assert!(!Trace::default().is_whole());
}

#[test]
fn a_service_that_did_not_respond_or_made_no_calls_lacks_nothing() {
    let mut hung = whole_trace();
    hung.spans[5].status = None;
    hung.spans.truncate(6);
    assert!(hung.is_whole(), "payment did not respond");

    let mut refused = whole_trace();
    refused.spans[6].status = Some(402);
    refused.spans.truncate(7);
    assert!(refused.is_whole(), "payment refused before it called the store");
}

#[test]
fn a_span_without_its_caller_is_part_of_a_trace_that_is_not_whole() {
    let mut trace = whole_trace();
    trace.spans[0].status = Some(500);
    trace.spans.truncate(3);
    assert!(trace.is_whole(), "it failed, whatever it had asked for by then");

    trace.spans.remove(1);

    assert!(!trace.is_whole());
}

#[test]
fn what_the_agent_calls_incomplete_is_not_whole() {
    let mut trace = whole_trace();
    trace.spans[3].incomplete = true;

    assert!(!trace.is_whole());
}

#[test]
fn a_trace_is_named_by_the_header_of_a_response() {
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let id = TraceId::from_header(header).unwrap();

    assert_eq!(id.to_string(), "0af7651916cd43dd8448eb211c80319c");
    for wrong in ["", "00", "00-0af7-b7-01", "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
        assert_eq!(TraceId::from_header(wrong), None, "{wrong}");
    }
}

/// A request of these spans of `service`.
fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

fn numbered(id: u8) -> Span {
    Span { trace_id: vec![7; 16], span_id: vec![id; 8], ..Span::default() }
}

#[test]
fn a_span_is_kept_as_it_came_and_only_once() {
    let clock = Clock::start();
    let mut store = Store::new(clock);
    let began = clock.started().0 + 1_000_000_000;
    let span = Span {
        parent_span_id: vec![1; 8],
        name: "GET /pay".to_owned(),
        kind: SpanKind::Client as i32,
        start_time_unix_nano: began,
        end_time_unix_nano: began + 5_000_000,
        attributes: vec![
            text(PEER, "payment"),
            attribute(STATUS, Value::IntValue(500)),
            text("uview.incomplete", "node: 1"),
        ],
        status: Some(Status { code: 2, ..Status::default() }),
        ..numbered(2)
    };
    let mut root = numbered(1);
    root.attributes = vec![text("uview.policy", "error"), text("uview.reason", "payment: GET /pay ended in an error")];
    let came = request("frontend", vec![span.clone(), root]);

    store.take(&came).unwrap();
    store.take(&came).unwrap();

    assert_eq!(store.spans(), 2);
    let traces = store.take_traces();
    let trace = &traces[&TraceId(u128::from_be_bytes([7; 16]))];
    let expected = KeptSpan {
        id: u64::from_be_bytes([2; 8]),
        parent: Some(u64::from_be_bytes([1; 8])),
        service: Service::Frontend,
        name: "GET /pay".to_owned(),
        side: Side::Client(Service::Payment),
        started: Nanos::from_secs(1),
        took: Nanos::from_millis(5),
        status: Some(500),
        failed: true,
        policy: None,
        reason: None,
        incomplete: true,
        bytes: span.encoded_len(),
    };
    assert_eq!(trace.spans[0], expected);
    let root = trace.root().unwrap();
    assert_eq!((root.policy.as_deref(), root.side), (Some("error"), Side::Server));
    assert_eq!(root.reason.as_deref(), Some("payment: GET /pay ended in an error"));
}

#[test]
fn a_full_store_counts_rejected_spans_and_ignores_those_of_other_services() {
    let mut store = Store::new(Clock::start()).with_limit(1);

    store.take(&request("bank", vec![numbered(9)])).unwrap();
    store.take(&request("cart", vec![numbered(1), numbered(2)])).unwrap();

    assert_eq!((store.spans(), store.rejected_spans()), (1, 1));
    assert!(store.take(b"no request").is_err());
}

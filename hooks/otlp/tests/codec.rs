//! Scanned spans compared with a full decoder, and requests put together again.

use hooks::id::{OperationId, OriginId, ServiceId};
use hooks::tracing::{Completeness, KeptSpan, Reason, SpanKind, Threshold};
use otlp::codec::{Export, WireError, annotate, count, scan};
use proptest::prelude::*;
use prost::Message;
use wire::time::UnixNanos;

#[path = "support/otlp_proto.rs"]
mod proto;

use proto::{Any, AnyValue, KeyValue};

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let key = prop_oneof![Just("service.name"), Just("uview.trigger"), Just("http.route"), Just("")];
    let value = prop_oneof!["[a-z]{0,5}".prop_map(Any::Text), any::<i64>().prop_map(Any::Whole)];
    proptest::collection::vec((key, value).prop_map(|(key, value)| attribute(key, value)), 0..4)
}

fn span() -> impl Strategy<Value = proto::Span> {
    let ids = (proptest::collection::vec(any::<u8>(), 14..17), proptest::collection::vec(0..2_u8, 7..9));
    let parent = prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 8)];
    let state = prop_oneof![Just(String::new()), Just("ot=th:8;rv:ffffffffffffff".to_owned())];
    let times = any::<(u64, u64)>();
    let status = proptest::option::of((0..3_i32, "[a-z]{0,3}"));
    (ids, parent, state, "[a-zA-Z/ ]{0,200}", 0..7_i32, times, attributes(), status).prop_map(
        |((trace_id, span_id), parent_span_id, trace_state, name, kind, (start, end), attributes, status)| {
            let status = status.map(|(code, message)| proto::Status { message, code });
            proto::Span {
                trace_id,
                span_id,
                trace_state,
                parent_span_id,
                name,
                kind,
                start,
                end,
                attributes,
                status,
                flags: 1,
            }
        },
    )
}

fn request() -> impl Strategy<Value = proto::Request> {
    let scope = (proptest::option::of("[a-z]{0,4}"), proptest::collection::vec(span(), 0..4), "[a-z]{0,3}");
    let scope = scope.prop_map(|(name, spans, schema_url)| proto::ScopeSpans {
        scope: name.map(|name| proto::Scope { name }),
        spans,
        schema_url,
    });
    let resource = (proptest::option::of(attributes()), proptest::collection::vec(scope, 0..3), any::<u32>());
    let resource = resource.prop_map(|(attributes, scope_spans, unknown)| proto::ResourceSpans {
        resource: attributes.map(|attributes| proto::Resource { attributes }),
        scope_spans,
        schema_url: "schema".to_owned(),
        unknown,
    });
    proptest::collection::vec(resource, 0..3).prop_map(|resource_spans| proto::Request { resource_spans })
}

fn last_text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let mut texts =
        attributes.iter().filter(|attribute| attribute.key == key).filter_map(|attribute| {
            match attribute.value.as_ref()?.value.as_ref()? {
                Any::Text(text) => Some(text.as_str()),
                _ => None,
            }
        });
    texts.next_back()
}

/// Spans of a request by the decoder, with their service's name.
fn decoded(request: &proto::Request) -> Vec<(Option<&str>, &proto::Span)> {
    let spans = request.resource_spans.iter().flat_map(|resource| {
        let service = resource.resource.as_ref().and_then(|r| last_text(&r.attributes, "service.name"));
        resource.scope_spans.iter().flat_map(|scope| &scope.spans).map(move |span| (service, span))
    });
    spans.collect()
}

fn valid(span: &proto::Span) -> bool {
    let id = |bytes: &[u8], length| bytes.len() == length && bytes.iter().any(|byte| *byte != 0);
    id(&span.trace_id, 16) && id(&span.span_id, 8)
}

proptest! {
    #[test]
    fn what_is_found_is_what_a_decoder_reads(request in request()) {
        let bytes = request.encode_to_vec();
        let expected = decoded(&request);
        let mut found = Vec::new();
        scan(&bytes, |group, span| found.push((group.service_name(), span))).unwrap();

        prop_assert_eq!(found.len(), expected.len());
        prop_assert_eq!(count(&bytes), Ok(expected.len()));
        for ((service, found), (expected_service, expected)) in found.into_iter().zip(expected) {
            prop_assert_eq!(service, expected_service);
            let Ok(found) = found else {
                prop_assert!(!valid(expected));
                continue;
            };
            prop_assert!(valid(expected));
            prop_assert_eq!(found.encoded, &expected.encode_to_vec()[..]);
            prop_assert_eq!(found.trace.bytes().to_vec(), expected.trace_id.clone());
            prop_assert_eq!(found.id.bytes().to_vec(), expected.span_id.clone());
            let root = expected.parent_span_id.iter().all(|byte| *byte == 0);
            prop_assert_eq!(found.parent.is_none(), root);
            prop_assert_eq!(found.name, &expected.name);
            prop_assert_eq!(found.tracestate, &expected.trace_state);
            prop_assert_eq!(found.kind, SpanKind::from_number(expected.kind as u64));
            prop_assert_eq!((found.start, found.end), (UnixNanos(expected.start), UnixNanos(expected.end)));
            prop_assert_eq!(found.error, expected.status.as_ref().is_some_and(|status| status.code == 2));
            prop_assert_eq!(found.trigger, last_text(&expected.attributes, "uview.trigger"));
        }
    }

    #[test]
    fn a_request_put_together_from_its_parts_is_the_same(request in request()) {
        let bytes = request.encode_to_vec();
        let mut groups = Vec::new();
        scan(&bytes, |group, span| {
            let (mut resource, mut scope) = (vec![9], vec![9]);
            group.resource.copy(&mut resource);
            group.scope.copy(&mut scope);
            let span = span.map_or_else(|bytes| bytes, |span| span.encoded);
            groups.push((resource, scope, span));
        }).unwrap();

        let mut export = Export::new();
        for (resource, scope, span) in &groups {
            export.add(resource, scope, &[*span]);
        }
        let again = proto::Request::decode(export.bytes()).unwrap();

        prop_assert_eq!(export.spans(), groups.len());
        prop_assert_eq!(decoded(&again), decoded(&request));
        let schemas = again.resource_spans.iter().all(|resource| resource.schema_url == "schema");
        prop_assert!(schemas);
    }

    /// Any bytes give spans or an error, and no span before an error.
    #[test]
    fn any_bytes_are_spans_or_an_error(request in request(), cut in 0..2_000_usize, flip in any::<(u16, u8)>()) {
        let mut bytes = request.encode_to_vec();
        bytes.truncate(cut);
        let length = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(usize::from(flip.0) % length) {
            *byte ^= flip.1;
        }
        let mut shown = 0;
        let result = scan(&bytes, |group, span| {
            shown += 1;
            let _ = (group.service_name(), span.map(|span| span.name.len()));
        });

        prop_assert!(result.is_ok() || shown == 0);
    }
}

#[test]
fn a_request_that_is_cut_short_shows_no_span() {
    let span = proto::Span { trace_id: vec![1; 16], span_id: vec![1; 8], ..proto::Span::default() };
    let scope_spans = vec![proto::ScopeSpans { spans: vec![span.clone(), span], ..Default::default() }];
    let resource_spans = vec![proto::ResourceSpans { scope_spans, ..Default::default() }];
    let bytes = proto::Request { resource_spans }.encode_to_vec();

    let whole = scan(&bytes, |_, span| assert!(span.is_ok()));
    let cut = scan(&bytes[..bytes.len() - 1], |_, span| panic!("{span:?}"));

    assert_eq!((whole, cut), (Ok(()), Err(WireError::Truncated(1))));
}

/// A kept root span, as the tracing backend will read it.
fn annotated(trace_state: &str, reason: &Reason, completeness: Completeness) -> proto::Span {
    let attributes = vec![attribute("http.route", Any::Text("/pay".to_owned()))];
    let (trace_id, span_id) = (vec![1; 16], vec![2; 8]);
    let span = proto::Span { trace_id, span_id, attributes, trace_state: trace_state.to_owned(), ..Default::default() };
    let scope_spans = vec![proto::ScopeSpans { spans: vec![span], ..Default::default() }];
    let resource_spans = vec![proto::ResourceSpans { scope_spans, ..Default::default() }];
    let bytes = proto::Request { resource_spans }.encode_to_vec();
    let mut into = Vec::new();
    let scanned = scan(&bytes, |_, span| {
        let span = span.expect("its ids are valid");
        let index = span.index(ServiceId(1), OperationId(2), OriginId(3));
        annotate(
            &KeptSpan { trace: span.trace, index: &index, encoded: span.encoded, reason, completeness },
            "node-7",
            &mut into,
        );
    });
    scanned.expect("it is whole");
    proto::Span::decode(&into[..]).expect("it is still a span")
}

#[test]
fn a_kept_root_span_says_why_and_what_is_missing() {
    let reason = Reason::Lmap {
        service: "payment".into(),
        score: 9.0,
        gamma: 3.0,
        metrics: Box::default(),
        incident: "node-3/20261127-064215-123".into(),
    };

    let span = annotated("vendor=x,ot=th:8;rv:ffffffffffffff", &reason, Completeness::Missing { spans: 3 });

    let text = |text: &str| Any::Text(text.to_owned());
    let expected = [
        attribute("http.route", text("/pay")),
        attribute("uview.policy", text("lmap")),
        attribute("uview.reason", text("payment: score 9.0, threshold 3.0")),
        attribute("uview.score", Any::Number(9.0)),
        attribute("uview.threshold", Any::Number(3.0)),
        attribute("uview.incident", text("node-3/20261127-064215-123")),
        attribute("uview.incomplete", text("node-7: 3 spans are missing")),
    ];
    assert_eq!(span.attributes, expected);
    // The trace was selected for an event: its original threshold no longer applies.
    assert_eq!(span.trace_state, "ot=rv:ffffffffffffff,vendor=x");
}

#[test]
fn the_floors_traces_carry_its_threshold_and_no_other_do() {
    let floor = Reason::Floor { threshold: Threshold::keeping(0.25).unwrap() };
    let code = Reason::Trigger { text: "refund".into() };

    assert_eq!(annotated("", &floor, Completeness::Complete).trace_state, "ot=th:c");
    assert_eq!(annotated("vendor=x", &floor, Completeness::Complete).trace_state, "ot=th:c,vendor=x");
    assert_eq!(annotated("vendor=x", &code, Completeness::Complete).trace_state, "vendor=x");
    assert_eq!(annotated("vendor=x", &code, Completeness::Unknown).attributes.len(), 4);
}

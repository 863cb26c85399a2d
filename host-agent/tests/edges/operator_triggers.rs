//! Operators ask for the traces through a service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::PoisonError;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use support::otlp::{spans_of, text_of};
use tonic::{Code, Status};
use wire::proto::operators::{ReceiptRequest, TriggerReply, TriggerRequest};

use crate::agent::{Agent, Operators, WAIT};
use crate::live_page::Browser;
use crate::otlp::{ReceivedSpans, send, span, upstream};

/// A node that keeps no trace of its own accord.
fn agent(upstream: SocketAddr) -> Agent {
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, floor: 0, latency: false, trigger: false}}\n"
    ))
}

/// A trace of one span, by service and operation.
fn send_trace(agent: &Agent, trace: u128, service: &str, operation: &str) {
    let resource_spans = vec![spans_of(service, vec![span(trace, 1, &[], operation)])];
    let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    assert_eq!(send(agent.at.otlp[1], &body), "HTTP/1.1 200 OK");
}

/// Policy and reason of each kept trace, as the backend received them.
fn kept(received: &ReceivedSpans) -> BTreeMap<u128, (String, String)> {
    let mut all = BTreeMap::new();
    for request in received.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        for span in scopes.flat_map(|scope| &scope.spans) {
            let said = |key| text_of(&span.attributes, key).unwrap_or_default().to_owned();
            let trace = u128::from_be_bytes(span.trace_id[..].try_into().unwrap());
            all.insert(trace, (said("uview.policy"), said("uview.reason")));
        }
    }
    all
}

fn asked(service: &str, operation: &str, for_ms: u64, reason: &str) -> TriggerRequest {
    let [service, operation, reason] = [service, operation, reason].map(str::to_owned);
    TriggerRequest { service, operation, for_ms, reason }
}

fn trigger(operators: &mut Operators, request: TriggerRequest) -> Result<TriggerReply, Status> {
    let Operators { runtime, client } = operators;
    runtime.block_on(client.trigger(request)).map(tonic::Response::into_inner)
}

#[test]
fn traces_of_a_service_that_an_operator_asks_for_are_kept_with_who_asks_and_why_and_no_others() {
    let (to, received) = upstream();
    let agent = agent(to);
    let mut operators = agent.operators();
    send_trace(&agent, 1, "payment", "Charge");
    send_trace(&agent, 2, "catalog", "List");

    let reply = trigger(&mut operators, asked("payment", "", 600_000, "it is\u{1b}[2J slow")).unwrap();
    assert_eq!((reply.for_ms, reply.unforwarded), (600_000, false));
    let by = format!("user {}", rustix::process::geteuid().as_raw());
    let said = ("trigger".to_owned(), format!("asked for: it is\\u{{1b}}[2J slow, by {by}"));
    WAIT.until("the trace that was buffered", || kept(&received) == BTreeMap::from([(1, said.clone())]));
    send_trace(&agent, 3, "catalog", "List");
    send_trace(&agent, 4, "payment", "Charge");
    WAIT.until("the next one", || kept(&received) == BTreeMap::from([(1, said.clone()), (4, said.clone())]));
    trigger(&mut operators, asked("catalog", "List", 300_000, "")).unwrap();
    let of_list = ("trigger".to_owned(), format!("asked for: 300 s of catalog, by {by}"));
    WAIT.until("those of an operation", || {
        let kept = kept(&received);
        (kept.get(&2) == Some(&of_list) && kept.get(&3) == Some(&of_list)).then_some(())
    });
    send_trace(&agent, 5, "catalog", "Search");
    send_trace(&agent, 6, "catalog", "List");
    WAIT.until("the next one of the operation", || kept(&received).contains_key(&6));
    assert_eq!(kept(&received).into_keys().collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
    let usual = trigger(&mut operators, asked("catalog", "Search", 0, "")).unwrap();
    assert_eq!(usual.for_ms, 30_000);
    WAIT.until("the one of the other operation", || kept(&received).contains_key(&5));

    let metrics = agent.get("/metrics").1;
    let counted = ["uview_host_operator_triggers_total 3\n", "uview_host_operator_triggered_traces_total 6\n"];
    assert!(counted.iter().all(|line| metrics.contains(line)), "{metrics}");
    assert_eq!(agent.counter("operator_triggers"), 3);
    let receipt = operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner();
    let lines = receipt.days.iter().flat_map(|day| &day.services);
    let by_trigger = lines.filter(|line| line.kept_bytes_by_policy.get("trigger").is_some_and(|bytes| *bytes > 0));
    assert!(by_trigger.count() >= 2, "{receipt:?}");
}

#[test]
fn what_is_out_of_bounds_or_not_known_is_refused_with_what_to_do() {
    let agent = agent(upstream().0);
    let mut operators = agent.operators();
    for service in ["a", "b", "c", "d", "e"] {
        send_trace(&agent, 1, service, "get");
    }
    let mut refused = |request: TriggerRequest| {
        let status = trigger(&mut operators, request).unwrap_err();
        (status.code(), status.message().to_owned())
    };

    for (request, code, word) in [
        (asked("", "", 0, ""), Code::InvalidArgument, "service is missing"),
        (asked("cart\u{202e}", "", 0, ""), Code::NotFound, "no span of cart\\u{202e} has come"),
        (asked("a", "put", 0, ""), Code::NotFound, "no span put of a has come"),
        (asked("a", "", 999, ""), Code::OutOfRange, "1s to 600s are possible"),
        (asked("a", "", 600_001, ""), Code::OutOfRange, "1s to 600s are possible"),
        (asked("a", "", u64::MAX, ""), Code::OutOfRange, "1s to 600s are possible"),
        (asked("a", "", 0, &"x".repeat(129)), Code::InvalidArgument, "129 bytes"),
    ] {
        let (found, text) = refused(request);
        assert!(found == code && text.contains(word), "{code:?}: {found:?}: {text}");
    }
    for service in ["a", "b", "c", "d"] {
        trigger(&mut operators, asked(service, "", 600_000, "")).unwrap();
    }
    let more = trigger(&mut operators, asked("e", "", 0, "")).unwrap_err();
    assert!(more.code() == Code::ResourceExhausted && more.message().contains("4 requests"), "{more}");
    trigger(&mut operators, asked("a", "", 1_000, "")).unwrap();
    assert_eq!(agent.counter("operator_triggers"), 5);
}

#[test]
fn where_traces_are_not_buffered_none_can_be_asked_for_and_what_to_do_is_said() {
    let (to, received) = upstream();
    let forwarding = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: all}}\n"
    ));
    send_trace(&forwarding, 1, "payment", "Charge");
    WAIT.until("the trace, as all are", || kept(&received).contains_key(&1));
    let without_otlp = Agent::start();

    let refused = |agent: &Agent| {
        let status = trigger(&mut agent.operators(), asked("payment", "", 0, "")).unwrap_err();
        assert_eq!((status.code(), agent.counter("operator_triggers")), (Code::FailedPrecondition, 0), "{status}");
        status.message().to_owned()
    };

    let text = refused(&forwarding);
    assert!(text.contains("otlp.traces.keep") && !text.contains("otlp.upstream"), "{text}");
    let text = refused(&without_otlp);
    assert!(["otlp.upstream", "otlp.watch_only", "otlp.traces.keep"].iter().all(|key| text.contains(key)), "{text}");
}

#[test]
fn where_nothing_is_passed_on_what_is_asked_for_is_on_the_page_and_the_reply_says_so() {
    let agent = Agent::with(
        "process_metrics: {enabled: false}\n\
         otlp: {watch_only: true, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0', \
         traces: {keep: tail, floor: 0, latency: false, trigger: false}}\n",
    );
    send_trace(&agent, 1, "payment", "Charge");
    send_trace(&agent, 2, "catalog", "List");

    let reply = trigger(&mut agent.operators(), asked("payment", "", 600_000, "it is slow")).unwrap();
    assert!(reply.unforwarded, "{reply:?}");

    let browser = Browser::open(&agent);
    let listed = || Some(browser.get("/api/traces").1).filter(|list| list.contains("\"policy\":\"trigger\""));
    let list = WAIT.until("the trace on the page", listed);
    assert!(list.contains("asked for: it is slow, by user"), "{list}");
    assert!(agent.get("/metrics").1.contains("uview_host_operator_triggered_traces_total 1\n"), "payment's only");
}

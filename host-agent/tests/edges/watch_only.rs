//! Without an upstream, what services send is watched and passed on to nobody, and that is said (`otlp.watch_only`).

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use support::otlp::{resource, traces};
use wire::proto::operators::{ListRequest, ReceiptLine, ReceiptRequest};

use crate::agent::{Agent, WAIT};
use crate::live_page::Browser;
use crate::logged::Logged;
use crate::logs::{PROTOBUF, post_to};
use crate::otlp::{send, span};

/// An endpoint without an upstream, which keeps traces with an error, and no others.
const WATCHING: &str = "process_metrics: {enabled: false}\n\
    otlp: {watch_only: true, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0', derived: {delay_ms: 0}, \
    traces: {keep: tail, decision_wait_ms: 1000, floor: 0, latency: false}}\n";

/// Names of the metrics that the LMAP of `service` watches; `None` without one.
fn columns(agent: &Agent, service: &str) -> Option<Vec<String>> {
    let mut operators = agent.operators();
    let list = operators.runtime.block_on(operators.client.list(ListRequest {})).unwrap().into_inner();
    let lmap = list.lmaps.into_iter().find(|lmap| lmap.service == service)?;
    Some(lmap.metrics.into_iter().map(|metric| metric.name).collect())
}

#[test]
fn spans_become_columns_and_kept_traces_are_on_the_page_and_all_say_that_nothing_goes_on() {
    let agent = Agent::with(WATCHING);
    let failed = Status { code: 2, ..Status::default() };
    let spans = vec![span(1, 1, &[], "POST /pay"), Span { status: Some(failed), ..span(2, 1, &[], "POST /pay") }];
    let exported = ResourceMetrics { resource: Some(resource("cart")), ..ResourceMetrics::default() };
    let exported = ExportMetricsServiceRequest { resource_metrics: vec![exported] }.encode_to_vec();

    assert_eq!(send(agent.at.otlp[1], &traces("payment", spans).encode_to_vec()), "HTTP/1.1 200 OK");
    assert_eq!(post_to(agent.at.otlp[1], "/v1/metrics", PROTOBUF, &exported).0, "HTTP/1.1 200 OK");

    let wanted = ["traces.span.metrics.duration", "traces.span.metrics.errors"];
    WAIT.until("columns of spans", || {
        let columns = columns(&agent, "payment")?;
        wanted.iter().all(|name| columns.iter().any(|column| column == name)).then_some(())
    });
    let browser = Browser::open(&agent);
    let kept = || Some(browser.get("/api/traces").1).filter(|list| list.contains("\"policy\":\"error\""));
    WAIT.until("the kept trace on the page", kept);
    let page = WAIT.until("the other one dropped, and the exporter known", || {
        let page = agent.get("/metrics").1;
        let both = ["uview_host_dropped_spans_total{reason=\"aged\"} 1\n", "uview_host_otlp_exporters 1\n"];
        both.iter().all(|line| page.contains(line)).then_some(page)
    });
    for line in [
        "uview_host_unforwarded_otlp_items_total{signal=\"traces\"} 1\n",
        "uview_host_queued_otlp_bytes{signal=\"traces\"} 0\n",
        "uview_host_sent_otlp_requests_total{signal=\"traces\"} 0\n",
        "uview_host_retried_otlp_requests_total{signal=\"traces\"} 0\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    let status = agent.status();
    let said = |note: &String| note.starts_with("otlp.watch_only: ") && note.contains("passed on to nobody");
    assert!(matches!(&status.notes[..], [note] if said(note)), "{:?}", status.notes);
    assert!(!status.problems.iter().any(|line| line.starts_with("otlp")), "{:?}", status.problems);
    let mut operators = agent.operators();
    let receipt = operators.runtime.block_on(operators.client.receipt(ReceiptRequest {})).unwrap().into_inner();
    let line = |of: fn(&ReceiptLine) -> u64| receipt.days.iter().flat_map(|day| &day.services).map(of).sum::<u64>();
    assert_eq!((line(|line| line.seen_spans), line(|line| line.kept_spans)), (2, 1));
    let grown = |name: &str| receipt.days.iter().filter_map(|day| day.grown.get(name)).sum::<u64>();
    assert_eq!((grown("unforwarded_items.traces"), grown("sent_bytes.traces")), (1, 0));
}

#[test]
fn the_log_says_at_the_start_that_nothing_goes_on() {
    let logged =
        Logged::start("info", "otlp: {watch_only: true, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0'}\n");

    logged.wait_for("the words", |event| {
        event["message"].as_str().is_some_and(|said| said.contains("otlp.watch_only") && said.contains("to nobody"))
    });
}

#[test]
fn an_agent_with_an_upstream_or_without_otlp_has_no_such_note() {
    assert_eq!(Agent::start().status().notes, [""; 0]);
    let forwarding =
        "otlp: {upstream: {endpoint: 'http://127.0.0.1:1'}, listen_grpc: '127.0.0.1:0', listen_http: '127.0.0.1:0'}\n";
    assert_eq!(Agent::with(forwarding).status().notes, [""; 0]);
}

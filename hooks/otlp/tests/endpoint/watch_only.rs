//! Without an upstream everything is watched, counted, and passed on to nobody.

use std::sync::Arc;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use agent_runtime::reload::Reloadable;
use hooks::tracing::LogRule;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use otlp::counts::UpstreamLoss;
use otlp::{Edge, LogSettings, PodSender, PodSenders, Settings, Signal, SpanMetricsSettings};
use prost::Message as _;
use wire::time::Nanos;

use super::client::{WAIT, logs, metrics, post, span, traces};
use super::{attribute_of, spans, start, tail};

/// Spans are counted at once, and the queue to an upstream would have room for nothing.
fn settings() -> Settings {
    let span_metrics = Some(SpanMetricsSettings { delay: Nanos::ZERO, ..SpanMetricsSettings::default() });
    Settings { span_metrics, queue_bytes: 64, ..Settings::watch_only() }
}

/// Requests that were counted from spans, and how many of them failed.
fn requests(edge: &Edge) -> (u64, u64) {
    let counted = edge.with_span_metrics(|all| {
        let rates = all.services().flat_map(|service| service.operations());
        rates.fold((0, 0), |(requests, errors), (_, _, rate)| (requests + rate.requests, errors + rate.errors))
    });
    counted.unwrap()
}

/// Spans, metrics and log records that were passed on to nobody.
fn unforwarded(edge: &Edge) -> [u64; 3] {
    Signal::ALL.map(|signal| edge.counts.of(signal).unforwarded.get())
}

/// Fails if anything waits for an upstream, was sent or tried again, or is lost on its way there.
fn assert_nothing_is_on_its_way(edge: &Edge) {
    for signal in Signal::ALL {
        let counts = edge.counts.of(signal);
        let lost: u64 = UpstreamLoss::ALL.into_iter().map(|why| counts.lost(why).get()).sum();
        let way = (edge.queued_bytes(signal), counts.sent.get(), counts.retries.get(), lost);
        assert_eq!(way, (0, 0, 0, 0), "{signal:?}");
    }
    assert_eq!((edge.counts.lost_spans.get(), edge.counts.lost_logs.get()), (0, 0));
}

#[tokio::test]
async fn spans_metrics_and_logs_are_taken_watched_and_counted_and_nothing_is_queued_or_tried_again() {
    let (running, address) = start(&Settings { watched_metrics: Some(1 << 20), ..settings() }).await;
    let edge = Arc::clone(running.edge());
    let at = format!("http://{address}");
    assert!(!edge.forwards());

    let mut client = TraceServiceClient::connect(at.clone()).await.unwrap();
    let sent = traces("payment", vec![span(1, false), span(2, true)]);
    let answer = client.export(sent).await.unwrap().into_inner();
    MetricsServiceClient::connect(at.clone()).await.unwrap().export(metrics("payment")).await.unwrap();
    LogsServiceClient::connect(at).await.unwrap().export(logs("payment")).await.unwrap();
    let json = serde_json::to_vec(&traces("payment", vec![span(3, false)])).unwrap();
    let over_http = post(address, "/v1/traces", "application/json", &[], json).await;

    // An SDK is told of success, and of nothing besides.
    assert_eq!(answer.partial_success, None);
    assert_eq!((over_http.status.as_u16(), over_http.body.as_ref()), (200, &b"{}"[..]));
    WAIT.until_async("three requests, of which one failed", async || (requests(&edge) == (3, 1)).then_some(())).await;
    let watched = tokio::time::timeout(Duration::from_secs(30), edge.next_metrics()).await.unwrap();
    let mut services = Vec::new();
    edge.each_export(&watched, |export| services.push(export.service.into_owned()));
    assert_eq!(services, ["payment"]);
    assert_eq!(unforwarded(&edge), [3, 2, 1]);
    assert_nothing_is_on_its_way(&edge);

    running.end(Duration::from_secs(10)).await;
    assert_nothing_is_on_its_way(&edge);
}

#[tokio::test]
async fn kept_traces_and_log_records_are_there_for_whoever_looks_and_go_nowhere() {
    let rule = LogRule { floor: None, ..LogRule::default() };
    let settings = Settings {
        tail: Some(tail()),
        logs: Some(LogSettings { rule, ..LogSettings::default() }),
        watched_kept: Some(1 << 20),
        watched_kept_logs: Some(1 << 20),
        ..settings()
    };
    let (running, address) = start(&settings).await;
    let edge = running.edge();
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();
    let mut failure = logs("payment");
    let record = &mut failure.resource_logs[0].scope_logs[0].log_records[0];
    (record.time_unix_nano, record.severity_number, record.trace_id) = (unix_now().0, 17, Vec::new());

    client.export(traces("payment", vec![span(1, false), span(2, true), span(3, false)])).await.unwrap();
    let posted = post(address, "/v1/logs", "application/x-protobuf", &[], failure.encode_to_vec()).await;

    assert_eq!(posted.status, 200);
    let kept = WAIT.until_async("the kept trace", async || edge.take_kept().next()).await;
    let kept = ExportTraceServiceRequest::decode(kept).unwrap();
    let kept = spans(&kept);
    assert_eq!((kept.len(), attribute_of(kept[0], "uview.policy").as_deref()), (1, Some("error")));
    WAIT.until_async("the kept record", async || edge.take_kept_logs().next()).await;
    // What no policy selected waits, and is dropped and counted as ever.
    let account = edge.with_tail(|tail, _| *tail.account()).unwrap();
    assert_eq!((account.seen.spans, account.kept.spans, account.waiting.spans), (3, 1, 2));
    assert_eq!(unforwarded(edge), [1, 0, 1]);
    assert_nothing_is_on_its_way(edge);
    // Nobody could open the trace of an exemplar elsewhere.
    WAIT.until_async("all requests", async || (requests(edge) == (3, 1)).then_some(())).await;
    let exemplars = edge.with_span_metrics(|all| {
        let rates = all.services().flat_map(|service| service.operations());
        rates.flat_map(|(_, _, rate)| rate.classes.exemplars()).flatten().count()
    });
    assert_eq!(exemplars, Some(0));
}

#[tokio::test]
async fn whose_spans_they_are_is_judged_as_with_an_upstream() {
    let pod = PodSender::new("shop/payment", "payment-1", core::iter::empty());
    let pods = PodSenders::new([("127.0.0.1".parse().unwrap(), Arc::new(pod))]);
    let (running, address) = start(&Settings { pods: Some(Reloadable::new(pods)), ..settings() }).await;
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();

    client.export(traces("bank/teller", vec![span(1, false)])).await.unwrap();

    let edge = running.edge();
    WAIT.until_async("the request", async || (requests(edge) == (1, 0)).then_some(())).await;
    let services = edge.with_span_metrics(|all| all.services().map(|of| of.name().to_owned()).collect::<Vec<_>>());
    assert_eq!(services.unwrap(), ["shop/payment"]);
}

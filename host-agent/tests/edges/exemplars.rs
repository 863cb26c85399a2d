//! Histograms of span durations with kept traces as exemplars, on `/metrics` and at the remote monitor.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use remote_write::message::TimeSeries;

use crate::agent::{Agent, WAIT};
use crate::otlp::{send, span, upstream};
use crate::remote_write::{labels, receiver};
use support::otlp::spans_of;

const NAME: &str = "traces_span_metrics_duration_seconds";

/// A request of `trace` that took `millis`.
fn request(trace: u128, millis: u64, failed: bool) -> Span {
    let span = span(trace, 1, &[], "POST /pay");
    let status = failed.then(|| Status { code: 2, ..Status::default() });
    Span { end_time_unix_nano: span.start_time_unix_nano + millis * 1_000_000, status, ..span }
}

fn post(agent: &Agent, spans: Vec<Span>) {
    let request = ExportTraceServiceRequest { resource_spans: vec![spans_of("payment", spans)] };
    assert_eq!(send(agent.at.otlp[1], &request.encode_to_vec()), "HTTP/1.1 200 OK");
}

/// Bucket by bound, with the exemplar's trace.
fn buckets(page: &str) -> BTreeMap<String, (u64, Option<String>)> {
    let of = |line: &str| {
        let rest =
            line.strip_prefix(&format!(r#"{NAME}_bucket{{service_name="payment",span_name="POST /pay",le=""#))?;
        let (bound, rest) = rest.split_once("\"} ")?;
        let (count, trace) = rest.split_once(" # ").map_or((rest, None), |(count, rest)| (count, Some(rest)));
        let trace = trace.map(|trace| trace["{trace_id=\"".len()..][..32].to_owned());
        Some((bound.to_owned(), (count.parse().unwrap(), trace)))
    };
    page.lines().filter_map(of).collect()
}

#[test]
fn buckets_carry_traces_that_were_kept_and_none_that_was_dropped_or_is_undecided() {
    let (monitor, received) = receiver();
    let (address, _spans) = upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         remote_write: {{url: 'http://{monitor}/write', instance: node-1, baseline_ms: 200}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{address}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         derived: {{delay_ms: 0}}\n  \
         traces: {{keep: tail, decision_wait_ms: 2000, floor: 0, latency: false}}\n"
    ));
    let trace = |n: u128| format!("{n:032x}");

    // 2 ms and 20 ms without an error are buffered and then dropped; 3 ms and 400 ms fail and are kept.
    post(&agent, vec![request(1, 2, false), request(2, 20, false), request(3, 3, true), request(4, 400, true)]);
    let undecided = WAIT.until("four requests on the page", || {
        let found = buckets(&agent.get("/metrics").1);
        found.get("+Inf").is_some_and(|(count, _)| *count == 4).then_some(found)
    });
    let dropped = WAIT.until("two dropped", || {
        let page = agent.get("/metrics").1;
        page.contains("dropped_spans_total{reason=\"aged\"} 2").then(|| buckets(&page))
    });
    // A later request of the same bucket. It is undecided while its predecessor is the exemplar.
    post(&agent, vec![request(5, 3, false)]);
    let later = WAIT.until("a fifth request", || {
        let found = buckets(&agent.get("/metrics").1);
        found.get("+Inf").is_some_and(|(count, _)| *count == 5).then_some(found)
    });

    for (found, all) in [(&undecided, 4), (&dropped, 4), (&later, 5)] {
        let shown: BTreeMap<_, _> = found.iter().filter_map(|(le, (_, trace))| Some((&**le, trace.clone()?))).collect();
        assert_eq!(shown, BTreeMap::from([("0.005", trace(3)), ("0.5", trace(4))]));
        let counts = ["0.0025", "0.005", "0.025", "0.25", "0.5", "+Inf"].map(|le| found[le].0);
        assert_eq!(counts, [1, all - 2, all - 1, all - 1, all, all]);
    }
    let sums =
        |page: &str| page.contains(&format!("{NAME}_sum{{service_name=\"payment\",span_name=\"POST /pay\"}} 0.428\n"));
    assert!(sums(&agent.get("/metrics").1), "{}", agent.get("/metrics").1);

    // The same at the remote monitor, each exemplar once.
    let series = WAIT.until("five requests at the monitor", || {
        let received = received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let whole = |series: &TimeSeries| {
            labels(series).contains(&("__name__", "traces_span_metrics_duration_seconds_count"))
                && series.samples.iter().any(|sample| sample.value == 5.0)
        };
        received.iter().any(whole).then_some(received)
    });
    let shown =
        series.iter().flat_map(|series| series.exemplars.iter().map(move |exemplar| (labels(series), exemplar)));
    let shown: Vec<_> = shown
        .map(|(labels, exemplar)| {
            let label = |name: &str| labels.iter().find(|(key, _)| *key == name).unwrap().1;
            assert_eq!((label("job"), label("instance"), label("service_name")), ("payment", "node-1", "payment"));
            assert_eq!((label("__name__"), &*exemplar.labels[0].name), (&*format!("{NAME}_bucket"), "trace_id"));
            (label("le"), exemplar.labels[0].value.clone(), exemplar.value)
        })
        .collect();
    assert_eq!(shown, [("0.005", trace(3), 0.003), ("0.5", trace(4), 0.4)]);
    // The count of rows is named calls: only the histogram has the histogram's name.
    let counts = series.iter().map(labels).filter(|l| l.contains(&("__name__", &format!("{NAME}_count"))));
    assert!({ counts }.all(|labels| labels.iter().any(|(name, _)| *name == "service_name")));
    // The service is known by spans only.
    assert!(!series.iter().any(|series| labels(series).contains(&("__name__", "up"))));
}

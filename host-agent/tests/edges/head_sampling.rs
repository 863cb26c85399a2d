//! Head sampling with the unmodified OpenTelemetry SDK for Rust: its sampler polls a host agent, and samples more of an
//! operation through a service in alarm.

use std::net::SocketAddr;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use head_sampling::StrategyResponse;
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{Episode, Verdict, Verdicts};

use crate::agent::{Agent, PATIENCE, WAIT};
use crate::coherence::free;
use crate::otlp::{send, span, upstream};
use crate::service::Service;
use crate::worker::Worker;
use support::clock::Stopwatch;
use support::otlp::spans_of;
use support::wait::Wait;

/// An agent with these frontends, and its head sampling address.
fn agent(frontends: &[String]) -> (Agent, SocketAddr) {
    let ((to, _), ask) = (upstream(), free(&[21])[0]);
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\nhead_sampling: {{listen: '{ask}', default_probability: 0, lower_bound_traces_per_s: 0}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{frontends: [{}]}}\n",
        frontends.join(", ")
    ));
    (agent, ask)
}

/// A tracer of service `name`, whose SDK polls every `interval`.
fn tracer(name: &str, ask: SocketAddr, interval: Duration) -> (SdkTracerProvider, SdkTracer) {
    let client = HyperClient::with_default_connector(Duration::from_secs(5), None);
    let sampler = Sampler::jaeger_remote(Tokio, client, Sampler::AlwaysOff, name.to_owned());
    let sampler =
        sampler.with_endpoint(format!("http://{ask}/sampling")).with_update_interval(interval).build().unwrap();
    let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
    let tracer = provider.tracer("shop");
    (provider, tracer)
}

fn records(tracer: &SdkTracer, operation: &'static str) -> bool {
    tracer.start(operation).span_context().is_sampled()
}

/// 64 requests of each operation of each frontend. Payments pass `payment`, lists do not. All of them were sampled
/// elsewhere.
fn requests(frontends: &[String], round: u128) -> Vec<u8> {
    let mut groups: Vec<ResourceSpans> = Vec::new();
    for (frontend, name) in frontends.iter().enumerate() {
        let trace = |n: u128| (round << 64) | ((frontend as u128) << 32) | ((n + 1) << 1);
        let inner = (0..64).map(|n| span(trace(n), 2, &[1; 8], "charge")).collect();
        let entries =
            (0..64).flat_map(|n| [span(trace(n), 1, &[], "POST /pay"), span(trace(n) | 1, 1, &[], "GET /list")]);
        groups.extend([spans_of("payment", inner), spans_of(name, entries.collect())]);
    }
    ExportTraceServiceRequest { resource_spans: groups }.encode_to_vec()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Parameters {
    #[prost(string, tag = "1")]
    service_name: String,
}

/// Polls by gRPC.
async fn ask_grpc(ask: SocketAddr, service: &str) -> StrategyResponse {
    let channel = Endpoint::from_shared(format!("http://{ask}")).unwrap().connect().await.unwrap();
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let parameters = tonic::Request::new(Parameters { service_name: service.to_owned() });
    let path = "/jaeger.api_v2.SamplingManager/GetSamplingStrategy".parse().unwrap();
    client.unary(parameters, path, ProstCodec::<Parameters, StrategyResponse>::default()).await.unwrap().into_inner()
}

/// Waits until paths are learnt, calls `quiet`, then keeps `payment` in alarm until each of `tracers` samples payments,
/// for `limit` at most.
fn fault(agent: &Agent, frontends: &[String], tracers: &[SdkTracer], limit: Duration, quiet: impl FnOnce()) {
    assert_eq!(send(agent.at.otlp[1], &requests(frontends, 1)), "HTTP/1.1 200 OK");
    WAIT.until("paths", || {
        let paths = agent.paths();
        let pays = paths.iter().filter(|path| path.operation == "POST /pay");
        (pays.filter(|path| path.services.len() == 2).count() == frontends.len()).then_some(())
    });
    quiet();
    let mut worker = Worker::connect(agent, 0);
    let (_service, _region) = Service::register(agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    let (mut left, mut said) = (tracers.iter().collect::<Vec<_>>(), None);
    Wait::up_to(limit).pausing(Duration::from_millis(20)).until("all samplers learn of it", || {
        if said.is_none_or(|clock: Stopwatch| clock.elapsed() > Duration::from_millis(500)) {
            said = Some(Stopwatch::start());
            let (score, gamma, episode) = (20.0, 4.0, Episode::On as i32);
            let verdict = Verdict { lmap: lmap.lmap, epoch, score, gamma, state: 2, episode, ..Verdict::default() };
            worker.send(FromWorker::Verdicts(Verdicts { at_unix_ns: unix_now().0, verdicts: vec![verdict] }));
        }
        left.retain(|tracer| !records(tracer, "POST /pay"));
        if left.is_empty() { Ok(()) } else { Err(format!("{} of {} do not know it", left.len(), tracers.len())) }
    });
}

#[test]
fn an_sdk_as_it_is_records_an_operation_through_a_service_in_alarm_and_the_time_to_that_is_counted() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let frontends = ["frontend".to_owned()];
    let (agent, ask) = agent(&frontends);
    let (_provider, tracer) = tracer("frontend", ask, Duration::from_millis(300));

    fault(&agent, &frontends, core::slice::from_ref(&tracer), PATIENCE, || {
        WAIT.until("the sampler to ask", || (agent.counter("head_sampling_answers") > 0).then_some(()));
        assert!(!records(&tracer, "POST /pay") && !records(&tracer, "GET /list"));
        assert_eq!(agent.counter("delivered_raised_probabilities"), 0);
    });

    assert!(!records(&tracer, "GET /list"), "nothing of it passes payment");
    WAIT.until("the time to effect", || (agent.counter("delivered_raised_probabilities") == 1).then_some(()));
    let waited = agent.counter("raised_probabilities_wait_ms");
    assert!((1..10_000).contains(&waited), "{waited} ms");
    let told = runtime.block_on(ask_grpc(ask, "frontend"));
    assert_eq!(told.operations().collect::<Vec<_>>(), [("POST /pay", 1.0)]);
    assert_eq!(agent.counter("refused_head_sampling_requests"), 0);
    let (_, page) = agent.get("/metrics");
    assert!(page.contains("\nuview_host_delivered_raised_probabilities_total 1\n"), "{page}");
}

/// An agent where all spans pass through, which gossips; with `ask` it serves head sampling.
fn gossiping(name: &str, listen: SocketAddr, peers: &[SocketAddr], ask: Option<SocketAddr>) -> Agent {
    let (to, _) = upstream();
    let peers: Vec<_> = peers.iter().map(|peer| format!("'{peer}'")).collect();
    let rule = "default_probability: 0, lower_bound_traces_per_s: 0";
    let ask = ask.map(|ask| format!("head_sampling: {{listen: '{ask}', {rule}}}\n")).unwrap_or_default();
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n{ask}\
         coherence: {{listen: '{listen}', peers: [{}], insecure: true}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{frontends: [frontend], node: {name}, order_key: 00112233445566778899aabbccddeeff}}\n",
        peers.join(", ")
    ))
}

#[test]
fn an_alarm_on_another_node_raises_the_probability_where_requests_enter_though_no_trace_is_buffered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (at, ask) = (free(&[17, 18]), free(&[22])[0]);
    let front = gossiping("front", at[0], &at, Some(ask));
    let back = gossiping("back", at[1], &at, None);
    let known = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_live_gossip_peers 1\n");
    WAIT.until("both to know each other", || (known(&front) && known(&back)).then_some(()));
    let raised = || {
        let told = runtime.block_on(ask_grpc(ask, "frontend"));
        told.operations().map(|(name, probability)| (name.to_owned(), probability)).collect::<Vec<_>>()
    };

    // The frontend's spans are on one node, those of payment on the other.
    for round in 0..4 {
        let trace = |n: u128| (round << 64) | ((n + 1) << 1);
        let entries =
            (0..64).flat_map(|n| [span(trace(n), 1, &[], "POST /pay"), span(trace(n) | 1, 1, &[], "GET /list")]);
        let one = |service: &str, spans| ExportTraceServiceRequest { resource_spans: vec![spans_of(service, spans)] };
        let inner = (0..64).map(|n| span(trace(n), 2, &[1; 8], "charge")).collect();
        assert_eq!(send(back.at.otlp[1], &one("payment", inner).encode_to_vec()), "HTTP/1.1 200 OK");
        assert_eq!(send(front.at.otlp[1], &one("frontend", entries.collect()).encode_to_vec()), "HTTP/1.1 200 OK");
    }
    WAIT.until("the path across both nodes", || {
        let paths = front.paths();
        paths.iter().any(|path| path.operation == "POST /pay" && path.services.len() == 2).then_some(())
    });
    assert_eq!(raised(), []);
    let mut worker = Worker::connect(&back, 0);
    let (_service, _region) = Service::register(&back, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    WAIT.until("the other node's verdict", || {
        let (score, gamma, episode) = (20.0, 4.0, Episode::On as i32);
        let verdict = Verdict { lmap: lmap.lmap, epoch, score, gamma, state: 2, episode, ..Verdict::default() };
        worker.send(FromWorker::Verdicts(Verdicts { at_unix_ns: unix_now().0, verdicts: vec![verdict] }));
        (raised() == [("POST /pay".to_owned(), 1.0)]).then_some(())
    });
    WAIT.until("the time to effect", || (front.counter("delivered_raised_probabilities") == 1).then_some(()));
    let waited = front.counter("raised_probabilities_wait_ms");
    // Of gossip and of the second in which alarms are collected, tests/observers has the exact time. Here it is two
    // seconds, and ten times as much on a busy machine.
    assert!(waited < 20_000, "{waited} ms");
}

/// Measures the figures of docs/head-sampling.md
/// (`UVIEW_POLL_S=60 cargo test -p host-agent --test edges time_to_effect -- --ignored --nocapture`): twenty services
/// poll every `UVIEW_POLL_S` seconds, with evenly spread phases.
#[test]
#[ignore = "it takes as long as SDKs take to ask"]
#[expect(clippy::disallowed_methods, reason = "it is measured with several")]
fn time_to_effect_with_an_interval() {
    let interval = std::env::var("UVIEW_POLL_S").unwrap().parse().unwrap();
    let interval = Duration::from_secs(interval);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let frontends: Vec<_> = (0..20).map(|n| format!("frontend-{n}")).collect();
    let (agent, ask) = agent(&frontends);
    let tracers: Vec<_> = frontends
        .iter()
        .map(|name| {
            std::thread::sleep(interval / 20);
            tracer(name, ask, interval)
        })
        .collect();
    let tracers: Vec<_> = tracers.iter().map(|(_, tracer)| tracer.clone()).collect();
    fault(&agent, &frontends, &tracers, interval + PATIENCE, || {});

    WAIT.until("the time to effect", || (agent.counter("delivered_raised_probabilities") == 20).then_some(()));
    let mean_s = agent.counter("raised_probabilities_wait_ms") as f64 / 20_000.0;
    println!(
        "asking every {} s: {mean_s:.1} s from the verdict to the first answer with the raised share, on average of 20 services",
        interval.as_secs()
    );
    assert!(mean_s < interval.as_secs_f64());
}

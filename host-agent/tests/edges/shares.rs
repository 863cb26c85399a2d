//! Shares of OTLP: another user of this machine invents services and replicas, and there is room for those of others.
//! Needs root, to be another user.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use prost::Message as _;
use support::otlp::{resource, spans_of};
use wire::proto::operators::ListRequest;

use crate::access::{NOBODY, as_user};
use crate::agent::{Agent, WAIT};
use crate::logs::{PROTOBUF, post_to};
use crate::otlp::{span, upstream};

/// A request with one span of each of `services`.
fn spans(services: &[String]) -> Vec<u8> {
    let of = |(trace, service): (u128, &String)| spans_of(service, vec![span(trace, 1, &[], "POST /pay")]);
    ExportTraceServiceRequest { resource_spans: (1..).zip(services).map(of).collect() }.encode_to_vec()
}

/// A request with an export of each of `services`.
fn exports(services: &[String]) -> Vec<u8> {
    let of = |service: &String| ResourceMetrics { resource: Some(resource(service)), ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: services.iter().map(of).collect() }.encode_to_vec()
}

fn invented(prefix: &str) -> Vec<String> {
    (0..40).map(|number| format!("{prefix}-{number}")).collect()
}

/// Services with LMAPs whose names begin so.
fn watched(agent: &Agent, prefix: &str) -> usize {
    let mut operators = agent.operators();
    let list = operators.runtime.block_on(operators.client.list(ListRequest {})).unwrap().into_inner();
    list.lmaps.iter().filter(|lmap| lmap.service.starts_with(prefix)).count()
}

#[test]
fn a_user_that_invents_services_and_replicas_leaves_room_for_others_and_is_named() {
    if !rustix::process::geteuid().is_root() {
        return support::harness::not_run("only root may be another user");
    }
    let (to, _received) = upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         derived: {{delay_ms: 0, services: 16}}\n  metrics: {{max_replicas: 16}}\n"
    ));
    let otlp = agent.at.otlp[1];
    let send = |path: &str, body: &[u8]| assert_eq!(post_to(otlp, path, PROTOBUF, body).0, "HTTP/1.1 200 OK");

    as_user(NOBODY, &[], || {
        send("/v1/traces", &spans(&invented("sent")));
        send("/v1/metrics", &exports(&invented("exported")));
    });
    WAIT.until("services of the flood", || (watched(&agent, "sent") == 12).then_some(()));
    WAIT.until("replicas of the flood", || {
        agent.get("/metrics").1.contains("uview_host_otlp_exporters 12\n").then_some(())
    });
    send("/v1/traces", &spans(&["payment".to_owned()]));
    send("/v1/metrics", &exports(&["payment".to_owned()]));

    WAIT.until("the service of another user", || (watched(&agent, "payment") == 1).then_some(()));
    WAIT.until("the replica of another user", || {
        agent.get("/metrics").1.contains("uview_host_otlp_exporters 13\n").then_some(())
    });
    assert_eq!(watched(&agent, "sent"), 12);
    let problems = agent.status().problems;
    for (what, key) in [
        ("otlp: spans of further services were not counted for LMAPs", "otlp.derived.services"),
        ("otlp: metrics of further replicas are not watched", "otlp.metrics.max_replicas"),
    ] {
        let who = format!("user {NOBODY} has most, 12: release some, or raise {key}");
        let named = |problem: &String| problem.starts_with(what) && problem.ends_with(&who);
        assert!(problems.iter().any(named), "{what}: {problems:?}");
    }
}

//! Tenants by the address of their peers: none can use another's service names, and no flood changes what another
//! keeps.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use hooks::tracing::{OperatorRequest, OperatorRequestError, Policy};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::{EdgeHandle, Protocol, Settings, Signal, Tenant, TenantSettings};
use prost::Message as _;

use crate::client::{WAIT, logs, post, span, traces};
use crate::idle::{answered, refused};
use crate::logs::finding;
use crate::upstream::{TestBody, Upstream};
use crate::{settings, spans, start, tail};
use support::otlp::text;
use wire::time::Nanos;

const PROTO: &str = "application/x-protobuf";
const BANK: &str = "127.0.0.2";
const TOYS: &str = "127.0.0.3";

fn tenant(name: &str, peer: &str, services: &[&str]) -> Tenant {
    let services = services.iter().map(ToString::to_string).collect();
    Tenant { name: name.to_owned(), peers: vec![peer.parse().unwrap()], services }
}

/// A bank that owns `payment`, and toys that may keep little.
fn table() -> Vec<TenantSettings> {
    let bank = TenantSettings { who: tenant("bank", BANK, &["payment"]), memory_bytes: None, budget_bytes_per_s: None };
    let toys = TenantSettings {
        who: tenant("toys", TOYS, &[]),
        memory_bytes: Some(32 << 20),
        budget_bytes_per_s: Some(10_000),
    };
    vec![bank, toys]
}

/// Sends `body` from `peer`.
pub async fn send(peer: &str, address: SocketAddr, path: &str, body: Vec<u8>) -> StatusCode {
    let mut connector = HttpConnector::new();
    connector.set_local_address(Some(peer.parse::<IpAddr>().unwrap()));
    let client = Client::builder(TokioExecutor::new()).build::<_, TestBody>(connector);
    let body = TestBody { data: Some(Bytes::from(body)), trailers: None };
    let request = Request::post(format!("http://{address}{path}")).header("content-type", PROTO).body(body).unwrap();
    client.request(request).await.unwrap().status()
}

/// A trace of its own, by number.
fn numbered(number: u32, failed: bool) -> Span {
    let mut span = span(1, failed);
    span.trace_id[12..].copy_from_slice(&number.to_be_bytes());
    span
}

/// What the upstream received: services with the trace ids of their spans.
fn came(upstream: &Upstream) -> BTreeSet<(String, Vec<u8>)> {
    let messages = upstream.messages(Signal::Traces.http_path());
    let requests = messages.into_iter().map(|message| ExportTraceServiceRequest::decode(message).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    let named = resources.flat_map(|mut resource| {
        let name = resource.resource.take().unwrap().attributes.swap_remove(0).value.unwrap();
        let request = ExportTraceServiceRequest { resource_spans: vec![resource] };
        let ids: Vec<_> = spans(&request).iter().map(|span| span.trace_id.clone()).collect();
        ids.into_iter().map(move |id| (format!("{:?}", name.value), id))
    });
    named.collect()
}

/// What the bank keeps of 64 traces, 16 of them failed, with or without a flood by toys.
async fn kept_by_the_bank(flood: bool) -> (BTreeSet<(String, Vec<u8>)>, EdgeHandle) {
    let upstream = Upstream::start().await;
    let settings = Settings { tail: Some(tail()), tenants: table(), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;
    for round in 0..16 {
        if flood {
            // Another tenant's service name, ever new operations, all failed.
            let mut spans: Vec<_> = (0..2_000).map(|n| numbered(1 << 20 | round << 12 | n, true)).collect();
            spans.iter_mut().enumerate().for_each(|(n, span)| span.name = format!("order {round} {n}"));
            assert_eq!(send(TOYS, address, "/v1/traces", traces("payment", spans).encode_to_vec()).await, 200);
        }
        let spans = (0..4).map(|n| numbered(round * 4 + n, n == 3)).collect();
        assert_eq!(send(BANK, address, "/v1/traces", traces("payment", spans).encode_to_vec()).await, 200);
    }
    let banks = |upstream: &Upstream| -> BTreeSet<_> {
        came(upstream).into_iter().filter(|(service, _)| !service.contains("toys/")).collect()
    };
    let kept = WAIT.until_async("all that the bank keeps", async || {
        let kept = running.edge().with_tail_of(1, |tail, _| tail.account().kept.spans)?;
        Some(banks(&upstream)).filter(|came| came.len() as u64 == kept && kept >= 16)
    });
    (kept.await, running)
}

#[tokio::test]
async fn a_flood_of_one_tenant_leaves_what_another_keeps_as_it_was() {
    let (alone, _running) = kept_by_the_bank(false).await;
    let (beside, running) = kept_by_the_bank(true).await;

    assert_eq!(alone.len(), 16);
    assert_eq!(alone, beside);
    let edge = running.edge();
    assert_eq!(edge.tenants().map(|(_, name)| name).collect::<Vec<_>>(), ["default", "bank", "toys"]);
    let (yielded, memory) =
        edge.with_tail_of(2, |tail, _| (tail.policies().yielded(Policy::Error), tail.memory())).unwrap();
    assert!(yielded > 1_000, "its budget is exhausted: {yielded}");
    assert!(memory <= (32 << 20) + 4_096, "{memory}");
    assert_eq!(edge.with_tail_of(1, |tail, _| tail.policies().yielded(Policy::Error)), Some(0));
    assert_eq!((edge.renamed_requests(1), edge.renamed_requests(2)), (0, 16));
}

#[tokio::test]
async fn when_all_places_of_one_tenant_are_taken_another_one_has_its_own() {
    let upstream = Upstream::start().await;
    let settings = Settings { tenants: table(), connections: 8, ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;
    let mut held = Vec::new();
    // Of eight places one user may have six.
    for _ in 0..6 {
        held.push(answered(address).await);
    }
    refused(address).await;

    assert_eq!(send(BANK, address, "/v1/logs", logs("payment").encode_to_vec()).await, 200);

    assert_eq!(running.edge().counts.refused_connections.get(), 1);
}

#[tokio::test]
async fn a_name_that_is_anothers_is_replaced_in_every_signal_and_where_spans_pass_through() {
    let upstream = Upstream::start().await;
    let settings = Settings { tenants: table(), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;
    let (spans, records) = (vec![span(1, false)], logs("payment"));

    for peer in [BANK, TOYS] {
        let request = traces("payment", spans.clone()).encode_to_vec();
        assert_eq!(send(peer, address, "/v1/traces", request).await, 200);
        assert_eq!(send(peer, address, "/v1/logs", records.encode_to_vec()).await, 200);
    }

    let expected: BTreeSet<_> =
        ["payment", "toys/payment"].map(|name| traces(name, spans.clone()).encode_to_vec()).into();
    WAIT.until_async("both, each under its name", async || {
        let came: BTreeSet<_> = upstream.messages("/v1/traces").iter().map(|message| message.to_vec()).collect();
        (came == expected).then_some(())
    })
    .await;
    let mut expected = logs("toys/payment");
    expected.resource_logs[0].scope_logs = records.resource_logs[0].scope_logs.clone();
    WAIT.until_async("the logs", async || {
        let came = upstream.messages("/v1/logs");
        (came.len() == 2 && came.iter().any(|message| **message == expected.encode_to_vec())).then_some(())
    })
    .await;
    assert_eq!(running.edge().renamed_requests(2), 2);
}

#[tokio::test]
async fn an_operator_asks_for_a_service_of_one_tenant_by_the_name_that_detectors_have() {
    let upstream = Upstream::start().await;
    let settings = Settings { tail: Some(tail()), tenants: table(), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;
    let sent = [
        (1, BANK, "payment"),
        (2, TOYS, "payment"),
        (3, TOYS, "shop"),
        (4, BANK, "shop"),
        // As of a namespace that is called so.
        (5, "127.0.0.1", "default/checkout"),
        (6, "127.0.0.1", "catalog"),
    ];
    for (number, peer, service) in sent {
        let request = traces(service, vec![numbered(number, false)]).encode_to_vec();
        assert_eq!(send(peer, address, "/v1/traces", request).await, 200);
    }
    let ask = |service: &str| {
        let (service, by) = (service.to_owned(), "user 7".to_owned());
        let (length, why) = (Nanos::from_secs(60), String::new());
        let request = OperatorRequest { service, short_name: None, operation: None, length, why, by };
        running.edge().ask(&request).unwrap()
    };
    // An alarm has both names of a service known. It is of 1970, and keeps nothing.
    for service in ["toys/payment", "toys/shop", "default/checkout", "shop"] {
        running.edge().verdict(finding(1, service));
    }

    assert_eq!(ask("shop"), Err(OperatorRequestError::NoService("shop".to_owned())), "nobody's but tenants'");
    assert!(ask("default/shop").is_err() && ask("toys/catalog").is_err(), "of no span");
    // A name that was replaced, one that is the tenant's own, and names with that of the first tenant before them: of
    // spans that have it, and of such that do not.
    for service in ["toys/payment", "toys/shop", "default/checkout", "default/catalog"] {
        ask(service).unwrap();
    }

    let kept = WAIT.until_async("all of them", async || Some(came(&upstream)).filter(|came| came.len() == 4)).await;
    let ids: BTreeSet<_> = kept.iter().map(|(_, id)| id[15]).collect();
    assert_eq!(ids, BTreeSet::from([2, 3, 5, 6]), "{kept:?}");
    assert_eq!(running.edge().with_tail_of(1, |tail, _| tail.policies().operator_traces()), Some(0));
}

#[tokio::test]
async fn masked_attributes_reach_nobody() {
    let upstream = Upstream::start().await;
    let redacted = vec!["http.route".to_owned()];
    let settings = Settings { tail: Some(tail()), redacted, ..settings(upstream.address, Protocol::Http) };
    let (_running, address) = start(&settings).await;
    let request = traces("payment", vec![span(1, true)]);

    let json = serde_json::to_vec(&request).unwrap();
    assert_eq!(post(address, "/v1/traces", "application/json", &[], json).await.status, 200);

    let message = WAIT.until_async("the kept trace", async || upstream.messages("/v1/traces").first().cloned()).await;
    let came = ExportTraceServiceRequest::decode(message).unwrap();
    assert_eq!(spans(&came)[0].attributes[0], text("http.route", "****"));
    assert_eq!(spans(&came)[0].attributes[1], request.resource_spans[0].scope_spans[0].spans[0].attributes[1]);
}

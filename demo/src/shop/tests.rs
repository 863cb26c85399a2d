use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use axum::http::Method;
use std::time::Duration;

use super::*;
use crate::fault::Kind;
use crate::http::{CallOutcome, HttpClient};
use crate::load::{self, LoadArgs, LoadReport};

/// Time limit; generous for a busy machine.
const LIMIT: Duration = Duration::from_mins(5);
/// A fault outlasts its test.
const LASTS_MS: u64 = 600_000;
/// Requests in flight: so few that none queues for longer than a service's timeout, however slow the machine is. At the
/// end so many are without a response.
const UNDER_WAY: u64 = 1;

#[test]
fn a_dependency_is_named_and_addressed() {
    let next: Next = "store=127.0.0.1:80".parse().unwrap();
    assert_eq!(next, Next { service: Service::Store, address: "127.0.0.1:80".parse().unwrap() });

    for wrong in ["store", "shelf=127.0.0.1:80", "store=here"] {
        assert!(wrong.parse::<Next>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_service_without_the_address_of_its_dependency_does_not_begin() {
    let error = ServiceServer::new(&args(Service::Payment, &BTreeMap::new())).await.unwrap_err();

    assert_eq!(error.to_string(), "payment calls store: add --next store=HOST:PORT");
}

#[tokio::test]
async fn every_service_gets_the_load_of_the_frontend_and_has_twenty_series() {
    let shop = open().await;

    let report = load_until_served(&shop, &Service::ALL, 40).await;

    let answered = report.sent - UNDER_WAY;
    assert!(report.failed * 2 < answered, "{report:?}");
    for (service, ready) in &shop {
        let stats = stats(ready).await;
        // 1 in 64 products is unknown.
        assert!(stats.served * 10 > (answered - report.failed) * 8, "{service}: {stats:?} of {report:?}");
        assert!(stats.series >= 20, "{service}: {stats:?}");
    }
}

#[tokio::test]
async fn errors_that_are_injected_into_payment_reach_the_visitors() {
    let shop = open().await;
    inject(&shop[&Service::Payment], Injection { kind: Kind::Errors, ms: LASTS_MS, amount: 1000 }).await;

    let report = load_until_served(&shop, &[Service::Payment], 25).await;

    // 1 in 64 products is unknown, which is no error.
    assert!(report.failed * 10 > (report.sent - UNDER_WAY) * 7, "{report:?}");
}

#[tokio::test]
async fn latency_that_is_injected_into_the_store_is_waited_for_by_the_visitors() {
    let shop = open().await;
    inject(&shop[&Service::Store], Injection { kind: Kind::Latency, ms: LASTS_MS, amount: 300 }).await;

    let slow = load_until_served(&shop, &[Service::Store], 10).await;

    // A lower limit on any machine. Without the fault it is some milliseconds.
    assert!(slow.median_us >= 300_000, "{slow:?}");
}

fn args(service: Service, open: &BTreeMap<Service, ServiceInfo>) -> ShopArgs {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let next = open.iter().map(|(service, ready)| Next { service: *service, address: ready.listen });
    ShopArgs {
        service,
        listen: any,
        netns: None,
        admin: any,
        next: next.collect(),
        socket: "/nonexistent/services.sock".into(),
        otlp: None,
        ready: None,
        seed: 1,
        replica: 1,
        wait_us: 1500,
    }
}

/// All services in this process, without agents.
async fn open() -> BTreeMap<Service, ServiceInfo> {
    let mut shop = BTreeMap::new();
    for service in Service::ALL.into_iter().rev() {
        let open = ServiceServer::new(&args(service, &shop)).await.unwrap();
        shop.insert(service, open.ready.clone());
        tokio::spawn(open.serve());
    }
    shop
}

/// Sends requests to the frontend until each of `services` has served `served` of them.
async fn load_until_served(shop: &BTreeMap<Service, ServiceInfo>, services: &[Service], served: u64) -> LoadReport {
    let target = shop[&Service::Frontend].listen;
    let at_once = UNDER_WAY as usize;
    let args = LoadArgs { target, per_second: 140.0, seed: 1, seconds: None, at_once, visitors: 0, report: None };
    let enough = async {
        for service in services {
            while stats(&shop[service]).await.served < served {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    let visited = load::visit(&args, enough);
    tokio::time::timeout(LIMIT, visited).await.expect("they are visited").report
}

async fn ask(method: Method, ready: &ServiceInfo, target: &str) -> Vec<u8> {
    match HttpClient::new(LIMIT).request(method, ready.admin, target).await {
        CallOutcome::Response(status, bytes) if status.is_success() => bytes,
        other => panic!("{target}: {other:?}"),
    }
}

async fn stats(ready: &ServiceInfo) -> ServiceStats {
    serde_json::from_slice(&ask(Method::GET, ready, "/stats").await).unwrap()
}

async fn inject(ready: &ServiceInfo, injection: Injection) {
    ask(Method::POST, ready, &injection.target()).await;
}

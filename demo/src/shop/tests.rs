use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use axum::http::Method;
use std::time::Duration;

use super::*;
use crate::fault::Kind;
use crate::http::{Answer, Caller};
use crate::load::{self, LoadArgs, LoadReport};

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
    let error = Open::new(&args(Service::Payment, &BTreeMap::new())).await.unwrap_err();

    assert_eq!(error.to_string(), "payment asks store, and --next does not say where that is");
}

#[tokio::test]
async fn every_service_gets_the_load_of_the_frontend_and_has_twenty_series() {
    let shop = open().await;

    let report = load(&shop, 2).await;

    assert!(report.sent > 150, "{report:?}");
    assert_eq!((report.failed, report.dropped), (0, 0), "{report:?}");
    for (service, ready) in &shop {
        let facts = facts(ready).await;
        assert!(facts.served * 10 > report.sent * 8, "{service}: {facts:?} of {report:?}"); // 1 in 64 products is unknown
        assert!(facts.series >= 20, "{service}: {facts:?}");
    }
}

#[tokio::test]
async fn errors_that_are_injected_into_payment_reach_the_visitors() {
    let shop = open().await;
    inject(&shop[&Service::Payment], Injection { kind: Kind::Errors, ms: 10_000, amount: 1000 }).await;

    let report = load(&shop, 1).await;

    assert!(report.sent > 50 && report.failed * 10 > report.sent * 9, "{report:?}");
}

#[tokio::test]
async fn latency_that_is_injected_into_the_store_is_waited_for_by_the_visitors() {
    let shop = open().await;
    let healthy = load(&shop, 1).await;
    inject(&shop[&Service::Store], Injection { kind: Kind::Latency, ms: 10_000, amount: 80 }).await;

    let slow = load(&shop, 1).await;

    assert!(slow.median_us > healthy.median_us + 70_000, "{healthy:?} {slow:?}");
}

fn args(service: Service, open: &BTreeMap<Service, Ready>) -> ShopArgs {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let next = open.iter().map(|(service, ready)| Next { service: *service, address: ready.listen });
    ShopArgs {
        service,
        listen: any,
        admin: any,
        next: next.collect(),
        socket: "/nonexistent/services.sock".into(),
        ready: None,
        seed: 1,
        replica: 1,
        wait_us: 1500,
    }
}

/// All services in this process, each serving; nobody watches.
async fn open() -> BTreeMap<Service, Ready> {
    let mut shop = BTreeMap::new();
    for service in Service::ALL.into_iter().rev() {
        let open = Open::new(&args(service, &shop)).await.unwrap();
        shop.insert(service, open.ready.clone());
        tokio::spawn(open.serve());
    }
    shop
}

async fn load(shop: &BTreeMap<Service, Ready>, seconds: u64) -> LoadReport {
    let target = shop[&Service::Frontend].listen;
    let args = LoadArgs { target, per_second: 140.0, seed: 1, seconds: Some(seconds), at_once: 1024, report: None };
    load::visit(&args, std::future::pending()).await
}

async fn ask(method: Method, ready: &Ready, target: &str) -> Vec<u8> {
    match Caller::new(Duration::from_secs(5)).ask(method, ready.admin, target).await {
        Answer::Answered(status, bytes) if status.is_success() => bytes,
        other => panic!("{target}: {other:?}"),
    }
}

async fn facts(ready: &Ready) -> Facts {
    serde_json::from_slice(&ask(Method::GET, ready, "/facts").await).unwrap()
}

async fn inject(ready: &Ready, injection: Injection) {
    ask(Method::POST, ready, &injection.target()).await;
}

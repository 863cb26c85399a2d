//! Metrics pass on unchanged, and whoever watches them sees what senders may send.

use std::time::Duration;

use agent_runtime::reload::Reloadable;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use otlp::{Edge, Protocol, SenderRule, SenderRules, Settings, Signal};
use prost::Message as _;
use support::otlp::text;

use super::client::{WAIT, metrics, packed, post};
use super::upstream::Upstream;
use super::{settings, start};

const PROTOBUF: &str = "application/x-protobuf";

/// Metrics of replica `instance`.
fn request(service: &str, instance: Option<&str>) -> ExportMetricsServiceRequest {
    let mut request = metrics(service);
    if let (Some(instance), Some(resource)) = (instance, &mut request.resource_metrics[0].resource) {
        resource.attributes.push(text("service.instance.id", instance));
    }
    request
}

/// Services, replicas and encoded lengths of the next request that is watched.
async fn next(edge: &Edge) -> Vec<(String, String, usize)> {
    let forwarded = tokio::time::timeout(Duration::from_secs(30), edge.next_metrics()).await.unwrap();
    let mut exports = Vec::new();
    edge.each_export(&forwarded, |export| {
        exports.push((export.service.into_owned(), export.instance.into_owned(), export.encoded.len()));
    });
    exports
}

fn path() -> &'static str {
    Signal::Metrics.http_path()
}

#[tokio::test]
async fn metrics_are_forwarded_byte_for_byte_and_seen_with_their_service_and_replica() {
    let upstream = Upstream::start().await;
    let settings = Settings { watched_metrics: Some(1 << 20), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;
    let sent = request("payment", Some("payment-1")).encode_to_vec();
    let nameless = request("cart", None).encode_to_vec();
    let json = serde_json::to_vec(&request("shop", Some("shop-1"))).unwrap();

    post(address, path(), PROTOBUF, &[("content-encoding", "gzip")], packed(&sent)).await;
    post(address, path(), PROTOBUF, &[], nameless.clone()).await;
    post(address, path(), "application/json", &[], json.clone()).await;

    let length = ExportMetricsServiceRequest::decode(&sent[..]).unwrap().resource_metrics[0].encoded_len();
    assert_eq!(next(running.edge()).await, [("payment".to_owned(), "payment-1".to_owned(), length)]);
    let exports = next(running.edge()).await;
    assert_eq!((exports[0].0.as_str(), exports[0].1.as_str()), ("cart", "127.0.0.1"), "without an id, the address");
    let exports = next(running.edge()).await;
    assert_eq!((exports[0].0.as_str(), exports[0].1.as_str()), ("shop", "shop-1"), "JSON is seen transcoded");
    let came =
        WAIT.until_async("all of them", async || Some(upstream.messages(path())).filter(|came| came.len() == 3)).await;
    for body in [&sent, &nameless, &json] {
        assert!(came.iter().any(|came| came[..] == body[..]), "unchanged");
    }
}

#[tokio::test]
async fn metrics_of_a_sender_that_may_not_use_the_name_are_forwarded_and_not_watched() {
    let upstream = Upstream::start().await;
    let payment = SenderRule { services: Some(vec!["payment".to_owned()]), ..SenderRule::default() };
    let settings = Settings {
        watched_metrics: Some(1 << 20),
        senders: Reloadable::new(SenderRules::new(&[payment])),
        ..settings(upstream.address, Protocol::Http)
    };
    let (running, address) = start(&settings).await;
    let mut request = request("payment", Some("payment-1"));
    request.resource_metrics.extend(self::request("cart", Some("cart-1")).resource_metrics);

    post(address, path(), PROTOBUF, &[], request.encode_to_vec()).await;

    let exports = next(running.edge()).await;
    assert_eq!(exports.len(), 1);
    assert_eq!(exports[0].0, "cart");
    assert_eq!(running.edge().counts.unverified_metrics.get(), 1);
    assert_eq!(running.edge().counts.unverified_spans.get(), 0);
    let unverified = running.edge().unverified();
    assert_eq!((unverified[0].service.as_str(), unverified[0].spans, unverified[0].exports), ("payment", 0, 1));
    let came = WAIT.until_async("the request", async || upstream.messages(path()).first().cloned()).await;
    assert_eq!(came[..], request.encode_to_vec()[..]);
}

#[tokio::test]
async fn if_nobody_looks_at_them_metrics_are_forwarded_all_the_same() {
    let upstream = Upstream::start().await;
    let body = request("payment", None).encode_to_vec();
    // Room for two, of which one sender may have one.
    let room = 2 * (body.len() + 150);
    let settings = Settings { watched_metrics: Some(room), ..settings(upstream.address, Protocol::Http) };
    let (running, address) = start(&settings).await;

    for _ in 0..5 {
        let answer = post(address, path(), PROTOBUF, &[], body.clone()).await;
        assert_eq!(answer.status, 200);
    }

    assert_eq!(running.edge().counts.unwatched_metrics.get(), 4);
    let came =
        WAIT.until_async("all of them", async || Some(upstream.messages(path()).len()).filter(|came| *came == 5)).await;
    assert_eq!(came, 5);
    assert_eq!(next(running.edge()).await.len(), 1);
}

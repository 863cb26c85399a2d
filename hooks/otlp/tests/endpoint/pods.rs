//! Pods as senders: this machine's address is that of a pod.

use std::sync::Arc;

use agent_runtime::reload::Reloadable;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use otlp::{PodSender, PodSenders, Protocol, Settings, Signal, SpanMetricsSettings};
use prost::Message as _;

use super::client::{WAIT, span, traces};
use super::upstream::Upstream;
use super::{settings, start, tail};
use support::otlp::text;

fn pod(service: &str, name: &str) -> PodSender {
    PodSender::new(service, name, [("k8s.namespace.name", "shop"), ("k8s.pod.name", name)].into_iter())
}

fn at_this_address(pod: PodSender) -> PodSenders {
    PodSenders::new([("127.0.0.1".parse().unwrap(), Arc::new(pod))])
}

#[tokio::test]
async fn spans_of_a_pod_are_its_services_and_kept_ones_say_which_pod_sent_them() {
    let upstream = Upstream::start().await;
    let pods = Reloadable::new(PodSenders::default());
    let span_metrics = Some(SpanMetricsSettings::default());
    let base = settings(upstream.address, Protocol::Grpc);
    let settings = Settings { tail: Some(tail()), pods: Some(pods.clone()), span_metrics, ..base };
    let (running, address) = start(&settings).await;
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();
    let services = || {
        let all =
            running.edge().with_span_metrics(|all| all.services().map(|it| it.name().to_owned()).collect::<Vec<_>>());
        all.unwrap()
    };
    let unverified = || running.edge().counts.unverified_spans.get();

    // It is no pod that is known, and uses a pod's name.
    client.export(traces("shop/payment", vec![span(1, false)])).await.unwrap();
    assert_eq!((services(), unverified()), (Vec::new(), 1));

    // The same connection, once the API server has told of the pod; and the name of another namespace's service.
    pods.replace(at_this_address(pod("shop/payment", "payment-1")));
    let mut forged = traces("bank/teller", vec![span(2, true)]);
    let resource = forged.resource_spans[0].resource.as_mut().unwrap();
    resource.attributes.push(text("k8s.pod.name", "teller-1"));
    client.export(forged).await.unwrap();
    client.export(traces("payment", vec![span(3, true)])).await.unwrap();
    assert_eq!((services(), unverified()), (vec!["shop/payment".to_owned()], 1));

    // The same name in another namespace.
    pods.replace(at_this_address(pod("bank/payment", "payment-1")));
    client.export(traces("payment", vec![span(4, false)])).await.unwrap();
    assert_eq!(services(), ["shop/payment", "bank/payment"]);

    // One that forwards for others.
    pods.replace(at_this_address(pod("tracing/collector", "collector-1").forwarding()));
    client.export(traces("cart", vec![span(5, false)])).await.unwrap();
    assert_eq!((services().len(), services().contains(&"cart".to_owned())), (3, true));

    let path = Signal::Traces.grpc_path();
    let came =
        WAIT.until_async("both kept traces", async || Some(upstream.messages(path)).filter(|all| all.len() == 2)).await;
    let resources: Vec<_> = came
        .into_iter()
        .map(|body| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let attributes = request.resource_spans[0].resource.clone().unwrap().attributes.into_iter();
            let pair = |pair: opentelemetry_proto::tonic::common::v1::KeyValue| match pair.value.unwrap().value {
                Some(Value::StringValue(value)) => format!("{}={value}", pair.key),
                other => format!("{other:?}"),
            };
            attributes.map(pair).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let own = "k8s.namespace.name=shop k8s.pod.name=payment-1";
    let forged = format!("service.name=bank/teller uview.claimed.k8s.pod.name=teller-1 {own}");
    assert_eq!(resources, [forged, format!("service.name=payment {own}")]);
}

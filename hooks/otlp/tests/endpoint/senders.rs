//! Rules of who may send as which service, that change while connections stand; and kernels that know no senders.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_runtime::reload::Reloadable;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use otlp::{
    EdgeHandle, Protocol, SenderRule, SenderRules, SocketOwner, SpanMetricsSettings, TOKEN_HEADER, Token,
    UnknownSenders, socket_owner,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Request;
use tonic::transport::Channel;

use super::client::{span, traces};
use super::upstream::Upstream;
use super::{settings, start};

/// Rules by which `payment` belongs to whom each of them names.
fn rules(rules: impl IntoIterator<Item = SenderRule>) -> SenderRules {
    let of_payment = |rule| SenderRule { services: Some(vec!["payment".to_owned()]), ..rule };
    SenderRules::new(&rules.into_iter().map(of_payment).collect::<Vec<_>>())
}

fn token(secret: &str) -> SenderRule {
    SenderRule { token: Token::new(secret), ..SenderRule::default() }
}

fn request() -> opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest {
    traces("payment", vec![span(1, false)])
}

/// The head of a request of payment's, and its body.
fn http(secret: &str) -> (String, Vec<u8>) {
    let body = request().encode_to_vec();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\n\
         {TOKEN_HEADER}: {secret}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// Reads a response whose body is empty.
async fn answered(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the connection stands");
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

async fn by_http(stream: &mut TcpStream, secret: &str) {
    let (head, body) = http(secret);
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    answered(stream).await;
}

async fn by_grpc(client: &mut TraceServiceClient<Channel>, secret: &str) {
    let mut request = Request::new(request());
    request.metadata_mut().insert(TOKEN_HEADER, secret.parse().unwrap());
    client.export(request).await.unwrap();
}

fn unverified(running: &EdgeHandle) -> u64 {
    running.edge().counts.unverified_spans.get()
}

/// Connections of the next test.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn requests_on_connections_that_stand_are_judged_by_the_rules_of_now() {
    let upstream = Upstream::start().await;
    let mut settings = settings(upstream.address, Protocol::Http);
    settings.span_metrics = Some(SpanMetricsSettings::default());
    settings.senders = Reloadable::new(rules([token("old"), token("other")]));
    settings.admits = |_| CONNECTIONS.fetch_add(1, Ordering::Relaxed) < 2;
    let (live, (running, address)) = (settings.senders.clone(), start(&settings).await);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut client = TraceServiceClient::connect(format!("http://{address}")).await.unwrap();
    by_http(&mut stream, "old").await;
    by_grpc(&mut client, "old").await;
    assert_eq!(unverified(&running), 0);

    // One is revoked, one is added, and the places of others change.
    live.replace(rules([token("new"), token("other")]));
    for (secret, refused) in [("old", 1), ("new", 0), ("other", 0)] {
        let before = unverified(&running);
        by_http(&mut stream, secret).await;
        assert_eq!(unverified(&running), before + refused, "HTTP, {secret}");
        by_grpc(&mut client, secret).await;
        assert_eq!(unverified(&running), before + 2 * refused, "gRPC, {secret}");
    }

    // Users are asked for when a rule needs them for the first time.
    let (own, before) = (socket_owner(stream.local_addr().unwrap(), address).unwrap().uid, unverified(&running));
    live.replace(rules([SenderRule { uid: Some(own), ..SenderRule::default() }]));
    by_http(&mut stream, "old").await;
    by_grpc(&mut client, "old").await;
    assert_eq!(unverified(&running), before);
    live.replace(rules([SenderRule { uid: Some(own ^ 1), ..SenderRule::default() }]));
    by_http(&mut stream, "old").await;
    assert_eq!(unverified(&running), before + 1);
    assert_eq!(CONNECTIONS.load(Ordering::Relaxed), 2, "both have stood all the while");
}

#[tokio::test]
async fn a_request_is_judged_to_its_end_by_the_rules_of_its_begin() {
    let upstream = Upstream::start().await;
    let mut settings = settings(upstream.address, Protocol::Http);
    settings.span_metrics = Some(SpanMetricsSettings::default());
    settings.senders = Reloadable::new(rules([token("old")]));
    let (live, (running, address)) = (settings.senders.clone(), start(&settings).await);

    for (secret, refused) in [("old", 0), ("new", 1)] {
        live.replace(rules([token("old")]));
        let (head, body) = http(secret);
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (first, rest) = body.split_at(1);
        stream.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
        // The head was read: there is memory reserved for the body.
        super::client::WAIT
            .until_async("the begin", async || (running.edge().receiving_bytes() > 0).then_some(()))
            .await;
        // The rule that has the same place now fits nobody here.
        live.replace(rules([SenderRule { uid: Some(7), ..SenderRule::default() }, token("new")]));
        stream.write_all(rest).await.unwrap();
        answered(&mut stream).await;
        assert_eq!(unverified(&running), refused, "{secret}");
    }
}

#[tokio::test]
async fn kernels_that_do_not_know_senders_are_a_problem_if_a_rule_needs_them() {
    let upstream = Upstream::start().await;
    let user = || rules([SenderRule { uid: Some(7), ..SenderRule::default() }]);
    let cgroup = || rules([SenderRule { cgroup: Some("/".to_owned()), ..SenderRule::default() }]);
    let mut settings = settings(upstream.address, Protocol::Http);
    settings.span_metrics = Some(SpanMetricsSettings::default());

    // Without tcp_diag there is no such socket.
    settings.socket_owner = |_, _| Err(ErrorKind::NotFound.into());
    settings.senders = Reloadable::new(user());
    let (running, address) = start(&settings).await;
    by_http(&mut TcpStream::connect(address).await.unwrap(), "x").await;
    assert_eq!((unverified(&running), running.edge().counts.unknown_senders.get()), (1, 1));
    let problem = running.edge().unknown_senders().unwrap();
    assert!(matches!(problem, UnknownSenders::NoModule) && problem.advice().contains("modprobe tcp_diag"), "{problem}");
    for others in [rules([token("a")]), SenderRules::default()] {
        settings.senders.replace(others);
        assert!(running.edge().unknown_senders().is_none(), "no rule asks for users");
    }

    settings.socket_owner = |_, _| Err(ErrorKind::PermissionDenied.into());
    settings.senders.replace(user());
    let (running, _) = start(&settings).await;
    assert!(matches!(running.edge().unknown_senders(), Some(UnknownSenders::NotAsked(_))));

    settings.socket_owner = |_, _| Ok(SocketOwner { uid: 7, cgroup: None });
    let (running, _) = start(&settings).await;
    assert!(running.edge().unknown_senders().is_none());
    settings.senders.replace(cgroup());
    assert!(matches!(running.edge().unknown_senders(), Some(UnknownSenders::NoCgroups)));

    settings.socket_owner = socket_owner;
    settings.senders.replace(user());
    let (running, _) = start(&settings).await;
    assert!(running.edge().unknown_senders().is_none(), "this kernel knows users");
}

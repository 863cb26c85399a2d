//! Who may send spans in which service's name.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use wire::proto::operators::{ListReply, ListRequest};

use crate::agent::{Agent, wait_for};
use crate::otlp::{send, span, spans_of, upstream};
use crate::service::Service;

/// The instances of each service.
fn instances(agent: &Agent) -> Vec<(String, Vec<String>)> {
    let mut operators = agent.operators();
    let ListReply { lmaps } = operators.runtime.block_on(operators.client.list(ListRequest {})).unwrap().into_inner();
    let of = |lmap: wire::proto::operators::LmapInfo| {
        (lmap.service, lmap.replicas.into_iter().map(|replica| replica.instance).collect())
    };
    let mut all: Vec<_> = lmaps.into_iter().map(of).collect();
    all.sort();
    all
}

/// A request of one span of each of `services`.
fn request(first: u128, services: &[&str]) -> Vec<u8> {
    let one = |(n, service): (usize, &&str)| spans_of(service, vec![span(first + n as u128, 1, &[], "POST /pay")]);
    ExportTraceServiceRequest { resource_spans: services.iter().enumerate().map(one).collect() }.encode_to_vec()
}

/// Sends `body` from `from`, with more headers. Returns the status line.
fn send_from(from: IpAddr, to: SocketAddr, headers: &str, body: &[u8]) -> String {
    let stream: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::new(from, 0)).unwrap();
    connect(&stream, &to).unwrap();
    let mut stream = std::net::TcpStream::from(stream);
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/x-protobuf";
    write!(stream, "{head}\r\n{headers}content-length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// `payment` belongs to processes of this user that register, to 127.0.0.2, and to who has the token; `cart` to this
/// user, and `shop` to another one.
fn agent(to: SocketAddr, token: &std::path::Path, traces: &str) -> Agent {
    let own = rustix::process::geteuid().as_raw();
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\nservices:\n  identities:\n    \
         - {{uid: {own}, cgroup: /, services: [payment]}}\n    \
         - {{peers: [127.0.0.2], token_file: '{}', services: [payment]}}\n    \
         - {{uid: {own}, services: [cart]}}\n    - {{uid: 4000000000, services: [shop]}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  \
         listen_http: 127.0.0.1:0\n  derived: {{delay_ms: 0}}\n  traces: {{{traces}}}\n",
        token.display()
    ))
}

fn replicas<'a>(all: &'a [(String, Vec<String>)], service: &str) -> Option<&'a [String]> {
    all.iter().find(|(name, _)| name == service).map(|(_, replicas)| &**replicas)
}

#[test]
fn spans_in_the_name_of_anothers_service_pass_and_do_not_count_as_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "open-sesame\n").unwrap();
    let (to, received) = upstream();
    let agent = agent(to, &token, "keep: all");
    let otlp = agent.at.otlp[1];
    let (_payment, _region) = Service::register(&agent, "payment", &["requests"]);

    // Of payment and shop, and after them of services whose spans count: this user's, and nobody's in particular.
    let body = request(1, &["payment", "shop", "payment", "cart", "frontend"]);
    assert_eq!(send(otlp, &body), "HTTP/1.1 200 OK");
    let counted = wait_for("the replicas with spans", || {
        let all = instances(&agent);
        replicas(&all, "cart").and(replicas(&all, "frontend")).map(|_| all.clone())
    });

    let payment = replicas(&counted, "payment").unwrap();
    assert!(payment.len() == 1 && payment[0] != "spans", "{payment:?}");
    assert_eq!(replicas(&counted, "shop"), None);
    let problems = agent.status().problems;
    let own = rustix::process::geteuid().as_raw();
    let named = format!("otlp: 2 spans in the name of payment from user {own} (127.0.0.1) are forwarded");
    assert!(problems.iter().any(|problem| problem.starts_with(&named)), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("1 spans in the name of shop")), "{problems:?}");
    assert!(agent.get("/metrics").1.contains("uview_host_unverified_spans_total 3"));
    let passed = wait_for("the spans at the upstream", || {
        received.lock().unwrap_or_else(std::sync::PoisonError::into_inner).first().cloned()
    });
    assert_eq!(passed.encode_to_vec(), body, "what is sent on is what came");

    // The owner's spans count.
    assert_eq!(send_from(OTHER, otlp, "", &request(10, &["payment"])), "HTTP/1.1 200 OK");
    wait_for("payment's own spans", || {
        replicas(&instances(&agent), "payment").filter(|replicas| replicas.iter().any(|name| name == "spans")).map(drop)
    });
    assert!(agent.get("/metrics").1.contains("uview_host_unverified_spans_total 3"));
}

#[test]
fn a_token_lets_its_holder_send_in_the_name_of_a_service() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "open-sesame\n").unwrap();
    let (to, _received) = upstream();
    let agent = agent(to, &token, "keep: tail");
    let otlp = agent.at.otlp[1];

    for (number, headers, unverified) in
        [(1, "uview-token: open-sesamE\r\n", 1), (2, "uview-token: open-sesame\r\n", 1), (3, "", 2)]
    {
        assert_eq!(send_from(LOCALHOST, otlp, headers, &request(number, &["payment"])), "HTTP/1.1 200 OK");
        let counted = format!("uview_host_unverified_spans_total {unverified}");
        assert!(agent.get("/metrics").1.contains(&counted), "{number}");
    }

    wait_for("payment's own span", || replicas(&instances(&agent), "payment").map(drop));
    // For the tail sampler they are of nobody.
    let mut operators = agent.operators();
    let receipt = operators.client.receipt(wire::proto::operators::ReceiptRequest {});
    let receipt = operators.runtime.block_on(receipt).unwrap().into_inner();
    let seen = |service: &str| {
        let lines = receipt.days.iter().flat_map(|day| &day.services);
        lines.filter(|line| line.service == service).map(|line| line.seen_spans).sum::<u64>()
    };
    assert_eq!((seen("payment"), seen("_unverified")), (1, 2));
}

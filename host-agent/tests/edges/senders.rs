//! Who may send spans in which service's name.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use wire::proto::operators::{ListReply, ListRequest};

use crate::agent::{Agent, WAIT};
use crate::otlp::{send, span, upstream};
use crate::reload::replace;
use crate::service::Service;
use support::otlp::spans_of;

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

/// The configuration of an agent whose identities are `rules`.
fn text(to: SocketAddr, rules: &str, traces: &str) -> String {
    format!(
        "process_metrics: {{enabled: false}}\nservices: {{identities: [{rules}]}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  \
         listen_http: 127.0.0.1:0\n  derived: {{delay_ms: 0}}\n  traces: {{{traces}}}\n"
    )
}

/// `payment` belongs to 127.0.0.2, and to who has the token; `cart` to this user, and `shop` to another one.
fn rules(token: &Path) -> String {
    let own = rustix::process::geteuid().as_raw();
    format!(
        "{{peers: [127.0.0.2], token_file: '{}', services: [payment]}}, {{uid: {own}, services: [cart]}}, \
         {{uid: 4000000000, services: [shop]}}",
        token.display()
    )
}

/// Waits until the agent has taken over `reloads` changes of its files.
fn reloaded(agent: &Agent, reloads: u32) {
    let line = format!("uview_host_reloads_total {reloads}\n");
    WAIT.until("the changed files", || agent.get("/metrics").1.contains(&line).then_some(()));
    assert!(!agent.status().problems.iter().any(|line| line.contains("not in use")));
}

fn replicas<'a>(all: &'a [(String, Vec<String>)], service: &str) -> Option<&'a [String]> {
    all.iter().find(|(name, _)| name == service).map(|(_, replicas)| &**replicas)
}

#[test]
fn spans_in_the_name_of_anothers_service_pass_and_do_not_count_as_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "open-sesame\n").unwrap();
    let file = folder.path().join("host.yaml");
    let (to, received) = upstream();
    std::fs::write(&file, text(to, "", "keep: all")).unwrap();
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let otlp = agent.at.otlp[1];
    let (_payment, _region) = Service::register(&agent, "payment", &["requests"]);
    replace(&file, &text(to, &rules(&token), "keep: all"));
    reloaded(&agent, 1);

    // Of payment and shop, and after them of services whose spans count: this user's, and nobody's in particular.
    let body = request(1, &["payment", "shop", "payment", "cart", "frontend"]);
    assert_eq!(send(otlp, &body), "HTTP/1.1 200 OK");
    let counted = WAIT.until("the replicas with spans", || {
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
    let passed = WAIT.until("the spans at the upstream", || {
        received.lock().unwrap_or_else(std::sync::PoisonError::into_inner).first().cloned()
    });
    assert_eq!(passed.encode_to_vec(), body, "what is sent on is what came");

    // The owner's spans count.
    assert_eq!(send_from(OTHER, otlp, "", &request(10, &["payment"])), "HTTP/1.1 200 OK");
    WAIT.until("payment's own spans", || {
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
    let agent = Agent::with(&text(to, &rules(&token), "keep: tail"));
    let otlp = agent.at.otlp[1];

    for (number, headers, unverified) in
        [(1, "uview-token: open-sesamE\r\n", 1), (2, "uview-token: open-sesame\r\n", 1), (3, "", 2)]
    {
        assert_eq!(send_from(LOCALHOST, otlp, headers, &request(number, &["payment"])), "HTTP/1.1 200 OK");
        let counted = format!("uview_host_unverified_spans_total {unverified}");
        assert!(agent.get("/metrics").1.contains(&counted), "{number}");
    }

    WAIT.until("payment's own span", || replicas(&instances(&agent), "payment").map(drop));
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

/// Sends `body` on a connection that stands, and stays. Returns the status line.
fn send_on(stream: &mut std::net::TcpStream, headers: &str, body: &[u8]) -> String {
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf";
    write!(stream, "{head}\r\n{headers}content-length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(body).unwrap();
    // The reply has no body.
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_token_that_is_replaced_in_its_file_holds_for_connections_that_stand_too() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let (to, _received) = upstream();
    let agent = Agent::with(&text(to, &rules(&token), "keep: all"));
    let mut stream = std::net::TcpStream::connect(agent.at.otlp[1]).unwrap();
    let mut unverified = |number, secret: &str| {
        let header = format!("uview-token: {secret}\r\n");
        assert_eq!(send_on(&mut stream, &header, &request(number, &["payment"])), "HTTP/1.1 200 OK");
        let page = agent.get("/metrics").1;
        let line = page.lines().find_map(|line| line.strip_prefix("uview_host_unverified_spans_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((unverified(1, "first"), unverified(2, "second")), (0, 1));

    replace(&token, "second\n");
    reloaded(&agent, 1);

    assert_eq!((unverified(3, "second"), unverified(4, "first")), (1, 2));
    replace(&token, "two words\n");
    WAIT.until("the problem", || crate::reload::rejected(&agent).then_some(()));
    let problems = agent.status().problems;
    assert!(problems.iter().any(|line| line.contains("not in use") && line.contains("token_file")), "{problems:?}");
    assert_eq!((unverified(5, "second"), unverified(6, "first")), (2, 3));
}

const CGROUP: &str = "UVIEW_TEST_CGROUP";
const ENDPOINT: &str = "UVIEW_TEST_ENDPOINT";

/// A process of this test program that enters the cgroup of `directory`, and then sends spans.
fn send_in(directory: &Path, to: SocketAddr) {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "senders::enters_a_cgroup_and_sends", "--ignored"]);
    program.env(CGROUP, directory).env(ENDPOINT, to.to_string()).stdout(std::process::Stdio::null());
    assert!(program.status().unwrap().success());
}

#[test]
#[ignore = "a process of the next test"]
#[expect(clippy::disallowed_methods, reason = "the other process names cgroup and endpoint")]
fn enters_a_cgroup_and_sends() {
    let (Some(directory), Ok(to)) = (std::env::var_os(CGROUP), std::env::var(ENDPOINT)) else { return };
    std::fs::write(PathBuf::from(directory).join("cgroup.procs"), "0").unwrap();
    assert_eq!(send(to.parse().unwrap(), &request(1, &["payment", "cart", "stock"])), "HTTP/1.1 200 OK");
}

/// A cgroup (v2) with one below it, while this lives.
struct TestCgroup {
    path: String,
    directory: PathBuf,
}

impl TestCgroup {
    fn new() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = mounts.lines().filter(|line| line.contains(" - cgroup2 ")).find_map(|line| {
            let mut fields = line.split(' ').skip(3);
            (fields.next()? == "/").then(|| fields.next())?
        })?;
        let path = format!("/uview-test-{}", std::process::id());
        let directory = Path::new(point).join(path.trim_start_matches('/'));
        std::fs::create_dir(&directory).ok()?;
        let cgroup = Self { path, directory };
        std::fs::create_dir(cgroup.directory.join("pod")).ok().map(|()| cgroup)
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        _ = std::fs::remove_dir(self.directory.join("pod"));
        _ = std::fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_sender_is_known_by_the_cgroup_in_which_it_connected() {
    let Some(cgroup) = TestCgroup::new() else {
        return support::harness::not_run("no cgroup (v2) can be made here");
    };
    let own = rustix::process::geteuid().as_raw();
    let (to, _received) = upstream();
    let path = &cgroup.path;
    let rules = format!(
        "{{cgroup: {path}, services: [payment]}}, {{cgroup: {path}, uid: {}, services: [cart]}}, \
         {{cgroup: {path}/pod, uid: {own}, services: [stock]}}",
        own ^ 1
    );
    let agent = Agent::with(&text(to, &rules, "keep: all"));

    send_in(&cgroup.directory.join("pod"), agent.at.otlp[1]);
    let counted = WAIT.until("the replicas with spans", || {
        let all = instances(&agent);
        replicas(&all, "payment").and(replicas(&all, "stock")).map(|_| all.clone())
    });
    assert_eq!(replicas(&counted, "cart"), None, "another user's");
    let problems = agent.status().problems;
    let named = format!("1 spans in the name of cart from user {own} in {path}/pod (127.0.0.1)");
    assert!(problems.iter().any(|problem| problem.contains(&named)), "{problems:?}");

    // This process is in another cgroup, and so is one above.
    assert_eq!(send(agent.at.otlp[1], &request(10, &["payment", "stock"])), "HTTP/1.1 200 OK");
    assert!(agent.get("/metrics").1.contains("uview_host_unverified_spans_total 3"));
    send_in(&cgroup.directory, agent.at.otlp[1]);
    assert!(agent.get("/metrics").1.contains("uview_host_unverified_spans_total 5"), "cart and stock");
}

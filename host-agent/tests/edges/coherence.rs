//! Three host agents on loopback addresses gossip: what one decides to keep, all forward.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::PoisonError;

use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use support::otlp::{service_of, traces};

use crate::agent::{Agent, WAIT};
use crate::otlp::{ReceivedSpans, send, span, upstream};

/// A free port on each of `hosts`.
pub fn free(hosts: &[u8]) -> Vec<SocketAddr> {
    let listeners = hosts.iter().map(|host| TcpListener::bind(SocketAddr::from(([127, 0, 0, *host], 0))).unwrap());
    let listeners: Vec<_> = listeners.collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// The node `name`, which gossips.
pub fn agent(name: &str, listen: SocketAddr, peers: &[SocketAddr], upstream: SocketAddr) -> Agent {
    let peers: Vec<_> = peers.iter().map(|peer| format!("'{peer}'")).collect();
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         coherence: {{listen: '{listen}', peers: [{}], insecure: true}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, floor: 0, latency: false, frontends: [frontend], node: {name}, order_key: 00112233445566778899aabbccddeeff}}\n",
        peers.join(", "),
    ))
}

pub fn request(service: &str, spans: Vec<Span>) -> Vec<u8> {
    traces(service, spans).encode_to_vec()
}

/// Spans by trace and service, as the backend received them.
fn arrived(received: &ReceivedSpans) -> BTreeMap<u128, BTreeSet<String>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for request in received.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for group in &request.resource_spans {
            let service = service_of(group).to_owned();
            for span in group.scope_spans.iter().flat_map(|scope| &scope.spans) {
                let trace = u128::from_be_bytes(span.trace_id[..].try_into().unwrap());
                all.entry(trace).or_default().insert(service.clone());
            }
        }
    }
    all
}

#[test]
fn an_error_on_one_node_keeps_the_whole_trace_on_all_and_late_spans_follow() {
    let ((to, received), at) = (upstream(), free(&[2, 3, 4]));
    let agents: Vec<_> = ["a", "b", "c"].iter().zip(&at).map(|(name, listen)| agent(name, *listen, &at, to)).collect();
    let peers = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_live_gossip_peers 2");
    WAIT.until("everyone to know everyone", || agents.iter().all(peers).then_some(()));
    let take = |node: usize, service, spans| {
        assert_eq!(send(agents[node].at.otlp[1], &request(service, spans)), "HTTP/1.1 200 OK");
    };

    // The frontend is on the first node, the error on the last. The second trace has no error.
    let failed = Span { status: Some(Status { code: 2, ..Status::default() }), ..span(7, 3, &[2; 8], "Charge") };
    take(1, "cart", vec![span(7, 2, &[1; 8], "Add"), span(8, 2, &[1; 8], "Add")]);
    take(0, "frontend", vec![span(7, 1, &[], "POST /pay"), span(8, 1, &[], "POST /pay")]);
    take(2, "payment", vec![failed, span(8, 3, &[2; 8], "Charge")]);

    let whole = ["cart", "frontend", "payment"].map(str::to_owned).into();
    WAIT.until("the whole trace", || (arrived(&received).get(&7) == Some(&whole)).then_some(()));
    take(1, "stock", vec![span(7, 4, &[2; 8], "Late")]);
    WAIT.until("the late span", || arrived(&received)[&7].contains("stock").then_some(()));
    assert!(!arrived(&received).contains_key(&8), "nothing wanted it");
    let text = format!("{:?}", received.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(!text.contains("uview.incomplete") && text.contains("payment: Charge ended in an error"), "{text}");
    let decided = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_decided_traces_total 1\n");
    WAIT.until("the decision on the page", || decided(&agents[2]).then_some(()));
}

#[test]
fn after_a_kill_a_node_marks_traces_that_it_may_have_had() {
    let ((to, received), at) = (upstream(), free(&[5, 6]));
    let first = agent("a", at[0], &at, to);
    let second = agent("b", at[1], &at, to);
    let known = |agent: &Agent| agent.get("/metrics").1.contains("uview_host_live_gossip_peers 1");
    WAIT.until("both to know each other", || (known(&first) && known(&second)).then_some(()));
    let take = |agent: &Agent, service, spans| {
        assert_eq!(send(agent.at.otlp[1], &request(service, spans)), "HTTP/1.1 200 OK");
    };
    take(&second, "cart", vec![span(9, 2, &[1; 8], "Add")]);

    // A kill leaves the marker file behind.
    let folder = second.stop();
    std::fs::write(folder.path().join("trace-run"), "").unwrap();
    let text = format!(
        "process_metrics: {{enabled: false}}\ncoherence: {{listen: '{}', peers: ['{}'], insecure: true}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, floor: 0, frontends: [frontend], node: b, order_key: 00112233445566778899aabbccddeeff}}\n",
        at[1], at[0],
    );
    let second = Agent::again(folder, |folder| crate::agent::config(folder, &text));
    WAIT.until("both to know each other again", || (known(&first) && known(&second)).then_some(()));
    let failed = Span { status: Some(Status { code: 2, ..Status::default() }), ..span(9, 1, &[], "POST /pay") };
    let before = Span { start_time_unix_nano: failed.start_time_unix_nano - 20_000_000_000, ..failed };
    take(&first, "frontend", vec![before]);

    let both = ["frontend", "uview"].map(str::to_owned).into();
    WAIT.until("the trace and the mark", || (arrived(&received).get(&9) == Some(&both)).then_some(()));
    let text = format!("{:?}", received.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(text.contains("b: spans may be missing"), "{text}");
}

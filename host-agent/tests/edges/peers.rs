//! Who may gossip: agents with certificates, and others that have one of the same authority or none.

use std::net::SocketAddr;
use std::path::Path;

use agent_runtime::clock::unix_now;
use support::certificates::{Authority, Subject};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Status as CallStatus};
use wire::proto::gossip::gossip_client::GossipClient;
use wire::proto::gossip::{Entries, Entry, GossipMessage, Reason, Run, TriggerReason, Version};

use crate::agent::{Agent, WAIT};
use crate::coherence::free;
use crate::otlp::upstream;

/// Certificates of one authority, in `folder`: `ca.pem`, and for each holder `NAME.pem` and `NAME.key`.
fn certificates(folder: &Path, holders: &[(&str, &[&str])]) {
    let authority = Authority::new("authority");
    authority.write(folder, "ca");
    for (name, uris) in holders {
        Subject::new(&[&[*name, "127.0.0.1"][..], *uris].concat()).signed_by(&authority).write(folder, name);
    }
}

/// The agent of the node `name`, with the certificate of `holder`.
fn agent(folder: &Path, name: &str, holder: &str, listen: SocketAddr, peers: &[SocketAddr], to: SocketAddr) -> Agent {
    let (folder, peers) = (folder.display(), peers.iter().map(|peer| format!("'{peer}'")).collect::<Vec<_>>());
    let pair = format!("certificate: {folder}/{holder}.pem, key: {folder}/{holder}.key");
    Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         coherence:\n  listen: '{listen}'\n  peers: [{}]\n  tls: {{{pair}, client_ca: {folder}/ca.pem}}\n  \
         peers_tls: {{ca: {folder}/ca.pem, domain: 127.0.0.1, {pair}}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, node: {name}, order_key: 00112233445566778899aabbccddeeff}}\n",
        peers.join(", "),
    ))
}

fn live_peers(agent: &Agent) -> Option<u64> {
    let page = agent.get("/metrics").1;
    page.lines().find_map(|line| line.strip_prefix("uview_host_live_gossip_peers ")?.parse().ok())
}

fn knows(agents: [&Agent; 2]) {
    WAIT.until("both to know each other", || agents.iter().all(|agent| live_peers(agent) == Some(1)).then_some(()));
}

/// Somebody with the certificate of `holder`, who says what it likes.
struct Liar {
    runtime: tokio::runtime::Runtime,
    client: GossipClient<Channel>,
}

impl Liar {
    fn connect(folder: &Path, holder: &str, to: SocketAddr) -> Self {
        let read = |name: String| std::fs::read(folder.join(name)).unwrap();
        let identity = Identity::from_pem(read(format!("{holder}.pem")), read(format!("{holder}.key")));
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem".to_owned())));
        let endpoint = Channel::from_shared(format!("https://{to}")).unwrap();
        let endpoint = endpoint.tls_config(tls.domain_name("127.0.0.1").identity(identity)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, client: GossipClient::new(channel) }
    }

    fn says(&mut self, message: GossipMessage) -> Result<GossipMessage, CallStatus> {
        self.runtime.block_on(self.client.exchange(message)).map(tonic::Response::into_inner)
    }
}

fn from(node: &str, id: u64) -> GossipMessage {
    GossipMessage { run: Some(Run { node: node.to_owned(), id }), ..GossipMessage::default() }
}

/// The decision to keep a trace, as entry `first` of `run`.
fn keep(run: Run, first: u64) -> Entries {
    use wire::proto::gossip::entry::Item;
    use wire::proto::gossip::{Decision, reason};

    let reason = reason::Reason::Trigger(TriggerReason { text: "x".to_owned() });
    let decision = Decision { trace: vec![9; 16], ..Decision::default() };
    let entry = Entry { at_unix_ns: unix_now().0, carried_out: false, item: Some(Item::Keep(decision)) };
    Entries { run: Some(run), first, entries: vec![entry], reasons: vec![Reason { reason: Some(reason) }] }
}

#[test]
fn a_member_that_lies_about_another_is_refused_and_named_and_the_other_stays() {
    let folder = tempfile::tempdir().unwrap();
    let peer: &[&str] = &["uview:peer"];
    certificates(folder.path(), &[("node-a", peer), ("node-b", peer), ("evil", peer), ("worker", &["uview:worker"])]);
    let ((to, _), at) = (upstream(), free(&[7, 8]));
    let [a, b] = [("node-a", 0), ("node-b", 1)].map(|(name, own)| agent(folder.path(), name, name, at[own], &at, to));
    knows([&a, &b]);

    let refused = Liar::connect(folder.path(), "worker", at[0]).says(from("worker", 1)).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("needs the role peer"), "{refused}");
    let mut evil = Liar::connect(folder.path(), "evil", at[0]);
    let heard = evil.says(from("evil", 1)).unwrap();
    let of_b = |version: &Version| version.run.clone().filter(|run| run.node == "node-b");
    let b_run = heard.versions.iter().find_map(of_b).unwrap();
    // It begins anew; it leaves; it speaks as itself, of a decision with an impossible number.
    for forged in [from("node-b", 77), GossipMessage { leaving: true, ..from("node-b", b_run.id) }] {
        assert_eq!(evil.says(forged).unwrap_err().code(), Code::PermissionDenied);
    }
    evil.says(GossipMessage { entries: vec![keep(b_run, 1 << 50)], ..from("evil", 1) }).unwrap();
    evil.says(GossipMessage { leaving: true, ..from("evil", 1) }).unwrap();

    let problems = a.status().problems;
    for part in ["worker, ", "gossip: node-b speaks in a name", "gossip: evil about node-b relayed words"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
    let page = a.get("/metrics").1;
    for (reason, count) in [("impostor", 2), ("unannounced", 1), ("no_peer", 1)] {
        let line = format!("uview_host_refused_gossip_total{{reason=\"{reason}\"}} {count}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
    assert!(page.contains("uview_host_gossip_peer_restarts_total 0\n"));
    knows([&a, &b]);
}

#[test]
fn a_node_with_certificates_of_a_new_authority_finds_one_that_has_not_restarted_since() {
    let folder = tempfile::tempdir().unwrap();
    let holders: [(&str, &[&str]); 2] = [("node-a", &["uview:peer"]), ("node-b", &["uview:peer"])];
    certificates(folder.path(), &holders);
    let ((to, _), at) = (upstream(), free(&[12, 13]));
    let [a, b] = [("node-a", 0), ("node-b", 1)].map(|(name, own)| agent(folder.path(), name, name, at[own], &at, to));
    knows([&a, &b]);

    certificates(folder.path(), &holders);
    drop(b);
    let b = agent(folder.path(), "node-b", "node-b", at[1], &at, to);

    knows([&a, &b]);
    assert!(a.get("/metrics").1.contains("uview_host_configuration_rejected 0\n"));
}

#[test]
fn a_node_is_not_called_by_a_name_that_its_certificate_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &[("node-a", &["uview:peer"]), ("evil", &["uview:peer"])]);
    let ((to, _), at) = (upstream(), free(&[9, 10]));
    let a = agent(folder.path(), "node-a", "node-a", at[0], &at, to);
    // It calls nobody that answers; node-a calls it.
    let _evil = agent(folder.path(), "node-b", "evil", at[1], &at[1..], to);

    WAIT.until("the problem", || {
        let says = |problem: &String| problem.contains("node-b speaks in a name that its certificate does not have");
        a.status().problems.iter().any(says).then_some(())
    });

    assert_eq!(live_peers(&a), Some(0));
}

#[test]
fn an_open_address_is_said_in_the_status() {
    let ((to, _), at) = (upstream(), free(&[11]));
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\ncoherence: {{listen: '{}', peers: ['127.0.0.1:1'], insecure: true}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{to}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         traces: {{keep: tail, order_key: 00112233445566778899aabbccddeeff}}\n",
        at[0],
    ));

    let warnings = agent.status().warnings;

    assert!(warnings.iter().any(|warning| warning.contains("(coherence.insecure)")), "{warnings:?}");
}

//! A host agent as a process in a network namespace.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::certificates::{Authority, Subject};
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{ReceiptReply, ReceiptRequest};

use super::network::{NODES, Network};
use crate::agent::{WAIT, addresses};

/// Writes a certificate authority `name.pem`, and a certificate with its key for each node's address: `name-N.pem` and
/// `name-N.key`.
pub fn certificates(folder: &Path, name: &str) {
    let authority = Authority::new(name);
    authority.write(folder, name);
    for node in NODES {
        let (address, node_name) = (Network::address(node).to_string(), format!("node-{node}"));
        let subject = Subject::new(&[&address, &node_name, "uview:peer"]);
        subject.signed_by(&authority).write(folder, &format!("{name}-{node}"));
    }
}

/// Decision wait of traces, in milliseconds.
pub const WAIT_MS: u64 = 4_000;

/// Killed on drop.
pub struct Node {
    number: u8,
    folder: PathBuf,
    process: Child,
}

impl Node {
    /// Starts the agent of node `number` in its namespace, with a certificate of the authority `shown`; `folder` is
    /// shared.
    pub fn start(network: &Network, number: u8, folder: &Path, shown: &str, upstream: SocketAddr) -> Self {
        let own = folder.join(format!("node-{number}"));
        std::fs::create_dir_all(&own).unwrap();
        let (all, address) = (folder.display(), Network::address(number));
        let pair = format!("certificate: {all}/{shown}-{number}.pem, key: {all}/{shown}-{number}.key");
        let peers: Vec<_> = NODES.iter().map(|node| format!("'{}:9704'", Network::address(*node))).collect();
        let text = format!(
            "runtime_dir: {run}\nprocess_metrics: {{enabled: false}}\nreceipt: {{dir: {run}/ledger, write_interval_ms: 200}}\n\
             metrics: {{listen: '{address}:9702'}}\n\
             coherence:\n  listen: '{address}:9704'\n  peers: [{peers}]\n  tls: {{{pair}, client_ca: {all}/ours.pem}}\n  \
             peers_tls: {{ca: {all}/ours.pem, {pair}}}\n\
             otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: '{address}:4317'\n  listen_http: '{address}:4318'\n  \
             traces: {{keep: tail, decision_wait_ms: {WAIT_MS}, floor: 0, latency: false, frontends: [frontend], node: node-{number}, \
             order_key: 00112233445566778899aabbccddeeff}}\n",
            run = own.display(),
            peers = peers.join(", "),
        );
        let file = own.join("config.yaml");
        std::fs::write(&file, text).unwrap();
        // A process starts in the namespace of the thread that starts it.
        let process = network.run(number, move || {
            let log = std::fs::File::options().create(true).append(true).open(file.with_file_name("log")).unwrap();
            let program = env!("CARGO_BIN_EXE_uview-host-agent");
            Command::new(program).arg("--config").arg(file).stdin(Stdio::null()).stderr(log).spawn().unwrap()
        });
        let mut node = Self { number, folder: own, process };
        WAIT.until("host-agent.json", || {
            assert!(node.process.try_wait().unwrap().is_none(), "it ended: {}", node.log());
            addresses(&node.folder).filter(|at| at.pid == node.process.id())
        });
        node
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// SIGKILL: no shutdown.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn otlp(&self) -> SocketAddr {
        (Network::address(self.number), 4318).into()
    }

    /// Number of live gossip peers.
    pub fn peers(&self) -> Option<u64> {
        let page = support::http::get((Network::address(self.number), 9702), "/metrics").unwrap().text().unwrap();
        page.lines().find_map(|line| line.strip_prefix("uview_host_live_gossip_peers ")?.parse().ok())
    }

    pub fn receipt(&self) -> ReceiptReply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let address = addresses(&self.folder).unwrap().operators;
            let mut client = OperatorsClient::connect(address).await.unwrap();
            client.receipt(ReceiptRequest {}).await.unwrap().into_inner()
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

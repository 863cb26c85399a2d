//! A host agent in this process, in its own directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use host_agent::config::Config;
use support::http;
use support::wait::Wait;
use tempfile::TempDir;
use tokio::sync::oneshot;
use wire::id::Incarnation;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::proto::operators::{PathOperation, PathsRequest, StatusReply, StatusRequest};

/// Longest wait for a condition; generous, for busy machines.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Default lease of workers in tests, in milliseconds. The workers of tests report nothing by themselves, and on a busy
/// machine they would be fenced in the middle of a test.
const LEASE_MS: u32 = 600_000;

/// How tests wait for a condition.
pub const WAIT: Wait = Wait::up_to(PATIENCE).pausing(Duration::from_millis(2));

/// Contents of `host-agent.json`.
#[derive(Debug, serde::Deserialize)]
pub struct Addresses {
    pub pid: u32,
    pub incarnation: u64,
    /// `unix:` and a path, as the next one.
    pub control: String,
    pub operators: String,
    pub control_listen: Option<SocketAddr>,
    pub metrics: SocketAddr,
    pub otlp: Vec<SocketAddr>,
    pub services: PathBuf,
    pub regions: PathBuf,
}

pub fn addresses(folder: &Path) -> Option<Addresses> {
    serde_json::from_slice(&std::fs::read(folder.join("host-agent.json")).ok()?).ok()
}

/// The configuration of tests: free ports, everything below `folder`.
pub fn config(folder: &Path, more: &str) -> Config {
    let mut config = Config::parse(more).unwrap();
    if !more.contains("lease_ms") {
        config.control.lease_ms = LEASE_MS.try_into().unwrap();
    }
    folder.clone_into(&mut config.runtime_dir.0);
    let any = "127.0.0.1:0".parse().unwrap();
    config.metrics.listen = any;
    config
}

pub struct Agent {
    pub folder: TempDir,
    pub at: Addresses,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), host_agent::RunError>>>,
}

impl Agent {
    pub fn start() -> Self {
        Self::with("process_metrics: {enabled: false}\n")
    }

    pub fn with(more: &str) -> Self {
        Self::again(tempfile::tempdir().unwrap(), |folder| config(folder, more))
    }

    /// Starts in the directory of an earlier agent.
    pub fn again(folder: TempDir, config: impl FnOnce(&Path) -> Config) -> Self {
        let config = config(folder.path());
        Self::run(folder, config, None)
    }

    /// Starts with the configuration file `file`, which the agent watches.
    pub fn of_file(folder: TempDir, file: &Path) -> Self {
        let config = config(folder.path(), &std::fs::read_to_string(file).unwrap());
        Self::run(folder, config, Some(file.to_owned()))
    }

    fn run(folder: TempDir, config: Config, file: Option<PathBuf>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(host_agent::run_from(config, file, async move { _ = stopped.await }))
        });
        let at = WAIT.until("host-agent.json", || {
            assert!(!thread.is_finished(), "the agent did not start");
            addresses(folder.path())
        });
        Self { folder, at, stop: Some(stop), thread: Some(thread) }
    }

    /// One that runs in another process, below `folder`.
    pub const fn beside(folder: TempDir, at: Addresses) -> Self {
        Self { folder, at, stop: None, thread: None }
    }

    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.at.incarnation)
    }

    pub fn stop(mut self) -> TempDir {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap().unwrap();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    pub fn operators(&self) -> Operators {
        Operators::connect(&self.at.operators)
    }

    pub fn status(&self) -> StatusReply {
        let mut operators = self.operators();
        operators.runtime.block_on(operators.client.status(StatusRequest {})).unwrap().into_inner()
    }

    /// Operations and the services on their paths.
    pub fn paths(&self) -> Vec<PathOperation> {
        let mut operators = self.operators();
        let reply = operators.runtime.block_on(operators.client.paths(PathsRequest {})).unwrap();
        reply.into_inner().operations
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.status().counters[name]
    }

    /// Status line with headers, and body, of a page.
    pub fn get(&self, path: &str) -> (String, String) {
        let response = http::get(self.at.metrics, path).unwrap();
        (response.head.clone(), response.text().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A client of the operators' API, with its runtime.
pub struct Operators {
    pub runtime: tokio::runtime::Runtime,
    pub client: OperatorsClient<tonic::transport::Channel>,
}

impl Operators {
    pub fn connect(address: &str) -> Self {
        // With a thread of its own, which answers pings of the agent while the test does something else.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(OperatorsClient::connect(address.to_owned())).unwrap();
        Self { runtime, client }
    }
}

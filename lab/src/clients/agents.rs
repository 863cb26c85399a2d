//! uview between the shop and its upstream: both agents as processes; the host agent can be killed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use support::clock::Stopwatch;
use tokio::net::TcpStream;

use super::load;
use super::shop::{Endpoint, Process, ending_with_us, free};

/// Limit for an agent to listen, on a busy machine.
const START: Duration = Duration::from_secs(30);

/// Which traces the host agent keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traces {
    /// All traces are buffered and kept.
    All,
    /// The default policies.
    Matter,
    /// A fifth of all traces, and of log records what belongs to those that are kept.
    WithLogs,
}

/// The running NIC agent, and how to start host agents.
#[derive(Debug)]
pub struct Agents {
    program: PathBuf,
    folder: PathBuf,
    upstream: SocketAddr,
    nic_metrics: SocketAddr,
    _nic: Process,
}

impl Agents {
    /// Starts the NIC agent, which waits for a host agent.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn prepare(program: &Path, folder: &Path, upstream: SocketAddr) -> Result<Self> {
        let [nic_metrics] = free()?;
        let config = folder.join("nic-agent.yaml");
        let regions = folder.join("regions.sock");
        fs::write(
            &config,
            format!(
                "control: {{address: 'unix:{}'}}\ntransport: shm\nregions_socket: {}\nmetrics: {{listen: '{nic_metrics}'}}\n",
                folder.join("control.sock").display(),
                regions.display()
            ),
        )?;
        let mut command = ending_with_us(program);
        command.arg("nic-agent").arg("--config").arg(&config);
        let nic = Process::start(&mut command, &folder.join("nic-agent.log"))?;
        wait_until_listening(nic_metrics).await?;
        let (program, folder) = (program.to_owned(), folder.to_owned());
        Ok(Self { program, folder, upstream, nic_metrics, _nic: nic })
    }

    /// Starts a host agent with its OTLP endpoint at `endpoint`, and waits until it listens.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn host(&self, endpoint: Endpoint, traces: Traces) -> Result<Process> {
        let Self { folder, upstream, .. } = self;
        let Endpoint { grpc, http } = endpoint;
        let (floor, logs) = match traces {
            Traces::All => (1.0, "all"),
            Traces::Matter => (0.01, "all"),
            Traces::WithLogs => (0.2, "tail, floor: 0"),
        };
        let any = "127.0.0.1:0";
        // Ten rows per second, so that detectors are armed soon.
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: 100}}\ntransport: shm\nmetrics: {{listen: '{any}'}}\notlp:\n  \
             upstream: {{endpoint: 'http://{upstream}'}}\n  listen_grpc: '{grpc}'\n  listen_http: '{http}'\n  \
             traces: {{keep: tail, floor: {floor}}}\n  logs: {{keep: {logs}}}\n",
            folder.display()
        );
        let config = folder.join("host-agent.yaml");
        fs::write(&config, text)?;
        let mut command = ending_with_us(&self.program);
        command.arg("host-agent").arg("--config").arg(&config);
        let host = Process::start(&mut command, &folder.join("host-agent.log"))?;
        wait_until_listening(grpc).await?;
        wait_until_listening(http).await?;
        Ok(host)
    }

    /// Number of armed detectors of services.
    ///
    /// # Errors
    ///
    /// The NIC agent does not respond.
    pub async fn armed(&self) -> Result<usize> {
        let page = load::get(self.nic_metrics, "/metrics").await?;
        let line = page.lines().find_map(|line| line.strip_prefix(r#"uview_nic_lmaps{state="armed"} "#));
        Ok(line.and_then(|number| number.parse().ok()).unwrap_or_default())
    }
}

async fn wait_until_listening(address: SocketAddr) -> Result<()> {
    let clock = Stopwatch::start();
    while TcpStream::connect(address).await.is_err() {
        ensure!(clock.elapsed() < START, "no process listens at {address}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

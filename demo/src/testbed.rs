//! The testbed: a private directory, the shop, its load and both agents, each a process of its own.
//!
//! The shop serves load before the NIC agent starts, which fetches what is learnt: so the LMAPs do not learn the start
//! of the shop. The host agent starts first, since its page is to be watched from the beginning.

use core::net::SocketAddr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::graph::{Service, Target};
use crate::link::{self, LinkStatus, OpenLink};
use crate::load::LoadLog;
use crate::processes::{ExitedProcess, Processes};
use crate::traces::route::Route;
use crate::{shop, state_file};

/// Names of the processes other than services.
pub(crate) const HOST_AGENT: &str = "host-agent";
pub(crate) const NIC_AGENT: &str = "nic-agent";
pub(crate) const LOAD: &str = "load";
pub(crate) const LINK: &str = "link";

/// Limit for a process to get ready; generous, since the machine may be busy and an ended process is detected at once.
const READY_WITHIN: Nanos = Nanos::from_secs(60);
/// How long the shop runs before it is judged.
const ALONE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Shortest interval of packet metrics in milliseconds: the default scrape interval.
const PACKETS_EVERY_MS: f64 = 100.0;
/// Interval of the visitors' stream in milliseconds: of a shorter one, shares are of few requests.
const VISITORS_EVERY_MS: u32 = 1000;
/// Addresses of the visitors, if packets are captured.
const VISITORS: u8 = 8;
/// Packets per interval that the median of delays needs, even if half as many come as on average.
const PACKETS: f64 = 100.0;

/// Environment (glibc) of services with spans: they keep freed memory. A batch of 512 spans takes some hundred
/// kilobytes. If it is returned to the system and allocated again every few seconds, it causes bursts of page faults;
/// an LMAP learns these as normal, and a leak begins with the same.
const KEEP_MEMORY: [(&str, &str); 2] = [("MALLOC_TRIM_THRESHOLD_", "67108864"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// Why the testbed does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The private directory for sockets and logs cannot be created or written.
    #[error("cannot write to the demo's private directory in {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The receiver of spans cannot listen.
    #[error("cannot listen for spans at 127.0.0.1")]
    Spans(#[source] io::Error),
    /// A process could not be started.
    #[error("cannot start {name}")]
    Start {
        /// Name of the process.
        name: String,
        /// Error of `fork` or `execve`.
        #[source]
        cause: io::Error,
    },
    /// A process ended unexpectedly.
    #[error("{name} ended unexpectedly ({status}); its last output:\n{last_output}")]
    Exited {
        /// Name of the process.
        name: String,
        /// Its exit status.
        status: String,
        /// The end of its output.
        last_output: String,
    },
    /// A process runs but does not get ready.
    #[error("{name} was not ready within {within}")]
    NotReady {
        /// Name of the process.
        name: String,
        /// The time limit.
        within: Nanos,
    },
}

impl From<ExitedProcess> for TestbedError {
    fn from(exited: ExitedProcess) -> Self {
        Self::Exited { name: exited.name, status: exited.status.to_string(), last_output: exited.last_output }
    }
}

/// The addresses of the host agent: the fields of `host-agent.json` in its runtime directory that the demo needs.
#[derive(Debug, Default, Deserialize)]
struct HostAgentInfo {
    control: String,
    operators: String,
    regions: PathBuf,
}

/// Configuration of the testbed.
#[derive(Clone, Debug)]
pub(crate) struct TestbedConfig {
    /// Path of the executable of all processes.
    pub(crate) program: PathBuf,
    /// Scrape interval of the NIC agent in milliseconds.
    pub(crate) interval_ms: u32,
    /// Seed of load and work.
    pub(crate) seed: u64,
    /// Requests per second.
    pub(crate) per_second: f64,
    /// Whether to set up the link for the fault between two services.
    pub(crate) link: bool,
}

/// All processes of a run. Dropping it ends them, then removes the directory.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) processes: Processes,
    /// Where the host agent is; empty until it is ready.
    host: HostAgentInfo,
    /// The route of spans, if the shop sends any.
    pub(crate) route: Option<Route>,
    /// The link between two services, or why there is none; `None` if none was requested.
    pub(crate) link: Option<Result<OpenLink, String>>,
    shop: Vec<(Service, shop::ServiceInfo)>,
    directory: TempDir,
}

impl Testbed {
    /// Starts the host agent and waits until it is ready: its page can be opened. Services will send spans by `route`.
    pub(crate) async fn with_host_agent(config: &TestbedConfig, route: Route) -> Result<Self, TestbedError> {
        let mut testbed = Self::empty(config)?;
        testbed.route = Some(route);
        testbed.start_host_agent(config).await?;
        Ok(testbed)
    }

    /// Starts all other processes and waits until the services are ready. Calls `progress` with what it starts.
    pub(crate) async fn start_rest(
        &mut self,
        config: &TestbedConfig,
        progress: &dyn Fn(&str),
    ) -> Result<(), TestbedError> {
        if config.link {
            self.start_link(config.seed, progress).await?;
        }
        for service in Service::ALL.into_iter().rev() {
            progress(service.name());
            self.start_service(service, config.seed).await?;
        }
        progress("load");
        self.start_load(config)?;
        tokio::time::sleep(ALONE).await;
        progress("NIC agent");
        self.start_nic_agent(config.per_second)
    }

    /// A testbed without processes.
    pub(crate) fn empty(config: &TestbedConfig) -> Result<Self, TestbedError> {
        let directory = tempfile::Builder::new().prefix("uview-demo-").tempdir();
        let directory = directory.map_err(|cause| TestbedError::Directory(std::env::temp_dir(), cause))?;
        let parent = std::process::id().to_string();
        let program = config.program.display().to_string();
        let prefix = [program.as_str(), "child", "--parent", &parent, "--"].map(str::to_owned);
        let processes = Processes::new(prefix.to_vec(), directory.path());
        let host = HostAgentInfo::default();
        Ok(Self { processes, host, route: None, link: None, shop: Vec::new(), directory })
    }

    /// Starts the link between two services, or records why there is none.
    async fn start_link(&mut self, seed: u64, progress: &dyn Fn(&str)) -> Result<(), TestbedError> {
        let status = match link::check_privileges() {
            Ok(()) => {
                let file = self.directory.path().join("link.json");
                self.start(LINK, &[LINK, "--seed", &seed.to_string(), "--ready", &file.display().to_string()])?;
                self.wait(LINK, &file).await?
            }
            Err(why) => LinkStatus::Skipped(why.to_string()),
        };
        let link = match status {
            LinkStatus::Open(open) => {
                progress(&format!("the link from {} to {} over {}", Target::CALLER, Target::CALLED, open.interface));
                Ok(open)
            }
            LinkStatus::Skipped(why) => {
                self.processes.end(LINK);
                Err(why)
            }
        };
        self.link = Some(link);
        Ok(())
    }

    /// The address of the host agent's operator interface; empty until it is ready.
    pub(crate) fn operators(&self) -> &str {
        &self.host.operators
    }

    /// The link, if it is open.
    pub(crate) fn open_link(&self) -> Option<&OpenLink> {
        self.link.as_ref()?.as_ref().ok()
    }

    /// Starts both agents.
    pub(crate) async fn start_agents(&mut self, config: &TestbedConfig) -> Result<(), TestbedError> {
        self.start_host_agent(config).await?;
        self.start_nic_agent(config.per_second)
    }

    /// Starts replica `number` of a service without dependencies, which spends `wait` on each request.
    pub(crate) async fn start_replica(
        &mut self,
        service: Service,
        number: usize,
        seed: u64,
        wait: Nanos,
    ) -> Result<shop::ServiceInfo, TestbedError> {
        let name = format!("{service}-{number}");
        let socket = self.services_socket().display().to_string();
        let file = self.directory.path().join(format!("{name}.json"));
        let (ready, seed) = (file.display().to_string(), (seed + number as u64).to_string());
        let (number, wait_us) = (number.to_string(), (wait.0 / 1000).to_string());
        let mut arguments = vec!["shop", "--service", service.name(), "--ready", &ready, "--socket", &socket];
        arguments.extend(["--seed", &seed, "--replica", &number, "--wait-us", &wait_us]);
        self.start(&name, &arguments)?;
        self.wait(&name, &file).await
    }

    /// The host agent's directory for sockets.
    fn runtime_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn services_socket(&self) -> PathBuf {
        self.runtime_dir().join("services.sock")
    }

    async fn start_host_agent(&mut self, config: &TestbedConfig) -> Result<(), TestbedError> {
        let runtime_dir = self.runtime_dir();
        fs::create_dir(&runtime_dir).map_err(|cause| TestbedError::Directory(runtime_dir.clone(), cause))?;
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: {}}}\nmetrics: {{listen: 127.0.0.1:0}}\n{}",
            yaml_string(&runtime_dir),
            config.interval_ms,
            self.route.as_mut().map(Route::hand_over).unwrap_or_default()
        );
        let config = self.write("host-agent.yaml", &text)?;
        self.start(HOST_AGENT, &[HOST_AGENT, "--config", &config])?;
        self.host = self.wait(HOST_AGENT, &runtime_dir.join("host-agent.json")).await?;
        Ok(())
    }

    fn start_nic_agent(&mut self, per_second: f64) -> Result<(), TestbedError> {
        let text = format!(
            "control: {{address: {}}}\nregions_socket: {}\nmetrics: {{listen: 127.0.0.1:0}}\n{}",
            yaml_string(Path::new(&self.host.control)),
            yaml_string(&self.host.regions),
            self.streams(per_second)
        );
        let config = self.write("nic-agent.yaml", &text)?;
        self.start(NIC_AGENT, &[NIC_AGENT, "--config", &config])
    }

    /// The NIC agent's configuration of packet streams, if there is a link: how long packets to the called service take
    /// to be acknowledged, and who visits the frontend.
    fn streams(&self, per_second: f64) -> String {
        let Some((link, called)) = self.open_link().zip(self.shop(Target::CALLED)) else { return String::new() };
        let packets = per_second * Target::CALLED.request_bytes().div_ceil(link::CARRIED_BYTES) as f64;
        let interval_ms = (1000.0 * PACKETS / packets).max(PACKETS_EVERY_MS) as u32;
        let visitors =
            self.shop(Service::Frontend).map(|frontend| visitors(frontend.listen.port())).unwrap_or_default();
        format!(
            "network:\n  services_socket: {}\n  streams:\n    - {{name: {}, interface: {}, pair: data, filter: tcp and dst port {}, \
             interval_ms: {interval_ms}}}\n{visitors}",
            yaml_string(&self.services_socket()),
            Target::STREAM,
            link.interface,
            called.listen.port()
        )
    }

    async fn start_service(&mut self, service: Service, seed: u64) -> Result<(), TestbedError> {
        let name = service.name();
        let socket = self.services_socket();
        let file = self.directory.path().join(format!("{name}.json"));
        let (ready, socket, seed) = (file.display().to_string(), socket.display().to_string(), seed.to_string());
        let mut arguments = vec!["shop", "--service", name, "--ready", &ready, "--socket", &socket, "--seed", &seed];
        let next = |(service, ready): &(Service, shop::ServiceInfo)| format!("--next={service}={}", ready.listen);
        let next: Vec<_> = self.shop.iter().map(next).collect();
        arguments.extend(next.iter().map(String::as_str));
        let spans = self.route.as_ref().map(|route| format!("--otlp=http://{}", route.agent));
        arguments.extend(spans.as_deref());
        let link = self.open_link().filter(|_| service == Target::CALLED);
        let link =
            link.map(|link| [format!("--listen={}:0", link.address), format!("--netns={}", link.netns.display())]);
        arguments.extend(link.iter().flatten().map(String::as_str));
        let settings: &[_] = if spans.is_some() { &KEEP_MEMORY } else { &[] };
        self.start_with(name, &arguments, settings)?;
        let ready = self.wait(name, &file).await?;
        self.shop.push((service, ready));
        Ok(())
    }

    /// Starts the load.
    fn start_load(&mut self, config: &TestbedConfig) -> Result<(), TestbedError> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let target = self.shop(Service::Frontend).map_or(nowhere, |ready| ready.listen).to_string();
        let report = self.load_report().display().to_string();
        let (seed, rate) = (config.seed.to_string(), config.per_second.to_string());
        let visitors = if self.open_link().is_some() { VISITORS } else { 0 }.to_string();
        let mut arguments = vec![LOAD, "--target", &target, "--seed", &seed, "--per-second", &rate];
        arguments.extend(["--visitors", &visitors, "--report", &report]);
        self.start(LOAD, &arguments)
    }

    /// Ends the load and returns its log.
    pub(crate) fn end_load(&mut self) -> Option<LoadLog> {
        self.processes.end(LOAD);
        state_file::read(&self.load_report())
    }

    fn load_report(&self) -> PathBuf {
        self.directory.path().join("load.json")
    }

    /// The addresses of a service, once it is ready.
    pub(crate) fn shop(&self, service: Service) -> Option<&shop::ServiceInfo> {
        self.shop.iter().find(|(open, _)| *open == service).map(|(_, ready)| ready)
    }

    /// Fails if a process has ended.
    pub(crate) fn check(&mut self) -> Result<(), TestbedError> {
        self.processes.exited().map_or(Ok(()), |exited| Err(exited.into()))
    }

    fn start(&mut self, name: &str, arguments: &[&str]) -> Result<(), TestbedError> {
        self.start_with(name, arguments, &[])
    }

    fn start_with(&mut self, name: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Result<(), TestbedError> {
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        self.processes
            .start(name, &arguments, settings)
            .map_err(|cause| TestbedError::Start { name: name.to_owned(), cause })
    }

    /// Waits until the process called `name` has written `file`.
    async fn wait<T: DeserializeOwned>(&mut self, name: &str, file: &Path) -> Result<T, TestbedError> {
        let clock = Clock::start();
        while clock.now() < READY_WITHIN {
            if let Some(ready) = state_file::read(file) {
                return Ok(ready);
            }
            self.check()?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(TestbedError::NotReady { name: name.to_owned(), within: READY_WITHIN })
    }

    fn write(&self, name: &str, text: &str) -> Result<String, TestbedError> {
        let path = self.directory.path().join(name);
        fs::write(&path, text).map_err(|cause| TestbedError::Directory(path.clone(), cause))?;
        Ok(path.display().to_string())
    }
}

/// The stream of the packets to the frontend, which listens at `port` of loopback.
fn visitors(port: u16) -> String {
    let (name, every_ms) = (Target::VISITORS, VISITORS_EVERY_MS);
    let synopses = "{heavy_hitters: {}, cardinality: {}}";
    format!(
        "    - {{name: {name}, interface: lo, filter: tcp and dst port {port}, interval_ms: {every_ms}, synopses: {synopses}}}\n"
    )
}

/// A path as a YAML string: every JSON string is one.
fn yaml_string(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

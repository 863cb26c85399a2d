//! Sets the stage: a private directory, the shop, its load, both agents, each a process of its own.
//!
//! The shop opens and has visitors before there is an agent, as on any machine that uview comes to: services run and count without one,
//! and register when it is there. So what the LMAPs learn is no shop that is just opening.

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
use crate::graph::{Service, Watched};
use crate::load::Account;
use crate::processes::{Lost, Processes};
use crate::traces::route::Route;
use crate::way::{self, Open, Said};
use crate::{ready, shop};

/// The names of the processes that are no services.
pub(crate) const HOST_AGENT: &str = "host-agent";
pub(crate) const NIC_AGENT: &str = "nic-agent";
pub(crate) const LOAD: &str = "load";
pub(crate) const WAY: &str = "way";

/// Much longer than it takes: a process that ended is noticed at once, and a machine may be busy.
const READY_WITHIN: Nanos = Nanos::from_secs(60);
/// The shop is without an agent for so long.
const ALONE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Metrics of packets change no more often: as often as those of services are fetched, unless that is said otherwise.
const PACKETS_EVERY_MS: f64 = 100.0;
/// The median of so many can be trusted, even where half as many come as on average.
const PACKETS: f64 = 100.0;

/// How services with spans are told to keep memory that they have used (glibc). A batch of 512 spans takes some hundred kilobytes; given back and
/// taken again every few seconds it is a burst of page faults, of which an LMAP learns that they are usual. A leak begins with the same.
const KEEPS_MEMORY: [(&str, &str); 2] = [("MALLOC_TRIM_THRESHOLD_", "67108864"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// Why the stage is not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// There is no room for sockets and logs.
    #[error("cannot write to the demo's private directory in {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// There is no way for spans.
    #[error("cannot listen for spans at 127.0.0.1")]
    Spans(#[source] io::Error),
    /// A process could not be started.
    #[error("cannot start {name}")]
    Start {
        /// Which.
        name: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A process ended though it should run.
    #[error("{name} ended ({status}); it said last:\n{last_words}")]
    Lost {
        /// Which.
        name: String,
        /// How.
        status: String,
        /// The end of what it wrote.
        last_words: String,
    },
    /// A process runs and does not get ready.
    #[error("{name} was not ready within {within}")]
    NotReady {
        /// Which.
        name: String,
        /// How long it was waited for.
        within: Nanos,
    },
}

impl From<Lost> for StageError {
    fn from(lost: Lost) -> Self {
        Self::Lost { name: lost.name, status: lost.status.to_string(), last_words: lost.last_words }
    }
}

/// What the host agent says when it is ready: `host-agent.json` of its runtime directory. Other fields are not needed here.
#[derive(Clone, Debug, Deserialize)]
struct HostReady {
    control: SocketAddr,
    operators: SocketAddr,
    regions: PathBuf,
}

/// How everything is to run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The command that all processes are.
    pub(crate) program: PathBuf,
    /// The local scraping interval in milliseconds.
    pub(crate) interval_ms: u32,
    /// Makes load and work.
    pub(crate) seed: u64,
    /// Requests a second.
    pub(crate) per_second: f64,
    /// Whether a fault on the way between two services is to happen.
    pub(crate) way: bool,
}

/// Everything at work. Dropping it ends all processes, then removes the directory.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) processes: Processes,
    pub(crate) operators: SocketAddr,
    /// The way of spans, if the shop makes any.
    pub(crate) route: Option<Route>,
    /// The way between two services, or why there is none; `None` if none was asked for.
    pub(crate) way: Option<Result<Open, String>>,
    shop: Vec<(Service, shop::Ready)>,
    directory: TempDir,
}

impl Stage {
    /// Starts everything, and waits until it is ready. Says what it waits for. Spans go by `route`.
    pub(crate) async fn set(setting: &Setting, route: Route, say: &dyn Fn(&str)) -> Result<Self, StageError> {
        let mut stage = Self::empty(setting)?;
        stage.route = Some(route);
        if setting.way {
            stage.way(setting.seed, say).await?;
        }
        for service in Service::ALL.into_iter().rev() {
            say(service.name());
            stage.open(service, setting.seed).await?;
        }
        say("load");
        stage.load(setting)?;
        tokio::time::sleep(ALONE).await;
        say("agents");
        stage.agents(setting).await?;
        Ok(stage)
    }

    /// A stage with nothing on it.
    pub(crate) fn empty(setting: &Setting) -> Result<Self, StageError> {
        let directory = tempfile::Builder::new().prefix("uview-demo-").tempdir();
        let directory = directory.map_err(|cause| StageError::Directory(std::env::temp_dir(), cause))?;
        let parent = std::process::id().to_string();
        let program = setting.program.display().to_string();
        let prefix = [program.as_str(), "child", "--parent", &parent, "--"].map(str::to_owned);
        let processes = Processes::new(prefix.to_vec(), directory.path());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self { processes, operators: nowhere, route: None, way: None, shop: Vec::new(), directory })
    }

    /// Opens the way between two services, or says why there is none.
    async fn way(&mut self, seed: u64, say: &dyn Fn(&str)) -> Result<(), StageError> {
        let said = match way::may_be() {
            Ok(()) => {
                let file = self.directory.path().join("way.json");
                self.start(WAY, &[WAY, "--seed", &seed.to_string(), "--ready", &file.display().to_string()])?;
                self.wait(WAY, &file).await?
            }
            Err(why) => Said::Skipped(why.to_string()),
        };
        let way = match said {
            Said::Open(open) => {
                say(&format!("the way from {} to {} by {}", Watched::CALLER, Watched::CALLED, open.interface));
                Ok(open)
            }
            Said::Skipped(why) => {
                self.processes.end(WAY);
                Err(why)
            }
        };
        self.way = Some(way);
        Ok(())
    }

    /// The way, if it is open.
    pub(crate) fn open_way(&self) -> Option<&Open> {
        self.way.as_ref()?.as_ref().ok()
    }

    /// Starts both agents.
    pub(crate) async fn agents(&mut self, setting: &Setting) -> Result<(), StageError> {
        let host = self.host_agent(setting).await?;
        self.operators = host.operators;
        self.nic_agent(&host, setting.per_second)
    }

    /// Opens one of several replicas of a service that asks nobody, which spends `wait` on each request.
    pub(crate) async fn replica(
        &mut self,
        service: Service,
        number: usize,
        seed: u64,
        wait: Nanos,
    ) -> Result<shop::Ready, StageError> {
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

    /// Where the host agent will have its sockets.
    fn runtime_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn services_socket(&self) -> PathBuf {
        self.runtime_dir().join("services.sock")
    }

    async fn host_agent(&mut self, setting: &Setting) -> Result<HostReady, StageError> {
        let runtime_dir = self.runtime_dir();
        fs::create_dir(&runtime_dir).map_err(|cause| StageError::Directory(runtime_dir.clone(), cause))?;
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: {}}}\ncontrol: {{listen: 127.0.0.1:0}}\n\
             operators: {{listen: 127.0.0.1:0}}\nmetrics: {{listen: 127.0.0.1:0}}\n{}",
            yaml_string(&runtime_dir),
            setting.interval_ms,
            self.route.as_mut().map(Route::hand_over).unwrap_or_default()
        );
        let config = self.write("host-agent.yaml", &text)?;
        self.start(HOST_AGENT, &[HOST_AGENT, "--config", &config])?;
        self.wait(HOST_AGENT, &runtime_dir.join("host-agent.json")).await
    }

    fn nic_agent(&mut self, host: &HostReady, per_second: f64) -> Result<(), StageError> {
        let text = format!(
            "control: {{address: {}}}\nregions_socket: {}\nmetrics: {{listen: 127.0.0.1:0}}\n{}",
            host.control,
            yaml_string(&host.regions),
            self.streams(per_second)
        );
        let config = self.write("nic-agent.yaml", &text)?;
        self.start(NIC_AGENT, &[NIC_AGENT, "--config", &config])
    }

    /// The NIC agent's part of the way: how long packets to the called service take to be acknowledged.
    fn streams(&self, per_second: f64) -> String {
        let Some((way, called)) = self.open_way().zip(self.shop(Watched::CALLED)) else { return String::new() };
        let packets = per_second * Watched::CALLED.given().div_ceil(way::CARRIED_BYTES) as f64;
        let interval_ms = (1000.0 * PACKETS / packets).max(PACKETS_EVERY_MS) as u32;
        format!(
            "network:\n  services_socket: {}\n  streams:\n    - {{name: {}, interface: {}, pair: data, filter: tcp and dst port {}, \
             interval_ms: {interval_ms}}}\n",
            yaml_string(&self.services_socket()),
            Watched::STREAM,
            way.interface,
            called.listen.port()
        )
    }

    async fn open(&mut self, service: Service, seed: u64) -> Result<(), StageError> {
        let name = service.name();
        let socket = self.services_socket();
        let file = self.directory.path().join(format!("{name}.json"));
        let (ready, socket, seed) = (file.display().to_string(), socket.display().to_string(), seed.to_string());
        let mut arguments = vec!["shop", "--service", name, "--ready", &ready, "--socket", &socket, "--seed", &seed];
        let next = |(service, ready): &(Service, shop::Ready)| format!("--next={service}={}", ready.listen);
        let next: Vec<_> = self.shop.iter().map(next).collect();
        arguments.extend(next.iter().map(String::as_str));
        let spans = self.route.as_ref().map(|route| format!("--otlp=http://{}", route.agent));
        arguments.extend(spans.as_deref());
        let way = self.open_way().filter(|_| service == Watched::CALLED);
        let way = way.map(|way| [format!("--listen={}:0", way.address), format!("--space={}", way.space.display())]);
        arguments.extend(way.iter().flatten().map(String::as_str));
        let settings: &[_] = if spans.is_some() { &KEEPS_MEMORY } else { &[] };
        self.start_with(name, &arguments, settings)?;
        let ready = self.wait(name, &file).await?;
        self.shop.push((service, ready));
        Ok(())
    }

    /// Lets the visitors in.
    fn load(&mut self, setting: &Setting) -> Result<(), StageError> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let target = self.shop(Service::Frontend).map_or(nowhere, |ready| ready.listen).to_string();
        let report = self.load_report().display().to_string();
        let (seed, rate) = (setting.seed.to_string(), setting.per_second.to_string());
        self.start(LOAD, &[LOAD, "--target", &target, "--seed", &seed, "--per-second", &rate, "--report", &report])
    }

    /// Sends the visitors home, and asks what became of them.
    pub(crate) fn end_load(&mut self) -> Option<Account> {
        self.processes.end(LOAD);
        ready::read(&self.load_report())
    }

    fn load_report(&self) -> PathBuf {
        self.directory.path().join("load.json")
    }

    /// Where a service is, once it is open.
    pub(crate) fn shop(&self, service: Service) -> Option<&shop::Ready> {
        self.shop.iter().find(|(open, _)| *open == service).map(|(_, ready)| ready)
    }

    /// Fails if a process has ended.
    pub(crate) fn check(&mut self) -> Result<(), StageError> {
        self.processes.lost().map_or(Ok(()), |lost| Err(lost.into()))
    }

    fn start(&mut self, name: &str, arguments: &[&str]) -> Result<(), StageError> {
        self.start_with(name, arguments, &[])
    }

    fn start_with(&mut self, name: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Result<(), StageError> {
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        self.processes
            .start(name, &arguments, settings)
            .map_err(|cause| StageError::Start { name: name.to_owned(), cause })
    }

    /// Waits until `file` is written by the process called `name`.
    async fn wait<T: DeserializeOwned>(&mut self, name: &str, file: &Path) -> Result<T, StageError> {
        let clock = Clock::start();
        while clock.now() < READY_WITHIN {
            if let Some(ready) = ready::read(file) {
                return Ok(ready);
            }
            self.check()?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(StageError::NotReady { name: name.to_owned(), within: READY_WITHIN })
    }

    fn write(&self, name: &str, text: &str) -> Result<String, StageError> {
        let path = self.directory.path().join(name);
        fs::write(&path, text).map_err(|cause| StageError::Directory(path.clone(), cause))?;
        Ok(path.display().to_string())
    }
}

/// A path as a YAML string: JSON's strings are YAML's.
fn yaml_string(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

//! A node whose agents are of one release or the other, with services that go on through everything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use support::clock::Stopwatch;
use tempfile::TempDir;

use super::action::{FIRST, Release, SECOND};
use crate::clients::shop::{Process, ending_with_us};

/// Limit for a process to get ready.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// Pause between two looks, which is part of what a restart takes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the shop runs before a NIC agent does, so that its start is not learnt.
const ALONE: Duration = Duration::from_secs(2);
/// Requests per second: few, so that two cores are mostly idle.
const PER_SECOND: &str = "60";
/// How often heartbeats change. A process that a busy machine does not run for some time is not silent.
const HEARTBEAT_MS: u32 = 1000;
/// Lines of a log that are shown.
const LAST_LINES: usize = 20;

/// A service of the demo's shop.
#[derive(Clone, Copy, Debug)]
pub struct ShopService {
    pub name: &'static str,
    /// The release of its program, and so of the client in it.
    pub release: Release,
    calls: &'static [&'static str],
}

/// The shop, callees first. Programs with the client of either release go on beside agents of either one.
pub const SERVICES: [ShopService; 5] = [
    ShopService { name: "store", release: Release::Old, calls: &[] },
    ShopService { name: "payment", release: Release::Old, calls: &["store"] },
    ShopService { name: "catalogue", release: Release::New, calls: &[] },
    ShopService { name: "cart", release: Release::Old, calls: &[] },
    ShopService { name: "frontend", release: Release::New, calls: &["cart", "catalogue", "payment"] },
];

/// All processes. The load ends first, then services, then agents; the folder goes last.
#[derive(Debug)]
pub struct Node {
    load: Option<Process>,
    services: Vec<(&'static str, Process)>,
    nics: BTreeMap<u32, Process>,
    host: Option<Process>,
    programs: [PathBuf; 2],
    folder: TempDir,
}

impl Node {
    /// Starts agents of the old release, and the shop. `programs`: the old release, then the new one.
    ///
    /// # Errors
    ///
    /// A process does not start, or does not get ready: then with the end of its log.
    pub fn start(programs: [PathBuf; 2], interval_ms: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("uview-upgrade-").tempdir()?;
        let (nics, services) = (BTreeMap::new(), Vec::new());
        let mut node = Self { load: None, services, nics, host: None, programs, folder };
        node.configure(interval_ms)?;
        node.start_host_agent(Release::Old)?;
        let mut addresses = BTreeMap::new();
        for service in SERVICES {
            let address = node.start_service(service, &addresses)?;
            addresses.insert(service.name, address);
        }
        let frontend = addresses.remove("frontend").context("it is the last service")?;
        let load = ["load", "--target", &frontend, "--per-second", PER_SECOND].map(str::to_owned);
        node.load = Some(node.process(Release::Old, "load", &load)?);
        std::thread::sleep(ALONE);
        node.start_nic_agent(FIRST, Release::Old)?;
        Ok(node)
    }

    /// The host agent's operators' API, of whichever release.
    pub fn operators(&self) -> String {
        format!("unix:{}", self.run().join("operators.sock").display())
    }

    /// Workers that run.
    pub fn workers(&self) -> Vec<u32> {
        self.nics.keys().copied().collect()
    }

    /// Ends the host agent in good order, and starts one of `release`.
    ///
    /// # Errors
    ///
    /// As of [`Node::start`].
    pub fn replace_host_agent(&mut self, release: Release) -> Result<()> {
        if let Some(host) = self.host.take() {
            host.finish()?;
        }
        self.start_host_agent(release)
    }

    /// Ends the first NIC agent in good order, and starts one of `release`.
    ///
    /// # Errors
    ///
    /// As of [`Node::start`].
    pub fn replace_nic_agent(&mut self, release: Release) -> Result<()> {
        self.end_nic_agent(FIRST)?;
        self.start_nic_agent(FIRST, release)
    }

    /// Starts a NIC agent of `release`, which connects when it can.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start_nic_agent(&mut self, worker: u32, release: Release) -> Result<()> {
        let (name, config) = (nic_agent(worker), self.config(&nic_agent(worker)));
        let process = self.process(release, &name, &["nic-agent".to_owned(), "--config".to_owned(), config])?;
        self.nics.insert(worker, process);
        Ok(())
    }

    /// Ends a NIC agent in good order: it hands over what it has learnt.
    ///
    /// # Errors
    ///
    /// It cannot be waited for.
    pub fn end_nic_agent(&mut self, worker: u32) -> Result<()> {
        self.nics.remove(&worker).map_or(Ok(()), Process::finish)
    }

    /// Checks that no process has ended by itself.
    ///
    /// # Errors
    ///
    /// One has: with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        let services = self.services.iter_mut().map(|(name, process)| ((*name).to_owned(), process));
        let nics = self.nics.iter_mut().map(|(worker, process)| (nic_agent(*worker), process));
        let host = self.host.iter_mut().map(|process| (HOST_AGENT.to_owned(), process));
        let load = self.load.iter_mut().map(|process| ("load".to_owned(), process));
        for (name, process) in services.chain(nics).chain(host).chain(load) {
            if !process.runs() {
                bail!("{name} has ended by itself; its last lines:\n{}", last_lines(self.folder.path(), &name));
            }
        }
        Ok(())
    }

    /// Ends all processes, and leaves their logs. Returns the folder.
    pub fn keep_logs(self) -> PathBuf {
        self.folder.keep()
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn config(&self, agent: &str) -> String {
        self.folder.path().join(format!("{agent}.yaml")).display().to_string()
    }

    /// Writes the configurations, with few keys: an older release refuses those that it does not know.
    fn configure(&self, interval_ms: u32) -> Result<()> {
        let (run, models) = (self.run(), self.folder.path().join("models"));
        let (run, models) = (run.display(), models.display());
        let any = "metrics: {listen: '127.0.0.1:0'}\ntransport: shm";
        // All verdicts are sent, so that every row is seen.
        let host = format!(
            "runtime_dir: {run}\nlmap: {{interval_ms: {interval_ms}, models_dir: {models}}}\n\
             control: {{min_verdict_share: 0.0}}\nservices: {{heartbeat_ms: {HEARTBEAT_MS}}}\n{any}\n"
        );
        fs::write(self.config(HOST_AGENT), host)?;
        for worker in [FIRST, SECOND] {
            let nic = format!(
                "worker: {worker}\ncontrol: {{address: 'unix:{run}/control.sock'}}\n\
                 regions_socket: {run}/regions.sock\n{any}\n"
            );
            fs::write(self.config(&nic_agent(worker)), nic)?;
        }
        Ok(())
    }

    /// Starts the host agent, and waits until it is ready.
    fn start_host_agent(&mut self, release: Release) -> Result<()> {
        let arguments = [HOST_AGENT.to_owned(), "--config".to_owned(), self.config(HOST_AGENT)];
        self.host = Some(self.process(release, HOST_AGENT, &arguments)?);
        self.ready(HOST_AGENT, &self.run().join("host-agent.json")).map(drop)
    }

    /// Starts a service, and returns its address.
    fn start_service(&mut self, service: ShopService, addresses: &BTreeMap<&str, String>) -> Result<String> {
        let ShopService { name, release, calls } = service;
        let file = self.folder.path().join(format!("{name}.json"));
        let (socket, shown) = (self.run().join("services.sock").display().to_string(), file.display().to_string());
        let arguments = ["shop", "--service", name, "--ready", &shown, "--socket", &socket].map(str::to_owned);
        let next = |called: &&str| Some(format!("--next={called}={}", addresses.get(called)?));
        let arguments: Vec<_> = arguments.into_iter().chain(calls.iter().filter_map(next)).collect();
        let process = self.process(release, name, &arguments)?;
        self.services.push((name, process));
        let ready = self.ready(name, &file)?;
        Ok(ready["listen"].as_str().context("a service says where it listens")?.to_owned())
    }

    fn process(&self, release: Release, name: &str, arguments: &[String]) -> Result<Process> {
        let [old, new] = &self.programs;
        let mut command = ending_with_us(if release == Release::Old { old } else { new });
        Process::start(command.args(arguments), &log(self.folder.path(), name))
    }

    /// What the process called `name` has written to `file` when it was ready.
    fn ready(&mut self, name: &str, file: &Path) -> Result<Value> {
        let clock = Stopwatch::start();
        loop {
            // While it is written, it is no JSON.
            if let Some(ready) = fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                return Ok(ready);
            }
            self.check()?;
            let limit = READY_WITHIN.as_secs();
            ensure!(clock.elapsed() < READY_WITHIN, "{name} was not ready within {limit} s");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

const HOST_AGENT: &str = "host-agent";

fn nic_agent(worker: u32) -> String {
    format!("nic-agent-{worker}")
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn last_lines(folder: &Path, name: &str) -> String {
    let bytes = fs::read(log(folder, name)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// What a program says of its version.
///
/// # Errors
///
/// It does not run, or is another program.
pub fn version(program: &Path) -> Result<String> {
    let shown = program.display();
    let output = Command::new(program).arg("--version").output().with_context(|| format!("{shown} does not run"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(output.status.success() && text.starts_with("uview"), "{shown} is not uview: it says {text:?}");
    Ok(text)
}

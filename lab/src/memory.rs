//! `cargo lab memory`: both agents with services that restart under load, each time with other names of a part of their
//! metrics. Compares the resident sets of the agents with their budgets.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_runtime::budget::{Budget, Load};
use anyhow::{Context as _, Result, ensure};
use client::{Client, Counter, Service};
use procfs::process::Process as Proc;
use tokio::runtime::Runtime;

use crate::clients::load::get;
use crate::clients::shop::{Process, ending_with_us, free};
use crate::clock::Stopwatch;
use support::programs::Programs;

/// Limit for an agent to start.
const START: Duration = Duration::from_secs(30);
/// Interval of writes, and of looks at the agents.
const TURN: Duration = Duration::from_millis(250);
/// Interval between two lines of the report.
const LINE: Duration = Duration::from_secs(15);
/// Agents run for so long without a service before the first comes.
const IDLE: Duration = Duration::from_secs(3);
/// Services run for so long before the first restarts.
const CALM: Duration = Duration::from_secs(15);
/// One in so many names of a service's metrics is new after a restart.
const RENAMED: usize = 10;
/// The kernel's and the agents' own metrics of each service.
const OWN_COLUMNS: u64 = 32;
/// The most that a resident set may have of the budget.
const MOST: f64 = 1.05;
/// Rows of a budget that are in use from the start, or since a worker has connected again and the allocator has kept
/// what its messages took: they go with the services, and not with what those do.
const FIXED: [&str; 4] = ["program", "descriptions of columns", "series", "messages to and from a worker"];
/// Metrics of the host agent and of the NIC agent that say how much of the other rows is in use.
const IN_USE: [&str; 2] = ["uview_host_kept_model_bytes", "uview_nic_lmap_bytes"];
/// Bytes in a MiB.
const MIB: f64 = (1 << 20) as f64;

/// Arguments of `cargo lab memory`.
#[derive(Debug, clap::Args)]
pub struct MemoryArgs {
    /// The program to test [default: a new build].
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// How long services run, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// How many services.
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Metrics of each service.
    #[arg(long, default_value_t = 1000)]
    metrics: usize,
    /// Time between two restarts, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    restart_every_ms: u64,
    /// Interval of the LMAPs, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    interval_ms: u32,
}

/// Runs the services, and prints the memory of both agents beside their budgets.
///
/// # Errors
///
/// An agent does not start, has more memory than its budget, or more than it has in use by its own account.
pub fn run(args: &MemoryArgs) -> Result<()> {
    let uview = match &args.uview {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => Programs::build()?.path("uview")?.to_owned(),
    };
    let folder = tempfile::Builder::new().prefix("uview-memory-").tempdir()?;
    let mut agents = Agents::start(&uview, folder.path(), args)?;
    agents.look_while_idle()?;
    let mut services: Vec<_> =
        (0..args.services).map(|number| Running::start(number, 0, args, folder.path())).collect();
    let (clock, mut restarts, mut printed) = (Stopwatch::start(), 0, Duration::ZERO);
    while clock.elapsed() < Duration::from_secs(args.seconds) {
        std::thread::sleep(TURN);
        let elapsed = clock.elapsed();
        let due = elapsed.saturating_sub(CALM).as_millis() as usize / args.restart_every_ms.max(1) as usize;
        if restarts < due {
            // Every service has its turn, and neighbours do not follow each other.
            let number = restarts * 37 % args.services;
            let generation = services[number].generation + 1;
            // The one before ends first.
            services[number].counters.clear();
            services[number].client = None;
            services[number] = Running::start(number, generation, args, folder.path());
            restarts += 1;
        }
        services.iter().for_each(Running::write);
        agents.look()?;
        if elapsed >= printed + LINE {
            printed = elapsed;
            agents.print(elapsed, restarts)?;
        }
    }
    agents.report(restarts)
}

/// A service in this process.
struct Running {
    generation: usize,
    counters: Vec<Counter>,
    client: Option<Client>,
}

impl Running {
    fn start(number: usize, generation: usize, args: &MemoryArgs, folder: &Path) -> Self {
        let service = Service::new(format!("service-{number}")).instance(format!("{number}-{generation}"));
        let client = client::connect(service.socket(folder.join("run/services.sock")));
        let name = |metric: usize| {
            let is_renamed = metric.is_multiple_of(RENAMED);
            if is_renamed { format!("metric.{metric}.of.{generation}") } else { format!("metric.{metric}") }
        };
        let counters = (0..args.metrics).map(|metric| client.counter(&name(metric)).register()).collect();
        Self { generation, counters, client: Some(client) }
    }

    fn write(&self) {
        for (number, counter) in (1..).zip(&self.counters) {
            counter.add(number % 17);
        }
    }
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// Its resident set, without pages of services' regions.
    own: u64,
    /// Pages of services' regions that it has mapped.
    shared: u64,
}

impl Memory {
    fn of(process: u32) -> Result<Self> {
        let status = Proc::new(process as i32)?.status()?;
        let kib = |value: Option<u64>| value.map(|kib| kib << 10).context("the kernel does not say");
        let shared = kib(status.rssshmem)?;
        Ok(Self { own: kib(status.vmrss)? - shared, shared })
    }
}

/// An agent, and what was seen of its memory.
struct Agent {
    process: Process,
    budget: Budget,
    /// Before the first service.
    idle: Memory,
    peak: Memory,
    last: Memory,
    /// Where it serves metrics.
    metrics: SocketAddr,
}

impl Agent {
    fn start(command: &Path, name: &str, folder: &Path, (budget, metrics): (Budget, SocketAddr)) -> Result<Self> {
        let mut command = ending_with_us(command);
        command.arg(name).arg("--config").arg(folder.join(format!("{name}.yaml")));
        // As the units set it.
        command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
        let process = Process::start(&mut command, &folder.join(format!("{name}.log")))?;
        let nothing = Memory::default();
        Ok(Self { process, budget, idle: nothing, peak: nothing, last: nothing, metrics })
    }

    fn look(&mut self) -> Result<()> {
        self.last = Memory::of(self.process.id())?;
        if self.last.own > self.peak.own {
            self.peak = self.last;
        }
        Ok(())
    }
}

/// Both agents, as processes that end with this one.
struct Agents {
    host: Agent,
    nic: Agent,
    runtime: Runtime,
}

impl Agents {
    fn start(uview: &Path, folder: &Path, args: &MemoryArgs) -> Result<Self> {
        let [host_metrics, metrics] = free()?;
        let run = folder.join("run");
        let shown = run.display();
        let host = format!(
            "runtime_dir: {shown}\nlmap: {{interval_ms: {}}}\nmetrics: {{listen: '{host_metrics}'}}\ntransport: shm\n",
            args.interval_ms
        );
        let nic = format!(
            "control: {{address: 'unix:{shown}/control.sock'}}\nregions_socket: {shown}/regions.sock\ntransport: shm\nmetrics: {{listen: '{metrics}'}}\n"
        );
        fs::write(folder.join("host-agent.yaml"), &host)?;
        fs::write(folder.join("nic-agent.yaml"), &nic)?;
        let load = Load { services: args.services as u64, columns: args.metrics as u64 + OWN_COLUMNS };
        // As many series as there are, so that the row of series is not that of a full node.
        let mut host_config = host_agent::config::Config::parse(&host)?;
        host_config.services.limits.series = load.all_columns() as usize;
        let host = (host_agent::budget(&host_config, load), host_metrics);
        let nic = (nic_agent::budget(&nic_agent::config::Config::parse(&nic)?, load), metrics);
        let host = Agent::start(uview, "host-agent", folder, host)?;
        let clock = Stopwatch::start();
        while !run.join("host-agent.json").exists() {
            ensure!(clock.elapsed() < START, "the host agent does not start");
            std::thread::sleep(TURN);
        }
        let nic = Agent::start(uview, "nic-agent", folder, nic)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { host, nic, runtime })
    }

    fn look(&mut self) -> Result<()> {
        self.host.look()?;
        self.nic.look()
    }

    /// What the programs take by themselves, which is a row of the budgets.
    fn look_while_idle(&mut self) -> Result<()> {
        std::thread::sleep(IDLE);
        self.look()?;
        for agent in [&mut self.host, &mut self.nic] {
            agent.idle = agent.last;
            let stated = agent.budget.bounds.iter().find(|bound| bound.what.starts_with(FIXED[0]));
            let stated = stated.context("a budget has a row for the program")?.bytes;
            let [idle, most] = [agent.idle.own, stated].map(|bytes| bytes as f64 / MIB);
            println!("{} without services: {idle:.0} of {most:.0} MiB for the program", agent.budget.agent);
            ensure!(agent.idle.own <= stated, "the program takes more than its row of the budget");
        }
        Ok(())
    }

    /// What each agent has in use by its own account: rows of its budget that are in use from the start, and what its
    /// metrics say of the others.
    fn in_use(&self) -> Result<[u64; 2]> {
        let of = |agent: &Agent, name: &str| {
            let page = self.runtime.block_on(get(agent.metrics, "/metrics"))?;
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
            let counted = page.lines().find_map(value).with_context(|| format!("there is no {name}"))?;
            let bounds = agent.budget.bounds.iter().filter(|of| FIXED.iter().any(|fixed| of.what.starts_with(fixed)));
            anyhow::Ok(counted + bounds.map(|bound| bound.bytes).sum::<u64>())
        };
        Ok([of(&self.host, IN_USE[0])?, of(&self.nic, IN_USE[1])?])
    }

    fn print(&self, elapsed: Duration, restarts: usize) -> Result<()> {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let [host, nic] = self.in_use()?;
        println!(
            "{:>5} s, {restarts:>4} restarts: host agent {:.0} of {:.0} MiB; NIC agent {:.0} of {:.0} MiB, and {:.0} of regions",
            elapsed.as_secs(),
            mib(self.host.last.own),
            mib(host),
            mib(self.nic.last.own),
            mib(nic),
            mib(self.nic.last.shared)
        );
        Ok(())
    }

    fn report(self, restarts: usize) -> Result<()> {
        let in_use = self.in_use()?;
        println!("\n{restarts} restarts. Resident sets in MiB, without services' regions:\n");
        println!(
            "| agent | idle | peak | at the end | in use by its own account | at most (--budget) | used at the peak |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        let mut over = Vec::new();
        for (Agent { budget, idle, peak, last, .. }, in_use) in [&self.host, &self.nic].into_iter().zip(in_use) {
            let total = budget.total();
            let [idle, shown_peak, shown_last, account, most] =
                [idle.own, peak.own, last.own, in_use, total].map(|bytes| bytes as f64 / MIB);
            let (agent, share) = (budget.agent, 100.0 * shown_peak / most);
            println!(
                "| {agent} | {idle:.0} | {shown_peak:.0} | {shown_last:.0} | {account:.0} | {most:.0} | {share:.0} % |"
            );
            if last.own as f64 > MOST * in_use as f64 || peak.own as f64 > MOST * total as f64 {
                over.push(budget.agent);
            }
        }
        ensure!(over.is_empty(), "above {MOST} times what they state: {over:?}");
        Ok(())
    }
}

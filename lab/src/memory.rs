//! `cargo lab memory`: both agents with services that restart under load, each time with other names of a part of their
//! metrics. Compares the resident sets of the agents with what they account for, from both sides, and with their
//! budgets.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_runtime::account::STARTED_BYTES;
use agent_runtime::budget::{Budget, Load};
use anyhow::{Context as _, Result, ensure};
use client::{Client, Counter, Service};
use procfs::process::Process as Proc;
use support::clock::Stopwatch;
use tokio::runtime::Runtime;

use crate::clients::load::get;
use crate::clients::shop::{Process, ending_with_us, free};
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
/// How far a resident set may be from what its agent accounts for, as a share of that.
const NEAR: f64 = 0.05;
/// The same in a run that is shorter than [`SETTLED`]: the allocator has not got all the free memory yet that it keeps.
const WHILE_SETTLING: f64 = 0.3;
/// What the allocator keeps hardly grows after so long, with a restart every two seconds.
const SETTLED: Duration = Duration::from_mins(20);
/// The row of a budget for the program.
const PROGRAM: &str = "program";
/// The row of the host agent's budget that is in use, beside what is accounted for, once a worker has connected again:
/// all configurations were sent anew, and the allocator keeps what that took.
const SENT_AGAIN: &str = "messages to and from a worker";
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
/// An agent does not start, has more memory than its budget, or more or less than it accounts for.
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
    agents.report(clock.elapsed(), restarts)
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
    /// Of that, pages of files: the program and its libraries.
    file: u64,
    /// Pages of services' regions that it has mapped.
    shared: u64,
}

impl Memory {
    fn of(process: u32) -> Result<Self> {
        let status = Proc::new(process as i32)?.status()?;
        let kib = |value: Option<u64>| value.map(|kib| kib << 10).context("the kernel does not say");
        let shared = kib(status.rssshmem)?;
        Ok(Self { own: kib(status.vmrss)? - shared, file: kib(status.rssfile)?, shared })
    }
}

/// What an agent says of its memory, in bytes.
#[derive(Clone, Copy, Debug)]
struct OwnAccount {
    /// What it keeps by its own count.
    kept: u64,
    /// What should be resident.
    accounted: u64,
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
        command.env("MALLOC_ARENA_MAX", "2");
        if name == "nic-agent" {
            command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
        }
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

    /// Bytes of the row of its budget that begins so.
    fn row(&self, begin: &str) -> Result<u64> {
        let row = self.budget.bounds.iter().find(|bound| bound.what.starts_with(begin));
        Ok(row.with_context(|| format!("the budget of the {} has no row {begin}", self.budget.agent))?.bytes)
    }
}

/// The value of the metric `name` on `page`.
fn value(page: &str, name: &str) -> Result<u64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
    page.lines().find_map(of).with_context(|| format!("there is no {name}"))
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
            let stated = agent.row(PROGRAM)?;
            let [idle, most] = [agent.idle.own, stated].map(|bytes| bytes as f64 / MIB);
            println!("{} without services: {idle:.0} of {most:.0} MiB for the program", agent.budget.agent);
            ensure!(agent.idle.own <= stated, "the program takes more than its row of the budget");
        }
        Ok(())
    }

    /// What each agent says of its memory, and how often the NIC agent has connected.
    fn accounts(&self) -> Result<([OwnAccount; 2], u64)> {
        let page = |agent: &Agent| self.runtime.block_on(get(agent.metrics, "/metrics"));
        let of = |page: &str, agent: &Agent| {
            let of = |name: &str| value(page, &format!("{}_{name}", agent.budget.prefix));
            anyhow::Ok(OwnAccount { kept: of("kept_bytes")?, accounted: of("accounted_bytes")? })
        };
        let (host, nic) = (page(&self.host)?, page(&self.nic)?);
        let sessions = value(&nic, "uview_nic_host_sessions_total")?;
        Ok(([of(&host, &self.host)?, of(&nic, &self.nic)?], sessions))
    }

    fn print(&self, elapsed: Duration, restarts: usize) -> Result<()> {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let ([host, nic], _) = self.accounts()?;
        println!(
            "{:>5} s, {restarts:>4} restarts: host agent {:.0} of {:.0} MiB; NIC agent {:.0} of {:.0} MiB, and {:.0} of regions",
            elapsed.as_secs(),
            mib(self.host.last.own),
            mib(host.accounted),
            mib(self.nic.last.own),
            mib(nic.accounted),
            mib(self.nic.last.shared)
        );
        Ok(())
    }

    fn report(mut self, ran: Duration, restarts: usize) -> Result<()> {
        self.look()?;
        let (accounts, sessions) = self.accounts()?;
        let near = if ran < SETTLED { WHILE_SETTLING } else { NEAR };
        // What is resident of what was sent again is not known.
        let again = [if sessions > 1 { self.host.row(SENT_AGAIN)? } else { 0 }, 0];
        println!("\n{restarts} restarts. Resident sets in MiB, without services' regions:\n");
        println!(
            "| agent | idle | peak | at the end | accounted for | kept by its own count | the allocator adds | at most (--budget) | used at the peak |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        let mut wrong = Vec::new();
        for ((agent, of), again) in [&self.host, &self.nic].into_iter().zip(accounts).zip(again) {
            let Agent { budget, idle, peak, last, .. } = agent;
            let bytes = [idle.own, peak.own, last.own, of.accounted, of.kept, budget.total(), again];
            let [idle, peak, own, accounted, kept, most, again] = bytes.map(|bytes| bytes as f64 / MIB);
            let added = own - (last.file + STARTED_BYTES) as f64 / MIB - kept;
            println!(
                "| {} | {idle:.0} | {peak:.0} | {own:.0} | {accounted:.0} | {kept:.0} | {:.0} % | {most:.0} | {:.0} % |",
                budget.agent,
                100.0 * added / kept,
                100.0 * peak / most
            );
            let expected = (1.0 - near) * accounted..=(1.0 + near) * (accounted + again);
            if !expected.contains(&own) || peak > MOST * most {
                wrong.push(budget.agent);
            }
        }
        if sessions > 1 {
            println!("\nThe NIC agent has connected {sessions} times: configurations were sent again.");
        }
        ensure!(wrong.is_empty(), "further than {near} from what they account for, or above their budget: {wrong:?}");
        Ok(())
    }
}

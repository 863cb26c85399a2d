//! Processor time of both agents with real services, compared with a scraper of the same metrics.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use support::clock::Stopwatch;
use wire::control::State;

use super::figure::{Figure, Goal};
use super::helpers::Rounds;
use super::pair::{Pair, median};
use support::workspace;

/// Runs of each side, in turns.
const TURNS: usize = 3;
/// Length of the measurement of each side in a run.
const LENGTH: Duration = Duration::from_secs(20);
const READY_WITHIN: Duration = Duration::from_secs(30);
/// LMAPs are armed after 120 rows, and fits stop after 2,000.
const ARMED_WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Required ratio to the scraper of services that only beat, and of those whose metrics are written.
const MAX_RATIO_IDLE: f64 = 1.0;
const MAX_RATIO_BUSY: f64 = 0.6;
/// Required share of ticks in time at 1 ms, in per cent.
const MIN_IN_TIME: f64 = 99.9;
/// How long the peer runs before and after its measurement.
const MARGIN: Duration = Duration::from_secs(2);

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Number of services, each a process with a hundred metrics.
    pub services: usize,
    /// Scrape interval in milliseconds.
    pub interval_ms: u32,
    /// Whether every metric is written 125 times per second, or never.
    pub busy: bool,
}

impl Case {
    /// What is required of both agents.
    const fn goal(self) -> Goal {
        Goal::AtMost(if self.busy { MAX_RATIO_BUSY } else { MAX_RATIO_IDLE })
    }
}

/// Child processes. Dropping this ends them.
#[derive(Default)]
pub(super) struct ProcessGroup(Vec<Child>);

impl ProcessGroup {
    /// Starts `command`, and returns its process id.
    pub(super) fn start(&mut self, command: &mut Command) -> Result<u32> {
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {command:?}"))?;
        let process = child.id();
        self.0.push(child);
        Ok(process)
    }

    /// Output of the last started process.
    fn output(&mut self) -> Result<BufReader<ChildStdout>> {
        let output = self.0.last_mut().and_then(|child| child.stdout.take());
        Ok(BufReader::new(output.context("the process's output is not ours")?))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Agents get the signal last, so that they see the services leave and clean up.
        for child in self.0.iter_mut().rev() {
            if let Some(process) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(process, Signal::TERM); // gone already: that is what was wanted
            }
            let _ = child.wait();
        }
    }
}

/// Processor time that a process has used so far.
pub(super) fn cpu_time(process: u32) -> Result<Duration> {
    let stat = Process::new(process as i32)?.stat()?;
    Ok(Duration::from_secs(stat.utime + stat.stime) / procfs::ticks_per_second() as u32)
}

/// Shares of a core, in per cent, that `processes` use during `length`.
pub fn shares<const N: usize>(processes: [u32; N], length: Duration) -> Result<[f64; N]> {
    let clock = Stopwatch::start();
    let mut before = [Duration::ZERO; N];
    for (before, process) in before.iter_mut().zip(processes) {
        *before = cpu_time(process)?;
    }
    std::thread::sleep(length);
    let length = clock.elapsed();
    let mut shares = [0.0; N];
    for ((share, process), before) in shares.iter_mut().zip(processes).zip(before) {
        *share = 100.0 * cpu_time(process)?.saturating_sub(before).as_secs_f64() / length.as_secs_f64();
    }
    Ok(shares)
}

/// Both agents with their services.
pub struct Agents {
    stage: ProcessGroup,
    program: PathBuf,
    runtime_dir: PathBuf,
    pub host: u32,
    pub nic: u32,
}

#[derive(Debug, Deserialize)]
struct HostAgentInfo {
    control: String,
    regions: PathBuf,
}

/// The needed fields of `uview status --json`.
#[derive(Debug, Deserialize)]
struct Status {
    workers: Vec<Worker>,
    lmaps: Vec<Lmap>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    ticks: u64,
    late_ticks: u64,
    failed_regions: u64,
}

#[derive(Debug, Deserialize)]
struct Lmap {
    #[serde(rename = "lmap")]
    id: u32,
    state: String,
    columns: u32,
}

impl Lmap {
    /// Whether it judges rows, by its state.
    fn judges(&self) -> bool {
        State::named(&self.state).is_some_and(State::judges)
    }
}

impl Agents {
    /// Starts all processes with the default configuration, except for the interval, free ports, and the lines `more`
    /// in the host agent's configuration.
    pub fn start(case: Case, program: PathBuf, folder: &Path, more: &str) -> Result<Self> {
        let runtime_dir = folder.join("run");
        fs::create_dir(&runtime_dir)?;
        let free = "listen: 127.0.0.1:0";
        let text = format!(
            "runtime_dir: {}\nlmap: {{interval_ms: {}}}\nmetrics: {{{free}}}\n{more}",
            runtime_dir.display(),
            case.interval_ms
        );
        fs::write(folder.join("host.yaml"), text)?;
        let mut agents = Self { stage: ProcessGroup::default(), program, runtime_dir, host: 0, nic: 0 };
        agents.host = agents.agent("host-agent", &folder.join("host.yaml"))?;
        let ready: HostAgentInfo = until_read(&agents.runtime_dir.join("host-agent.json"))?;
        let (control, regions) = (ready.control, ready.regions.display());
        let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {{{free}}}\n");
        fs::write(folder.join("nic.yaml"), text)?;
        agents.nic = agents.agent("nic-agent", &folder.join("nic.yaml"))?;
        let socket = agents.runtime_dir.join("services.sock");
        for at in 0..case.services {
            let mut service = part();
            service.args(["service", "--name", &format!("service-{at}"), "--socket"]).arg(&socket);
            agents.stage.start(service.args(case.busy.then_some("--busy")))?;
        }
        Ok(agents)
    }

    /// Starts an agent by the command that ends a child with its parent.
    fn agent(&mut self, name: &str, config: &Path) -> Result<u32> {
        let log = fs::File::create(config.with_extension("log"))?;
        let parent = std::process::id().to_string();
        let mut command = Command::new(&self.program);
        command.args(["child", "--parent", &parent, "--", name, "--config"]).arg(config);
        self.stage.start(command.stdout(log.try_clone()?).stderr(log))
    }

    fn status(&self) -> Result<Status> {
        let mut command = Command::new(&self.program);
        let output = command.args(["status", "--json", "--runtime-dir"]).arg(&self.runtime_dir).output()?;
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// An address of the live page, good for one viewer.
    pub fn page(&self) -> Result<String> {
        let mut command = Command::new(&self.program);
        let output = command.args(["open", "--print", "--runtime-dir"]).arg(&self.runtime_dir).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The number of an LMAP.
    pub fn lmap(&self, at: usize) -> Result<u32> {
        Ok(self.status()?.lmaps.get(at).context("there are not as many LMAPs")?.id)
    }

    /// Columns of the first LMAP.
    pub fn columns(&self) -> Result<u32> {
        Ok(self.status()?.lmaps.first().context("there is no LMAP")?.columns)
    }

    /// Waits until every service has an LMAP and no LMAP gets more columns.
    fn all_known(&self, case: Case) -> Result<Status> {
        let clock = Stopwatch::start();
        let mut before = Vec::new();
        loop {
            let status = self.status()?;
            let columns: Vec<u32> = status.lmaps.iter().map(|lmap| lmap.columns).collect();
            if columns.len() == case.services && columns.iter().all(|count| *count > 0) && columns == before {
                return Ok(status);
            }
            ensure!(clock.elapsed() < ARMED_WITHIN, "not every service was known in time: {:?}", status.lmaps);
            before = columns;
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until every LMAP is armed.
    pub fn all_armed(&self, case: Case, within: Duration) -> Result<()> {
        let clock = Stopwatch::start();
        let all_armed = || {
            let status = self.status()?;
            let armed = status.lmaps.iter().filter(|lmap| lmap.judges()).count();
            anyhow::Ok(armed == case.services)
        };
        while !all_armed()? {
            ensure!(clock.elapsed() < within, "not every LMAP was armed in time: {:?}", self.status()?.lmaps);
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    /// Waits until every LMAP is armed and no fit is due soon: at 100 ms between the fits at 120 and 600 rows, at 10 ms
    /// after the last fit.
    pub fn settle(&self, case: Case) -> Result<()> {
        let clock = Stopwatch::start();
        self.all_armed(case, ARMED_WITHIN)?;
        let rows = 2200;
        let last_fit = Duration::from_millis(rows * u64::from(case.interval_ms));
        if last_fit < ARMED_WITHIN {
            std::thread::sleep(last_fit.saturating_sub(clock.elapsed()));
        }
        // The backlog of the fits is processed when the load is the same twice.
        let mut before = f64::INFINITY;
        loop {
            let now: f64 = shares([self.host, self.nic], Duration::from_secs(2))?.iter().sum();
            if (now - before).abs() < 0.5_f64.max(0.2 * now) {
                return Ok(());
            }
            ensure!(clock.elapsed() < ARMED_WITHIN, "the agents' load did not settle: {before} %, then {now} %");
            before = now;
        }
    }
}

/// The command of a helper process.
pub(super) fn part() -> Command {
    // This path stays valid even if a build replaces the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg("part");
    command
}

fn until_read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let clock = Stopwatch::start();
    loop {
        if let Ok(text) = fs::read(file) {
            return serde_json::from_slice(&text).with_context(|| file.display().to_string());
        }
        ensure!(clock.elapsed() < READY_WITHIN, "{} did not come", file.display());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Measures the peer: shares of a core of the scraper and of the exporters, and its rounds.
fn scraper(case: Case) -> Result<(f64, f64, Rounds)> {
    let mut stage = ProcessGroup::default();
    let services = case.services.to_string();
    let mut exporters = part();
    exporters.args(["exporters", "--services", &services]).args(case.busy.then_some("--busy"));
    let exporters = stage.start(exporters.stdout(Stdio::piped()))?;
    let mut line = String::new();
    stage.output()?.read_line(&mut line)?;
    let addresses: Vec<String> = serde_json::from_str(&line)?;
    let seconds = (LENGTH + 2 * MARGIN).as_secs().to_string();
    let mut scraper = part();
    scraper.args(["scraper", "--interval-ms", &case.interval_ms.to_string(), "--seconds", &seconds]).args(addresses);
    let scraper = stage.start(scraper.stdout(Stdio::piped()))?;
    let mut output = stage.output()?;
    output.read_line(&mut line)?;
    std::thread::sleep(MARGIN);
    let [share, exporting] = shares([scraper, exporters], LENGTH)?;
    line.clear();
    output.read_line(&mut line)?;
    let rounds = serde_json::from_str(&line).with_context(|| format!("the scraper printed {line:?}"))?;
    Ok((share, exporting, rounds))
}

/// A measurement of both agents.
#[derive(Clone, Copy, Debug)]
struct AgentLoad {
    /// Shares of a core in per cent.
    host: f64,
    nic: f64,
    columns: u32,
    ticks: u64,
    late: u64,
}

/// Starts both agents with their services, and measures them once they are settled.
fn agent_load(case: Case, program: &Path, folder: &Path) -> Result<AgentLoad> {
    fs::create_dir(folder)?;
    let agents = Agents::start(case, program.to_owned(), folder, "")?;
    agents.settle(case)?;
    let before = agents.status()?;
    let [host, nic] = shares([agents.host, agents.nic], LENGTH)?;
    let after = agents.status()?;
    let ([then], [now]) = (&before.workers[..], &after.workers[..]) else { bail!("one worker, not {after:?}") };
    ensure!(now.failed_regions == then.failed_regions, "regions were not fetched: {after:?}");
    ensure!(after.lmaps.len() == case.services && after.lmaps.iter().all(|lmap| lmap.state != "silent"), "{after:?}");
    let columns = after.lmaps.first().map_or(0, |lmap| lmap.columns);
    Ok(AgentLoad { host, nic, columns, ticks: now.ticks - then.ticks, late: now.late_ticks - then.late_ticks })
}

/// Share of a core of both agents together.
pub fn cpu(name: &str, case: Case) -> Result<Figure> {
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let (mut loads, mut scrapers) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        loads.push(agent_load(case, &program, &folder.path().join(turn.to_string()))?);
        scrapers.push(scraper(case)?);
    }
    let pairs = loads.iter().zip(&scrapers).map(|(load, scraper)| (load.host + load.nic, scraper.0));
    let measured = Pair::of(&pairs.collect::<Vec<_>>()).context("there are turns")?;
    let Case { services, interval_ms, .. } = case;
    let peer = format!("a process that scrapes {services} × 100 metrics as Prometheus text every {interval_ms} ms");
    let mut figure = Figure::new(name, "% of a core", &peer, measured, case.goal());
    let all = |count: fn(&AgentLoad) -> u64| loads.iter().map(count).sum::<u64>();
    let missed: u64 = scrapers.iter().map(|(_, _, rounds)| rounds.late).sum();
    let done: u64 = scrapers.iter().map(|(_, _, rounds)| rounds.done).sum();
    figure.note = format!(
        "medians of {TURNS} runs: host agent {:.2} %, NIC agent {:.2} % ({} columns per LMAP, {} of {} ticks late in all); the scraper missed {missed} of \
         {} rounds, what it scrapes took {:.2} % more, which is not counted",
        median(loads.iter().map(|load| load.host)),
        median(loads.iter().map(|load| load.nic)),
        loads.first().map_or(0, |load| load.columns),
        all(|load| load.late),
        all(|load| load.ticks),
        done + missed,
        median(scrapers.iter().map(|(_, exporting, _)| *exporting))
    );
    println!("{name}: {:.3} % against {:.3} %; {}", figure.value, figure.peer_value, figure.note);
    Ok(figure)
}

/// Ticks of the NIC agent and of the peer, at the same time.
#[derive(Clone, Copy, Debug)]
struct TickCounts {
    ours: Rounds,
    peer: Rounds,
    /// LMAPs armed at the end.
    armed: usize,
    columns: u32,
}

/// Starts both agents with their services, and counts ticks from when all metrics are known.
fn tick_counts(case: Case, program: &Path, folder: &Path) -> Result<TickCounts> {
    fs::create_dir(folder)?;
    let agents = Agents::start(case, program.to_owned(), folder, "")?;
    let before = agents.all_known(case)?;
    let peer = bare_ticks(Duration::from_millis(case.interval_ms.into()), LENGTH);
    let after = agents.status()?;
    let ([then], [now]) = (&before.workers[..], &after.workers[..]) else { bail!("one worker, not {after:?}") };
    ensure!(now.failed_regions == then.failed_regions, "regions were not fetched: {after:?}");
    let ours = Rounds { done: now.ticks - then.ticks, late: now.late_ticks - then.late_ticks };
    let armed = after.lmaps.iter().filter(|lmap| lmap.judges()).count();
    Ok(TickCounts { ours, peer, armed, columns: after.lmaps.first().map_or(0, |lmap| lmap.columns) })
}

/// Share of the NIC agent's 1 ms ticks that are in time while 64 LMAPs, started together, learn, are fitted and score;
/// the peer is a thread that only wakes up for each tick.
pub fn in_time(name: &str) -> Result<Figure> {
    let case = Case { services: 64, interval_ms: 1, busy: true };
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let turns = (0..TURNS).map(|turn| tick_counts(case, &program, &folder.path().join(turn.to_string())));
    let turns = turns.collect::<Result<Vec<_>>>()?;
    let share = |rounds: &Rounds| 100.0 * rounds.done as f64 / (rounds.done + rounds.late).max(1) as f64;
    let pairs: Vec<_> = turns.iter().map(|turn| (share(&turn.ours), share(&turn.peer))).collect();
    let measured = Pair::of(&pairs).context("there are turns")?;
    let what = "a thread on the same machine, at the same time, that sleeps until each millisecond and does nothing";
    let mut figure = Figure::new(name, "% of ticks", what, measured, Goal::Stated);
    (figure.goal, figure.met) = (format!("≥ {MIN_IN_TIME} %"), Some(measured.ours >= MIN_IN_TIME));
    let late = |of: fn(&TickCounts) -> Rounds| {
        let each = turns.iter().map(of).map(|rounds| format!("{} of {}", rounds.late, rounds.done + rounds.late));
        each.collect::<Vec<_>>().join(", ")
    };
    figure.note = format!(
        "{} ticks late in {TURNS} runs, {} of the peer's; {} of {} LMAPs of {} columns armed at the end",
        late(|turn| turn.ours),
        late(|turn| turn.peer),
        turns.iter().map(|turn| turn.armed).min().unwrap_or(0),
        case.services,
        turns.first().map_or(0, |turn| turn.columns)
    );
    Ok(figure)
}

/// A thread that wakes up every `interval` during `length`.
fn bare_ticks(interval: Duration, length: Duration) -> Rounds {
    let clock = Stopwatch::start();
    let (mut rounds, mut next) = (Rounds::default(), interval);
    while clock.elapsed() < length {
        std::thread::sleep(next.saturating_sub(clock.elapsed()));
        let late = (clock.elapsed().saturating_sub(next).as_nanos() / interval.as_nanos().max(1)) as u32;
        rounds.done += 1;
        rounds.late += u64::from(late);
        next += interval * (late + 1);
    }
    rounds
}

/// Builds `uview` and copies it, since another build may replace it.
pub fn build(folder: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--package", "uview-cli"]).current_dir(workspace());
    ensure!(cargo.status()?.success(), "uview was not built");
    let copy = folder.join("uview");
    fs::copy(std::env::current_exe()?.with_file_name("uview"), &copy)?;
    Ok(copy)
}

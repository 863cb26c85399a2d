//! Processor time and context switches of processes: read from /proc in the guest, evaluated outside of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use support::clock::Stopwatch;
use support::http::{self, HttpResponse};

/// Prefix of a line with a [`Usage`].
pub const MARK: &str = "USAGE ";
const LOOK_EVERY: Duration = Duration::from_millis(200);
const WITHIN: Duration = Duration::from_mins(20);

/// A process id with a name.
#[derive(Clone, Debug)]
pub struct NamedProcess {
    name: String,
    process: i32,
}

impl FromStr for NamedProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, process) = text.split_once('=').ok_or("NAME=PID")?;
        Ok(Self { name: name.to_owned(), process: process.parse().map_err(|error| format!("{error}"))? })
    }
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct EndCondition {
    /// End after so many more ticks of the NIC agent
    #[arg(long, requires = "nic")]
    ticks: Option<u64>,
    /// End after this time
    #[arg(long)]
    seconds: Option<f64>,
    /// End with this process
    #[arg(long)]
    process: Option<i32>,
}

/// Processor time and context switches of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// User time in milliseconds; the kernel counts in steps of 10 ms.
    pub user_ms: u64,
    /// System time in milliseconds.
    pub system_ms: u64,
    /// Voluntary context switches of all threads.
    pub voluntary: u64,
    /// Involuntary context switches of all threads.
    pub involuntary: u64,
}

/// Usage of several processes in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Name of the phase.
    pub phase: String,
    /// Length of the measurement.
    pub seconds: f64,
    /// Ticks of the NIC agent during the measurement; 0 without one.
    pub ticks: u64,
    /// Of them, regions that could not be read.
    pub failed_regions: u64,
    /// Usage of each process, by name.
    pub processes: BTreeMap<String, CpuUsage>,
}

/// Measures `processes` until `until` is met, and prints the usage as a line.
///
/// # Errors
///
/// A process has ended, or the NIC agent does not respond or does too few ticks.
pub fn run(phase: &str, until: EndCondition, nic: Option<SocketAddr>, processes: &[NamedProcess]) -> Result<()> {
    let mut watched: Vec<_> = processes.iter().map(ProcessSampler::new).collect::<Result<_>>()?;
    let counted = nic.map(counters).transpose()?.unwrap_or_default();
    let clock = Stopwatch::start();
    let mut now = counted;
    loop {
        let over = match until {
            EndCondition { ticks: Some(ticks), .. } => now.ticks - counted.ticks >= ticks,
            EndCondition { process: Some(process), .. } => !Path::new(&format!("/proc/{process}")).exists(),
            EndCondition { seconds, .. } => clock.elapsed().as_secs_f64() >= seconds.unwrap_or_default(),
        };
        if over {
            break;
        }
        ensure!(
            clock.elapsed() < WITHIN,
            "it is not over after {} s: {now:?}, it began with {counted:?}",
            WITHIN.as_secs()
        );
        std::thread::sleep(LOOK_EVERY);
        watched.iter_mut().try_for_each(ProcessSampler::sample)?;
        now = nic.map(counters).transpose()?.unwrap_or_default();
    }
    let mut usage = Usage {
        phase: phase.to_owned(),
        seconds: clock.elapsed().as_secs_f64(),
        ticks: now.ticks - counted.ticks,
        failed_regions: now.failed_regions - counted.failed_regions,
        ..Usage::default()
    };
    for mut watched in watched {
        watched.sample()?;
        usage.processes.insert(watched.named.name.clone(), watched.used());
    }
    println!("{MARK}{}", serde_json::to_string(&usage)?);
    Ok(())
}

/// Samples a process regularly, since a thread's counters disappear when it ends.
struct ProcessSampler<'a> {
    named: &'a NamedProcess,
    /// User and system time in kernel ticks, first and last sample.
    times: [(u64, u64); 2],
    /// Voluntary and involuntary context switches of each thread, first and last sample.
    threads: BTreeMap<i32, [(u64, u64); 2]>,
}

impl<'a> ProcessSampler<'a> {
    fn new(named: &'a NamedProcess) -> Result<Self> {
        let mut watched = Self { named, times: [(0, 0); 2], threads: BTreeMap::new() };
        watched.sample()?;
        watched.times[0] = watched.times[1];
        watched.threads.values_mut().for_each(|[first, last]| *first = *last);
        Ok(watched)
    }

    fn sample(&mut self) -> Result<()> {
        let process = Process::new(self.named.process).with_context(|| format!("{} is gone", self.named.name))?;
        let stat = process.stat()?;
        self.times[1] = (stat.utime, stat.stime);
        // A thread may end while it is read.
        for status in process.tasks()?.filter_map(|task| task.ok()?.status().ok()) {
            let switches = (status.voluntary_ctxt_switches, status.nonvoluntary_ctxt_switches);
            let switches = (switches.0.unwrap_or_default(), switches.1.unwrap_or_default());
            self.threads.entry(status.pid).or_default()[1] = switches;
        }
        Ok(())
    }

    fn used(&self) -> CpuUsage {
        let milliseconds = |ticks: u64| ticks * 1000 / procfs::ticks_per_second();
        let [first, last] = self.times;
        let switched = self.threads.values().map(|[first, last]| (last.0 - first.0, last.1 - first.1));
        let (voluntary, involuntary) = switched.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let (user_ms, system_ms) = (milliseconds(last.0 - first.0), milliseconds(last.1 - first.1));
        CpuUsage { user_ms, system_ms, voluntary, involuntary }
    }
}

/// Counters of the NIC agent.
#[derive(Clone, Copy, Debug, Default)]
struct NicCounters {
    ticks: u64,
    failed_regions: u64,
}

fn counters(nic: SocketAddr) -> Result<NicCounters> {
    let page = http::get(nic, "/metrics").and_then(HttpResponse::text).context("the NIC agent's metrics")?;
    let counter = |name: &str| {
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.with_context(|| format!("the NIC agent does not say {name}"))
    };
    Ok(NicCounters {
        ticks: counter("uview_nic_ticks_total")?,
        failed_regions: counter("uview_nic_failed_regions_total")?,
    })
}

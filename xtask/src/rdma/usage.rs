//! What processes use of a processor while something else goes on: read from /proc in the guest, judged outside of it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::clock::Stopwatch;

/// What the line begins with that carries a [`Usage`].
pub const MARK: &str = "USAGE ";
const LOOK_EVERY: Duration = Duration::from_millis(200);
const WITHIN: Duration = Duration::from_mins(20);

/// A process and what it is called.
#[derive(Clone, Debug)]
pub struct Named {
    name: String,
    process: i32,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, process) = text.split_once('=').ok_or("NAME=PID")?;
        Ok(Self { name: name.to_owned(), process: process.parse().map_err(|error| format!("{error}"))? })
    }
}

/// How long to look.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Until {
    /// Until the NIC agent has done so many more ticks
    #[arg(long, requires = "nic")]
    ticks: Option<u64>,
    /// So long
    #[arg(long)]
    seconds: Option<f64>,
    /// As long as this process runs
    #[arg(long)]
    process: Option<i32>,
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Milliseconds of its own code, to the kernel's clock of 10 ms.
    pub user_ms: u64,
    /// Likewise, of the kernel on its behalf.
    pub system_ms: u64,
    /// How often one of its threads waited for something.
    pub voluntary: u64,
    /// How often one of them had to make place for others.
    pub involuntary: u64,
}

/// What all of them used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// What went on.
    pub phase: String,
    /// For how long.
    pub seconds: f64,
    /// Ticks of the NIC agent meanwhile; 0 if it was not asked.
    pub ticks: u64,
    /// Of them, regions that could not be read.
    pub failed_regions: u64,
    /// By name.
    pub processes: BTreeMap<String, Used>,
}

/// Looks at `processes` while `until` says so, and prints the difference as a line.
///
/// # Errors
///
/// One of them is gone, or the NIC agent does not answer or does too little.
pub fn run(phase: &str, until: Until, nic: Option<SocketAddr>, processes: &[Named]) -> Result<()> {
    let mut watched: Vec<_> = processes.iter().map(Watched::new).collect::<Result<_>>()?;
    let counted = nic.map(counters).transpose()?.unwrap_or_default();
    let clock = Stopwatch::start();
    let mut now = counted;
    loop {
        let over = match until {
            Until { ticks: Some(ticks), .. } => now.ticks - counted.ticks >= ticks,
            Until { process: Some(process), .. } => !Path::new(&format!("/proc/{process}")).exists(),
            Until { seconds, .. } => clock.elapsed().as_secs_f64() >= seconds.unwrap_or_default(),
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
        watched.iter_mut().try_for_each(Watched::look)?;
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
        watched.look()?;
        usage.processes.insert(watched.named.name.clone(), watched.used());
    }
    println!("{MARK}{}", serde_json::to_string(&usage)?);
    Ok(())
}

/// A process that is looked at from time to time, since what a thread has counted is gone with it.
struct Watched<'a> {
    named: &'a Named,
    /// User and system time, in ticks of the kernel, at first and at last.
    times: [(u64, u64); 2],
    /// Of each thread, voluntary and involuntary switches, at first and at last.
    threads: BTreeMap<i32, [(u64, u64); 2]>,
}

impl<'a> Watched<'a> {
    fn new(named: &'a Named) -> Result<Self> {
        let mut watched = Self { named, times: [(0, 0); 2], threads: BTreeMap::new() };
        watched.look()?;
        watched.times[0] = watched.times[1];
        watched.threads.values_mut().for_each(|[first, last]| *first = *last);
        Ok(watched)
    }

    fn look(&mut self) -> Result<()> {
        let process = Process::new(self.named.process).with_context(|| format!("{} is gone", self.named.name))?;
        let stat = process.stat()?;
        self.times[1] = (stat.utime, stat.stime);
        // A thread may end meanwhile.
        for status in process.tasks()?.filter_map(|task| task.ok()?.status().ok()) {
            let switches = (status.voluntary_ctxt_switches, status.nonvoluntary_ctxt_switches);
            let switches = (switches.0.unwrap_or_default(), switches.1.unwrap_or_default());
            self.threads.entry(status.pid).or_default()[1] = switches;
        }
        Ok(())
    }

    fn used(&self) -> Used {
        let milliseconds = |ticks: u64| ticks * 1000 / procfs::ticks_per_second();
        let [first, last] = self.times;
        let switched = self.threads.values().map(|[first, last]| (last.0 - first.0, last.1 - first.1));
        let (voluntary, involuntary) = switched.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let (user_ms, system_ms) = (milliseconds(last.0 - first.0), milliseconds(last.1 - first.1));
        Used { user_ms, system_ms, voluntary, involuntary }
    }
}

/// What the NIC agent has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    ticks: u64,
    failed_regions: u64,
}

fn counters(nic: SocketAddr) -> Result<Counted> {
    let mut stream = TcpStream::connect(nic).context("the NIC agent's metrics")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let counter = |name: &str| {
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.with_context(|| format!("the NIC agent does not say {name}"))
    };
    Ok(Counted { ticks: counter("uview_nic_ticks_total")?, failed_regions: counter("uview_nic_failed_regions_total")? })
}

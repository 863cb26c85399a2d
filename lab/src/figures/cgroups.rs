//! Processor time of both agents that watch a hundred cgroups, beside a process that reads the same files.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use ::sources::cgroup::Values;
use ::sources::cgroup::hierarchies::{Hierarchy, hierarchies};
use anyhow::{Context as _, Result, ensure};
use host_agent::cgroup_metrics::{FILE_BYTES, MeasuredCgroup};
use support::clock::Stopwatch;

use super::agents::{Agents, Case, ProcessGroup, build, part};
use super::figure::{Figure, Goal};
use super::obvious;
use super::pair::{Pair, median};
use crate::clock::ThreadTimes;
use crate::unavailable::Unavailable;

const CGROUPS: usize = 100;
/// Measurements, one after the other.
const TURNS: usize = 3;
const LENGTH: Duration = Duration::from_secs(20);
/// LMAPs are armed after 120 rows of a second.
const ARMED_WITHIN: Duration = Duration::from_mins(4);
/// How long the peer runs before its measurement.
const MARGIN: Duration = Duration::from_secs(2);
/// A process that was started is in its namespace within so long.
const STARTED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it is tried to remove a cgroup, whose processes have just ended.
const TRIES: usize = 100;
/// Of a core, in per cent.
const MAX: f64 = 2.0;

/// Both agents with their defaults, a sample and a row each second.
///
/// # Errors
///
/// [`Unavailable`] without root or cgroups; or an agent does not start.
pub fn hundred(name: &str) -> Result<Figure> {
    ensure!(rustix::process::geteuid().is_root(), Unavailable("making cgroups takes root".to_owned()));
    let folder = tempfile::Builder::new().prefix("uview-figures-").tempdir()?;
    let program = build(folder.path())?;
    let cgroups = Cgroups::create()?;
    let (metrics, files) = cgroups.read_one()?;
    let pattern = format!("sources: {{cgroups: [{{pattern: '{}*', service: 'cgroup-{{name}}'}}]}}\n", prefix());
    let case = Case { services: CGROUPS, interval_ms: 1_000, busy: false };
    let agents = Agents::start(Case { services: 0, ..case }, program, folder.path(), &pattern)?;
    let list = folder.path().join("files.json");
    fs::write(&list, serde_json::to_vec(&cgroups.files())?)?;
    let mut group = ProcessGroup::default();
    let peer = group.start(part().arg("cgroup-reader").arg("--list").arg(list))?;
    agents.all_armed(case, ARMED_WITHIN)?;
    std::thread::sleep(MARGIN);
    let turns = (0..TURNS).map(|_| shares([agents.host, agents.nic, peer])).collect::<Result<Vec<_>>>()?;
    let pairs: Vec<_> = turns.iter().map(|[host, nic, peer]| (host + nic, *peer)).collect();
    let measured = Pair::of(&pairs).context("there are turns")?;
    let what = "a process that opens the same files each second, reads each into a string and splits it into a map, at \
                the same time";
    let note = format!(
        "{CGROUPS} cgroups with {metrics} metrics and {files} open files each, {}; medians of {TURNS} times {} s: host \
         agent {:.2} %, NIC agent {:.2} % ({} columns per LMAP, all armed); threads that ended meanwhile do not count",
        if cgroups.namespaces { "a process and a network namespace in each" } else { "a process in each, no network" },
        LENGTH.as_secs(),
        median(turns.iter().map(|turn| turn[0])),
        median(turns.iter().map(|turn| turn[1])),
        agents.columns()?
    );
    let figure = Figure::new(name, "% of a core", what, measured, Goal::Stated);
    Ok(figure.judged("≤ 2 % of a core", measured.ours <= MAX, note))
}

/// Shares of a core, in per cent, that `processes` use during [`LENGTH`].
fn shares<const N: usize>(processes: [u32; N]) -> Result<[f64; N]> {
    let times = || processes.iter().map(|process| ThreadTimes::of(&[*process])).collect::<Result<Vec<_>>>();
    let (clock, before) = (Stopwatch::start(), times()?);
    std::thread::sleep(LENGTH);
    let (length, after) = (clock.elapsed(), times()?);
    let mut shares = [0.0; N];
    for (share, (before, after)) in shares.iter_mut().zip(before.iter().zip(&after)) {
        *share = 100.0 * after.since(before).as_secs_f64() / length.as_secs_f64();
    }
    Ok(shares)
}

/// What the names of this process's cgroups begin with.
fn prefix() -> String {
    format!("uview-figure-{}-", std::process::id())
}

/// Cgroups in all hierarchies of this machine, with a process each. Dropping them ends and removes all.
struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    names: Vec<String>,
    processes: Vec<u32>,
    group: ProcessGroup,
    /// Whether each process has a network namespace of its own.
    namespaces: bool,
}

impl Cgroups {
    fn create() -> Result<Self> {
        let hierarchies = hierarchies(&fs::read("/proc/self/mountinfo")?);
        ensure!(!hierarchies.is_empty(), Unavailable("no cgroups are mounted".to_owned()));
        let names = (0..CGROUPS).map(|number| format!("{}{number}", prefix())).collect();
        let tried = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
        let namespaces = tried.is_ok_and(|status| status.success());
        let mut all = Self { hierarchies, names, processes: Vec::new(), group: ProcessGroup::default(), namespaces };
        for folder in all.folders() {
            // Two controllers may be mounted together.
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    let why = format!("{} cannot be made: {error}", folder.display());
                    return Err(Unavailable(why).into());
                }
                _ => {}
            }
        }
        for name in all.names.clone() {
            let process = all.process()?;
            all.processes.push(process);
            for hierarchy in &all.hierarchies {
                let list = hierarchy.root.join(&name).join("cgroup.procs");
                fs::write(&list, process.to_string()).with_context(|| list.display().to_string())?;
            }
        }
        Ok(all)
    }

    /// Starts a process that sleeps, in a network namespace of its own if there can be one.
    fn process(&mut self) -> Result<u32> {
        let mut sleep = Command::new("sleep");
        if self.namespaces {
            sleep = Command::new("unshare");
            sleep.args(["--net", "sleep"]);
        }
        let process = self.group.start(sleep.arg("infinity"))?;
        let clock = Stopwatch::start();
        while self.namespaces && namespace(&process.to_string())? == namespace("self")? {
            ensure!(clock.elapsed() < STARTED_WITHIN, "process {process} has no network namespace of its own");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(process)
    }

    fn folders(&self) -> Vec<PathBuf> {
        let of = |name: &String| self.hierarchies.iter().map(|hierarchy| hierarchy.root.join(name)).collect::<Vec<_>>();
        self.names.iter().flat_map(of).collect()
    }

    /// All files that are read with each sample.
    fn files(&self) -> Vec<PathBuf> {
        let all = self.names.iter().zip(&self.processes);
        all.flat_map(|(name, process)| obvious::files(&self.hierarchies, name, self.namespaces.then_some(*process)))
            .collect()
    }

    /// How many metrics the host agent reads of a cgroup, from how many files.
    fn read_one(&self) -> Result<(usize, usize)> {
        let measured = self.names.first().and_then(|name| MeasuredCgroup::open(&self.hierarchies, name));
        let mut measured = measured.context("nothing can be read of a cgroup")?;
        let (mut buffer, mut values) = (vec![0; FILE_BYTES], Values::default());
        measured.find_network(&mut buffer);
        measured.read(&mut buffer, &mut values)?;
        Ok((values.iter().count(), measured.files()))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        drop(core::mem::take(&mut self.group));
        for folder in self.folders() {
            for _ in 0..TRIES {
                match fs::remove_dir(&folder) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(LOOK_EVERY),
                    _ => break,
                }
            }
        }
    }
}

/// Inode of the network namespace of `process`.
fn namespace(process: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/net"))?.ino())
}

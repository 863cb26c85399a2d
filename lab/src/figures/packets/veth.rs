//! The agent's real path: an agent captures frames that pass a veth pair between two network namespaces.
//!
//! The kernel copies a frame into the ring on the core that receives it, which for a veth pair is the sender's core.
//! That is no part of the reader's time, neither uview's nor the peer's.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use packets::generator::{Traffic, TrafficSettings};
use packets::ring::{Ring, RingSettings};
use rustix::process::{Pid, Signal, kill_process};
use support::clock::Stopwatch;
use support::http;

use super::super::agents::cpu_time;
use super::super::figure::{Figure, Goal};
use super::super::pair::Pair;
use super::namespaces::Namespaces;
use crate::clients::shop::ending_with_us;
use crate::unavailable::Unavailable;
use support::workspace;

/// Of one trial.
const LENGTH: Duration = Duration::from_secs(3);
const TURNS: usize = 3;
/// Rate in frames per second at which processor time is compared.
const RATE: f64 = 150_000.0;
/// Frames per system call.
const BATCH: usize = 32;
/// Bisection steps between the highest rate without loss and the lowest with loss.
const STEPS: usize = 5;
/// Limit until all sent frames are received or dropped, and until a process is ready.
const WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

const CONFIG: &str = "transport: shm
network:
  services_socket: /nowhere/services.sock
  streams:
    - {name: data, interface: there0, pair: data}
    - {name: handshakes, interface: there0, pair: handshake}
";

/// Counts of sent, received and dropped frames.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    sent: u64,
    per_second: f64,
    taken: u64,
    dropped: u64,
}

impl Trial {
    const fn whole(&self) -> bool {
        self.taken == self.sent && self.dropped == 0
    }
}

/// Processor time per packet of a real agent with two fridges, against dumpcap's on the same frames; and the highest
/// rate without loss.
pub fn path(name: &str) -> Result<Figure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unavailable("network namespaces take root".to_owned()).into());
    }
    let program = built()?;
    let spaces = Namespaces::create()?;
    let sender = Sender::new(&spaces)?;
    let (mut pairs, mut peer_is_there) = (Vec::new(), true);
    for _ in 0..TURNS {
        let ours = Agent::start(&program, &spaces)?.per_packet(&sender)?;
        let theirs = theirs(&spaces, &sender)?;
        peer_is_there &= theirs.is_some();
        pairs.push((ours, theirs.unwrap_or(f64::NAN)));
    }
    let agent = Agent::start(&program, &spaces)?;
    let (lossless, more) = agent.lossless(&sender)?;
    let reached = match more {
        Some(lossy) => format!(
            "none is lost up to {:.0} k/s; at {:.0} k/s the agent's page says {} of {} dropped and {} are missing beside",
            lossless.per_second / 1e3,
            lossy.per_second / 1e3,
            lossy.dropped,
            lossy.sent,
            lossy.sent.saturating_sub(lossy.taken + lossy.dropped)
        ),
        None => format!("none is lost at {:.0} k/s, which is all that one core can send", lossless.per_second / 1e3),
    };
    let pair = Pair::of(&pairs).context("there are turns")?;
    if !peer_is_there {
        let alone =
            format!("dumpcap is not here to compare with; ours took {:.0} ns of CPU a packet; {reached}", pair.ours);
        return Err(Unavailable(alone).into());
    }
    let peer = "dumpcap -s 96 to /dev/null, which parses nothing, at the same rate with a buffer of the same size";
    let figure = Figure::new(name, "ns of CPU per packet", peer, pair, Goal::Stated);
    let note = format!(
        "a NIC agent's process with fridges of TCP data and handshakes of all packets, one ring, at {:.0} k packets/s; in one search {reached}",
        RATE / 1e3
    );
    // A frame that is missing was neither received nor counted as dropped.
    let told = more.is_none_or(|trial| trial.taken + trial.dropped == trial.sent);
    Ok(figure.judged("every loss is counted", told, note))
}

fn built() -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--package", "nic-agent", "--bin", "uview-nic-agent"]);
    ensure!(cargo.current_dir(workspace()).status()?.success(), "the NIC agent was not built");
    Ok(std::env::current_exe()?.with_file_name("uview-nic-agent"))
}

/// Sends the generator's TCP traffic repeatedly.
struct Sender<'a> {
    spaces: &'a Namespaces,
    frames: Vec<Vec<u8>>,
}

impl<'a> Sender<'a> {
    fn new(spaces: &'a Namespaces) -> Result<Self> {
        let settings = TrafficSettings { connections: 1_000, segments: 40, queries: 0, ..TrafficSettings::default() };
        let frames: Vec<_> = Traffic::new(&settings).frames().map(|frame| frame.bytes.to_vec()).collect();
        ensure!(frames.len() > BATCH, "there is traffic");
        Ok(Self { spaces, frames })
    }

    /// Sends `per_second` frames per second, or as many as one core can. Returns the number of frames and the real
    /// rate.
    fn send(&self, per_second: Option<f64>) -> Result<(u64, f64)> {
        let frames = &self.frames;
        self.spaces.within(Namespaces::HERE, || {
            let settings = RingSettings { interface: "here0".to_owned(), incoming: true, ..RingSettings::default() };
            let ring = Ring::open(&settings)?;
            let (clock, mut sent, mut at) = (Stopwatch::start(), 0_u64, 0);
            while clock.elapsed() < LENGTH {
                let due = per_second.map_or(u64::MAX, |rate| (clock.elapsed().as_secs_f64() * rate) as u64);
                let batch = BATCH.min(usize::try_from(due.saturating_sub(sent)).unwrap_or(BATCH));
                if batch == 0 {
                    std::hint::spin_loop();
                    continue;
                }
                at = if at + batch > frames.len() { 0 } else { at };
                let some: Vec<&[u8]> = frames[at..at + batch].iter().map(Vec::as_slice).collect();
                let went = ring.send_batch(&some)?;
                (sent, at) = (sent + went as u64, at + went);
            }
            Ok((sent, sent as f64 / clock.elapsed().as_secs_f64()))
        })
    }
}

/// A running NIC agent. Dropping this ends it.
struct Agent<'a> {
    process: Child,
    spaces: &'a Namespaces,
    _folder: tempfile::TempDir,
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl<'a> Agent<'a> {
    fn start(program: &PathBuf, spaces: &'a Namespaces) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("nic-agent.yaml");
        std::fs::write(&file, CONFIG)?;
        let mut command = ending_with_us("ip");
        command.args(["netns", "exec", &spaces.name(Namespaces::THERE)]).arg(program).arg("--config").arg(file);
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let agent = Self { process, spaces, _folder: folder };
        let clock = Stopwatch::start();
        while agent.number("rings").unwrap_or(0) == 0 {
            ensure!(clock.elapsed() < WITHIN, "the agent does not read the interface in time");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(agent)
    }

    /// A metric of its interface.
    fn number(&self, name: &str) -> Result<u64> {
        let page = self.spaces.within(Namespaces::THERE, || Ok(http::get("127.0.0.1:9703", "/metrics")?.text()?))?;
        let wanted = format!("uview_nic_{name}{{interface=\"there0\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&wanted)).context("the page has no such number")?;
        Ok(value.parse()?)
    }

    fn trial(&self, sender: &Sender<'_>, per_second: Option<f64>) -> Result<Trial> {
        let seen = || anyhow::Ok((self.number("frames_total")?, self.number("dropped_frames_total")?));
        let before = seen()?;
        let (sent, per_second) = sender.send(per_second)?;
        let (clock, mut last, mut same) = (Stopwatch::start(), before, 0);
        // Frames that are neither received nor dropped after a second without change do not arrive any more.
        while last.0 + last.1 < before.0 + before.1 + sent && same < 50 && clock.elapsed() < WITHIN {
            std::thread::sleep(LOOK_EVERY);
            let now = seen()?;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        Ok(Trial { sent, per_second, taken: last.0 - before.0, dropped: last.1 - before.1 })
    }

    /// Processor time per packet in nanoseconds, at the rate of comparison.
    fn per_packet(&self, sender: &Sender<'_>) -> Result<f64> {
        let before = cpu_time(self.process.id())?;
        let trial = self.trial(sender, Some(RATE))?;
        ensure!(trial.whole(), "at {RATE} packets/s: {trial:?}");
        Ok((cpu_time(self.process.id())?.saturating_sub(before)).as_nanos() as f64 / trial.taken as f64)
    }

    /// The highest tried rate without loss, and the lowest with loss.
    fn lossless(&self, sender: &Sender<'_>) -> Result<(Trial, Option<Trial>)> {
        let most = self.trial(sender, None)?;
        if most.whole() {
            return Ok((most, None));
        }
        let (mut good, mut bad) = (Trial::default(), most);
        for _ in 0..STEPS {
            let trial = self.trial(sender, Some(f64::midpoint(good.per_second, bad.per_second)))?;
            *(if trial.whole() { &mut good } else { &mut bad }) = trial;
        }
        Ok((good, Some(bad)))
    }
}

/// The same of dumpcap; `None` where it is not installed.
fn theirs(spaces: &Namespaces, sender: &Sender<'_>) -> Result<Option<f64>> {
    let there = Command::new("dumpcap").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        return Ok(None);
    }
    let mut command = ending_with_us("ip");
    command.args(["netns", "exec", &spaces.name(Namespaces::THERE), "dumpcap", "-q", "-i", "there0", "-s", "96"]);
    let mut process =
        command.args(["-B", "8", "-w", "/dev/null"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(process.stderr.take().context("it is piped")?).lines();
    let ready = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("File:"));
    let before = cpu_time(process.id());
    let sent = sender.send(Some(RATE));
    let after = cpu_time(process.id());
    kill_process(Pid::from_child(&process), Signal::INT)?;
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    _ = process.wait();
    ensure!(ready, "dumpcap did not begin: {rest:?}");
    // `Packets received/dropped on interface 'there0': 100/0 (…)`
    let count =
        rest.iter().find_map(|line| line.strip_prefix("Packets received/dropped on interface")).context("its count")?;
    let both = count.split_whitespace().nth(1).and_then(|both| both.split_once('/')).context("two numbers")?;
    let (taken, dropped): (u64, u64) = (both.0.parse()?, both.1.parse()?);
    let (sent, _) = sent?;
    // On SIGTERM it drops buffered frames.
    ensure!(dropped == 0 && taken * 100 >= sent * 99, "dumpcap saw {count} of {sent} packets");
    Ok(Some(after?.saturating_sub(before?).as_nanos() as f64 / taken as f64))
}

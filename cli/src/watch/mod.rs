//! `uview watch`: watches a program that nobody changed, by what the system tells about its processes.

mod agents;
mod preload;
mod program_file;
mod service;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_runtime::clock::Clock;
use agent_runtime::stop;
use host_agent::control_plane::Paces;
use host_agent::process_metrics::{Family, ProcessTracker, denied};
use host_agent::sampling_times::SamplingTimes;
use sources::selection::{SelectedProcesses, Selector};
use tokio::time::{MissedTickBehavior, interval, sleep};
use wire::name::ServiceName;
use wire::proto::operators::{HookEvent, LmapStatus};
use wire::time::{Interval, Nanos};

use crate::agent::{self, AgentArgs, AgentError, Connection};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::threshold;
use crate::replies::Messages;
use crate::{Environment, output, status};
use agents::OwnAgents;
use service::Replica;

const WHAT: &str = "watch the program";
/// Time between two questions about the state of the LMAP.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Looks between two samples at what the program waits for, and the least time between two.
const LOOKS: u32 = 10;
const SHORTEST_LOOK: Duration = Duration::from_millis(50);
/// Reasons of an alarm that are printed.
const REASONS: usize = 3;

/// The text of `uview watch --help`.
pub const LONG_ABOUT: &str = "\
Watch a program as it is: CPU time, memory, page faults, context switches, I/O, descriptors and connections of its \
processes and of those that they start.

Uses the agents that run on this machine. If none run, it starts both for itself, in a private directory, and ends them \
with itself. It learns for 120 samples, then prints a line for each alarm until Ctrl-C. With --name, --command and --unit it \
goes on when the program restarts.

With --preload it starts the program itself, with a library that counts the bytes, requests and errors of its connections \
and how long its answers take: `uview watch --preload -- redis-server --port 6380`.";

/// Arguments of `uview watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    #[command(flatten)]
    program: ProgramArgs,
    /// Start the program with a library that sees its connections [default: the one beside this program]
    #[arg(long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true, requires = "start",
        default_missing_value = preload::LIBRARY)]
    preload: Option<PathBuf>,
    /// Name of the service [default: the program's]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Time between two samples in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
    interval_ms: u32,
    /// Start agents of its own, even if some run
    #[arg(long, conflicts_with_all = ["runtime_dir", "operators"])]
    private: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// What names the program: exactly one of these.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ProgramArgs {
    /// A process by its id; the command ends with it
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Processes by the name of their program
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Processes by a part of their command line
    #[arg(long, value_name = "TEXT")]
    command: Option<String>,
    /// Processes of a systemd unit, such as redis.service
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// A program to start with --preload, and its arguments; it ends with the command
    #[arg(last = true, value_name = "PROGRAM", requires = "preload")]
    start: Vec<OsString>,
}

impl ProgramArgs {
    fn selector(self) -> Option<Selector> {
        let by_pid = self.pid.map(Selector::Pid);
        let by_name = self.name.map(Selector::Name);
        by_pid.or(by_name).or(self.command.map(Selector::Command)).or(self.unit.map(Selector::Unit))
    }
}

/// Watches until Ctrl-C, or until the process that `--pid` names has ended.
///
/// # Errors
///
/// [`Failure`] if there is no such program, no agent can be used or started, or what is watched has ended.
pub fn run(args: WatchArgs, environment: Environment) -> Result<Exit, Failure> {
    let preload = preload::Program::new(args.preload, &args.program.start, &environment)?;
    let running_already = args.program.selector().map(running).transpose()?;
    let runtime = agent::runtime(WHAT)?;
    runtime.block_on(async {
        let no_signals =
            |error: std::io::Error| Failure::to(WHAT).because("no signal handler is left").caused_by(&error);
        // First of all, so that Ctrl-C leaves no agent and no directory behind, whenever it comes.
        let signal = stop::requested().map_err(no_signals)?;
        let target = agents::running(args.agent.clone(), args.private, environment.runtime_dir)?;
        let (own, target) = if let Some(target) = target {
            (None, target)
        } else {
            let program = environment.program.ok_or_else(|| Failure::to(WHAT).because("/proc is not mounted"))?;
            let own = OwnAgents::start(&program, args.interval_ms).await?;
            let args = AgentArgs { runtime_dir: Some(own.runtime_dir()), ..AgentArgs::default() };
            (Some(own), args.named_target(None)?)
        };
        let mut connection = Connection::open(&target).await.map_err(failed)?;
        let events = connection.hook().await.map_err(failed)?;
        let interval = Duration::from_millis(args.interval_ms.into());
        // Dropped after the watch: the program ends with it.
        let started = preload.map(|program| program.start(args.service.as_deref(), &target.runtime_dir)).transpose()?;
        let by_pid = started.as_ref().map(|started| running(Selector::Pid(started.pid())));
        let named = running_already.or(by_pid.transpose()?);
        let named = named.ok_or_else(|| Failure::to(WHAT).because("nothing names it"))?;
        let pid = named.pid;
        let by_program = || started.as_ref().map(|started| started.service().to_owned());
        let service = args.service.or_else(by_program).unwrap_or_else(|| service_name(named.tracker.selector(), pid));
        let watch = WatchSession::new(named, service, &target.runtime_dir, interval);
        watch.greet(pid, own.is_some(), &target.runtime_dir)?;
        watch.run(connection, events, own, signal).await
    })
}

fn failed(error: AgentError) -> Failure {
    let is_denied = matches!(error, AgentError::Denied(_));
    let failure = error.into_failure(WHAT);
    if is_denied { failure.advice("--private, which starts agents of its own") } else { failure }
}

fn unlisted(error: &std::io::Error) -> Failure {
    Failure::to("list processes").caused_by(error).advice("mount /proc")
}

/// A program that runs.
struct RunningProgram {
    tracker: ProcessTracker,
    processes: SelectedProcesses,
    /// Its first process.
    pid: u32,
}

/// What the selector names.
fn running(selector: Selector) -> Result<RunningProgram, Failure> {
    let mut tracker = ProcessTracker::new(selector, std::process::id());
    let processes = tracker.look(Nanos::ZERO).map_err(|error| unlisted(&error))?.clone();
    let Some(&(pid, _)) = processes.roots.first() else { return Err(missing(tracker.selector())) };
    Ok(RunningProgram { tracker, processes, pid })
}

fn missing(selector: &Selector) -> Failure {
    let (because, advice) = match selector {
        Selector::Pid(pid) => {
            (format!("there is no process {pid}, or /proc hides it from this user"), "`ps -e` lists them")
        }
        Selector::Name(name) => {
            (format!("no process is called {name}"), "--command TEXT, with a part of its command line")
        }
        Selector::Command(text) => (format!("no command line contains `{text}`"), "`ps -ef` shows command lines"),
        Selector::Unit(unit) => {
            (format!("no process is in a cgroup {unit}"), "`systemctl status` shows units with their processes")
        }
    };
    Failure::to(WHAT).because(because).advice(advice)
}

/// The service's name: that of the program, with letters that a service may have.
fn service_name(selector: &Selector, pid: u32) -> String {
    let by_kernel = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = match selector {
        Selector::Pid(_) | Selector::Command(_) => by_kernel(),
        Selector::Name(name) => name.clone(),
        Selector::Unit(unit) => unit.strip_suffix(".service").unwrap_or(unit).to_owned(),
    };
    let letter = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    name.trim().chars().map(letter).take(100).collect()
}

/// The name under which times of the only service are kept.
fn only() -> ServiceName {
    ServiceName::new("watched").expect("letters are a name")
}

/// A run of `uview watch`: the program, what was measured last, and what was printed.
struct WatchSession {
    tracker: ProcessTracker,
    service: String,
    roots: BTreeSet<(u32, u64)>,
    all: BTreeSet<u32>,
    family: Family,
    /// `None` while the program does not run.
    replica: Option<Replica>,
    socket: PathBuf,
    interval: Duration,
    /// When it is sampled, under [`only`] as its service's name; and the time from which the next sample counts.
    times: SamplingTimes,
    last: Option<Nanos>,
    clock: Clock,
    state: String,
    /// Why the agents do not watch it, as it was last printed.
    problem: Option<String>,
    /// Whether an alarm is on, as it was last printed.
    in_alarm: bool,
}

impl WatchSession {
    fn new(running: RunningProgram, service: String, runtime_dir: &Path, interval: Duration) -> Self {
        let family = Family::new(Nanos::from(interval));
        let socket = runtime_dir.join("services.sock");
        let RunningProgram { tracker, processes: SelectedProcesses { roots, all }, .. } = running;
        Self {
            tracker,
            service,
            roots,
            all,
            family,
            replica: None,
            socket,
            interval,
            times: SamplingTimes::new(Nanos::from(interval)),
            last: None,
            clock: Clock::start(),
            state: String::new(),
            problem: None,
            in_alarm: false,
        }
    }

    fn greet(&self, pid: u32, own: bool, runtime_dir: &Path) -> Result<(), Failure> {
        let agents = if own { "agents of its own" } else { "the agents" };
        let directory = runtime_dir.display();
        let others = self.all.len().saturating_sub(1);
        let mut text =
            format!("{}: watching pid {pid}, other processes: {others}, with {agents} in {directory}\n", self.service);
        let lacks = denied(pid).0;
        if !lacks.is_empty() {
            let rights = "run as the program's user or root, or with CAP_SYS_PTRACE";
            let _ = writeln!(text, "{}: not readable: {}; {rights}", self.service, lacks.join(", "));
        }
        let _ = writeln!(text, "live view: uview top --runtime-dir {directory}");
        output::print(&text)
    }

    async fn run(
        mut self,
        mut connection: Connection,
        mut events: Messages<HookEvent>,
        mut own: Option<OwnAgents>,
        signal: impl Future<Output = ()>,
    ) -> Result<Exit, Failure> {
        let mut signal = std::pin::pin!(signal);
        let mut looks = interval((self.interval / LOOKS).max(SHORTEST_LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut questions = interval(ASK_EVERY);
        loop {
            let due = self.last.map_or(Nanos::ZERO, |last| self.times.due(&only(), last));
            let wait = due.since(self.clock.now()).unwrap_or(Nanos::ZERO);
            tokio::select! {
                () = &mut signal => return Ok(Exit::Fine),
                () = sleep(wait.into()) => self.sample()?,
                _ = looks.tick() => self.family.look(self.clock.now()),
                _ = questions.tick() => {
                    own.as_mut().map_or(Ok(()), OwnAgents::check)?;
                    let reply = connection.status().await.map_err(failed)?;
                    self.report(&reply.lmaps)?;
                }
                event = events.next() => match event {
                    Ok(Some(event)) => {
                        if self.seems_wrong(&event) {
                            // It may be fetched faster by now.
                            questions.reset_immediately();
                        }
                        self.alarm(&event)?;
                    }
                    _ => return Err(Failure::to(WHAT).because("the host agent has ended").exit_with(Exit::NoAgent)),
                },
            }
        }
    }

    /// Measures the program once. A restart makes another replica, so that no value is compared with the run before.
    fn sample(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        let is_hurried = self.times.is_hurried(&only());
        let taken = self.last.map(|last| self.times.taken(&only(), last, now));
        self.last = Some(taken.map_or(now, |taken| taken.last));
        let found = self.tracker.look(now).map_err(|error| unlisted(&error))?.clone();
        if found.roots.is_empty() {
            if let Selector::Pid(pid) = *self.tracker.selector() {
                let failure = Failure::to(WHAT).because(format!("process {pid} has ended"));
                return Err(failure.advice("--name NAME, which goes on when the program restarts"));
            }
            if self.replica.take().is_some() {
                output::print(&format!("{}: has ended; waiting for its restart\n", self.service))?;
            }
            return Ok(());
        }
        let is_same = found.roots.iter().any(|root| self.roots.contains(root));
        if !is_same {
            let pid = found.roots.first().map_or(0, |(pid, _)| *pid);
            output::print(&format!("{}: has restarted as pid {pid}\n", self.service))?;
            (self.replica, self.family) = (None, Family::new(Nanos::from(self.interval)));
        }
        (self.roots, self.all) = (found.roots, found.all);
        let at = self.clock.now();
        let values = if is_hurried { self.family.sample_all(&self.all, at) } else { self.family.sample(&self.all, at) };
        let pid = self.roots.first().map_or(0, |(pid, _)| *pid);
        let (service, socket) = (&self.service, &self.socket);
        let replica = self.replica.get_or_insert_with(|| Replica::connect(service, pid, socket, self.interval));
        replica.write(&values, at);
        let (ended, is_extra) = (self.clock.now(), taken.is_some_and(|taken| taken.is_extra));
        self.times.rest(ended, ended.since(now).unwrap_or(Nanos::ZERO), (usize::from(is_extra), 1));
        Ok(())
    }

    /// Whether a row of the program is above γ, outside of an alarm or at its beginning.
    fn seems_wrong(&self, event: &HookEvent) -> bool {
        let is_over = event.gamma > 0.0 && event.score >= event.gamma;
        event.service == self.service && is_over && event.episode != "on"
    }

    /// Samples as often as the program's LMAP is fetched.
    fn follow(&mut self, lmap: &LmapStatus) {
        let is_fast = 0 < lmap.fetch_us && lmap.fetch_us < lmap.judged_us;
        let pace = Interval::new(Nanos::from_micros(lmap.fetch_us)).ok().filter(|_| is_fast);
        self.times.follow(Paces::new(pace.map(|pace| (only(), pace)).into_iter().collect()));
    }

    /// Prints a change of the LMAP's state.
    fn report(&mut self, lmaps: &[LmapStatus]) -> Result<(), Failure> {
        let problem = self.replica.as_ref().and_then(Replica::problem);
        if problem != self.problem {
            self.problem.clone_from(&problem);
            problem.map_or(Ok(()), |problem| output::print(&format!("{}: {problem}\n", self.service)))?;
        }
        let Some(lmap) = lmaps.iter().find(|lmap| lmap.service == self.service) else { return Ok(()) };
        self.follow(lmap);
        self.state_is(&lmap.state, lmap.gamma, lmap.rows_needed)
    }

    /// Prints the LMAP's state, if it is another than before.
    fn state_is(&mut self, state: &str, gamma: f64, rows_needed: u32) -> Result<(), Failure> {
        if state == self.state || state.is_empty() {
            return Ok(());
        }
        state.clone_into(&mut self.state);
        let metrics = self.replica.as_ref().map_or(0, Replica::metrics);
        let text = match state {
            "learning" => format!("learning what is normal from {rows_needed} samples of {metrics} metrics"),
            "armed" => format!("armed, γ {}", threshold(gamma)),
            "waiting" => "waiting for a NIC agent".to_owned(),
            state => state.to_owned(),
        };
        output::print(&format!("{}: {text}\n", self.service))
    }

    /// Prints an alarm that begins or ends, and another one that begins while one is on.
    fn alarm(&mut self, event: &HookEvent) -> Result<(), Failure> {
        if event.service != self.service {
            return Ok(());
        }
        let in_alarm = matches!(event.episode.as_str(), "began" | "on");
        let was_in_alarm = core::mem::replace(&mut self.in_alarm, in_alarm);
        // It may come before the agent is asked for the state, and an alarm of a service that only learns is confusing.
        if event.state == "armed" {
            self.state_is(&event.state, event.gamma, 0)?;
        }
        output::print(&lines(event, was_in_alarm))
    }
}

/// What an alarm that begins or ends is told by; otherwise empty. `was_in_alarm`: one was on before.
fn lines(event: &HookEvent, was_in_alarm: bool) -> String {
    let service = &event.service;
    match event.episode.as_str() {
        "began" => {
            let another = if was_in_alarm { format!("{service}: another alarm begins\n") } else { String::new() };
            let line = |why| format!("{service}: {}\n", status::reason(why));
            another + &event.reasons.iter().take(REASONS).map(line).collect::<Vec<_>>().concat()
        }
        "ended" => format!("{service}: the alarm has ended\n"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::Reason;

    use super::*;

    #[test]
    fn an_alarm_is_a_line_for_each_of_its_first_reasons_and_one_at_its_end() {
        let why = Reason {
            column: "process.thread.count".to_owned(),
            seen: 9.0,
            expected: 4.0,
            share: 0.5,
            ..Reason::default()
        };
        let event = |episode: &str| HookEvent {
            service: "redis".to_owned(),
            episode: episode.to_owned(),
            reasons: vec![why.clone(); 5],
            ..HookEvent::default()
        };

        let began = lines(&event("began"), false);
        let another = lines(&event("began"), true);

        assert_eq!(began.lines().count(), REASONS);
        assert!(began.starts_with("redis: process.thread.count 9, expected 4 (50 %)\n"), "{began}");
        assert_eq!(another, format!("redis: another alarm begins\n{began}"));
        assert_eq!([lines(&event("quiet"), false), lines(&event("on"), true)], ["", ""]);
        assert_eq!(lines(&event("ended"), true), "redis: the alarm has ended\n");
    }

    #[test]
    fn a_service_is_named_as_its_program_with_letters_that_a_service_may_have() {
        assert_eq!(service_name(&Selector::Unit("redis.service".to_owned()), 1), "redis");
        assert_eq!(service_name(&Selector::Name("my program".to_owned()), 1), "my-program");
    }
}

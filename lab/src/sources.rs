//! `cargo lab sources`: Redis, nginx and PostgreSQL, unchanged and under load, have faults; `uview watch` and the
//! endpoints of their exporters are judged, each alone. All programs run at once. Faults are in one program at a time,
//! or in the machine; what others say meanwhile counts neither for nor against uview.

mod cgroup;
mod faults;
mod judge;
mod pages;
mod probe;
mod programs;
mod schedule;
mod tables;
mod visible;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use agent_runtime::clock::unix_now;
use anyhow::{Context as _, Result, ensure};
use procfs::Current as _;
use support::clock::Stopwatch;
use support::programs::Programs;
use support::workspace;
use wire::time::Nanos;

use crate::clients::shop::Process;
use crate::clock::ThreadTimes;
use demo::judge::GRACE;
use faults::ActiveFault;
use judge::{InjectedFault, Record, RunJudgement, Statement, Way, Word};
use probe::Felt;
use programs::RunningProgram;
use schedule::{Fault, Pace, PlannedFault, Program};
use tables::{Cost, Report, Run};
use ways::{Agents, WatchProcess};

/// How often loads are looked after, and words are taken.
const TURN: Duration = Duration::from_millis(50);
/// Limit for all to be armed, as a multiple of the time that it takes on an idle machine.
const PATIENCE: u32 = 3;

/// Arguments of `cargo lab sources`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct SourcesArgs {
    /// The program to test [default: a new build].
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
    /// Programs to run.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "redis,nginx,postgres")]
    programs: Vec<Program>,
    /// Number of runs, each with a seed of its own, from 1. The seed determines order, lengths and pauses of faults.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// One run with short learning: shows that all works, and is no figure.
    #[arg(long)]
    quick: bool,
    /// Write docs/reproduction/sources.json and sources.md.
    #[arg(long, conflicts_with = "quick")]
    write: bool,
    /// Write the tables of sources.md anew from the runs in sources.json, and run nothing.
    #[arg(long, conflicts_with_all = ["quick", "write"])]
    rewrite: bool,
    /// Run the lines of pages of the book instead.
    #[arg(long, conflicts_with_all = ["quick", "write", "rewrite"])]
    pages: bool,
    /// Run those of this page only, such as traces or start/redis.
    #[arg(long, value_name = "NAME", requires = "pages")]
    page: Option<String>,
    /// Leave out pages that need the machine for themselves.
    #[arg(long, requires = "pages", conflicts_with = "page")]
    busy: bool,
    /// Keep the folder with all logs, recordings of all rows, and the faults to label them.
    #[arg(long)]
    keep: bool,
}

/// Runs the programs, and prints the tables.
///
/// # Errors
///
/// A program does not start, or the runs miss a bar, except with `--quick`.
pub fn run(args: &SourcesArgs) -> Result<()> {
    if args.rewrite {
        return write_page(&recorded(&workspace().join("docs/reproduction/sources.json"))?.tables());
    }
    let uview = || match &args.uview {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string()),
        None => Ok(Programs::build()?.path("uview")?.to_owned()),
    };
    if args.pages {
        let which = match &args.page {
            Some(name) => pages::Which::One(name),
            None if args.busy => pages::Which::OnBusyMachine,
            None => pages::Which::All,
        };
        return pages::run(&uview()?, which);
    }
    let (pace, seeds) = if args.quick { (Pace::QUICK, 1) } else { (Pace::FULL, args.seeds) };
    let (present, not_run) = present(&args.programs);
    if present.is_empty() {
        return Ok(());
    }
    let uview = uview()?;
    let cores = std::thread::available_parallelism()?.get();
    let mut report = Report {
        quick: args.quick,
        interval_ms: pace.interval_ms,
        cores,
        cost_in_ns: true,
        programs: present.clone(),
        not_run,
        runs: Vec::new(),
    };
    for seed in 1..=seeds {
        println!("seed {seed} of {seeds}");
        let folder = tempfile::Builder::new().prefix("uview-sources-").tempdir()?;
        // PostgreSQL has a user of its own.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let run = one_run(seed, (&uview, args.keep), &present, &pace, (folder.path(), &mut report.not_run));
        if args.keep || run.is_err() {
            println!("logs: {}", folder.keep().display());
        }
        report.runs.push(run?);
    }
    let text = report.tables();
    println!("\n{text}");
    if args.write {
        write(&report, &text)?;
    }
    let (met, _) = report.bars();
    ensure!(met || args.quick, "a bar is missed");
    Ok(())
}

/// Those of `wanted` that can run here, and what cannot, with the reason.
fn present(wanted: &[Program]) -> (Vec<Program>, Vec<String>) {
    let (mut present, mut not_run) = (Vec::new(), Vec::new());
    for &program in wanted {
        match program.missing() {
            None => present.push(program),
            Some(why) => not_run.push(format!("{program}: {why}")),
        }
    }
    if programs::program("prometheus").is_none() {
        not_run.push("Prometheus as the peer: not installed: prometheus".to_owned());
    }
    for line in &not_run {
        println!("NOT RUN: {line}");
    }
    (present, not_run)
}

/// The runs as JSON, and their tables on the page.
fn write(report: &Report, text: &str) -> Result<()> {
    let file = workspace().join("docs/reproduction/sources.json");
    fs::write(&file, serde_json::to_string_pretty(report)? + "\n")?;
    write_page(text)
}

/// The tables between the marks of the page.
fn write_page(text: &str) -> Result<()> {
    let path = workspace().join("docs/reproduction/sources.md");
    let page = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&page)?;
    fs::write(&path, format!("{before}\n{text}\n{after}"))?;
    println!("written: {}", path.display());
    Ok(())
}

/// The page up to the mark of its tables' begin, the tables, and the rest from the mark of their end on.
fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (begin, end) = ("<!-- sources -->\n", "<!-- end of sources -->");
    let from = page.find(begin).context("sources.md has no mark of its tables' begin")? + begin.len();
    let (before, rest) = page.split_at(from);
    let (tables, after) = rest.split_at(rest.find(end).context("sources.md has no mark of its tables' end")?);
    Ok((before, tables, after))
}

/// The runs of `file`. Those of before may lack what is judged since.
fn recorded(file: &Path) -> Result<Report> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

/// Everything that runs. Fields are dropped in this order.
struct Testbed {
    watches: Vec<WatchProcess>,
    watch_agents: Agents,
    endpoint_agents: Agents,
    prometheus: Option<Process>,
    programs: Vec<RunningProgram>,
    clock: Stopwatch,
    heard: Sender<Statement>,
    words: Receiver<Statement>,
    felt: Receiver<Felt>,
    record: Record,
    /// Start of the last fault, for progress.
    since: Nanos,
}

fn one_run(
    seed: u64,
    (uview, keep): (&Path, bool),
    present: &[Program],
    pace: &Pace,
    (folder, not_run): (&Path, &mut Vec<String>),
) -> Result<Run> {
    let load_before = procfs::LoadAverage::current().map_or(f64::NAN, |load| f64::from(load.one));
    let mut testbed = Testbed::start(uview, present, pace, folder)?;
    testbed.until_armed(present, pace)?;
    println!("{:>6.1} s  all are armed; {:.0} s without a fault", testbed.now_s(), pace.healthy.as_secs_f64());
    let before = testbed.used()?;
    let began = testbed.now();
    testbed.wait(pace.healthy)?;
    let elapsed = testbed.now().since(began).unwrap_or_default().as_secs_f64();
    let cost = cost(&before, &testbed.used()?, elapsed);
    // What only this command asks the agents for begins here, so that it is not in the cost.
    let recorders = [
        ways::record(uview, &testbed.watch_agents, &folder.join("watch"))?,
        ways::record(uview, &testbed.endpoint_agents, &folder.join("endpoint"))?,
    ];
    ways::listen_for_restarts(&testbed.endpoint_agents, present, (testbed.clock, testbed.heard.clone()))?;
    testbed.wait(pace.recorded)?;
    for planned in schedule::plan(seed, present, pace) {
        if let Some(why) = faults::missing(planned.fault, &testbed.programs) {
            let line = format!("{}: {why}", planned.fault);
            println!("NOT RUN: {line}");
            if !not_run.contains(&line) {
                not_run.push(line);
            }
            continue;
        }
        testbed.inject(&planned, folder, pace)?;
    }
    testbed.record.ended = testbed.now();
    recorders.into_iter().try_for_each(Process::finish)?;
    if keep {
        fs::write(folder.join("faults.csv"), testbed.faults_file())?;
    }
    let mut judgement = judge::judge(&testbed.record, present);
    testbed.mark_visible(&mut judgement, folder, pace)?;
    Ok(Run { seed, judgement, cost, load_before })
}

impl Testbed {
    fn start(uview: &Path, present: &[Program], pace: &Pace, folder: &Path) -> Result<Self> {
        let mut programs = Vec::new();
        for program in present {
            programs.push(RunningProgram::start(*program, folder)?);
            println!("  {program} runs, with load");
        }
        let prometheus = match programs::program("prometheus") {
            Some(_) => Some(ways::prometheus(&programs, folder, pace)?),
            None => None,
        };
        let (clock, (heard, words), (asked, felt)) = (Stopwatch::start(), channel(), channel());
        for running in &programs {
            probe::start(running.program, running.address, (clock, asked.clone()));
        }
        let watch_agents = Agents::start(uview, &folder.join("watch"), pace, &serde_json::json!({}))?;
        let sources = ways::sources(&programs, pace);
        let endpoint_agents = Agents::start(uview, &folder.join("endpoint"), pace, &sources)?;
        ways::listen(&endpoint_agents, present, (clock, heard.clone()))?;
        let watch = |running| WatchProcess::start(uview, &watch_agents, running, pace, (clock, heard.clone()));
        let watches = programs.iter().map(watch).collect::<Result<_>>()?;
        let (record, since) = (Record::default(), Nanos::ZERO);
        Ok(Self {
            watches,
            watch_agents,
            endpoint_agents,
            prometheus,
            programs,
            clock,
            heard,
            words,
            felt,
            record,
            since,
        })
    }

    fn now(&self) -> Nanos {
        self.clock.elapsed().into()
    }

    fn now_s(&self) -> f64 {
        self.now().as_secs_f64()
    }

    /// Looks after loads and takes words for so long.
    fn wait(&mut self, length: Nanos) -> Result<()> {
        let end = self.now().plus(length);
        while self.now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Says of each fault whether it shows in what its way has recorded below `folder`, and whether it does in time.
    fn mark_visible(&self, judgement: &mut RunJudgement, folder: &Path, pace: &Pace) -> Result<()> {
        let zero = unix_now().0.saturating_sub(self.now().0);
        let range = |started: Nanos, ended: Nanos| (zero + started.0, zero + ended.0);
        let all: Vec<_> = self.record.faults.iter().map(|one| range(one.started, one.ended.plus(GRACE))).collect();
        for one in &mut judgement.faults {
            let way = match one.way {
                Way::Watch => "watch",
                Way::Endpoint => "endpoint",
            };
            let path = folder.join(way).join("rows").join(format!("{}.uvrec", one.program));
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            let rows = recording::decode(&bytes).with_context(|| path.display().to_string())?;
            one.shows = visible::shows(&rows, range(one.began, one.ended), &all);
            // The last row that counts ends with the time limit, and is of the interval before.
            let before_last = tables::limit(one.way, pace.interval_ms).0.saturating_sub(rows.interval.0);
            let in_time = one.ended.min(one.began.plus(Nanos(before_last)));
            one.shows_in_time = Some(visible::shows(&rows, range(one.began, in_time), &all));
        }
        Ok(())
    }

    /// All faults for `uview label`: a program that has none in a time is not judged then.
    fn faults_file(&self) -> String {
        let zero = (unix_now().0 / 1_000_000).saturating_sub(self.now().0 / 1_000_000);
        let at = |at: Nanos| zero + at.0 / 1_000_000;
        let line = |fault: &InjectedFault, program: &Program| {
            format!("{program},{},{},{}\n", fault.fault, at(fault.started), at(fault.ended))
        };
        let lines = self.record.faults.iter().flat_map(|fault| fault.programs.iter().map(move |of| line(fault, of)));
        std::iter::once("service,fault,from_unix_ms,to_unix_ms\n".to_owned()).chain(lines).collect()
    }

    fn turn(&mut self) -> Result<()> {
        std::thread::sleep(TURN);
        for running in &mut self.programs {
            running.tend()?;
        }
        while let Ok(heard) = self.words.try_recv() {
            let Statement { at, way, program, word } = &heard;
            let after = at.since(self.since).unwrap_or_default().as_secs_f64();
            println!("    +{after:>5.1} s  {way:?} {program}: {word:?}");
            self.record.heard.push(heard);
        }
        self.record.felt.extend(self.felt.try_iter());
        Ok(())
    }

    fn until_armed(&mut self, present: &[Program], pace: &Pace) -> Result<()> {
        let limit = Duration::from_millis(u64::from((pace.learn_scrapes + 120) * pace.interval_ms)) * PATIENCE;
        println!("{:>6.1} s  learning, at most {} s", self.now_s(), limit.as_secs());
        let is_armed = |record: &Record, program, way| {
            record.heard.iter().any(|heard| (heard.program, heard.way, &heard.word) == (program, way, &Word::Armed))
        };
        loop {
            let all = present.iter().flat_map(|program| Way::ALL.map(|way| (*program, way)));
            let missing: Vec<_> = all.filter(|(program, way)| !is_armed(&self.record, *program, *way)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(self.clock.elapsed() < limit, "not armed within {} s: {missing:?}", limit.as_secs());
            self.turn()?;
        }
    }

    /// Whether an alarm of one that will have a fault goes on.
    fn is_in_alarm(&self, programs: &[Program]) -> bool {
        programs.iter().flat_map(|program| Way::ALL.map(|way| (*program, way))).any(|(program, way)| {
            let of = |heard: &&Statement| heard.program == program && heard.way == way;
            let last =
                self.record.heard.iter().filter(of).rfind(|heard| matches!(heard.word, Word::Began(_) | Word::Ended));
            last.is_some_and(|heard| heard.word != Word::Ended)
        })
    }

    fn inject(&mut self, planned: &PlannedFault, folder: &Path, pace: &Pace) -> Result<()> {
        let PlannedFault { fault, programs, lasts, gap } = planned;
        let names: Vec<_> = programs.iter().map(|program| program.name()).collect();
        println!("{:>6.1} s  {fault} in {} for {:.1} s", self.now_s(), names.join(", "), lasts.as_secs_f64());
        self.since = self.now();
        let started = self.now();
        let active = ActiveFault::begin(planned, &mut self.programs, folder)?;
        // A restart is over when the program listens again.
        if *fault != Fault::Restart {
            self.wait(*lasts)?;
        }
        let ended = self.now();
        active.end(&mut self.programs)?;
        self.record.faults.push(InjectedFault { fault: *fault, programs: programs.clone(), started, ended });
        self.wait(*gap)?;
        let all: Vec<_> = self.programs.iter().map(|running| running.program).collect();
        while self.is_in_alarm(&all) && self.now() < ended.plus(pace.longest_gap) {
            self.turn()?;
        }
        Ok(())
    }

    /// Processor time used so far: watch agents, watch commands, endpoint agents, Prometheus, exporters.
    fn used(&self) -> Result<[Option<ThreadTimes>; 5]> {
        let agents = |agents: &Agents| [agents.host.id(), agents.nic.id()];
        let watches: Vec<_> = self.watches.iter().map(WatchProcess::id).collect();
        let exporters: Vec<_> = self.programs.iter().map(|running| running.exporter_process.id()).collect();
        Ok([
            Some(ThreadTimes::of(&agents(&self.watch_agents))?),
            Some(ThreadTimes::of(&watches)?),
            Some(ThreadTimes::of(&agents(&self.endpoint_agents))?),
            self.prometheus.as_ref().map(|prometheus| ThreadTimes::of(&[prometheus.id()])).transpose()?,
            Some(ThreadTimes::of(&exporters)?),
        ])
    }
}

fn cost(before: &[Option<ThreadTimes>; 5], after: &[Option<ThreadTimes>; 5], seconds: f64) -> Cost {
    let share = |at: usize| Some(after[at].as_ref()?.since(before[at].as_ref()?).as_secs_f64() / seconds);
    let of = |at: usize| share(at).unwrap_or_default();
    Cost { watch_agents: of(0), watch_commands: of(1), endpoint_agents: of(2), prometheus: share(3), exporters: of(4) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_its_recorded_runs_say() {
        let folder = workspace().join("docs/reproduction");
        let report = recorded(&folder.join("sources.json")).unwrap();
        let page = fs::read_to_string(folder.join("sources.md")).unwrap();

        let (_, tables, _) = parts(&page).unwrap();

        assert_eq!(tables, format!("\n{}\n", report.tables()), "write it again: cargo lab sources --rewrite");
    }
}

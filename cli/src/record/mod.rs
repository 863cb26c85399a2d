//! `uview record`: records the rows of running LMAPs, one file per service. `uview label`: labels faults in recordings.

pub mod faults;
pub mod file;
mod pipe;
mod titles;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_runtime::stop;
use recording::Column;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};
use wire::proto::operators::{LmapInfo, RowEvent};
use wire::quantity::{number, quantity};
use wire::time::Nanos;

use crate::agent::{self, AgentArgs, Connection};
use crate::columns::Titles;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use faults::Faults;
use file::{Destination, Limits, RecordingSummary, Sink, SinkError};

const WHAT: &str = "record";
/// The folder that stands for the standard output.
const STDOUT: &str = "-";
/// How often the agent is asked for new services.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// The longest time that rows are buffered before they are written.
const FLUSH_EVERY: Duration = Duration::from_secs(30);

/// Arguments of `uview record`.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordArgs {
    /// Services to record [default: all, including those that register later]
    services: Vec<String>,
    /// Folder for the files SERVICE.uvrec; created if it does not exist. `-` writes the recording of one service to the
    /// standard output
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Stop after this many seconds [default: at Ctrl-C or SIGTERM]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    for_s: Option<u64>,
    /// Stop at the end of the standard input, too, as when the connection to who reads the recording is gone
    #[arg(long)]
    until_eof: bool,
    /// Record every Nth row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    every: u32,
    /// Stop recording a service when its file has this many MiB
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1023))]
    most_mib: u64,
    /// Label the recordings at the end with this file, as `uview label` does, if it exists by then
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Arguments of `uview label`.
#[derive(Clone, Debug, clap::Args)]
pub struct LabelArgs {
    /// Recordings to label
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// CSV with `service,fault,from_unix_ms,to_unix_ms`, or the JSON of `uview demo`. Service * stands for all; rows in
    /// a range without a fault are ignored
    #[arg(long, value_name = "FILE")]
    faults: PathBuf,
}

/// Appends the labels of its service to each recording.
///
/// # Errors
///
/// [`Failure`] with the line of a mistake in the file of faults, or if a file is no recording.
pub fn label(args: &LabelArgs) -> Result<Exit, Failure> {
    let faults = Faults::open(&args.faults)?;
    for path in &args.files {
        let count = faults.append_to(path)?;
        output::print(&format!("{}: {count} time ranges labelled\n", path.display()))?;
    }
    Ok(Exit::Fine)
}

/// Records until the time is over, or until Ctrl-C or SIGTERM. Returns [`Exit::Attention`] if a recording ended early.
///
/// # Errors
///
/// [`Failure`] if the agent cannot be asked, a file cannot be written, or no row arrived.
pub fn run(args: &RecordArgs, from_environment: Option<PathBuf>) -> Result<Exit, Failure> {
    let destination = args.destination()?;
    let target = args.agent.clone().target(from_environment)?;
    if let Destination::Folder(folder) = &destination {
        std::fs::create_dir_all(folder).map_err(|error| {
            let failure = Failure::to(WHAT).because(format!("{} cannot be created", folder.display()));
            failure.caused_by(&error).advice("--out DIR with a folder that you can write")
        })?;
    }
    let limits = Limits { destination, most_bytes: args.most_mib << 20 };
    let (recorded, failed) = agent::runtime(WHAT)?.block_on(async {
        let connection = Connection::open(&target).await.map_err(|error| error.into_failure(WHAT))?;
        Recorder::new(args, &limits, connection).run().await
    })?;
    let mut exit = Exit::Fine;
    if let Some(path) = args.faults.as_deref().filter(|path| path.exists()) {
        let faults = Faults::open(path)?;
        for file in recorded.iter().filter(|file| file.rows > 0) {
            faults.append_to(&file.path)?;
        }
    }
    for file in &recorded {
        match &limits.destination {
            Destination::Folder(_) => output::print(&line(file))?,
            Destination::Stdout => output::print_stderr(line(file).trim_end()),
        }
        if let Some(note) = &file.note {
            output::print_stderr(&format!("uview: {}: {note}", file.service));
            exit = Exit::Attention;
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    if recorded.iter().all(|file| file.rows == 0) {
        let failure = Failure::to(WHAT).because("no row arrived").exit_with(Exit::Failed);
        return Err(failure.advice("`uview status` shows the services, and whether a worker is connected"));
    }
    Ok(exit)
}

impl RecordArgs {
    /// Where the recordings go.
    fn destination(&self) -> Result<Destination, Failure> {
        if self.out != Path::new(STDOUT) {
            return Ok(Destination::Folder(self.out.clone()));
        }
        let because = if self.services.len() != 1 {
            "the standard output takes the recording of one service: name it"
        } else if self.faults.is_some() {
            "labels are appended to files: --faults goes with a folder"
        } else if output::is_terminal() {
            "a recording is no text, and the standard output is a terminal"
        } else {
            return Ok(Destination::Stdout);
        };
        let advice = "`uview record SERVICE --out - > FILE`, or --out DIR";
        Err(Failure::to(WHAT).because(because).advice(advice).exit_with(Exit::Usage))
    }
}

fn line(file: &RecordingSummary) -> String {
    if file.rows == 0 {
        return format!("{}: no row arrived\n", file.service);
    }
    let per_value = file.bytes as f64 / file.values.max(1) as f64;
    let size = quantity(file.bytes as f64, "By");
    format!(
        "{}: {} rows of {} metrics, {size} in {} ({} bytes per value)\n",
        file.service,
        file.rows,
        file.columns,
        file.path.display(),
        number(per_value)
    )
}

/// The recordings in progress.
struct Recorder<'a> {
    args: &'a RecordArgs,
    limits: &'a Limits,
    connection: Connection,
    tasks: JoinSet<Result<RecordingSummary, Failure>>,
    /// Services whose recording has begun.
    begun: BTreeSet<String>,
    /// The first failure. It stops all other recordings in order.
    failed: Option<Failure>,
    done: Vec<RecordingSummary>,
}

impl<'a> Recorder<'a> {
    fn new(args: &'a RecordArgs, limits: &'a Limits, connection: Connection) -> Self {
        let (tasks, begun, done) = (JoinSet::new(), BTreeSet::new(), Vec::new());
        Self { args, limits, connection, tasks, begun, failed: None, done }
    }

    /// Records until the end. Returns the results, and the first failure.
    async fn run(mut self) -> Result<(Vec<RecordingSummary>, Option<Failure>), Failure> {
        let no_signals = |error: std::io::Error| {
            Failure::to(WHAT).because("the system has no signal handler left").caused_by(&error)
        };
        let mut signal = std::pin::pin!(stop::requested().map_err(no_signals)?);
        let length = self.args.for_s.map_or(Duration::MAX, Duration::from_secs);
        let mut over = std::pin::pin!(sleep(length));
        let mut input_ended = std::pin::pin!(pipe::input_ended(self.args.until_eof));
        let (stop, stopped) = watch::channel(false);
        let mut lists = interval(LIST_EVERY);
        lists.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut warned = false;
        loop {
            tokio::select! {
                () = &mut signal => break,
                () = &mut over => break,
                () = &mut input_ended => break,
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                _ = lists.tick() => {
                    // If the agent has ended, the streams end, too, and report it.
                    let Ok(reply) = self.connection.list().await else { break };
                    self.begin_new(&reply.lmaps, &stopped);
                    warned = warned || self.warn_of_missing(&reply.lmaps);
                }
            }
            if self.failed.is_some() || self.all_over() {
                break;
            }
        }
        let _ = stop.send(true); // an error means that all tasks have ended
        while let Some(ended) = self.tasks.join_next().await {
            self.ended(ended);
        }
        self.done.sort_by(|a, b| a.service.cmp(&b.service));
        Ok((self.done, self.failed))
    }

    /// Whether every service of the command line has begun and ended. Without names, more services may always follow.
    fn all_over(&self) -> bool {
        let named = &self.args.services;
        self.tasks.is_empty() && !named.is_empty() && named.iter().all(|service| self.begun.contains(service))
    }

    fn ended(&mut self, ended: Result<Result<RecordingSummary, Failure>, JoinError>) {
        match ended.unwrap_or_else(|error| Err(Failure::to(WHAT).caused_by(&error))) {
            Ok(recorded) => self.done.push(recorded),
            Err(failure) => {
                self.failed.get_or_insert(failure);
            }
        }
    }

    fn begin_new(&mut self, lmaps: &[LmapInfo], stopped: &watch::Receiver<bool>) {
        for lmap in lmaps {
            let wanted = self.args.services.is_empty() || self.args.services.contains(&lmap.service);
            if !wanted || !self.begun.insert(lmap.service.clone()) {
                continue; // the recording goes on with the next LMAP of a service
            }
            let (connection, limits) = (self.connection.clone(), self.limits.clone());
            self.tasks.spawn(follow(connection, lmap.clone(), self.args.every, limits, stopped.clone()));
        }
    }

    /// Warns on stderr if services of the command line do not exist yet. Returns whether it did.
    fn warn_of_missing(&self, lmaps: &[LmapInfo]) -> bool {
        let missing: Vec<&str> = self
            .args
            .services
            .iter()
            .map(String::as_str)
            .filter(|service| lmaps.iter().all(|lmap| lmap.service != *service))
            .collect();
        if !missing.is_empty() {
            let existing: Vec<&str> = lmaps.iter().map(|lmap| lmap.service.as_str()).collect();
            let existing = if existing.is_empty() { "no service".to_owned() } else { existing.join(", ") };
            output::print_stderr(&format!("uview: waiting for {}; the agent watches {existing}", missing.join(", ")));
        }
        !missing.is_empty()
    }
}

/// Records one service until its stream ends or `stopped` changes: its LMAP, and those that follow it.
async fn follow(
    mut connection: Connection,
    lmap: LmapInfo,
    every: u32,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) -> Result<RecordingSummary, Failure> {
    let failed = |error: SinkError| {
        let failure = Failure::to(format!("record {}", lmap.service)).caused_by(&error);
        failure.advice(error.advice())
    };
    let between = Nanos::from_micros(lmap.interval_us.saturating_mul(u64::from(every))).max(Nanos(1));
    let mut sink = Sink::new(&lmap.service, between, limits);
    let mut rows = match connection.watch_rows(lmap.lmap, every).await {
        Ok(rows) => rows,
        Err(error) => return sink.end(Some(&format!("its rows cannot be watched: {error}"))).map_err(failed),
    };
    let mut source =
        Source { titles: Titles::of(&lmap, titles::known), lmap: lmap.lmap, interval_us: lmap.interval_us, gone: None };
    let mut flushes = interval(FLUSH_EVERY);
    flushes.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            message = rows.next() => match message {
                Ok(Some(row)) => {
                    if let Some(note) = source.take(&row, &mut sink, &mut connection).await.map_err(failed)? {
                        return sink.end(Some(&note)).map_err(failed);
                    }
                }
                Ok(None) => return sink.end(Some("the agent ended the stream of rows")).map_err(failed),
                Err(why) => return sink.end(Some(&format!("the stream of rows failed: {why}"))).map_err(failed),
            },
            _ = flushes.tick() => sink.flush().map_err(failed)?,
            _ = stopped.changed() => return sink.end(source.gone.as_deref()).map_err(failed),
        }
    }
}

/// What rows of a service come from.
struct Source {
    titles: Titles<Column>,
    lmap: u32,
    interval_us: u64,
    /// Why there is no LMAP now.
    gone: Option<String>,
}

impl Source {
    /// Takes an event. Returns why the recording ends, if it does.
    async fn take(
        &mut self,
        row: &RowEvent,
        sink: &mut Sink,
        connection: &mut Connection,
    ) -> Result<Option<String>, SinkError> {
        if let Some(change) = &row.change {
            let note = format!("its LMAP was deleted: {}", change.reason);
            if change.last {
                return Ok(Some(note));
            }
            self.gone = (change.successor == 0).then_some(note);
            if self.gone.is_none() {
                self.lmap = change.successor;
                return Ok(self.learn_titles(connection).await);
            }
            return Ok(None);
        }
        if !row.columns.is_empty() {
            if !self.titles.know(&row.columns)
                && let Some(note) = self.learn_titles(connection).await
            {
                return Ok(Some(note));
            }
            sink.columns(self.titles.columns(&row.columns, titles::unknown))?;
        }
        let goes_on = sink.row(row)?;
        Ok((!goes_on).then(|| "its file has reached --most-mib".to_owned()))
    }

    /// Asks for the columns of the LMAP. Returns why its rows cannot follow those of before, if so.
    async fn learn_titles(&mut self, connection: &mut Connection) -> Option<String> {
        let reply = connection.list().await.ok()?;
        let found = reply.lmaps.iter().find(|found| found.lmap == self.lmap)?;
        self.titles = Titles::of(found, titles::known);
        let is_same = found.interval_us == self.interval_us;
        (!is_same).then(|| format!("its new LMAP has another interval: {} µs", found.interval_us))
    }
}

//! Runs the cases: sends commands to the driver, plays the agent, looks at what arrived.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use wire::layout::Slot;
use wire::metric::{Kind, Series};
use wire::registration::{PlacedSeries, ServiceMessage};

use crate::agent::{AgentState, FakeAgent};
use crate::driver::{Driver, DriverError};
use crate::list::{self, Case, Command, ListError};
use crate::spans;

/// Polls of a condition, one per millisecond.
const POLLS: u32 = 60_000;

/// Why a client did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The list cannot be read.
    #[error(transparent)]
    List(#[from] ListError),
    /// A command's reply or effect is another one than the list says.
    #[error("{case}, line {line}, {command:?}: {found}")]
    Case {
        /// The sentence that does not hold.
        case: String,
        /// The line of the list.
        line: usize,
        /// The command there.
        command: String,
        /// What came instead.
        found: String,
    },
    /// The driver did not reply.
    #[error("{case}: {cause}")]
    Driver {
        /// The case that was played.
        case: String,
        /// Why it did not reply.
        #[source]
        cause: DriverError,
    },
    /// There is no folder for the agent's socket.
    #[error("no folder for the agent's socket")]
    Folder(#[source] std::io::Error),
}

/// The names of the cases that were played, if none failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Those that hold.
    pub held: Vec<String>,
    /// Those that the driver's language cannot say.
    pub unsupported: Vec<String>,
}

/// Runs each case of the list `text` with a driver of its own, which `driver` gives the command for.
///
/// # Errors
///
/// The first case that fails.
pub fn run(text: &str, mut driver: impl FnMut() -> std::process::Command) -> Result<Report, Failure> {
    let mut report = Report::default();
    for case in list::parse(text)? {
        let folder = tempfile::tempdir().map_err(Failure::Folder)?;
        let socket = folder.path().join("services.sock");
        let of_driver = |cause| Failure::Driver { case: case.name.clone(), cause };
        let driver = Driver::start(&mut driver()).map_err(of_driver)?;
        let mut stage = Stage { socket, driver, agent: None };
        let supported = stage.play(&case)?;
        drop(stage.agent);
        stage.driver.finish().map_err(of_driver)?;
        if supported { report.held.push(case.name) } else { report.unsupported.push(case.name) }
    }
    Ok(report)
}

/// What takes part in one case.
struct Stage {
    socket: PathBuf,
    driver: Driver,
    agent: Option<FakeAgent>,
}

impl Stage {
    /// Plays the case up to its end, or to what the driver cannot say: then false.
    fn play(&mut self, case: &Case) -> Result<bool, Failure> {
        for command in &case.commands {
            let found = |found| Failure::Case {
                case: case.name.clone(),
                line: command.line,
                command: command.words.join(" "),
                found,
            };
            match self.step(command) {
                Ok(None) => {}
                Ok(Some(text)) if text == "unsupported" => return Ok(false),
                Ok(Some(text)) => return Err(found(text)),
                Err(cause) => return Err(Failure::Driver { case: case.name.clone(), cause }),
            }
        }
        Ok(true)
    }

    /// What does not hold, if anything.
    fn step(&mut self, command: &Command) -> Result<Option<String>, DriverError> {
        let words: Vec<_> = command.words.iter().map(String::as_str).collect();
        match words[..] {
            ["agent", number] => {
                let Ok(incarnation) = number.parse() else { return Ok(Some("agent needs a number".to_owned())) };
                self.agent = Some(FakeAgent::start(&self.socket, incarnation));
                Ok(None)
            }
            ["agent-gone"] => {
                self.agent = None;
                Ok(None)
            }
            ["await", field, wanted] => self.status(field, wanted),
            ["arrives", ref rest @ ..] => Ok(self.arrives(rest)),
            ["open", ref rest @ ..] if !rest.iter().any(|word| word.starts_with("socket=")) => {
                let command_line = format!("{} socket={}", words.join(" "), self.socket.display());
                self.ask(&command_line, command)
            }
            _ => self.ask(&words.join(" "), command),
        }
    }

    /// Sends a command whose reply must be that of the list.
    fn ask(&mut self, line: &str, command: &Command) -> Result<Option<String>, DriverError> {
        let reply = self.driver.ask(line)?;
        let (first, rest) = reply.split_once(' ').unwrap_or((&reply, ""));
        let (wanted, text) = &command.reply;
        let holds = first == wanted && (rest.contains(text.as_str()) || same_number(rest, text));
        Ok((!holds).then_some(reply))
    }

    /// Waits until the client's status has this value.
    fn status(&mut self, field: &str, wanted: &str) -> Result<Option<String>, DriverError> {
        let mut last = String::new();
        for _ in 0..POLLS {
            last = self.driver.ask("status")?;
            let (fields, problems) = last.split_once(" problems=").unwrap_or((&last, ""));
            let holds = match field {
                "problem" => problems.contains(&wanted.replace('_', " ")),
                "problems" => problems.is_empty() == (wanted == "none"),
                _ => fields.split(' ').any(|pair| pair.split_once('=') == Some((field, wanted))),
            };
            if holds {
                return Ok(None);
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Some(last))
    }

    /// Waits until the agent's state is the one that the words describe. Returns the last state otherwise.
    fn arrives(&self, words: &[&str]) -> Option<String> {
        let Some(agent) = &self.agent else { return Some("there is no agent".to_owned()) };
        for _ in 0..POLLS {
            if agent.look(|state| holds(state, words)) {
                return None;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        Some(agent.look(written))
    }
}

fn same_number(found: &str, wanted: &str) -> bool {
    match (found.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(found), Ok(wanted)) => found == wanted || (found.is_nan() && wanted.is_nan()),
        _ => false,
    }
}

/// Whether the agent sees what the words say.
fn holds(state: &AgentState, words: &[&str]) -> bool {
    match *words {
        ["series", number] => state.series().len().to_string() == number,
        ["retired", number] => state.retired().iter().map(|run| run.slots).sum::<u32>().to_string() == number,
        ["ended", number] => state.ended.to_string() == number,
        ["spans", number] => spans::ended(state).to_string() == number,
        ["span", name, field, value] => spans::has(state, name, field, value),
        ["kept", trace, reason] => spans::is_kept(state, trace, reason),
        ["subject", metric, text] => state.messages.iter().any(|message| match message {
            ServiceMessage::Subjects(all) => all.iter().any(|one| (one.metric.as_str(), one.text()) == (metric, text)),
            _ => false,
        }),
        ["service", name, instance] => hello(state).is_some_and(|hello| hello == format!("{name} {instance}")),
        ["label", key, value] => state.messages.iter().any(|message| match message {
            ServiceMessage::Hello(hello) => hello.labels.get(key) == Some(value),
            _ => false,
        }),
        [title, "is", kind, unit] => {
            find(state, title).is_some_and(|placed| described(&placed.series) == format!("{kind} {unit}"))
        }
        [title, "declares", aggregation, millis] => find(state, title).is_some_and(|placed| {
            let (declared, every) = placed.declared.to_message();
            let declared = if declared.is_empty() { "-" } else { &declared };
            (declared, every.to_string().as_str()) == (aggregation, millis)
        }),
        [title, "counted", value, number] => find(state, title).is_some_and(|placed| {
            let Kind::Histogram(scale) = placed.series.kind else { return false };
            let Ok(value) = value.parse() else { return false };
            word(state, &placed, scale.bucket(value)).to_string() == number
        }),
        [title, "sum", number] => find(state, title).is_some_and(|placed| {
            let Kind::Histogram(scale) = placed.series.kind else { return false };
            word(state, &placed, scale.sum_slot()).to_string() == number
        }),
        [title, value] => find(state, title).is_some_and(|placed| {
            // Of a sharded counter, the sum of its words.
            let words = placed.shards.places(placed.first).map(|slot| word(state, &placed, slot.0 - placed.first.0));
            let bits = words.fold(0, u64::wrapping_add);
            match placed.series.kind {
                Kind::Counter => bits.to_string() == value,
                Kind::UpDownCounter => (bits as i64).to_string() == value,
                Kind::Gauge => same_number(&f64::from_bits(bits).to_string(), value),
                Kind::Histogram(_) => false,
            }
        }),
        _ => false,
    }
}

fn hello(state: &AgentState) -> Option<String> {
    state.messages.iter().find_map(|message| match message {
        ServiceMessage::Hello(hello) => Some(format!("{} {}", hello.service, hello.instance)),
        _ => None,
    })
}

fn described(series: &Series) -> String {
    let kind = series.kind.to_string().replace(' ', "-");
    let scale = match series.kind {
        Kind::Histogram(scale) => format!("({},{})", scale.sub_bits(), scale.max_bits()),
        _ => String::new(),
    };
    let parts = if series.parts_per_unit.get() == 1 { String::new() } else { format!("/{}", series.parts_per_unit) };
    let unit = series.unit.as_ref().map_or("-", |unit| unit.as_str());
    format!("{kind}{scale} {unit}{parts}")
}

/// The last series of this title: a series that was removed may come again.
fn find(state: &AgentState, title: &str) -> Option<PlacedSeries> {
    state.series().into_iter().rev().find(|placed| placed.series.title() == title)
}

fn word(state: &AgentState, placed: &PlacedSeries, offset: u32) -> u64 {
    let slot = Slot(placed.first.0 + offset);
    state.words(placed.region).get(slot.word()).copied().unwrap_or_default()
}

/// What the agent sees, for a message.
fn written(state: &AgentState) -> String {
    let mut text = format!("the agent sees {}", hello(state).unwrap_or_default());
    for placed in state.series().iter().take(20) {
        let _ = write!(text, "; {} {} {:#x}", placed.series.title(), described(&placed.series), word(state, placed, 0));
    }
    let _ = write!(text, "; {} retired, {} ended, {} spans", state.retired().len(), state.ended, spans::ended(state));
    text
}

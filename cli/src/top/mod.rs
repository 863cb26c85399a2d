//! `uview top`: a live view of the services of a node. One thread asks the agent twice a second, and reconnects after
//! errors; the main thread draws the replies and handles keys.

mod detail;
pub mod model;
pub mod render;
#[cfg(test)]
mod sample;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use agent_runtime::clock::Clock;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use wire::proto::operators::StatusReply;

use crate::Environment;
use crate::agent::{self, AgentArgs, AgentError, Connection, Target};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use model::{Flow, Model};
use render::Palette;

const WHAT: &str = "show the live view";

/// Time between two status requests.
const REQUEST_EVERY: Duration = Duration::from_millis(500);

/// Time between two attempts to reconnect.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// How long the view waits for a key before it draws again.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `uview top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Print the view once as text, and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Shows the view until `q` is pressed, or once.
///
/// # Errors
///
/// [`Failure`] if stdout is no terminal, the certificates cannot be used, or with `--once` the agent cannot be asked.
pub fn run(args: TopArgs, environment: Environment) -> Result<Exit, Failure> {
    let target = args.agent.target(environment.runtime_dir)?;
    if args.once {
        return once(&target);
    }
    if !io::stdout().is_terminal() {
        let failure = Failure::to(WHAT).because("standard output is no terminal");
        return Err(failure.advice("`uview top --once` for text, `uview status --json` for programs"));
    }
    let updates = follow(target)?;
    let terminal_error =
        |error: io::Error| Failure::to(WHAT).because("the terminal cannot be set up").caused_by(&error);
    let mut terminal = ratatui::try_init().map_err(terminal_error)?;
    let shown = show(&mut terminal, &updates, &Palette::new(environment.no_color));
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(terminal_error)?;
    Ok(Exit::Fine)
}

fn once(target: &Target) -> Result<Exit, Failure> {
    let reply = agent::status_once(target, WHAT)?;
    let mut model = Model::default();
    model.on_reply(Duration::ZERO, &reply);
    let size = if io::stdout().is_terminal() { terminal::size().ok() } else { None };
    let width = size.map_or(140, |(columns, _)| columns.clamp(60, 300));
    output::print(&picture(&model, width))?;
    Ok(Exit::Fine)
}

/// The view as text, without the line of keys and without trailing spaces.
fn picture(model: &Model, width: u16) -> String {
    let area = Rect::new(0, 0, width, render::lines_needed(model));
    let mut buffer = Buffer::empty(area);
    render::draw(model, &Palette::new(true), area, &mut buffer);
    let line = |y: u16| {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned()
    };
    let lines: Vec<String> = (0..area.height.saturating_sub(1)).map(line).collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}

fn show(terminal: &mut DefaultTerminal, updates: &Receiver<Update>, palette: &Palette) -> io::Result<()> {
    let clock = Clock::start();
    let mut model = Model::default();
    loop {
        for update in updates.try_iter() {
            match update {
                Update::Status(reply) => model.on_reply(clock.now().into(), &reply),
                Update::Gone(why) => model.on_disconnect(clock.now().into(), why),
            }
        }
        model.tick(clock.now().into());
        terminal.draw(|frame| render::draw(&model, palette, frame.area(), frame.buffer_mut()))?;
        if event::poll(POLL_EVERY)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && model.key(key) == Flow::Quit
        {
            return Ok(());
        }
    }
}

/// A message of the thread that asks the agent.
enum Update {
    Status(Box<StatusReply>),
    Gone(String),
}

/// Starts the thread that asks the agent. It ends when the receiver is dropped.
fn follow(target: Target) -> Result<Receiver<Update>, Failure> {
    let (sender, updates) = sync_channel(4);
    let runtime = agent::runtime(WHAT)?;
    let thread = std::thread::Builder::new().name("operators".to_owned());
    let spawned = thread.spawn(move || runtime.block_on(ask(&target, &sender)));
    spawned.map_err(|error| Failure::to(WHAT).because("the system has no thread left").caused_by(&error))?;
    Ok(updates)
}

async fn ask(target: &Target, sender: &SyncSender<Update>) {
    loop {
        let Err(error) = ask_until_error(target, sender).await else { return };
        if sender.send(Update::Gone(reason(&error))).is_err() {
            return;
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

/// Returns `Ok` only when the receiver is dropped.
async fn ask_until_error(target: &Target, sender: &SyncSender<Update>) -> Result<(), AgentError> {
    let mut connection = Connection::open(target).await?;
    loop {
        let reply = connection.status().await?;
        if sender.send(Update::Status(Box::new(reply))).is_err() {
            return Ok(());
        }
        tokio::time::sleep(REQUEST_EVERY).await;
    }
}

/// The error as a sentence, with what the user can do about TLS.
fn reason(error: &AgentError) -> String {
    let mut text = error.to_string();
    if let AgentError::Tls { problem, .. } = error {
        text = format!("{text}; try {}", problem.advice());
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::TlsProblem;

    #[test]
    fn the_text_has_all_services_and_no_line_of_keys() {
        let mut model = Model::default();
        model.on_reply(Duration::ZERO, &sample::reply());

        let picture = picture(&model, 140);

        for service in ["cart", "payment", "store"] {
            assert!(picture.contains(service), "{picture}");
        }
        assert!(!picture.contains("quit") && !picture.contains(" \n"), "{picture}");
    }

    #[test]
    fn a_reason_is_a_sentence() {
        let error = AgentError::Unreachable { address: "[::1]:9".to_owned(), cause: "refused".to_owned() };

        assert_eq!(reason(&error), "The host agent does not answer at [::1]:9: refused.");
    }

    #[test]
    fn a_reason_has_the_advice_about_tls() {
        let error = AgentError::Tls { address: "[::1]:9".to_owned(), problem: TlsProblem::OnlyTls };

        let reason = reason(&error);

        assert!(reason.contains("it speaks TLS") && reason.contains("; try --tls-ca FILE"), "{reason}");
    }
}

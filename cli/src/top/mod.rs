//! `uview top`: the services of a node, live. A thread asks the agent twice a second and connects again when it is gone; the
//! terminal's thread draws what it heard.

mod detail;
pub mod model;
pub mod render;
#[cfg(test)]
mod sample;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use wire::proto::operators::StatusReply;

use crate::Environment;
use crate::agent::{self, AgentArgs, AgentError, Connection, Place};
use crate::clock::Clock;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use model::{Flow, Model};
use render::Palette;

const WHAT: &str = "show the live view";

/// Between two questions to the agent.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Between two attempts to find an agent that is gone.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Between two looks at the keyboard and at what the agent said.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `uview top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Print one picture as text and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Shows the view until `q` is pressed, or once.
///
/// # Errors
///
/// [`Failure`] if there is no terminal, the certificates cannot be used, or with `--once` there is no agent.
pub fn run(args: TopArgs, environment: Environment) -> Result<Exit, Failure> {
    let place = args.agent.place(environment.runtime_dir)?;
    if args.once {
        return once(&place);
    }
    if !io::stdout().is_terminal() {
        let failure = Failure::to(WHAT).because("the standard output is no terminal");
        return Err(failure.advice("`uview top --once` for one picture, `uview status --json` for programs"));
    }
    let heard = follow(place)?;
    let terminal_error = |error: io::Error| Failure::to(WHAT).because("the terminal refuses").caused_by(&error);
    let mut terminal = ratatui::try_init().map_err(terminal_error)?;
    let shown = show(&mut terminal, &heard, &Palette::new(environment.no_color));
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(terminal_error)?;
    Ok(Exit::Fine)
}

fn once(place: &Place) -> Result<Exit, Failure> {
    let reply = agent::status_once(place, WHAT)?;
    let mut model = Model::default();
    model.answered(Duration::ZERO, &reply);
    let known = if io::stdout().is_terminal() { terminal::size().ok() } else { None };
    let width = known.map_or(140, |(columns, _)| columns.clamp(60, 300));
    output::print(&picture(&model, width))?;
    Ok(Exit::Fine)
}

/// One picture as text, without the line of keys, lines without spaces at the end.
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

fn show(terminal: &mut DefaultTerminal, heard: &Receiver<Heard>, palette: &Palette) -> io::Result<()> {
    let clock = Clock::start();
    let mut model = Model::default();
    loop {
        for heard in heard.try_iter() {
            match heard {
                Heard::Status(reply) => model.answered(clock.now(), &reply),
                Heard::Gone(why) => model.gone(clock.now(), why),
            }
        }
        model.tick(clock.now());
        terminal.draw(|frame| render::draw(&model, palette, frame.area(), frame.buffer_mut()))?;
        if event::poll(LOOK_EVERY)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && model.key(key) == Flow::Quit
        {
            return Ok(());
        }
    }
}

/// What the thread that asks has to say.
enum Heard {
    Status(Box<StatusReply>),
    Gone(String),
}

/// Starts the thread that asks. It ends when nobody listens any more.
fn follow(place: Place) -> Result<Receiver<Heard>, Failure> {
    let (say, heard) = sync_channel(4);
    let runtime = agent::runtime(WHAT)?;
    let thread = std::thread::Builder::new().name("operators".to_owned());
    let spawned = thread.spawn(move || runtime.block_on(ask(&place, &say)));
    spawned.map_err(|error| Failure::to(WHAT).because("the system gives no thread").caused_by(&error))?;
    Ok(heard)
}

async fn ask(place: &Place, say: &SyncSender<Heard>) {
    loop {
        let Err(error) = ask_until_gone(place, say).await else { return };
        if say.send(Heard::Gone(reason(&error))).is_err() {
            return;
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Ends well only when nobody listens any more.
async fn ask_until_gone(place: &Place, say: &SyncSender<Heard>) -> Result<(), AgentError> {
    let mut connection = Connection::open(place).await?;
    loop {
        let reply = connection.status().await?;
        if say.send(Heard::Status(Box::new(reply))).is_err() {
            return Ok(());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn reason(error: &AgentError) -> String {
    let mut text = error.to_string();
    if let AgentError::Tls { trouble, .. } = error {
        text = format!("{text}; try {}", trouble.advice());
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Trouble;

    #[test]
    fn one_picture_has_all_services_and_no_line_of_keys() {
        let mut model = Model::default();
        model.answered(Duration::ZERO, &sample::reply());

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
    fn whoever_watches_is_told_what_to_do_about_tls() {
        let error = AgentError::Tls { address: "[::1]:9".to_owned(), trouble: Trouble::OnlyTls };

        let reason = reason(&error);

        assert!(reason.contains("it speaks TLS") && reason.contains("; try --tls-ca FILE"), "{reason}");
    }
}

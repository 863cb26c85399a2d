//! Terminal output of the demo: lines as things happen, and a progress bar below them on a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wire::printable;
use wire::time::Nanos;

/// Interval of progress lines without a terminal.
const LINE_EVERY: Nanos = Nanos::from_secs(5);
const STEPS: u64 = 1000;

/// The terminal, or the standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    bar: ProgressBar,
    terminal: bool,
    last_line: Option<Nanos>,
}

impl Screen {
    /// Lines go to stdout. The bar goes to stderr if both are terminals.
    pub(crate) fn new() -> Self {
        let terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:30} {msg}") {
            bar.set_style(style);
        }
        Self { bar, terminal, last_line: None }
    }

    /// Prints a line. Ignores a closed pipe (`uview demo | head`).
    pub(crate) fn print(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stdout().lock(), "{}", printable::lines(line));
        });
    }

    /// Shows that `share` of something, 0 to 1, is done at `now`.
    pub(crate) fn progress(&mut self, now: Nanos, share: f64, message: &str) {
        self.bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.bar.set_message(printable::line(message).into_owned());
        let due = self.last_line.is_none_or(|last| now.since(last).unwrap_or_default() >= LINE_EVERY);
        if self.terminal {
            self.bar.enable_steady_tick(Duration::from_millis(120));
        } else if due {
            self.last_line = Some(now);
            self.print(&format!("  … {message}"));
        }
    }

    /// Removes the bar.
    pub(crate) fn no_progress(&mut self) {
        self.last_line = None;
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }
}

//! What `uview` tells the program that called it: every exit code of every subcommand, in one place.

use std::process::ExitCode;

/// How a command ended. The numbers are part of the command's interface and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and all is well.
    Fine = 0,
    /// Not done, or broken: the text on stderr says why. `check`: something without which uview cannot work.
    Failed = 1,
    /// Done, but something wants a look. `status`: a problem is reported. `canary`: the versions differ.
    Attention = 2,
    /// `demo` only: it ran, and a bar was missed.
    BarMissed = 3,
    /// The agent to talk to is not there.
    NoAgent = 4,
    /// The command line was wrong (EX_USAGE of sysexits.h).
    Usage = 64,
}

/// The table that ends `uview --help`.
pub const HELP: &str = "\
Exit codes:
  0   done, and all is well (check: uview works here; what is missing is said)
  1   not done, or broken: the text on stderr says why
  2   done, but something wants a look (status: a problem is reported; canary: the versions differ)
  3   demo: it ran, and a bar was missed
  4   top, status: the host agent is not there
  64  wrong command line";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code() {
        for exit in [Exit::Fine, Exit::Failed, Exit::Attention, Exit::BarMissed, Exit::NoAgent, Exit::Usage] {
            let line = format!("\n  {:<4}", exit as u8);
            assert!(HELP.contains(&line), "{line:?}");
        }
    }
}

//! The exit codes of all subcommands.

use std::process::ExitCode;

/// Exit code of a command. The numbers are part of the command's interface and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success, and nothing needs attention.
    Fine = 0,
    /// Failure; stderr has the error message. `check`: uview cannot run on this machine.
    Failed = 1,
    /// Success, but something needs attention. `status`: a problem is reported. `canary`: the versions differ.
    Attention = 2,
    /// `demo` only: it ran, and a target was missed.
    BarMissed = 3,
    /// The host agent cannot be reached.
    NoAgent = 4,
    /// The command line is wrong (EX_USAGE of sysexits.h).
    Usage = 64,
}

/// The table that ends `uview --help`.
pub const HELP: &str = "\
Exit codes:
  0   success (check: uview can run here, some features may be missing)
  1   failure: stderr says why (check: uview cannot run here)
  2   success, but something needs attention (status: problems; canary: the versions differ)
  3   demo: it ran, and a target was missed
  4   the host agent cannot be reached
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

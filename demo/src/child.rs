//! Starts the demo's processes so that they never outlive it: `run` asks the kernel for SIGKILL at the parent's death
//! (`PR_SET_PDEATHSIG`), then executes the program.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Arguments of `uview child`, a process that ends with its parent.
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArgs {
    /// Process id of the parent; if it has ended already, nothing is started
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// Arguments of the program, after the two dashes
    #[arg(last = true, required = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

/// Why the program of a child was not executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The kernel refused to signal the parent's death.
    #[error("cannot request a signal for the parent's death")]
    NoSignal(#[source] io::Error),
    /// The parent died before the child asked for a signal.
    #[error("the parent process {0} has ended")]
    Orphan(u32),
    /// The program cannot be executed.
    #[error("cannot execute {program}")]
    Exec {
        /// Path of the program.
        program: String,
        /// Error of `execve`.
        #[source]
        cause: io::Error,
    },
}

/// Replaces this process by `program` with the given arguments. Returns only if that fails.
///
/// # Errors
///
/// [`ChildError`] if the parent has ended or the program cannot be executed.
pub fn run(args: &ChildArgs, program: &Path) -> Result<(), ChildError> {
    // SIGKILL, since the parent may die while a child is stopped.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| ChildError::NoSignal(error.into()))?;
    // The parent may have died before the request: then this process has another parent by now.
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get() as u32) != Some(args.parent) {
        return Err(ChildError::Orphan(args.parent));
    }
    let cause = Command::new(program).args(&args.arguments).exec();
    Err(ChildError::Exec { program: program.display().to_string(), cause })
}

//! How the demo's processes are started so that they never outlive it: `run` asks the kernel for a signal when the parent dies, and
//! then becomes the program that was asked for.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// A process that ends with its parent.
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArgs {
    /// The parent: if it is gone already, nothing is started
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// What this command is to be run with, after the two dashes
    #[arg(last = true, required = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

/// Why a child did not become what it was to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The kernel does not tell when the parent dies.
    #[error("cannot ask for a signal at the parent's end")]
    NoSignal(#[source] io::Error),
    /// The parent died in the meantime.
    #[error("the parent {0} is gone")]
    Orphan(u32),
    /// The program cannot be run.
    #[error("cannot run {program}")]
    Exec {
        /// Which.
        program: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// Becomes `program` with the arguments that were asked for. Comes back only if that fails.
///
/// # Errors
///
/// [`ChildError`] for whatever was in the way.
pub fn run(args: &ChildArgs, program: &Path) -> Result<(), ChildError> {
    // SIGKILL, since the parent may die while a child is stopped.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| ChildError::NoSignal(error.into()))?;
    // The parent may have died before the kernel was asked: then this process has another parent by now.
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get() as u32) != Some(args.parent) {
        return Err(ChildError::Orphan(args.parent));
    }
    let cause = Command::new(program).args(&args.arguments).exec();
    Err(ChildError::Exec { program: program.display().to_string(), cause })
}

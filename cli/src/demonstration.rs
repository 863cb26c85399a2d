//! `uview demo` and the processes of its shop. The demo starts this binary once for each agent, for each service, and
//! for the load generator.

use std::path::PathBuf;

use demo::DemoArgs;
use demo::child::{self, ChildArgs};
use demo::link::{self, LinkArgs};
use demo::load::{self, LoadArgs};
use demo::shop::{self, ShopArgs};

use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the demo; `program` is the path of this binary. Returns [`Exit::BarMissed`] if a target was missed.
///
/// # Errors
///
/// [`Failure`] if the demo did not run to its end, or its report cannot be written.
pub fn run(args: &DemoArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    const WHAT: &str = "run the demo";
    let program = program.ok_or_else(|| nowhere(WHAT))?;
    match demo::run(args, &program) {
        Ok(finding) if finding.none_missed() => Ok(Exit::Fine),
        Ok(_) => Ok(Exit::BarMissed),
        Err(error) => Err(Failure::to(WHAT).caused_by(&error)),
    }
}

/// Replaces this process by a subcommand of the demo (exec). Returns only if that fails.
///
/// # Errors
///
/// [`Failure`] if the subcommand cannot be started.
pub fn become_child(args: &ChildArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    const WHAT: &str = "start a process of the demo";
    let program = program.ok_or_else(|| nowhere(WHAT))?;
    child::run(args, &program).map(|()| Exit::Fine).map_err(|error| Failure::to(WHAT).caused_by(&error))
}

fn nowhere(what: &str) -> Failure {
    Failure::to(what)
        .because("the path of this program is unknown, so that it cannot start its processes")
        .advice("mount /proc")
}

/// Runs one service of the shop until the process ends.
///
/// # Errors
///
/// [`Failure`] if the service cannot start.
pub fn serve(args: &ShopArgs) -> Result<Exit, Failure> {
    let failed = |error| Failure::to(format!("run the service {} of the shop", args.service)).caused_by(&error);
    shop::run(args).map(|()| Exit::Fine).map_err(failed)
}

/// Runs the load generator of the shop until it is stopped.
///
/// # Errors
///
/// [`Failure`] if it cannot start, or its report cannot be written.
pub fn visit(args: &LoadArgs) -> Result<Exit, Failure> {
    load::run(args)
        .map(|()| Exit::Fine)
        .map_err(|error| Failure::to("run the load generator of the shop").caused_by(&error))
}

/// Runs the link between two services until the process ends.
///
/// # Errors
///
/// [`Failure`] if the link cannot be set up, report its state, or go on.
pub fn relay(args: &LinkArgs) -> Result<Exit, Failure> {
    link::run(args)
        .map(|()| Exit::Fine)
        .map_err(|error| Failure::to("run the link between two services").caused_by(&error))
}

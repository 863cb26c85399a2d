//! `uview demo` and the processes of its shop. The demo starts this binary once for each agent, service and for the load.

use std::path::PathBuf;

use demo::DemoArgs;
use demo::child::{self, ChildArgs};
use demo::load::{self, LoadArgs};
use demo::shop::{self, ShopArgs};
use demo::way::{self, WayArgs};

use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the demo; `program` is this binary. Ends with 3 if it ran and a bar was missed.
///
/// # Errors
///
/// [`Failure`] if there is no finding, or it cannot be written.
pub fn run(args: &DemoArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    const WHAT: &str = "run the demo";
    let program = program.ok_or_else(|| nowhere(WHAT))?;
    match demo::run(args, &program) {
        Ok(finding) if finding.none_missed() => Ok(Exit::Fine),
        Ok(_) => Ok(Exit::BarMissed),
        Err(error) => Err(Failure::to(WHAT).caused_by(&error)),
    }
}

/// Becomes what the demo wants its child to be. Comes back only if that fails.
///
/// # Errors
///
/// [`Failure`] with what was in the way.
pub fn become_child(args: &ChildArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    const WHAT: &str = "become a process of the demo";
    let program = program.ok_or_else(|| nowhere(WHAT))?;
    child::run(args, &program).map(|()| Exit::Fine).map_err(|error| Failure::to(WHAT).caused_by(&error))
}

fn nowhere(what: &str) -> Failure {
    Failure::to(what).because("the path of this program is not known, to start it again").advice("mount /proc")
}

/// Is one service of the shop until the process ends.
///
/// # Errors
///
/// [`Failure`] if it cannot begin.
pub fn serve(args: &ShopArgs) -> Result<Exit, Failure> {
    let failed = |error| Failure::to(format!("be the service {} of the shop", args.service)).caused_by(&error);
    shop::run(args).map(|()| Exit::Fine).map_err(failed)
}

/// Is the visitors of the shop, until told to stop.
///
/// # Errors
///
/// [`Failure`] if it cannot begin, or the report cannot be written.
pub fn visit(args: &LoadArgs) -> Result<Exit, Failure> {
    load::run(args).map(|()| Exit::Fine).map_err(|error| Failure::to("visit the shop").caused_by(&error))
}

/// Is the way between two services until the process ends.
///
/// # Errors
///
/// [`Failure`] if it cannot say how it is, or is not any more.
pub fn relay(args: &WayArgs) -> Result<Exit, Failure> {
    way::run(args)
        .map(|()| Exit::Fine)
        .map_err(|error| Failure::to("be the way between two services").caused_by(&error))
}

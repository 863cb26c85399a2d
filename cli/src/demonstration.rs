//! `uview demo` and the processes of its shop. The demo starts this binary once for each agent, service and for the load.

use std::path::PathBuf;

use demo::DemoArgs;
use demo::load::{self, LoadArgs};
use demo::shop::{self, ShopArgs};

use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the demo; `program` is this binary. Ends with 3 if it ran and a bar was missed.
///
/// # Errors
///
/// [`Failure`] if there is no finding, or it cannot be written.
pub fn run(args: &DemoArgs, program: Option<PathBuf>) -> Result<Exit, Failure> {
    const WHAT: &str = "run the demo";
    let program = program.ok_or_else(|| {
        let failure =
            Failure::to(WHAT).because("the path of this program is not known, to start it again as a service");
        failure.advice("mount /proc")
    })?;
    match demo::run(args, &program) {
        Ok(finding) if finding.all_met() => Ok(Exit::Fine),
        Ok(_) => Ok(Exit::BarMissed),
        Err(error) => Err(Failure::to(WHAT).caused_by(&error)),
    }
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

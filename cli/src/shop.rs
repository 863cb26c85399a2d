//! The processes of the demo's shop. `uview demo` starts this binary once for each of them.

use demo::load::{self, LoadArgs};
use demo::shop::{self, ShopArgs};

use crate::exit::Exit;
use crate::failure::Failure;

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

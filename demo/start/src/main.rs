//! `cargo demo`: builds `uview` in release mode with cargo's own progress, then becomes `uview demo`.
//!
//! The first build takes minutes. This program has no dependencies, so that it can say so within a second.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Processor time of a first build, in minutes: measured with `cargo build --release -p uview-cli --timings`.
const BUILD_MINUTES: usize = 9;
/// The last crates wait for each other, however many processors there are.
const LAST_CRATES_MINUTES: usize = 3;
/// What cargo builds and runs.
const PACKAGE: [&str; 4] = ["--release", "--package", "uview-cli", "--no-default-features"];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(message) = announcement(is_built(), processors) {
        eprintln!("{message}");
    }
    let built = Command::new(cargo()).arg("build").args(PACKAGE).status();
    match built {
        Ok(status) if status.success() => {}
        Ok(_) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            return ExitCode::FAILURE;
        }
    }
    // Replaces this process, so that signals and the exit code are the demo's.
    let error =
        Command::new(cargo()).args(["run", "--quiet"]).args(PACKAGE).args(["--", "demo"]).args(arguments).exec();
    eprintln!("cannot start cargo: {error}");
    ExitCode::FAILURE
}

/// What to say before the build; nothing if most of it is there.
fn announcement(built: bool, processors: usize) -> Option<String> {
    let minutes = BUILD_MINUTES.div_ceil(processors).max(LAST_CRATES_MINUTES);
    (!built).then(|| {
        format!("Building uview in release mode, once: about {minutes} minutes on {processors} idle processors.")
    })
}

/// Whether a release build of `uview` lies where cargo would put it.
#[expect(clippy::disallowed_methods, reason = "cargo says by the environment where it builds")]
fn is_built() -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), Into::into);
    target.join("release/uview").exists()
}

/// The cargo that runs this program.
#[expect(clippy::disallowed_methods, reason = "cargo tells its children where it is")]
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_build_is_announced_with_its_minutes_and_a_later_one_is_not() {
        assert!(announcement(false, 2).is_some_and(|text| text.contains("about 5 minutes on 2 idle processors")));
        assert!(announcement(false, 64).is_some_and(|text| text.contains("about 3 minutes")));
        assert_eq!(announcement(true, 2), None);
    }
}

//! Everything that CI runs, in the order in which it fails fastest. What cannot run here is said, never skipped in silence.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::nice;

use crate::proto::workspace;
use crate::release::Programs;
use crate::{arm64, clients, clock, demo, licences, proto, rdma, reproduce};

/// The most that a process can be nice.
const LEAST: i32 = 19;

/// Runs all checks and prints how long each took.
///
/// # Errors
///
/// The first check that fails.
pub fn run(skip_tests: bool) -> Result<()> {
    let mut steps = Steps::default();
    steps.run("format", || cargo(&["fmt", "--all", "--check"]))?;
    steps.run("generated code", || proto::generate(true))?;
    steps.run("licences", licences::check)?;
    steps.cannot("advisories", "the advisory database needs a network; run `cargo audit` where there is one");
    steps.run("clippy", || {
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
    })?;
    if !skip_tests {
        steps.run("tests", || cargo(&["test", "--quiet", "--workspace"]))?;
    }
    let programs = steps.run("release programs", Programs::build)?;
    // Guests mostly wait. What needs nothing but processors, and no time of its own, is done meanwhile.
    steps.beside(|steps| in_guests(steps, &programs), |steps| of_processors(steps, &programs))?;
    // Alone: it is about times.
    steps.run("demo", || demo::check(&programs))?;
    match clients::missing() {
        None => steps.run("clients of Python, Node and Rust", || clients::check(&programs))?,
        Some(why) => steps.cannot("clients of Python, Node and Rust", &why),
    }
    if prometheus() {
        steps.run("remote write to Prometheus", || {
            succeed(Programs::of_tests()?.command("prometheus", "remote-write")?.args(["--quiet", "--ignored"]))
        })?;
    } else {
        steps.cannot("remote write to Prometheus", "it needs Prometheus (Debian: apt-get install prometheus)");
    }
    // Builds the standard library for it, once.
    if cargo_works(&["+nightly", "miri", "setup"]) {
        steps.run("Miri", miri)?;
    } else {
        steps.cannot("Miri", "it needs nightly Rust and `rustup +nightly component add miri rust-src`");
    }
    steps.run("fuzzing", fuzz)?;
    steps.report();
    Ok(())
}

fn in_guests(steps: &mut Steps, programs: &Programs) -> Result<()> {
    match rdma::why_not() {
        None => steps.run("RDMA in virtual machines", || rdma::run_with(programs, &rdma::RdmaArgs::default())),
        Some(why) => {
            steps.cannot("RDMA in virtual machines", &why);
            Ok(())
        }
    }
}

fn of_processors(steps: &mut Steps, programs: &Programs) -> Result<()> {
    steps.run("coherence of three nodes, full size", || {
        succeed(programs.command("coherence", "hooks")?.args(["--quiet", "--ignored"]))
    })?;
    steps.run("simulation, 10,000 seeds", || {
        succeed(programs.command("simulation", "tests")?.arg("--quiet").env("UVIEW_SEEDS", "10000"))
    })?;
    steps.run("reproduction of synopses, reduced", || reproduce::check_synopses(programs))?;
    steps.run("reproduction of hooks, reduced", || {
        succeed(programs.command("xtask", ".")?.args(["reproduce", "hooks", "--reduced"]))
    })?;
    match arm64::missing() {
        None => steps.run("arm64", || arm64::run(&arm64::Plan::Build))?,
        Some(why) => steps.cannot("arm64", &why),
    }
    steps.run("documentation", || {
        cargo_with("RUSTDOCFLAGS", "-D warnings", &["doc", "--quiet", "--workspace", "--no-deps"])
    })
}

#[derive(Default)]
struct Steps(Vec<(String, String)>);

impl Steps {
    fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let (result, time) = clock::timed(step);
        let result = result.with_context(|| format!("{name} failed"))?;
        self.0.push((name.to_owned(), format!("{:.1} s", time.as_secs_f64())));
        Ok(result)
    }

    /// Runs `main`, and beside it `spare`, of which every process gets what `main` leaves of the processors. Both are run to their ends.
    fn beside(
        &mut self,
        main: impl FnOnce(&mut Self) -> Result<()>,
        spare: impl FnOnce(&mut Self) -> Result<()> + Send,
    ) -> Result<()> {
        let spare = || {
            // Of this thread and of what it starts.
            nice(LEAST).context("the priority of what is done meanwhile")?;
            let mut steps = Self::default();
            let ended = spare(&mut steps);
            Ok((steps, ended))
        };
        let (ended, spare) = std::thread::scope(|scope| {
            let spare = scope.spawn(spare);
            (main(self), spare.join().unwrap_or_else(|_| Err(anyhow!("what is done meanwhile panicked"))))
        });
        let (steps, ended_beside) = spare?;
        self.0.extend(steps.0.into_iter().map(|(name, result)| (name, format!("{result} (beside the guests)"))));
        match (ended, ended_beside) {
            (Err(error), Err(other)) => Err(error.context(format!("and beside it {other:#}"))),
            (ended, other) => ended.and(other),
        }
    }

    fn cannot(&mut self, name: &str, why: &str) {
        println!("== {name}: NOT RUN: {why}");
        self.0.push((name.to_owned(), format!("NOT RUN: {why}")));
    }

    fn report(&self) {
        println!("== done");
        for (name, result) in &self.0 {
            println!("{name:28} {result}");
        }
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with("CARGO_TERM_COLOR", "never", arguments)
}

fn cargo_with(variable: &str, value: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new("cargo").args(arguments).env(variable, value).current_dir(workspace()).status()?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Whether Prometheus is installed.
fn prometheus() -> bool {
    Command::new("prometheus").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn cargo_works(arguments: &[&str]) -> bool {
    let output = Command::new("cargo").args(arguments).current_dir(workspace()).output();
    output.is_ok_and(|output| output.status.success())
}

/// What shares memory, in an interpreter that sees undefined behaviour and data races: whatever does not need the system's own memory or
/// sockets, which it does not have.
fn miri() -> Result<()> {
    let members = ["-p", "region", "-p", "transport", "-p", "uview", "--lib"];
    // It takes more than a minute to count to 100,000, and problems are shared by nobody.
    let skipped = ["--", "--skip", "problem::"];
    let arguments = [&["+nightly", "miri", "test", "--quiet"], &members[..], &skipped].concat();
    // The clock and the environment are the system's.
    cargo_with("MIRIFLAGS", "-Zmiri-disable-isolation", &arguments)
}

/// Ten seconds for each target, where nightly Rust and cargo-fuzz exist.
fn fuzz() -> Result<()> {
    if !cargo_works(&["+nightly", "--version"]) || !cargo_works(&["fuzz", "--version"]) {
        println!("!! FUZZING WAS NOT RUN: it needs nightly Rust and `cargo install cargo-fuzz`.");
        println!("!! The corpora were replayed by the ordinary tests.");
        return Ok(());
    }
    let output = Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(workspace()).output()?;
    ensure!(output.status.success(), "`cargo fuzz list` failed");
    for target in String::from_utf8(output.stdout)?.lines() {
        // The first folder takes what is found; the second one is what the ordinary tests replay.
        let found = workspace().join("target/fuzz-corpus").join(target);
        fs::create_dir_all(&found)?;
        let (found, kept) = (found.display().to_string(), format!("fuzz/corpus/{target}"));
        let limits = ["-max_total_time=10", "-verbosity=0"];
        cargo(&["+nightly", "fuzz", "run", target, &found, &kept, "--", limits[0], limits[1]])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &Steps) -> Vec<&str> {
        steps.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn what_is_done_meanwhile_is_nice_and_reported() {
        let niceness = || nice(0).map_err(anyhow::Error::from);
        let (mut steps, before, mut beside) = (Steps::default(), niceness().unwrap(), None);

        let ended = steps.beside(
            |steps| steps.run("main", || Ok(())),
            |steps| {
                beside = Some(steps.run("spare", niceness)?);
                Ok(())
            },
        );

        assert!(ended.is_ok());
        assert_eq!((beside, niceness().unwrap()), (Some(LEAST), before));
        assert_eq!(names(&steps), ["main", "spare"]);
    }

    #[test]
    fn a_failure_on_either_side_is_one_and_both_are_told() {
        let fails =
            |name: &'static str| move |steps: &mut Steps| steps.run(name, || -> Result<()> { Err(anyhow!("why")) });
        let works = |steps: &mut Steps| steps.run("works", || Ok(()));

        let main = Steps::default().beside(fails("a"), works).unwrap_err();
        let spare = Steps::default().beside(works, fails("b")).unwrap_err();
        let both = Steps::default().beside(fails("a"), fails("b")).unwrap_err();

        assert!(format!("{main:#}").contains("a failed: why") && format!("{spare:#}").contains("b failed: why"));
        assert!(format!("{both:#}").contains("a failed: why") && format!("{both:#}").contains("b failed: why"));
    }
}

//! What needs an RDMA device, in a virtual machine that has a soft one. The guest is Debian's kernel, built by tests/rdma-vm/build-vm.

mod agents;
mod alarms;
mod churn;
mod findings;
pub mod guest;
mod idle;
mod layout;
pub mod parts;
mod path;
mod ratio;
mod reads;
mod usage;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock;
use crate::release::Programs;
use findings::Findings;
use guest::{Boot, Image, script};
pub use parts::{GuestPart, run as be};
pub use ratio::{Peer, measure};

/// What everything together may take.
const BUDGET: Duration = Duration::from_mins(10);

/// What a step has.
struct Stage<'a> {
    image: &'a Image,
    /// The crate's unit tests with a device.
    tests: PathBuf,
    /// `uview`.
    uview: PathBuf,
    /// This tool.
    tool: PathBuf,
    /// Put tables into documents.
    write: bool,
    /// What a busy machine may explain.
    findings: RefCell<Findings>,
}

/// A step's name, what it is, and what does it.
type Step = (&'static str, &'static str, fn(&Stage) -> Result<()>);

const STEPS: &[Step] = &[
    ("layout", "our structs of libibverbs and those of its header", |_| layout::compare()),
    ("transport", "the transport's tests on a soft-RoCE device", |stage| transport(stage, "verbs::tests")),
    ("missing", "what is said where something is missing", missing),
    ("one-guest", "both agents in one guest", agents::one_guest),
    ("netem", "a fridge and two NIC agents on a path that delays and loses", agents::netem),
    ("idle", "idle services and the host agent while they are read", idle::run),
    ("churn", "series that come and go while workers die", churn::run),
    ("two-guests", "the agents in two guests, with everything that can go wrong", agents::two_guests),
];

/// How often a test on a device is run before it has failed.
const RUNS_OF_A_TEST: usize = 3;

/// What is asked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RdmaArgs {
    /// Only steps whose names begin with this (layout, transport, missing, one-guest, netem, idle, churn, two-guests), else only tests of the
    /// transport whose names contain it
    filter: Option<String>,
    /// Put the table of what idle services notice into README.md and docs/rdma.md
    #[arg(long)]
    write: bool,
    /// Fail where something is out of the ordinary that a busy machine may explain: alarms without a fault, an order by milliseconds, a few waits more.
    /// For an idle machine
    #[arg(long)]
    strict: bool,
}

/// Why nothing of this can be run on this machine; builds the guest if it is missing.
pub fn why_not() -> Option<String> {
    let takes = "it takes root and apt-get on Debian for x86-64";
    match Image::find() {
        Ok(found) => found.err().map(|why| format!("{why}; {takes}")),
        Err(error) => Some(format!("the guest could not be built: {error:#}; {takes}")),
    }
}

/// Runs everything that this machine can run, and says loudly what it cannot.
///
/// # Errors
///
/// Something that could run has failed.
pub fn run(arguments: &RdmaArgs) -> Result<()> {
    let Some(image) = image()? else { return Ok(()) };
    println!("== building what runs in the guests");
    run_in(&image, &Programs::build()?, arguments)
}

/// The same with `programs`.
///
/// # Errors
///
/// As for [`run`].
pub fn run_with(programs: &Programs, arguments: &RdmaArgs) -> Result<()> {
    image()?.map_or(Ok(()), |image| run_in(&image, programs, arguments))
}

fn image() -> Result<Option<Image>> {
    let found = Image::find()?;
    if let Err(why) = &found {
        println!("!! THE RDMA TESTS WERE NOT RUN: {why}.");
        println!(
            "!! They need root, for apt-get (cargo xtask rdma installs qemu and unpacks a kernel), on Debian for x86-64."
        );
    }
    Ok(found.ok())
}

fn run_in(image: &Image, programs: &Programs, arguments: &RdmaArgs) -> Result<()> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let steps: Vec<_> = STEPS.iter().filter(|(name, _, _)| name.starts_with(filter)).collect();
    let (stage, built) = clock::timed(|| Stage::new(image, programs, arguments.write));
    let stage = stage?;
    if steps.is_empty() {
        println!("!! No step is called {filter}: only tests of the transport that are named so are run.");
        transport(&stage, filter)?;
        return stage.findings.borrow().close(arguments.strict);
    }
    let mut times = vec![("building", built)];
    for (number, (name, what, work)) in (1..).zip(&steps) {
        println!("== {number} of {}: {name}: {what}", steps.len());
        let (result, time) = clock::timed(|| work(&stage));
        result.with_context(|| format!("{name} failed after {:.0} s", time.as_secs_f64()))?;
        println!("== {name}: {:.1} s", time.as_secs_f64());
        times.push((*name, time));
    }
    report(&times);
    stage.findings.borrow().close(arguments.strict)?;
    if steps.len() < STEPS.len() {
        println!("!! Only {} of {} steps were run.", steps.len(), STEPS.len());
    }
    Ok(())
}

fn report(times: &[(&str, Duration)]) {
    println!("== done");
    for (name, time) in times {
        println!("{name:12} {:6.1} s", time.as_secs_f64());
    }
    // Building depends on what was there before.
    let all: Duration = times[1..].iter().map(|(_, time)| *time).sum();
    println!("{:12} {:6.1} s", "together", all.as_secs_f64());
    if all > BUDGET {
        println!(
            "!! That is more than {} minutes: other work on this machine, or something became slow.",
            BUDGET.as_secs() / 60
        );
    }
}

impl<'a> Stage<'a> {
    fn new(image: &'a Image, programs: &Programs, write: bool) -> Result<Self> {
        let tests = ["test", "--package=transport", "--lib", "--features=device-tests", "--no-run"];
        Ok(Self {
            image,
            tests: image.program("transport-tests", &tests)?,
            uview: image.take(programs.path("uview")?, "uview")?,
            tool: image.take(programs.path("xtask")?, "xtask")?,
            write,
            findings: RefCell::default(),
        })
    }

    /// Runs a script of tests/rdma-vm/agents in one guest, with both programs.
    fn script(&self, name: &'static str, limit_s: u32) -> Result<String> {
        let file = format!("{name}.sh");
        let files = [self.uview.clone(), self.tool.clone(), script("agents/common.sh"), script("agents").join(&file)];
        let said =
            self.image.run(&Boot { name, command: &format!("sh ./{file}"), files: &files, limit_s, joined: None })?;
        self.findings.borrow_mut().read(name, &said);
        Ok(said)
    }
}

/// The transport's tests that `filter` names. What fails is run again, alone, on a fresh guest: times of a guest that stands still now and then are no
/// failure of ours. It has to succeed in one of a few runs, and is a finding.
fn transport(stage: &Stage, filter: &str) -> Result<()> {
    let files = [stage.tests.clone()];
    let mut command = format!("./transport-tests {filter} --test-threads=1");
    for run in 1.. {
        let boot = Boot { name: "tests", command: &command, files: &files, limit_s: 1200, joined: None };
        let (said, ended) = stage.image.start(&boot)?.outcome()?;
        let failed = failed_tests(&said);
        match ended {
            Ok(()) => break,
            Err(why) if failed.is_empty() || run == RUNS_OF_A_TEST => return Err(why),
            Err(_) => {}
        }
        let failed = failed.join(" ");
        stage
            .findings
            .borrow_mut()
            .add("transport", &format!("failed in run {run} of at most {RUNS_OF_A_TEST}: {failed}"));
        command = format!("./transport-tests --exact {failed} --test-threads=1");
    }
    Ok(())
}

/// The tests whose results are failures, by their full names.
fn failed_tests(said: &str) -> Vec<&str> {
    // The name, and what the test said, stand between; a line may hold neither.
    let results = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    results.collect()
}

fn missing(stage: &Stage) -> Result<()> {
    let files = [stage.tests.clone(), script("missing")];
    let command = "sh ./missing ./transport-tests";
    stage.image.run(&Boot { name: "missing", command, files: &files, limit_s: 600, joined: None })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_are_found_by_their_names() {
        let said = "running 3 tests\ntest verbs::tests::a ... ok\ntest verbs::tests::b ... FAILED\n\nfailures:\n    verbs::tests::b\n";

        assert_eq!(failed_tests(said), ["verbs::tests::b"]);
        assert!(failed_tests("test result: FAILED. 1 passed; 1 failed\n").is_empty());
    }
}

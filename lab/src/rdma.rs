//! Tests that need an RDMA device, in a virtual machine with a soft-RoCE device. The guest runs Debian's kernel and is
//! built by tests/rdma/vm/build-vm.

mod agents;
mod alarms;
mod churn;
mod findings;
pub mod guest;
pub mod guest_programs;
mod idle;
mod layout;
mod path;
mod ratio;
mod reads;
mod usage;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use support::clock::timed;

use crate::unavailable::Unavailable;
use findings::Findings;
use guest::{Boot, Image, script};
pub use guest_programs::{GuestProgram, run as be};
pub use ratio::{Peer, measure};
use support::programs::Programs;

/// Time limit of all steps together.
const BUDGET: Duration = Duration::from_mins(10);

/// Programs and settings of the steps.
struct TestContext<'a> {
    image: &'a Image,
    /// The transport's unit tests, which use the device.
    tests: PathBuf,
    /// Path of `uview`.
    uview: PathBuf,
    /// Path of this tool.
    tool: PathBuf,
    /// Whether to write tables into documents.
    write: bool,
    /// Findings that a busy machine may explain.
    findings: RefCell<Findings>,
}

/// A step: its name, its description, and its function.
type Step = (&'static str, &'static str, fn(&TestContext) -> Result<()>);

const STEPS: &[Step] = &[
    ("layout", "our structs of libibverbs and those of its header", |_| layout::compare()),
    ("transport", "the transport's tests on a soft-RoCE device", |context| transport(context, "verbs::tests")),
    ("missing", "messages where something is missing", incomplete),
    ("one-guest", "both agents in one guest", agents::one_guest),
    ("netem", "a fridge and two NIC agents on a path that delays and loses", agents::netem),
    ("idle", "idle services and the host agent while they are read", idle::run),
    ("churn", "series that come and go while workers die", churn::run),
    ("two-guests", "the agents in two guests, with everything that can go wrong", agents::two_guests),
];

/// Number of runs before a test on a device counts as failed.
const RUNS_OF_A_TEST: usize = 3;

/// Arguments of `cargo lab rdma`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RdmaArgs {
    /// Run only steps whose names begin with this (layout, transport, missing, one-guest, netem, idle, churn,
    /// two-guests), else only tests of the transport whose names contain it
    filter: Option<String>,
    /// Write the table of the step `idle` into docs/rdma.md
    #[arg(long)]
    write: bool,
    /// Fail for findings that a busy machine may explain, such as alarms without a fault, a different order by
    /// milliseconds, a few more context switches; for an idle machine
    #[arg(long)]
    strict: bool,
    /// Release build of `uview` to run in the guests, beside this program, which should be one, too: its endpoint is
    /// what others are compared with. Without it, both are built
    #[arg(long, value_name = "FILE")]
    uview: Option<PathBuf>,
}

/// Why the tests cannot run on this machine. Builds the guest if it is missing.
pub fn missing() -> Option<String> {
    let takes = "it takes root and apt-get on Debian for x86-64";
    match Image::find() {
        Ok(_) => None,
        Err(error) if error.is::<Unavailable>() => Some(format!("{error}; {takes}")),
        Err(error) => Some(format!("the guest could not be built: {error:#}; {takes}")),
    }
}

/// Runs all steps that this machine can run, and prints those that it cannot.
///
/// # Errors
///
/// A step failed.
pub fn run(arguments: &RdmaArgs) -> Result<()> {
    let Some(image) = image()? else { return Ok(()) };
    println!("== building what runs in the guests");
    // A call of cargo would wait for the others that CI makes meanwhile.
    let (uview, tool) = if let Some(uview) = &arguments.uview {
        (uview.clone(), std::env::current_exe()?)
    } else {
        let programs = Programs::build()?;
        (programs.path("uview")?.to_owned(), programs.path("lab")?.to_owned())
    };
    run_in(&image, (&uview, &tool), arguments)
}

fn image() -> Result<Option<Image>> {
    match Image::find() {
        Ok(image) => Ok(Some(image)),
        Err(error) if error.is::<Unavailable>() => {
            println!("!! THE RDMA TESTS WERE NOT RUN: {error}.");
            println!(
                "!! They need root, for apt-get (cargo lab rdma installs qemu and unpacks a kernel), on Debian for x86-64."
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn run_in(image: &Image, programs: (&Path, &Path), arguments: &RdmaArgs) -> Result<()> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let steps: Vec<_> = STEPS.iter().filter(|(name, _, _)| name.starts_with(filter)).collect();
    let (context, built) = timed(|| TestContext::new(image, programs, arguments.write));
    let context = context?;
    if steps.is_empty() {
        println!("!! No step is called {filter}: only tests of the transport that are named so are run.");
        transport(&context, filter)?;
        return context.findings.borrow().close(arguments.strict);
    }
    let mut times = vec![("building", built)];
    for (number, (name, what, work)) in (1..).zip(&steps) {
        println!("== {number} of {}: {name}: {what}", steps.len());
        let (result, time) = timed(|| work(&context));
        result.with_context(|| format!("{name} failed after {:.0} s", time.as_secs_f64()))?;
        println!("== {name}: {:.1} s", time.as_secs_f64());
        times.push((*name, time));
    }
    report(&times);
    context.findings.borrow().close(arguments.strict)?;
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
    // The time of building depends on earlier builds.
    let all: Duration = times[1..].iter().map(|(_, time)| *time).sum();
    println!("{:12} {:6.1} s", "together", all.as_secs_f64());
    if all > BUDGET {
        println!(
            "!! That is more than {} minutes: other work on this machine, or something became slow.",
            BUDGET.as_secs() / 60
        );
    }
}

impl<'a> TestContext<'a> {
    /// `programs`: `uview` and this tool.
    fn new(image: &'a Image, programs: (&Path, &Path), write: bool) -> Result<Self> {
        let tests = ["test", "--package=transport", "--lib", "--features=device-tests", "--no-run"];
        Ok(Self {
            image,
            tests: image.program("transport-tests", &tests)?,
            uview: image.take(programs.0, "uview")?,
            tool: image.take(programs.1, "lab")?,
            write,
            findings: RefCell::default(),
        })
    }

    /// Runs a script of tests/rdma/vm/agents in one guest, with both programs.
    fn script(&self, name: &'static str, limit_s: u32) -> Result<String> {
        let file = format!("{name}.sh");
        let files = [self.uview.clone(), self.tool.clone(), script("agents/common.sh"), script("agents").join(&file)];
        let output =
            self.image.run(&Boot { name, command: &format!("sh ./{file}"), files: &files, limit_s, joined: None })?;
        self.findings.borrow_mut().read(name, &output);
        Ok(output)
    }
}

/// The transport's tests selected by `filter`. A failed test is repeated alone in a fresh guest, since a guest may
/// stall at times. It has to succeed in one of a few runs, and is a finding.
fn transport(context: &TestContext, filter: &str) -> Result<()> {
    let files = [context.tests.clone()];
    let mut command = format!("./transport-tests {filter} --test-threads=1");
    for run in 1.. {
        let boot = Boot { name: "tests", command: &command, files: &files, limit_s: 1200, joined: None };
        let (output, ended) = context.image.start(&boot)?.outcome()?;
        let failed = failed_tests(&output);
        match ended {
            Ok(()) => break,
            Err(why) if failed.is_empty() || run == RUNS_OF_A_TEST => return Err(why),
            Err(_) => {}
        }
        let failed = failed.join(" ");
        context
            .findings
            .borrow_mut()
            .add("transport", &format!("failed in run {run} of at most {RUNS_OF_A_TEST}: {failed}"));
        command = format!("./transport-tests --exact {failed} --test-threads=1");
    }
    Ok(())
}

/// Full names of the failed tests.
fn failed_tests(output: &str) -> Vec<&str> {
    // Between are the name and the test's own output, which may be missing.
    let results = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    results.collect()
}

fn incomplete(context: &TestContext) -> Result<()> {
    let files = [context.tests.clone(), script("missing")];
    let command = "sh ./missing ./transport-tests";
    context.image.run(&Boot { name: "missing", command, files: &files, limit_s: 600, joined: None })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_are_found_by_their_names() {
        let output = "running 3 tests\ntest verbs::tests::a ... ok\ntest verbs::tests::b ... FAILED\n\nfailures:\n    verbs::tests::b\n";

        assert_eq!(failed_tests(output), ["verbs::tests::b"]);
        assert!(failed_tests("test result: FAILED. 1 passed; 1 failed\n").is_empty());
    }
}

//! What needs an RDMA device, in a virtual machine that has a soft one. The guest is Debian's kernel, built by tests/rdma-vm/build-vm.

mod agents;
mod alarms;
mod churn;
pub mod guest;
mod idle;
mod layout;
pub mod parts;
mod ratio;
mod reads;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock;
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
}

/// A step's name, what it is, and what does it.
type Step = (&'static str, &'static str, fn(&Stage) -> Result<()>);

const STEPS: &[Step] = &[
    ("layout", "our structs of libibverbs and those of its header", |_| layout::compare()),
    ("transport", "the transport's tests on a soft-RoCE device", |stage| transport(stage, "verbs::tests")),
    ("missing", "what is said where something is missing", missing),
    ("one-guest", "both agents in one guest", agents::one_guest),
    ("idle", "idle services and the host agent while they are read", idle::run),
    ("churn", "series that come and go while workers die", churn::run),
    ("two-guests", "the agents in two guests, with everything that can go wrong", agents::two_guests),
];

/// What is asked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RdmaArgs {
    /// Only steps whose names begin with this (layout, transport, missing, one-guest, idle, churn, two-guests), else only tests of the
    /// transport whose names contain it
    filter: Option<String>,
    /// Put the table of what idle services notice into README.md and docs/rdma.md
    #[arg(long)]
    write: bool,
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
    let image = match Image::find()? {
        Ok(image) => image,
        Err(why) => {
            println!("!! THE RDMA TESTS WERE NOT RUN: {why}.");
            println!(
                "!! They need root, for apt-get (cargo xtask rdma installs qemu and unpacks a kernel), on Debian for x86-64."
            );
            return Ok(());
        }
    };
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let steps: Vec<_> = STEPS.iter().filter(|(name, _, _)| name.starts_with(filter)).collect();
    println!("== building what runs in the guests");
    let (stage, built) = clock::timed(|| Stage::new(&image, arguments.write));
    let stage = stage?;
    if steps.is_empty() {
        println!("!! No step is called {filter}: only tests of the transport that are named so are run.");
        return transport(&stage, filter);
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
    fn new(image: &'a Image, write: bool) -> Result<Self> {
        let tests = ["test", "--package=transport", "--lib", "--features=device-tests", "--no-run"];
        Ok(Self {
            image,
            tests: image.program("transport-tests", &tests)?,
            uview: image.program("uview", &["build", "--release", "--package=uview-cli"])?,
            tool: image.program("xtask", &["build", "--release", "--package=xtask"])?,
            write,
        })
    }

    /// Runs a script of tests/rdma-vm/agents in one guest, with both programs.
    fn script(&self, name: &'static str, limit_s: u32) -> Result<String> {
        let file = format!("{name}.sh");
        let files = [self.uview.clone(), self.tool.clone(), script("agents/common.sh"), script("agents").join(&file)];
        self.image.run(&Boot { name, command: &format!("sh ./{file}"), files: &files, limit_s, joined: None })
    }
}

fn transport(stage: &Stage, filter: &str) -> Result<()> {
    let command = format!("./transport-tests {filter} --test-threads=1");
    let files = [stage.tests.clone()];
    stage.image.run(&Boot { name: "tests", command: &command, files: &files, limit_s: 300, joined: None })?;
    Ok(())
}

fn missing(stage: &Stage) -> Result<()> {
    let files = [stage.tests.clone(), script("missing")];
    let command = "sh ./missing ./transport-tests";
    stage.image.run(&Boot { name: "missing", command, files: &files, limit_s: 120, joined: None })?;
    Ok(())
}

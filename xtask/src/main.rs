//! `cargo xtask`: builds, checks and releases the project. `cargo lab` has the measurements.

mod arm64;
mod book;
mod ci;
mod command;
mod demo;
mod deny;
mod kubernetes;
mod licences;
mod monitoring;
mod p4;
mod proto;
mod release;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Builds and checks the project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compile what later steps of CI need: release programs, fuzz targets, what clippy and the documentation look at.
    Ahead,
    /// Build the NIC agent for a DPU's processors, and run its tests in an emulator.
    Arm64 {
        /// Build it and start it once, but run no tests (CI does this).
        #[arg(long)]
        build: bool,
    },
    /// Make a book of the pages in docs, in target/book, and check its links.
    Book {
        /// Draw diagrams that have no picture first. Needs npm and Chromium.
        #[arg(long)]
        draw: bool,
    },
    /// Run everything that CI runs.
    Ci {
        /// Leave out `cargo test --workspace`: it has been run, in so many seconds.
        #[arg(long, value_name = "SECONDS")]
        tests_took: Option<u64>,
        /// The run began so many seconds ago, and has 85 minutes: steps that would end later are not begun, which is
        /// said at the end.
        #[arg(long, value_name = "SECONDS")]
        elapsed: Option<u64>,
    },
    /// Check dependencies: licences, sources, bans, and advisories about them.
    Deny,
    /// Check the chart, and install it on a one-node cluster if there is one.
    Kubernetes {
        /// Write k8s/manifests, which is rendered from the chart.
        #[arg(long)]
        write: bool,
        /// The program that is installed. Without it: that of `cargo test --workspace`.
        #[arg(long, value_name = "FILE")]
        uview: Option<std::path::PathBuf>,
        /// On the cluster, run what takes long in place of what CI runs: all of it, half an hour or so, or those that
        /// are named.
        #[arg(long, value_name = "EXPERIMENT", num_args = 0..)]
        long: Option<Vec<kubernetes::Experiment>>,
    },
    /// Check the licence and the source of every dependency, without cargo-deny.
    Licences,
    /// Generate dashboards, alerts and the runbook from the table of metrics in docs/metrics.md.
    Monitoring {
        /// Only compare; fail if a file differs.
        #[arg(long)]
        check: bool,
    },
    /// Compile the P4 programs, and run them in the reference switch: registers and frames have to be the library's.
    P4 {
        /// Keep what was compiled.
        #[arg(long)]
        write: bool,
        /// Random frames, beside the golden vectors.
        #[arg(long, default_value_t = 10_000)]
        frames: usize,
        /// Seed of the random frames.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Build an archive for users, an image for Kubernetes, a bill of materials and checksums, the same bytes from the
    /// same commit.
    Release {
        /// Kind of machine, such as aarch64-unknown-linux-musl. Without it: this machine's.
        #[arg(long)]
        target: Option<String>,
        /// Folder to write to.
        #[arg(long, default_value = "target/release-files")]
        into: std::path::PathBuf,
        /// Build it once more, in a clone in another folder, and fail if a byte differs. Half an hour on two cores.
        #[arg(long)]
        twice: bool,
    },
    /// Generate wire/src/proto from wire/proto (no protoc needed).
    Proto {
        /// Only compare; fail if a file differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Ahead => ci::ahead(),
        Task::Arm64 { build } => arm64::run(if build { &arm64::Plan::Build } else { &arm64::Plan::Test }),
        Task::Book { draw } => book::make(draw),
        Task::Ci { tests_took, elapsed } => ci::run(tests_took, elapsed),
        Task::Deny => deny::run(),
        Task::Kubernetes { write, uview, long } => kubernetes::run(write, uview, long.as_deref()),
        Task::Licences => licences::check(),
        Task::Monitoring { check } => monitoring::generate(check),
        Task::P4 { write, frames, seed } => p4::run(&p4::Plan { write, frames, seed }),
        Task::Release { target, into, twice: false } => release::run(target.as_deref(), &into),
        Task::Release { target, into, twice: true } => release::run_twice(target.as_deref(), &into),
        Task::Proto { check } => proto::generate(check),
    }
}

//! `cargo xtask`: the project's own tools.

mod arm64;
mod ci;
mod clients;
mod clock;
mod demo;
mod figures;
mod licences;
mod proto;
mod rdma;
mod release;
mod reproduce;
mod scale;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own tools")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds the NIC agent for a DPU's processors, and runs its tests in an emulator.
    Arm64 {
        /// Build it and start it once, but run no tests (CI does this).
        #[arg(long)]
        build: bool,
    },
    /// Runs everything that CI runs.
    Ci {
        /// Leave out `cargo test --workspace` (CI has run the README's test command already).
        #[arg(long)]
        skip_tests: bool,
    },
    /// Tries OpenTelemetry's SDKs for Python, Node and Rust, as they are, with uview between them and where they send.
    Clients {
        #[command(flatten)]
        arguments: clients::ClientsArgs,
    },
    /// Measures every figure that the documentation claims, or the named ones; writes docs/figures.json and docs/figures.md.
    Figures {
        /// Names of figures, or what they begin with.
        names: Vec<String>,
    },
    /// Be one of the processes that a figure needs.
    #[command(hide = true)]
    Part {
        #[command(subcommand)]
        part: figures::Part,
    },
    /// Checks the licence of every dependency.
    Licences,
    /// Generates wire/src/proto from wire/proto (no protoc needed).
    Proto {
        /// Only compare; fail if a file differs.
        #[arg(long)]
        check: bool,
    },
    /// Computes what a DPU can watch: the tables of docs/scale.md.
    Scale {
        /// Put them there.
        #[arg(long)]
        write: bool,
    },
    /// Holds what a publication claims against what this project does.
    Reproduce {
        #[command(subcommand)]
        what: reproduce::What,
    },
    /// Runs the tests that need an RDMA device in a virtual machine that has a soft one.
    Rdma {
        #[command(flatten)]
        arguments: rdma::RdmaArgs,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Arm64 { build } => arm64::run(if build { &arm64::Plan::Build } else { &arm64::Plan::Test }),
        Task::Ci { skip_tests } => ci::run(skip_tests),
        Task::Clients { arguments } => clients::run(arguments),
        Task::Figures { names } => figures::run(&names),
        Task::Part { part } => figures::be(part),
        Task::Licences => licences::check(),
        Task::Proto { check } => proto::generate(check),
        Task::Reproduce { what } => reproduce::run(&what),
        Task::Scale { write } => scale::run(write),
        Task::Rdma { arguments } => rdma::run(&arguments),
    }
}

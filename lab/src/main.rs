//! `cargo lab`: measurements and reproductions. Writes docs/figures.md, docs/scale.md and docs/reproduction.

mod adaptive;
mod bounds;
mod clients;
mod clock;
mod figures;
mod memory;
mod rdma;
mod reproduce;
mod scale;
mod sources;
mod switch;
mod unavailable;
mod upgrade;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(name = "cargo lab", about = "Measures what the documentation claims")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compare how soon faults are noticed, and how many READs it takes, with and without faster fetches while
    /// something seems wrong. In virtual time; a minute.
    Adaptive {
        #[command(flatten)]
        arguments: adaptive::AdaptiveArgs,
    },
    /// Compute what the agents keep in memory at most: the tables of docs/bounds.md.
    Bounds {
        /// Write the tables into docs/bounds.md.
        #[arg(long)]
        write: bool,
    },
    /// Run the OpenTelemetry SDKs for Python, Node and Rust, unmodified, with uview between them and their receiver.
    Clients {
        #[command(flatten)]
        arguments: clients::ClientsArgs,
    },
    /// Measure all figures of the documentation, or the named ones. Writes docs/figures.json and docs/figures.md.
    Figures {
        /// Names of figures, or prefixes of names.
        names: Vec<String>,
    },
    /// Compare the memory of both agents with their budgets, while services restart with other names.
    Memory {
        #[command(flatten)]
        arguments: memory::MemoryArgs,
    },
    /// Print why a subject cannot run on this machine; nothing if it can.
    #[command(hide = true)]
    Missing { subject: Subject },
    /// Run a helper process of a figure.
    #[command(name = "part", hide = true)]
    Helper {
        #[command(subcommand)]
        part: figures::Helper,
    },
    /// Compute how many services one core of a DPU can monitor: the tables of docs/scale.md.
    Scale {
        /// Write the tables into docs/scale.md.
        #[arg(long)]
        write: bool,
    },
    /// Run Redis, nginx and PostgreSQL under load and faults, and compare how `uview watch` and their exporters'
    /// endpoints notice. Writes docs/reproduction/sources.md with --write.
    Sources {
        #[command(flatten)]
        arguments: sources::SourcesArgs,
    },
    /// Test the claims of a publication against this implementation.
    Reproduce {
        #[command(subcommand)]
        publication: reproduce::Publication,
    },
    /// Run the tests that need an RDMA device, in a virtual machine with a soft-RoCE device.
    Rdma {
        #[command(flatten)]
        arguments: rdma::RdmaArgs,
    },
    /// Measure real TCP in P4 programs that it passes and at the host's own interface, and compare the verdicts (root;
    /// `simple_switch` on the PATH, else the interpreter). A quarter of an hour. Writes docs/reproduction/switch.md
    /// with --write.
    Switch {
        #[command(flatten)]
        arguments: switch::SwitchArgs,
    },
    /// Upgrade the agents of a node from one release to another and back, one after the other, and move LMAPs between
    /// NIC agents of both, while services run. Three minutes.
    Upgrade {
        #[command(flatten)]
        arguments: upgrade::UpgradeArgs,
    },
}

/// Subjects that need more than a compiler.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    Clients,
    Rdma,
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Adaptive { arguments } => adaptive::run(&arguments),
        Task::Bounds { write } => bounds::run(write),
        Task::Memory { arguments } => memory::run(&arguments),
        Task::Clients { arguments } => clients::run(arguments),
        Task::Figures { names } => figures::run(&names),
        Task::Missing { subject } => {
            let missing = match subject {
                Subject::Clients => clients::missing(),
                Subject::Rdma => rdma::missing(),
            };
            if let Some(why) = missing {
                println!("{}{why}", support::MISSING);
            }
            Ok(())
        }
        Task::Helper { part } => figures::run_helper(part),
        Task::Reproduce { publication } => reproduce::run(&publication),
        Task::Scale { write } => scale::run(write),
        Task::Sources { arguments } => sources::run(&arguments),
        Task::Rdma { arguments } => rdma::run(&arguments),
        Task::Switch { arguments } => switch::run(&arguments),
        Task::Upgrade { arguments } => upgrade::run(&arguments),
    }
}

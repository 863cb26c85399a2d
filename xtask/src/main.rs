//! `cargo xtask`: the project's own tools.

mod proto;

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
    /// Generates wire/src/proto from wire/proto (no protoc needed).
    Proto {
        /// Only compare; fail if a file differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Proto { check } => proto::generate(check),
    }
}

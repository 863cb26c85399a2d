//! The NIC agent as a program of its own, for a DPU or a host; `uview nic-agent` is the same.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use daemon::program::{self, ConfigArgs};
use daemon::{logs, stop};
use nic_agent::config::{Config, DEFAULT};

/// Fetches metric regions, judges them, and tells the host agent what it found.
#[derive(Debug, Parser)]
#[command(name = "uview-nic-agent", version)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
}

fn main() -> ExitCode {
    program::run("uview-nic-agent", &Arguments::parse().config, DEFAULT, start)
}

fn start(config: Config) -> Result<(), Box<dyn Error>> {
    logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::requested()?;
        Ok(nic_agent::run(config, stop).await?)
    })
}

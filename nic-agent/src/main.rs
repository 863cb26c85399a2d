//! The NIC agent as a program, for a DPU or a host. `uview nic-agent` is the same.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use agent_runtime::program::{self, ConfigArgs, Program};
use agent_runtime::{logs, stop};
use clap::Parser;
use nic_agent::config::{Config, DEFAULT};

/// Fetch metric regions, detect anomalies, and report them to the host agent.
#[derive(Debug, Parser)]
#[command(name = "uview-nic-agent", version)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
}

fn main() -> ExitCode {
    let (check, budget) = (nic_agent::check_config, nic_agent::budget_of);
    let program = Program { name: "uview-nic-agent", default: DEFAULT, check, budget };
    let args = Arguments::parse().config;
    let file = args.config.clone();
    program::run(&program, &args, |config| start(config, file))
}

fn start(config: Config, file: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::requested()?;
        Ok(nic_agent::run_from(config, file, stop).await?)
    })
}

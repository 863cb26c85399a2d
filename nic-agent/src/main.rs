//! The NIC agent as a program, for a DPU or a host. `uview nic-agent` is the same.

use std::error::Error;
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
    let program = Program { name: "uview-nic-agent", default: DEFAULT, check: nic_agent::check_config };
    program::run(&program, &Arguments::parse().config, start)
}

fn start(config: Config) -> Result<(), Box<dyn Error>> {
    logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::requested()?;
        Ok(nic_agent::run(config, stop).await?)
    })
}

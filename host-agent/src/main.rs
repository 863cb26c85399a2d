//! The host agent as a stand-alone program, the same as `uview host-agent`.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_runtime::program::{self, Program};
use agent_runtime::{logs, stop};
use clap::Parser;
use host_agent::HostAgentArgs;
use host_agent::config::{Config, DEFAULT};

/// The control plane of a node: services register with it, and it hands their metrics to NIC workers.
#[derive(Debug, Parser)]
#[command(name = "uview-host-agent", version)]
struct Arguments {
    #[command(flatten)]
    agent: HostAgentArgs,
}

fn main() -> ExitCode {
    let (check, budget) = (host_agent::check_config, host_agent::budget_of);
    let program = Program { name: "uview-host-agent", default: DEFAULT, check, budget };
    let args = Arguments::parse().agent;
    if args.print_custom_resources {
        return print_custom_resources();
    }
    let file = args.config.config.clone();
    program::run(&program, &args.config, |config| start(args.named(config), file))
}

fn print_custom_resources() -> ExitCode {
    let text = host_agent::custom_resources();
    text.map_or(ExitCode::FAILURE, |text| program::print(&text, ExitCode::SUCCESS))
}

fn start(config: Config, file: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = stop::requested()?;
        host_agent::run_from(config, file, stop).await.map_err(Box::<dyn Error>::from)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

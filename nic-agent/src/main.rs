//! The NIC agent as a program of its own, for a DPU or a host.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nic_agent::config::{Config, DEFAULT};
use tokio::signal::unix::{SignalKind, signal};

/// Fetches metric regions, judges them, and tells the host agent what it found.
#[derive(Debug, Parser)]
#[command(name = "uview-nic-agent", version)]
struct Arguments {
    /// The configuration file; every key has a default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every key with its default and what it is for.
    #[arg(long)]
    print_default_config: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.print_default_config {
        print!("{DEFAULT}");
        return ExitCode::SUCCESS;
    }
    match start(arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("uview-nic-agent: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn start(path: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    let config = path.map_or_else(|| Ok(Config::default()), |path| Config::load(&path))?;
    nic_agent::logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Ok(nic_agent::run(config, shutdown).await?)
    })
}

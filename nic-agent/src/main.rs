//! The NIC agent as a program of its own, for a DPU or a host.

use std::io::{ErrorKind, Write as _};
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
        // Whoever closes the pipe early has what they wanted.
        return match std::io::stdout().write_all(DEFAULT.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    match start(arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
            let text: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("uview-nic-agent: {}", text.join(": "));
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

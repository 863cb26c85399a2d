//! The host agent as a program of its own; `uview host-agent` is the same.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use host_agent::config::{self, Config};
use host_agent::{logs, stop};

/// The control plane of a node: services register with it, and it hands their metrics to NIC workers.
#[derive(Debug, Parser)]
#[command(name = "uview-host-agent", version)]
struct Arguments {
    /// The configuration; without one, the defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Prints every key of the configuration with its default, and ends.
    #[arg(long)]
    print_default_config: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.print_default_config {
        // Whoever closes the pipe early has what they wanted.
        return match std::io::stdout().write_all(config::DEFAULT.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
            let text: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("uview-host-agent: {}", text.join(": "));
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let config = match &arguments.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    logs::init(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = stop::requested()?;
        host_agent::run(config, stop).await.map_err(Box::<dyn std::error::Error>::from)
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended
}

//! Programs of this tool that run in a guest in addition to the agents.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;

use super::usage::{EndCondition, NamedProcess};
use super::{alarms, churn, path, reads, usage};

/// The programs, as subcommands.
#[derive(Debug, clap::Subcommand)]
pub enum GuestProgram {
    /// Print the processor time of processes as a line of JSON.
    Usage {
        /// Name of the phase.
        #[arg(long)]
        phase: String,
        #[command(flatten)]
        until: EndCondition,
        /// Address of the NIC agent's metrics.
        #[arg(long)]
        nic: Option<SocketAddr>,
        /// Processes to measure, as NAME=PID.
        processes: Vec<NamedProcess>,
    },
    /// Run a service whose series come and go, and check the values in its rows.
    Churn {
        /// Socket of the host agent for services.
        #[arg(long)]
        socket: PathBuf,
        /// Address of the host agent for operators, such as unix:/run/uview/operators.sock.
        #[arg(long)]
        operators: String,
        /// Number of series.
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
        /// Reuse slots before they are retired: the negative control.
        #[arg(long)]
        hasty: bool,
    },
    /// Print a line for the start and the end of each alarm, forever.
    Alarms {
        /// Address of the host agent for operators, such as unix:/run/uview/operators.sock.
        #[arg(long)]
        operators: String,
    },
    /// Evaluate the output of `alarms` together with the marks of faults.
    Judge {
        /// The file to evaluate.
        file: PathBuf,
    },
    /// Read regions of a page by RDMA from this process itself; print the median time in nanoseconds.
    Reads {
        /// Regions per batch.
        #[arg(long)]
        regions: u64,
        /// Number of batches.
        #[arg(long)]
        batches: usize,
    },
    /// Receive datagrams and connections at the other end of a path, forever.
    PathSink,
    /// Send datagrams over a path, and make connections.
    PathSend {
        /// The other end.
        #[arg(long)]
        to: IpAddr,
        /// Duration in seconds.
        #[arg(long)]
        seconds: f64,
        /// Datagrams per second.
        #[arg(long)]
        per_second: u32,
    },
    /// Evaluate the measurements of a path.
    JudgePath {
        #[command(flatten)]
        measured: path::Measured,
    },
}

/// Runs the program until it ends.
///
/// # Errors
///
/// It cannot start, or its check failed.
pub fn run(part: GuestProgram) -> Result<()> {
    match part {
        GuestProgram::Usage { phase, until, nic, processes } => usage::run(&phase, until, nic, &processes),
        GuestProgram::Churn { socket, operators, cycles, hasty } => {
            churn::run_service(socket, operators, cycles, hasty)
        }
        GuestProgram::Alarms { operators } => alarms::watch(&operators),
        GuestProgram::Judge { file } => alarms::judge_file(&file),
        GuestProgram::Reads { regions, batches } => reads::run(regions, batches),
        GuestProgram::PathSink => path::sink(),
        GuestProgram::PathSend { to, seconds, per_second } => path::send(to, seconds, per_second),
        GuestProgram::JudgePath { measured } => path::judge(&measured),
    }
}

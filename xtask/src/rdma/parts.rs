//! What runs in a guest beside the agents: this tool, as one of these.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;

use super::usage::{Named, Until};
use super::{alarms, churn, path, reads, usage};

/// One of them.
#[derive(Debug, clap::Subcommand)]
pub enum GuestPart {
    /// Print what processes use of a processor as a line of JSON.
    Usage {
        /// What goes on meanwhile.
        #[arg(long)]
        phase: String,
        #[command(flatten)]
        until: Until,
        /// Where the NIC agent's metrics are.
        #[arg(long)]
        nic: Option<SocketAddr>,
        /// NAME=PID.
        processes: Vec<Named>,
    },
    /// Be a service whose series come and go, and watch what the agents say of their values.
    Churn {
        /// Where the host agent listens for services.
        #[arg(long)]
        socket: PathBuf,
        /// Where it listens for operators.
        #[arg(long)]
        operators: SocketAddr,
        /// So many series.
        #[arg(long, default_value_t = 1000)]
        cycles: u64,
        /// Use slots again before they are retired: be the control that has to be seen.
        #[arg(long)]
        hasty: bool,
    },
    /// Print a line for the beginning and the end of each alarm, for ever.
    Alarms {
        /// Where the host agent listens for operators.
        #[arg(long)]
        operators: SocketAddr,
    },
    /// Judge what `alarms` has printed, with the marks between it.
    Judge {
        /// The file.
        file: PathBuf,
    },
    /// Read regions of a page by RDMA from this process itself; print how many nanoseconds that takes, as a median.
    Reads {
        /// Regions of a batch.
        #[arg(long)]
        regions: u64,
        /// Batches.
        #[arg(long)]
        batches: usize,
    },
    /// Take datagrams and connections at the other end of a path, for ever.
    PathSink,
    /// Send datagrams over a path, and make connections.
    PathSend {
        /// The other end.
        #[arg(long)]
        to: IpAddr,
        /// For so long.
        #[arg(long)]
        seconds: f64,
        /// Datagrams a second.
        #[arg(long)]
        per_second: u32,
    },
    /// Judge what was measured of a path.
    JudgePath {
        #[command(flatten)]
        measured: path::Measured,
    },
}

/// Is the part until it ends.
///
/// # Errors
///
/// It cannot be, or what it looks for is not as it has to be.
pub fn run(part: GuestPart) -> Result<()> {
    match part {
        GuestPart::Usage { phase, until, nic, processes } => usage::run(&phase, until, nic, &processes),
        GuestPart::Churn { socket, operators, cycles, hasty } => churn::be(socket, operators, cycles, hasty),
        GuestPart::Alarms { operators } => alarms::watch(operators),
        GuestPart::Judge { file } => alarms::judge_file(&file),
        GuestPart::Reads { regions, batches } => reads::run(regions, batches),
        GuestPart::PathSink => path::sink(),
        GuestPart::PathSend { to, seconds, per_second } => path::send(to, seconds, per_second),
        GuestPart::JudgePath { measured } => path::judge(&measured),
    }
}

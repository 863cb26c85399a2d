//! `uview synopsis`: delay, loss, order and variety of all packets of a capture or an interface, with kilobytes of
//! memory.

pub mod cdf;
pub mod comb;
pub mod flows;
pub mod fridge;
pub mod mean_plot;
pub mod plot;
pub mod rda;
pub mod report;
pub mod source;

use std::path::PathBuf;

use clap::ValueEnum;
use packets::flows::{Key, Weight};
use packets::{Filter, Pair, View};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

/// The long help of the subcommand.
pub(crate) const LONG_ABOUT: &str = "\
Measures delay, loss, order and variety of all packets with kilobytes of memory.

fridge    delays between requests and responses that pass one point: TCP handshakes, TCP data and its
          acknowledgements, TCP connections, DNS, NTP. The distribution is not biased against long delays
finecomb  mean and standard deviation of the one-way delay, and loss, between two points with synchronized clocks:
          --pcap is the sender's capture, --receiver the receiver's, of the same packets with the same snap length
lda       the predecessor of finecomb, for comparison: wrong if packets are reordered across the end of an interval
rda       the same, exact: packets that are in one capture only are identified, and late packets are distinguished from
          lost ones. Two NIC agents do it while packets pass (`one_way` in a NIC agent's streams)
reordering     prefixes of sources (/24, /48) whose TCP packets come out of order, because they took different paths
               or were lost and sent again
heavy-hitters  the sources, destinations, flows or ports with most bytes or packets
cardinality    distinct flows, sources and destination ports of each interval; the source with most destinations (a
               scan), and the destination with most flows (a flood)

The last three are of fixed size, and what a NIC agent does with `synopses` in its streams.

Estimates have a confidence interval or the number of packets behind them. Untrustworthy results are marked with CAUTION,
and the exit code is 2.";

/// The kinds of synopses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Delays between requests and responses at one point
    Fridge,
    /// One-way delay and loss between two points
    Finecomb,
    /// One-way delay and loss by FineComb's predecessor
    Lda,
    /// Exact one-way delay and loss, by comparing the packets of both points
    Rda,
    /// Source prefixes with packets out of order
    Reordering,
    /// Who has most bytes or packets
    HeavyHitters,
    /// Distinct flows, sources and ports of each interval
    Cardinality,
}

/// Arguments of `uview synopsis`.
#[derive(Clone, Debug, clap::Args)]
pub struct SynopsisArgs {
    /// The synopsis to compute
    kind: Kind,
    /// Capture file, pcap or pcapng
    #[arg(long, value_name = "FILE", required_unless_present = "interface", conflicts_with = "interface")]
    pcap: Option<PathBuf>,
    /// Network interface to watch; needs root or CAP_NET_RAW
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// finecomb, lda, rda: capture file of the receiver
    #[arg(long, value_name = "FILE", requires = "pcap")]
    receiver: Option<PathBuf>,
    /// Seconds to watch the interface
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// fridge: requests and responses to match: handshake, data, flow, dns, ntp
    #[arg(long, value_name = "PAIR", default_value = "handshake", value_parser = pair)]
    pair: Pair,
    /// Packets to measure: tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, each with optional `src`,
    /// `dst`, `not`
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: Filter,
    /// Measure the packets inside VXLAN tunnels
    #[arg(long)]
    inner: bool,
    /// fridge, finecomb, lda, rda: memory of the synopsis in KiB, at each point (rda: upper limit of its cells)
    #[arg(long, value_name = "KIB", default_value_t = 48)]
    memory: usize,
    /// fridge: probability that a request is admitted; 0 adapts it to the traffic once a second
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    probability: f64,
    /// finecomb: share of packets to sample; use less if more packets are lost
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    sampled: f64,
    /// heavy-hitters: what is weighed
    #[arg(long, value_name = "KEY", default_value = "source", value_parser = flows::key)]
    by: Key,
    /// heavy-hitters: by what it is weighed
    #[arg(long, value_name = "WEIGHT", default_value = "bytes", value_parser = flows::weight)]
    weight: Weight,
    /// reordering, heavy-hitters: most lines
    #[arg(long, value_name = "LINES", default_value_t = 10)]
    top: usize,
    /// finecomb, lda, rda, cardinality: length of an interval in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    interval: f64,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// fridge: draw the distribution into this file; rda: draw the means
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl SynopsisArgs {
    const fn view(&self) -> View {
        if self.inner { View::Inner } else { View::Outer }
    }
}

fn pair(name: &str) -> Result<Pair, String> {
    let names = Pair::ALL.map(Pair::name);
    Pair::of_name(name).ok_or_else(|| format!("possible values: {}", names.join(", ")))
}

/// Measures and prints the report. Returns [`Exit::Attention`] if the result cannot be trusted.
///
/// # Errors
///
/// [`Failure`] if the packets cannot be read, or an argument is out of range.
pub fn run(args: &SynopsisArgs) -> Result<Exit, Failure> {
    match args.kind {
        Kind::Fridge => {
            let measured = fridge::measure(args)?;
            if let Some(path) = &args.svg {
                plot::save(&measured, path)
                    .map_err(|error| Failure::to(format!("draw {}", path.display())).because(error))?;
            }
            output::print(&if args.json { json(&measured.view())? } else { measured.to_string() })?;
            Ok(if measured.is_trusted() { Exit::Fine } else { Exit::Attention })
        }
        Kind::Rda => {
            let measured = rda::measure(args)?;
            if let Some(path) = &args.svg {
                mean_plot::save(&measured, path)
                    .map_err(|error| Failure::to(format!("draw {}", path.display())).because(error))?;
            }
            output::print(&if args.json { json(&measured)? } else { measured.to_string() })?;
            Ok(if measured.is_trusted() { Exit::Fine } else { Exit::Attention })
        }
        Kind::Reordering | Kind::HeavyHitters | Kind::Cardinality => {
            let measured = flows::measure(args)?;
            output::print(&if args.json { json(&measured)? } else { measured.to_string() })?;
            Ok(if measured.is_trusted() { Exit::Fine } else { Exit::Attention })
        }
        Kind::Finecomb | Kind::Lda => {
            let measured = comb::measure(args)?;
            output::print(&if args.json { json(&measured)? } else { measured.to_string() })?;
            Ok(if measured.is_trusted() { Exit::Fine } else { Exit::Attention })
        }
    }
}

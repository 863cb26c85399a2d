//! `uview synopsis`: delay and loss of all packets of a capture or an interface, from kilobytes of memory.

pub mod cdf;
pub mod comb;
pub mod course;
pub mod fridge;
pub mod plot;
pub mod rda;
pub mod report;
pub mod source;

use std::path::PathBuf;

use clap::ValueEnum;
use packets::{Filter, Pair, View};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

const LONG_ABOUT: &str = "\
Measures delay and loss of all packets with kilobytes of memory.

fridge    delays between requests and responses, as they pass one point: TCP handshakes, TCP data and its
          acknowledgements, TCP connections, DNS, NTP. A distribution without a bias against long delays
finecomb  mean and deviation of the one-way delay, and loss, between two points of one clock: --pcap is the sender's
          capture, --receiver the receiver's. Both of the same packets, captured with the same snap length
lda       the same without digests, as its predecessor did it: wrong where packets change places over the end of an
          interval, here to be compared with
rda       the same, exact: what only one of the two captures has is named and taken out, and what was late is told from
          what was lost. Two agents do it while packets pass (`compared` in a NIC agent's streams)

What is estimated comes with how much it rests on; what cannot be trusted is marked.";

/// Which synopsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Delays between requests and responses at one point
    Fridge,
    /// One-way delay and loss between two points
    Finecomb,
    /// The same, as FineComb's predecessor did it
    Lda,
    /// The same, exact, by packets that both points remember
    Rda,
}

/// Arguments of `uview synopsis`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = LONG_ABOUT)]
pub struct SynopsisArgs {
    /// Which one
    kind: Kind,
    /// A capture: pcap or pcapng
    #[arg(long, value_name = "FILE", required_unless_present = "interface", conflicts_with = "interface")]
    pcap: Option<PathBuf>,
    /// A network interface; takes root or CAP_NET_RAW
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// finecomb, lda, rda: the receiver's capture
    #[arg(long, value_name = "FILE", requires = "pcap")]
    receiver: Option<PathBuf>,
    /// Seconds to watch an interface
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// fridge: what is a request, and what its response: handshake, data, flow, dns, ntp
    #[arg(long, value_name = "PAIR", default_value = "handshake", value_parser = pair)]
    pair: Pair,
    /// Which packets count: tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, each with `src`, `dst`, `not`
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: Filter,
    /// Look at the packets within VXLAN tunnels
    #[arg(long)]
    inner: bool,
    /// Memory of the synopsis, in KiB; of either point (rda: of its cells, at the most)
    #[arg(long, value_name = "KIB", default_value_t = 48)]
    memory: usize,
    /// fridge: with which probability a request enters; 0 lets it follow the traffic from 1 on, once a second
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    probability: f64,
    /// finecomb: the share of packets that is sampled; less where more are lost
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    sampled: f64,
    /// finecomb, lda, rda: milliseconds of an interval
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    interval: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// fridge, rda: draw the distribution, or the course of the mean, into a file
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
    Pair::of_name(name).ok_or_else(|| format!("possible are {}", names.join(", ")))
}

/// Measures and reports.
///
/// # Errors
///
/// [`Failure`] if there is nothing to read, or what is asked for cannot be.
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
                course::save(&measured, path)
                    .map_err(|error| Failure::to(format!("draw {}", path.display())).because(error))?;
            }
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

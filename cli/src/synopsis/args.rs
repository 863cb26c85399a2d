//! The arguments of `uview synopsis`.

use std::path::PathBuf;

use clap::ValueEnum;
use packets::flows::{Key, Weight};
use packets::{Filter, Pair, View};

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
    /// Packets of the largest flows
    Fragment,
}

/// Arguments of `uview synopsis`.
#[derive(Clone, Debug, clap::Args)]
pub struct SynopsisArgs {
    /// The synopsis to compute
    pub(super) kind: Kind,
    /// Capture file, pcap or pcapng
    #[arg(long, value_name = "FILE", required_unless_present = "interface", conflicts_with = "interface")]
    pub(super) pcap: Option<PathBuf>,
    /// Network interface to watch; needs root or CAP_NET_RAW
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// finecomb, lda, rda, fragment: capture file of the receiver
    #[arg(long, value_name = "FILE", requires = "pcap")]
    pub(super) receiver: Option<PathBuf>,
    /// Seconds to watch the interface
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10.0)]
    pub(super) seconds: f64,
    /// fridge: requests and responses to match: handshake, data, flow, dns, ntp
    #[arg(long, value_name = "PAIR", default_value = "handshake", value_parser = pair)]
    pub(super) pair: Pair,
    /// Packets to measure: tcp, udp, port N, host A, net A/N, vlan N, vni N, joined by `and`, each with optional `src`,
    /// `dst`, `not`
    #[arg(long, value_name = "FILTER", default_value = "")]
    pub(super) filter: Filter,
    /// Measure the packets inside VXLAN tunnels
    #[arg(long)]
    pub(super) inner: bool,
    /// fridge, finecomb, lda, rda, fragment: memory of the synopsis in KiB, at each point (rda: upper limit of its
    /// cells)
    #[arg(long, value_name = "KIB", default_value_t = 48)]
    pub(super) memory: usize,
    /// fridge: probability that a request is admitted; 0 adapts it to the traffic once a second
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(super) probability: f64,
    /// finecomb: share of packets to sample; use less if more packets are lost
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(super) sampled: f64,
    /// heavy-hitters: what is weighed
    #[arg(long, value_name = "KEY", default_value = "source", value_parser = key)]
    pub(super) by: Key,
    /// heavy-hitters: by what it is weighed
    #[arg(long, value_name = "WEIGHT", default_value = "bytes", value_parser = weight)]
    pub(super) weight: Weight,
    /// reordering, heavy-hitters, fragment: most lines
    #[arg(long, value_name = "LINES", default_value_t = 10)]
    pub(super) top: usize,
    /// reordering: leading bits of an IPv4 address that make its prefix
    #[arg(long, value_name = "BITS", default_value_t = 24)]
    pub(super) prefix: u8,
    /// reordering: leading bits of an IPv6 address that make its prefix
    #[arg(long, value_name = "BITS", default_value_t = 48)]
    pub(super) prefix6: u8,
    /// finecomb, lda, rda, cardinality: length of an interval in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    pub(super) interval: f64,
    /// Print JSON, for programs
    #[arg(long)]
    pub(super) json: bool,
    /// fridge: draw the distribution into this file; rda: draw the means; fragment: draw the sizes
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

impl SynopsisArgs {
    /// Which packets of a tunnel are measured.
    pub(super) const fn view(&self) -> View {
        if self.inner { View::Inner } else { View::Outer }
    }
}

fn pair(name: &str) -> Result<Pair, String> {
    let names = Pair::ALL.map(Pair::name);
    Pair::of_name(name).ok_or_else(|| format!("possible values: {}", names.join(", ")))
}

/// The key of this name.
fn key(name: &str) -> Result<Key, String> {
    let names = Key::ALL.map(Key::name).join(", ");
    Key::ALL.into_iter().find(|key| key.name() == name).ok_or_else(|| format!("possible values: {names}"))
}

/// The weight of this name.
fn weight(name: &str) -> Result<Weight, String> {
    let found = [Weight::Packets, Weight::Bytes].into_iter().find(|weight| weight.name() == name);
    found.ok_or_else(|| "possible values: packets, bytes".to_owned())
}

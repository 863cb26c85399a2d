//! `uview synopsis`: delay, loss, order and variety of all packets of a capture or an interface, with kilobytes of
//! memory.

mod args;
pub mod cdf;
pub mod comb;
pub mod flows;
pub mod fragment;
pub mod fragment_plot;
pub mod fridge;
pub mod fridge_totals;
pub mod mean_plot;
pub mod plot;
pub mod rda;
pub mod report;
pub mod source;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, json};

pub use args::{Kind, SynopsisArgs};

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
fragment       packets of the largest flows, from counters that flows share: never too small. With
               --receiver the least of the counts at both ends

The last four are of fixed size, and what a NIC agent does: with `synopses` in its streams, the last
with `network.fragment`.

Estimates have a confidence interval or the number of packets behind them. Untrustworthy results are marked with CAUTION,
and the exit code is 2.";

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
        Kind::Fragment => {
            let measured = fragment::measure(args)?;
            if let Some(path) = &args.svg {
                fragment_plot::save(&measured, path)
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

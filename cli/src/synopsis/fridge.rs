//! Delays between requests and responses at one point, measured with a fridge.

use packets::{Delays, DelaysSettings};
use synopses::fridge::{HistogramShape, Settings};

use super::args::SynopsisArgs;
use super::fridge_totals::FridgeTotals;
use super::report::FridgeReport;
use super::source::{PacketSource, open};
use crate::failure::Failure;

/// The length of an interval, after which the fridge's probability may adapt to the traffic.
const SECOND_NS: u64 = 1_000_000_000;
/// Resolution of delays: 2⁶ ns, for delays up to two minutes.
const TICK_SHIFT: u32 = 6;
/// Resolution for flows, which last longer: 2¹⁰ ns, up to 37 minutes.
const FLOW_TICK_SHIFT: u32 = 10;

/// Reads all packets and measures their delays.
///
/// # Errors
///
/// [`Failure`] if the packets cannot be read, or an argument is out of range.
pub fn measure(args: &SynopsisArgs) -> Result<FridgeReport, Failure> {
    measure_of(args, open)
}

fn measure_of(
    args: &SynopsisArgs,
    open: impl FnOnce(&SynopsisArgs) -> Result<PacketSource, Failure>,
) -> Result<FridgeReport, Failure> {
    let what = "measure delays with a fridge";
    let tick_shift = if args.pair == packets::Pair::Flow { FLOW_TICK_SHIFT } else { TICK_SHIFT };
    let tuned = args.probability == 0.0;
    let fridge = Settings {
        slots: Settings::slots_within(args.memory.saturating_mul(1024)),
        probability: if tuned { 1.0 } else { args.probability },
        tick_shift,
        seed: rand_seed(),
        ..Settings::default()
    };
    let histogram = HistogramShape { tick_shift, fineness: 4 };
    let secret = (u128::from(rand_seed()) << 64) | u128::from(rand_seed());
    let settings = DelaysSettings { pair: args.pair, filter: args.filter.clone(), fridge, histogram, tuned, secret };
    let mut delays = Delays::new(settings).map_err(|error| Failure::to(what).caused_by(&error))?;
    let mut all = FridgeTotals::new(&delays);
    let mut ends_ns = None;
    let seen = open(args)?.read(args.view(), |packet| {
        let end = ends_ns.get_or_insert(packet.time_ns.saturating_add(SECOND_NS));
        if packet.time_ns >= *end {
            all.add(&mut delays, *end);
            *end = packet.time_ns.saturating_add(SECOND_NS);
        }
        let _ = delays.insert(packet);
    })?;
    let last = delays.last_ns();
    all.add(&mut delays, last);
    Ok(FridgeReport { pair: args.pair, slots: delays.settings().fridge.slots, bytes: delays.memory_bytes(), seen, all })
}

/// A random seed. With a constant one, crafted packets could aim at slots.
pub(crate) fn rand_seed() -> u64 {
    use core::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use packets::generator::{Traffic, TrafficSettings};

    use super::*;
    use crate::output::json;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SynopsisArgs,
    }

    #[test]
    fn merged_segments_are_reported_where_they_bias_the_delay() {
        let measured = |pair: &str, mtu: u32| {
            let args = Line::parse_from(["synopsis", "fridge", "--interface", "eth0", "--pair", pair]).args;
            let traffic = Traffic::new(&TrafficSettings::default());
            measure_of(&args, |_| Ok(PacketSource::of(traffic, mtu))).unwrap()
        };
        let (harmed, whole) = (measured("data", 1_000), measured("data", 1_500));
        assert!(harmed.seen.oversized > 100 && whole.seen.oversized == 0);
        assert!(harmed.to_string().contains("CAUTION") && harmed.to_string().contains("ethtool -K"), "{harmed}");
        assert!(!whole.to_string().contains("CAUTION") && whole.is_trusted() && !harmed.is_trusted());
        assert!(json(&harmed.view()).unwrap().contains("\"oversized\""));
        // Offloads do not merge SYN segments.
        let handshakes = measured("handshake", 1_000);
        assert!(handshakes.seen.oversized > 100 && !handshakes.to_string().contains("CAUTION"), "{handshakes}");
    }
}

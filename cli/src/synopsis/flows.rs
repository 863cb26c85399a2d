//! Who is in a capture or on an interface: prefixes with packets out of order, heavy hitters, distinct items.

use core::fmt;

use packets::flows::{DistinctInterval, FlowsInterval, PrefixLengths, SLOTS};
use packets::{Flows, FlowsSettings};
use serde::Serialize;

use super::args::{Kind, SynopsisArgs};
use super::fridge::rand_seed;
use super::source::{PacketSource, open, write_merged};
use crate::failure::Failure;

/// More intervals are refused.
const MAX_INTERVALS: usize = 10_000;
/// Lines that can be asked for: the size of the tables.
const MAX_LINES: usize = 256;
const MS: f64 = 1e6;

/// The result of one of the three.
#[derive(Debug, Serialize)]
pub struct FlowsReport {
    synopsis: &'static str,
    memory_bytes: usize,
    packets: u64,
    dropped_by_kernel: u64,
    /// Merged frames (TSO, GSO, GRO), if they bias what is measured.
    oversized: u64,
    #[serde(flatten)]
    found: Findings,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Findings {
    Reordering {
        checked: u64,
        out_of_order: u64,
        share: Option<f64>,
        heavy_prefixes: usize,
        first_fragments: u64,
        prefixes: Vec<PrefixRow>,
    },
    Heavy {
        by: &'static str,
        weight: &'static str,
        total: u64,
        top: Vec<TopRow>,
    },
    Distinct {
        interval_ms: f64,
        intervals: Vec<DistinctRow>,
    },
}

#[derive(Debug, Serialize)]
struct PrefixRow {
    prefix: String,
    checked: u64,
    out_of_order: u64,
    least_share: f64,
}

#[derive(Debug, Serialize)]
struct TopRow {
    party: String,
    count: u64,
    least: u64,
    share: f64,
    low_confidence: bool,
}

#[derive(Debug, Serialize)]
struct DistinctRow {
    packets: u64,
    flows: f64,
    sources: f64,
    ports: f64,
    most_destinations: u64,
    most_destinations_source: Option<String>,
    most_flows: u64,
    most_flows_destination: Option<String>,
}

/// Reads all packets.
///
/// # Errors
///
/// [`Failure`] if the packets cannot be read, or an argument is out of range.
pub fn measure(args: &SynopsisArgs) -> Result<FlowsReport, Failure> {
    measure_of(args, open)
}

fn measure_of(
    args: &SynopsisArgs,
    open: impl FnOnce(&SynopsisArgs) -> Result<PacketSource, Failure>,
) -> Result<FlowsReport, Failure> {
    let what = || Failure::to("measure who is in the packets");
    // Also false for NaN.
    if !(args.interval >= 1.0 && args.interval <= 1e9) {
        return Err(what().because(format!("--interval is {}", args.interval)).advice("1 to 1000000000 ms"));
    }
    if !(1..=MAX_LINES).contains(&args.top) {
        return Err(what().because(format!("--top is {}", args.top)).advice("1 to 256 lines"));
    }
    let interval_ns = (args.interval * MS) as u64;
    let is_cardinality = args.kind == Kind::Cardinality;
    let settings = FlowsSettings {
        filter: args.filter.clone(),
        reordering: (args.kind == Kind::Reordering).then_some(PrefixLengths { v4: args.prefix, v6: args.prefix6 }),
        heavy: (args.kind == Kind::HeavyHitters).then_some((args.by, args.weight)),
        // In whole slots, so that no rest of the interval is older than the window.
        window_ns: is_cardinality.then_some(interval_ns.next_multiple_of(SLOTS)),
        secret: (u128::from(rand_seed()) << 64) | u128::from(rand_seed()),
    };
    let mut flows = Flows::new(&settings).map_err(|error| what().caused_by(&error))?;
    let (mut rows, mut ends_ns, mut last_ns) = (Vec::new(), None, 0);
    let seen = open(args)?.read(args.view(), |packet| {
        // The first packet of the stream begins the first interval.
        while is_cardinality
            && let Some(end) = ends_ns.filter(|end| packet.time_ns >= *end && rows.len() <= MAX_INTERVALS)
        {
            rows.extend(row(&flows.end_interval(end, 1)));
            // A window looks back further than an interval: nothing older is to be there.
            flows.set_back(end);
            ends_ns = Some(end + interval_ns);
        }
        if flows.insert(packet) {
            last_ns = packet.time_ns.max(last_ns);
            let _ = ends_ns.get_or_insert(packet.time_ns.saturating_add(interval_ns));
        }
    })?;
    if rows.len() > MAX_INTERVALS {
        return Err(what()
            .because(format!("there are more than {MAX_INTERVALS} intervals"))
            .advice("a longer --interval"));
    }
    let last = flows.end_interval(last_ns, args.top);
    let packets = last.packets + rows.iter().map(|row: &DistinctRow| row.packets).sum::<u64>();
    Ok(FlowsReport {
        synopsis: match args.kind {
            Kind::Reordering => "reordering",
            Kind::HeavyHitters => "heavy-hitters",
            _ => "cardinality",
        },
        memory_bytes: flows.memory_bytes(),
        packets,
        dropped_by_kernel: seen.frames.dropped,
        oversized: if settings.is_affected_by_offloads() { seen.oversized } else { 0 },
        found: Findings::new(args, &last, rows),
    })
}

impl Findings {
    /// What the last interval says, behind the `rows` of those before.
    fn new(args: &SynopsisArgs, last: &FlowsInterval, mut rows: Vec<DistinctRow>) -> Self {
        if let Some(found) = &last.reordering {
            let row = |of: &packets::flows::PrefixShare| PrefixRow {
                prefix: of.prefix.to_string(),
                checked: of.checked,
                out_of_order: of.out_of_order,
                least_share: of.least_share,
            };
            return Self::Reordering {
                checked: found.checked,
                out_of_order: found.out_of_order,
                share: found.share(),
                heavy_prefixes: found.heavy_prefixes,
                first_fragments: found.fragments,
                prefixes: found.worst.iter().map(row).collect(),
            };
        }
        if let Some(found) = &last.heavy {
            let row = |of: &packets::flows::TopParty| TopRow {
                party: of.party.to_string(),
                count: of.count,
                least: of.least,
                share: of.least as f64 / found.total.max(1) as f64,
                low_confidence: of.low_confidence,
            };
            let (by, weight) = (args.by.name(), args.weight.name());
            return Self::Heavy { by, weight, total: found.total, top: found.top.iter().map(row).collect() };
        }
        rows.extend(row(last));
        Self::Distinct { interval_ms: args.interval, intervals: rows }
    }
}

/// The row of an interval; `None` if distinct items are not measured.
fn row(of: &FlowsInterval) -> Option<DistinctRow> {
    let DistinctInterval { flows, sources, ports, fan_out, fan_in, .. } = of.distinct?;
    Some(DistinctRow {
        packets: of.packets,
        flows,
        sources,
        ports,
        most_destinations: fan_out.map_or(0, |of| of.destinations),
        most_destinations_source: fan_out.map(|of| of.source.to_string()),
        most_flows: fan_in.map_or(0, |of| of.flows),
        most_flows_destination: fan_in.map(|of| of.destination.to_string()),
    })
}

impl FlowsReport {
    /// Whether there were packets of the stream, none was dropped, and no merged frame biases the result.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.packets > 0 && self.dropped_by_kernel == 0 && self.oversized == 0
    }
}

impl fmt::Display for FlowsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.memory_bytes.div_ceil(1024);
        writeln!(f, "{}: {} packets of the stream, {kib} KiB", self.synopsis, self.packets)?;
        if self.dropped_by_kernel > 0 {
            writeln!(
                f,
                "CAUTION: the kernel dropped {} frames because they were not read in time; they are missing below",
                self.dropped_by_kernel
            )?;
        }
        write_merged(f, self.oversized)?;
        if self.packets == 0 {
            return writeln!(f, "CAUTION: no packet matches the filter");
        }
        match &self.found {
            Findings::Reordering { checked, out_of_order, heavy_prefixes, first_fragments, prefixes, .. } => {
                writeln!(f, "{out_of_order} of {checked} checked packets were out of order")?;
                if *first_fragments > 0 {
                    writeln!(f, "{first_fragments} first fragments were not checked")?;
                }
                writeln!(f, "{heavy_prefixes} prefixes have more than 1 % (95 % confidence)\n")?;
                writeln!(f, "  prefix                checked    out of order   share at least")?;
                for PrefixRow { prefix, checked, out_of_order, least_share } in prefixes {
                    let share = 100.0 * least_share;
                    writeln!(f, "  {prefix:<20}  {checked:<9}  {out_of_order:<13}  {share:.2} %")?;
                }
                Ok(())
            }
            Findings::Heavy { by, weight, total, top } => {
                writeln!(f, "{total} {weight} in all\n\n  share at least   {weight:<12}   {by}")?;
                for TopRow { party, count, share, low_confidence, .. } in top {
                    let mark = if *low_confidence { "   perhaps less" } else { "" };
                    writeln!(f, "  {:>12.2} %   {count:<12}   {party}{mark}", 100.0 * share)?;
                }
                Ok(())
            }
            Findings::Distinct { intervals, .. } => distinct(f, intervals),
        }
    }
}

fn distinct(f: &mut fmt::Formatter<'_>, intervals: &[DistinctRow]) -> fmt::Result {
    writeln!(f, "\n  interval   packets    flows      sources    ports      most destinations, most flows")?;
    for (place, row) in intervals.iter().enumerate() {
        let DistinctRow { packets, flows, sources, ports, most_destinations, most_flows, .. } = row;
        let (source, destination) = (&row.most_destinations_source, &row.most_flows_destination);
        write!(f, "  {place:<9}  {packets:<9}  {flows:<9.0}  {sources:<9.0}  {ports:<9.0}")?;
        match (source, destination) {
            (Some(source), Some(to)) => writeln!(f, "  {source}: {most_destinations}, to {to}: {most_flows}")?,
            _ => writeln!(f)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use packets::generator::{Traffic, TrafficSettings};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SynopsisArgs,
    }

    #[test]
    fn merged_segments_are_reported_where_they_bias_what_is_measured() {
        let measured = |kind: &str, mtu: u32| {
            let args = Line::parse_from(["synopsis", kind, "--interface", "eth0"]).args;
            let traffic = Traffic::new(&TrafficSettings::default());
            measure_of(&args, |_| Ok(PacketSource::of(traffic, mtu))).unwrap()
        };
        for kind in ["reordering", "heavy-hitters"] {
            let (harmed, whole) = (measured(kind, 1_000), measured(kind, 1_500));
            assert!(harmed.oversized > 100 && whole.oversized == 0);
            assert!(harmed.to_string().contains("CAUTION") && harmed.to_string().contains("ethtool -K"), "{harmed}");
            assert!(!whole.to_string().contains("CAUTION") && whole.is_trusted() && !harmed.is_trusted());
        }
        // Distinct items stay the same.
        let distinct = measured("cardinality", 1_000);
        assert!(distinct.oversized == 0 && distinct.is_trusted(), "{distinct}");
    }
}

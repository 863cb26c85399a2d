//! Sizes of the largest flows, from counters that flows share: a fragment of a disaggregated sketch at one point of a
//! path, or one at each end.

use core::cmp::Reverse;
use core::fmt;
use std::collections::{BTreeSet, HashMap};

use packets::identity::FlowKey;
use serde::Serialize;
use synopses::digest::DigestKey;
use synopses::disaggregated::{Fragment, Path, PathTable, Settings};

use super::args::SynopsisArgs;
use super::fridge::rand_seed;
use super::source::{PacketSource, file, open, write_merged};
use crate::failure::Failure;

/// d, rows of a fragment.
const ROWS: u32 = 2;
/// Lines that can be asked for: flows that are remembered by name at each point.
const MAX_LINES: usize = 256;
/// The probability with which an estimate may be too large by more than the margin.
const CHANCE: f64 = 0.05;
/// Number of the only path.
const PATH: u32 = 0;

/// The sizes of the largest flows.
#[derive(Debug, Serialize)]
pub struct FragmentReport {
    synopsis: &'static str,
    /// Counters of a row.
    counters: u32,
    rows: u32,
    /// Bytes of the counters at each point.
    memory_bytes: usize,
    /// The points, that of `--receiver` last.
    points: Vec<PointRow>,
    /// By how many packets an estimate is too large in one flow of twenty at most.
    margin: f64,
    /// The largest flows, largest first.
    pub flows: Vec<FlowRow>,
}

/// A point of the path.
#[derive(Debug, Serialize)]
struct PointRow {
    packets: u64,
    /// Share of the counters that are not 0.
    occupancy: f64,
    dropped_by_kernel: u64,
    /// Merged frames (TSO, GSO, GRO), each of which counts as one packet.
    oversized: u64,
}

/// A flow. Its packets are those that passed all points.
#[derive(Debug, Serialize)]
pub struct FlowRow {
    /// Protocol, addresses and ports.
    pub flow: String,
    /// It has at most so many packets.
    pub packets: u64,
    /// With a probability of 95 % it has so many at least.
    pub at_least: u64,
    /// Whether a counter was full, so that it may have more.
    saturated: bool,
    /// Its counts at the points.
    counts: Vec<u32>,
}

/// The flows with the largest counts so far: counters have no names.
#[derive(Debug, Default)]
struct LargestFlows {
    counts: HashMap<FlowKey, u32>,
    /// No count among them is below this.
    least: u32,
}

impl LargestFlows {
    /// Sees the count of a flow after one of its packets.
    fn see(&mut self, flow: FlowKey, count: u32) {
        if count <= self.least {
            return;
        }
        if let Some(known) = self.counts.get_mut(&flow) {
            *known = count;
            return;
        }
        if self.counts.len() == MAX_LINES {
            let Some((least, other)) = self.counts.iter().map(|(flow, count)| (*count, *flow)).min() else { return };
            self.least = least;
            if count <= least {
                return;
            }
            self.counts.remove(&other);
        }
        self.counts.insert(flow, count);
    }
}

/// What passed one point.
struct Point {
    fragment: Fragment,
    largest: LargestFlows,
    dropped: u64,
    oversized: u64,
}

impl Point {
    /// Counts all packets of a source that match the filter.
    fn read(
        mut fragment: Fragment,
        source: PacketSource,
        args: &SynopsisArgs,
        key: &DigestKey,
    ) -> Result<Self, Failure> {
        let mut largest = LargestFlows::default();
        let seen = source.read(args.view(), |packet| {
            if args.filter.matches(packet) {
                let flow = FlowKey::of(packet);
                let count = fragment.insert(flow.digest(key), 1);
                largest.see(flow, count);
            }
        })?;
        Ok(Self { fragment, largest, dropped: seen.frames.dropped, oversized: seen.oversized })
    }
}

/// Reads all packets.
///
/// # Errors
///
/// [`Failure`] if the packets cannot be read, or an argument is out of range.
pub fn measure(args: &SynopsisArgs) -> Result<FragmentReport, Failure> {
    let what = || Failure::to("measure the sizes of flows");
    if !(1..=MAX_LINES).contains(&args.top) {
        return Err(what().because(format!("--top is {}", args.top)).advice("1 to 256 lines"));
    }
    let key = DigestKey::new((u128::from(rand_seed()) << 64) | u128::from(rand_seed()));
    let counters = args.memory.saturating_mul(1024) / (size_of::<u32>() * ROWS as usize);
    let counters = u32::try_from(counters).unwrap_or(u32::MAX);
    let empty = |id| {
        let fragment = Fragment::new(Settings { id, counters, rows: ROWS, seed: rand_seed() });
        fragment.map_err(|error| what().caused_by(&error))
    };
    let mut points = vec![Point::read(empty(0)?, open(args)?, args, &key)?];
    if let Some(receiver) = &args.receiver {
        points.push(Point::read(empty(1)?, file(receiver)?, args, &key)?);
    }
    FragmentReport::new(points, counters, &key, args.top).map_err(|why| what().because(why))
}

impl FragmentReport {
    fn new(points: Vec<Point>, counters: u32, key: &DigestKey, top: usize) -> Result<Self, String> {
        let row = |point: &Point| PointRow {
            packets: point.fragment.load(),
            occupancy: point.fragment.occupancy(),
            dropped_by_kernel: point.dropped,
            oversized: point.oversized,
        };
        let rows = points.iter().map(row).collect();
        let names: BTreeSet<FlowKey> = points.iter().flat_map(|point| point.largest.counts.keys().copied()).collect();
        let fragments: Vec<Fragment> = points.into_iter().map(|point| point.fragment).collect();
        let settings: Vec<Settings> = fragments.iter().map(|fragment| *fragment.settings()).collect();
        let ids: Vec<u32> = settings.iter().map(|settings| settings.id).collect();
        let path = Path::all(&ids).map_err(|error| error.to_string())?;
        let table = PathTable::new(0, &settings, [(PATH, path)]).map_err(|error| error.to_string())?;
        let margin = margin(&fragments);
        let flow = |name: FlowKey| -> Result<FlowRow, String> {
            let digest = name.digest(key);
            let estimate = table.estimate(PATH, digest, &fragments).map_err(|error| error.to_string())?;
            Ok(FlowRow {
                flow: name.to_string(),
                packets: estimate.count,
                at_least: estimate.count.saturating_sub(margin.ceil() as u64),
                saturated: estimate.saturated,
                counts: fragments.iter().map(|fragment| fragment.estimate(digest)).collect(),
            })
        };
        let mut flows = names.into_iter().map(flow).collect::<Result<Vec<_>, String>>()?;
        // Stable: of equal sizes the first by name is first.
        flows.sort_by_key(|flow| Reverse(flow.packets));
        flows.truncate(top);
        let memory_bytes = fragments.iter().map(Fragment::memory_bytes).max().unwrap_or(0);
        Ok(Self { synopsis: "fragment", counters, rows: ROWS, memory_bytes, points: rows, margin, flows })
    }

    /// Whether packets passed each point, none was dropped or merged with others, and the largest flow stands out.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let is_whole = |point: &PointRow| point.packets > 0 && point.dropped_by_kernel == 0 && point.oversized == 0;
        self.points.iter().all(is_whole) && self.stands_out()
    }

    /// Whether the largest flow is larger than the margin.
    fn stands_out(&self) -> bool {
        self.flows.first().is_some_and(|flow| flow.at_least > 0)
    }

    /// What a point is called.
    fn name(&self, point: usize) -> &'static str {
        match (self.points.len(), point) {
            (1, _) => "stream",
            (_, 0) => "sender",
            _ => "receiver",
        }
    }
}

/// By how many packets y an estimate exceeds the truth with a probability of [`CHANCE`] at most. One of w counters has
/// load/w packets of others on average; that it has y or more has a probability of load/(w y) at most, and all counters
/// of a flow have to.
fn margin(fragments: &[Fragment]) -> f64 {
    let (mut rows, mut logarithms) = (0.0, 0.0);
    for fragment in fragments {
        let Settings { counters, rows: more, .. } = *fragment.settings();
        rows += f64::from(more);
        logarithms += f64::from(more) * (fragment.load() as f64 / f64::from(counters)).ln();
    }
    ((logarithms - CHANCE.ln()) / rows).exp()
}

impl fmt::Display for FragmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kib, each) = (self.memory_bytes.div_ceil(1024), if self.points.len() > 1 { " at each end" } else { "" });
        writeln!(f, "fragment: {} rows of {} counters, {kib} KiB{each}", self.rows, self.counters)?;
        for (place, PointRow { packets, occupancy, dropped_by_kernel, oversized }) in self.points.iter().enumerate() {
            let (name, used) = (self.name(place), 100.0 * occupancy);
            writeln!(f, "{name}: {packets} packets, {used:.1} % of counters in use")?;
            if *packets == 0 {
                writeln!(f, "CAUTION: no packet matches the filter")?;
            }
            if *dropped_by_kernel > 0 {
                writeln!(
                    f,
                    "CAUTION: the kernel dropped {dropped_by_kernel} frames because they were not read in time; they are missing below"
                )?;
            }
            write_merged(f, *oversized)?;
        }
        if self.flows.is_empty() {
            return Ok(());
        }
        writeln!(f, "no size is too small; one in twenty at most is too large by more than {:.0}", self.margin.ceil())?;
        if !self.stands_out() {
            writeln!(f, "CAUTION: no flow stands out: more --memory, or a --filter that leaves fewer packets")?;
        }
        write!(f, "\n  at least    at most     ")?;
        if self.points.len() > 1 {
            write!(f, "{:<10}  {:<10}  ", self.name(0), self.name(1))?;
        }
        writeln!(f, "flow")?;
        for FlowRow { flow, packets, at_least, saturated, counts } in &self.flows {
            write!(f, "  {at_least:<10}  {packets:<10}  ")?;
            if let [sender, receiver] = counts[..] {
                write!(f, "{sender:<10}  {receiver:<10}  ")?;
            }
            writeln!(f, "{flow}{}", if *saturated { "   perhaps more" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_many_flows_are_remembered_with_their_last_counts() {
        let key = |flow: u32| {
            let mut bytes = [0; 37];
            bytes[..4].copy_from_slice(&flow.to_be_bytes());
            FlowKey::from_bytes(bytes)
        };
        let mut largest = LargestFlows::default();
        // Flow n has n packets, in the order of rounds.
        for round in 1..=1_000 {
            (round..=1_000).for_each(|flow| largest.see(key(flow), round));
        }

        let mut found: Vec<u32> = largest.counts.into_values().collect();
        found.sort_unstable();
        assert_eq!(found, (1_000 - MAX_LINES as u32 + 1..=1_000).collect::<Vec<_>>());
    }

    #[test]
    fn merged_frames_at_a_point_are_reported() {
        let point = |oversized| {
            let mut fragment = Fragment::new(Settings { counters: 64, rows: ROWS, ..Settings::default() }).unwrap();
            fragment.insert(FlowKey::from_bytes([1; 37]).digest(&DigestKey::new(1)), 9);
            let counts = HashMap::from([(FlowKey::from_bytes([1; 37]), 9)]);
            Point { fragment, largest: LargestFlows { counts, least: 0 }, dropped: 0, oversized }
        };
        for (oversized, is_trusted) in [(0, true), (2, false)] {
            let report = FragmentReport::new(vec![point(oversized)], 64, &DigestKey::new(1), 10).unwrap();
            assert_eq!((report.is_trusted(), report.to_string().contains("ethtool -K")), (is_trusted, !is_trusted));
        }
    }

    #[test]
    fn the_margin_is_that_of_markovs_bound() {
        let fragment = |id, counters, rows, packets| {
            let mut fragment = Fragment::new(Settings { id, counters, rows, seed: id.into() }).unwrap();
            fragment.insert(synopses::digest::Digest(1), packets);
            fragment
        };
        // One row: load/(w y) is a twentieth. Two rows: the square of it is.
        assert!((margin(&[fragment(0, 100, 1, 1_000)]) - 200.0).abs() < 1e-6);
        let two = [fragment(0, 100, 1, 1_000), fragment(1, 100, 1, 1_000)];
        let bound = synopses::disaggregated::error_probability(&[1_000; 2], 100, margin(&two));
        assert!((bound - CHANCE).abs() < 1e-9, "{bound}");
        assert_eq!(margin(&[fragment(0, 100, 2, 0)]), 0.0);
    }
}

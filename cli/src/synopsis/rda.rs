//! One-way delay and loss between two captures, by RDA: packets that are in one capture only are identified and
//! excluded.
//!
//! Both captures are cut into the same intervals, each packet by its own time. As on the wire, the number of cells
//! follows an estimate of the differences, and a further attempt has twice as many. Whether a missing packet is lost or
//! only late is known one interval later.

use core::fmt;
use std::collections::BTreeMap;

use packets::identity;
use serde::Serialize;
use synopses::digest::{Digest, DigestKey};
use synopses::rda::{
    Cache, Deviation, Estimate, Ids, Rda, Reconciliation, Settings, SettingsError, Sizing, UnsettledLoss, XorCounters,
    sizing,
};

use super::args::SynopsisArgs;
use super::cdf::time;
use super::source::{PacketSource, file, open};
use crate::failure::Failure;

/// Number of banks of cells.
const BANKS: usize = 3;
/// More intervals are refused.
const MAX_INTERVALS: u64 = 10_000;
const MS: f64 = 1e6;
/// Longest bar in the table, in characters.
const BAR: usize = 40;

/// The result of RDA.
#[derive(Debug, Serialize)]
pub struct RdaReport {
    synopsis: &'static str,
    interval_ms: f64,
    sent: u64,
    received: u64,
    mean_ns: Option<f64>,
    lost: u64,
    loss: Option<f64>,
    /// Whether all differences of all intervals were found.
    complete: bool,
    /// Whether half of the packets of each capture are missing in the other one.
    unrelated: bool,
    /// Begin of the first interval, in nanoseconds since 1970.
    begins_ns: u64,
    /// The intervals in order.
    pub intervals: Vec<Row>,
}

/// One interval. Unknown values are `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    sent: u64,
    received: u64,
    /// Mean delay of the packets in both captures, late ones included.
    pub mean_ns: Option<f64>,
    /// Standard deviation of the delay of those that were not late.
    pub deviation_ns: Option<f64>,
    lost: u64,
    /// Share of lost packets; a lower bound unless `complete`.
    pub loss: Option<f64>,
    late: u64,
    odd: u64,
    packets: u64,
    complete: bool,
    /// Whether the variance was below 0 and is set to 0.
    deviation_clamped: bool,
    /// Number of cells in all banks.
    cells: usize,
    /// Bytes exchanged: cells, or ids and times if these are smaller.
    bytes: usize,
    /// Whether ids and times of all packets were exchanged.
    all_sent: bool,
}

/// Digests and times of the packets of each interval, in their order.
type PacketsByInterval = BTreeMap<u64, Vec<(Digest, u64)>>;

/// Reads both captures and measures delay and loss.
///
/// # Errors
///
/// [`Failure`] if a capture cannot be read, or an argument is out of range.
pub fn measure(args: &SynopsisArgs) -> Result<RdaReport, Failure> {
    let what = || Failure::to("measure between two points");
    let Some(receiver) = &args.receiver else {
        let advice = "--pcap SENDER.pcap --receiver RECEIVER.pcap: two captures of the same packets";
        return Err(what().because("there is only one capture").advice(advice));
    };
    // Also false for NaN.
    if !(args.interval >= 1.0 && args.interval <= 1e9) {
        return Err(what().because(format!("--interval is {}", args.interval)).advice("1 to 1000000000 ms"));
    }
    let length_ns = (args.interval * MS) as u64;
    let (sent, received) = (passed(args, open(args)?)?, passed(args, file(receiver)?)?);
    let first = |packets: &[(Digest, u64)]| packets.iter().map(|packet| packet.1).min();
    let Some(begins_ns) = first(&sent) else {
        return Err(what().because("no packet of the sender's capture meets the filter"));
    };
    // If the receiver's clock is behind, its packets come before all of the sender's.
    let begins_ns = begins_ns.min(first(&received).unwrap_or(begins_ns));
    let cut = |packets: Vec<(Digest, u64)>| {
        let mut cut = PacketsByInterval::new();
        for (digest, now) in packets {
            cut.entry((now - begins_ns) / length_ns).or_default().push((digest, now));
        }
        cut
    };
    let (sent, received) = (cut(sent), cut(received));
    let last = sent.keys().chain(received.keys()).copied().max().unwrap_or(0);
    if last >= MAX_INTERVALS {
        let why = format!("there are more than {MAX_INTERVALS} intervals");
        return Err(what().because(why).advice("use a longer --interval, or synchronize the clocks"));
    }
    let mut ends = Vec::new();
    for interval in 0..=last {
        let of = |passed: &PacketsByInterval| cache(passed.get(&interval).map_or(&[], Vec::as_slice));
        let both = of(&sent).and_then(|sent| Ok((sent, of(&received)?)));
        let (ours, theirs) = both.map_err(|error| what().caused_by(&error))?;
        ends.push(compare(ours, &theirs, args.memory, interval).map_err(|error| what().caused_by(&error))?);
    }
    Ok(RdaReport::new(args, begins_ns, rows(&ends)))
}

fn passed(args: &SynopsisArgs, source: PacketSource) -> Result<Vec<(Digest, u64)>, Failure> {
    let key = DigestKey::new(1);
    let mut found = Vec::new();
    let _ = source.read(args.view(), |packet| {
        if args.filter.matches(packet) {
            found.push((identity::digest(packet, &key), packet.time_ns));
        }
    })?;
    Ok(found)
}

fn cache(packets: &[(Digest, u64)]) -> Result<Cache, SettingsError> {
    let mut cache = Cache::new(packets.len().max(1), Ids::Checked8)?;
    for (digest, now) in packets {
        cache.insert(*digest, *now);
    }
    Ok(cache)
}

/// The comparison of both captures in one interval.
struct Comparison {
    exchange: Reconciliation,
    cells: usize,
    bytes: usize,
    all_sent: bool,
}

/// Compares an interval as two agents do. `memory` is the upper limit of the cells at each end, in KiB.
fn compare(mut ours: Cache, theirs: &Cache, memory: usize, seed: u64) -> Result<Comparison, SettingsError> {
    let counters = (XorCounters::of(&ours, seed), XorCounters::of(theirs, seed));
    // Both have the same seed.
    let differences = counters.0.estimate(&counters.1).unwrap_or(f64::INFINITY);
    let most = (memory.saturating_mul(1024) / 24 / BANKS).clamp(1, synopses::rda::MAX_CELLS);
    let sizing = Sizing { most, least: Sizing::default().least.min(most), ..Sizing::default() };
    let mut settings = Settings { banks: BANKS, cells: sizing.cells(BANKS, differences), seed, ..Settings::default() };
    let mut bytes = 0;
    loop {
        let cells: Rda = theirs.aggregate(&settings)?;
        let direct = sizing::direct_bytes(theirs.packets() as usize);
        let all_sent = direct <= cells.encode().len();
        bytes += if all_sent { direct } else { cells.encode().len() };
        let mut exchange = Reconciliation::new(ours, cells)?;
        if exchange.difference().residual > 0 && settings.cells < most && settings.seed == seed {
            ours = exchange.into_cache();
            settings = Settings { cells: (2 * settings.cells).min(most), ..settings.again() };
            continue;
        }
        // An id that the receiver does not know was decoded wrongly; without it, other ids may be missing.
        while !exchange.missing().is_empty() {
            let times: Vec<_> = exchange.missing().into_iter().map(|id| (id, theirs.time_of(id))).collect();
            bytes += 16 * times.len();
            let asked = times.iter().any(|(_, time)| time.is_none());
            if exchange.add_times(&times).is_err() || !asked {
                break;
            }
        }
        return Ok(Comparison { exchange, cells: settings.all_cells(), bytes, all_sent });
    }
}

/// The final figures of each interval. Which packets were late follows from the next interval.
fn rows(ends: &[Comparison]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(ends.len());
    let mut late_before = 0;
    for (place, end) in ends.iter().enumerate() {
        let estimate: Estimate = end.exchange.estimate(Deviation::PerBucket);
        let open = UnsettledLoss::of(&end.exchange);
        // No interval follows the last one.
        let settled = ends
            .get(place + 1)
            .map_or_else(|| open.settle_with(core::iter::empty(), true), |next| open.settle(&next.exchange));
        let complete = estimate.complete && settled.complete;
        let lost = estimate.lost.saturating_sub(settled.late);
        rows.push(Row {
            sent: estimate.sent,
            received: estimate.received,
            mean_ns: if complete { settled.mean_ns(&estimate) } else { estimate.mean_ns },
            deviation_ns: estimate.deviation_ns,
            lost,
            loss: (estimate.sent > 0).then(|| lost as f64 / estimate.sent as f64),
            late: settled.late,
            odd: estimate.reordered.saturating_sub(late_before),
            packets: estimate.packets + if complete { settled.late_delays_ns.1 } else { 0 },
            complete,
            deviation_clamped: estimate.deviation_clamped,
            cells: end.cells,
            bytes: end.bytes,
            all_sent: end.all_sent,
        });
        late_before = settled.late;
    }
    rows
}

impl RdaReport {
    fn new(args: &SynopsisArgs, begins_ns: u64, intervals: Vec<Row>) -> Self {
        let sum = |of: fn(&Row) -> u64| -> u64 { intervals.iter().map(of).sum() };
        let (sent, received, lost) = (sum(|row| row.sent), sum(|row| row.received), sum(|row| row.lost));
        let known = sum(|row| if row.mean_ns.is_some() { row.packets } else { 0 });
        let weighted: f64 = intervals.iter().filter_map(|row| Some(row.mean_ns? * row.packets as f64)).sum();
        let odd = sum(|row| row.odd);
        let apart = sent > 1 && 2 * lost >= sent && 2 * odd >= received.max(1);
        Self {
            synopsis: "rda",
            interval_ms: args.interval,
            sent,
            received,
            mean_ns: (known > 0).then(|| weighted / known as f64),
            lost,
            loss: (sent > 0).then(|| lost as f64 / sent as f64),
            complete: intervals.iter().all(|row| row.complete),
            // So many differences that not one packet is known to be at both ends.
            unrelated: apart || known == 0 && sent > 0 && received > 0,
            begins_ns,
            intervals,
        }
    }

    /// Whether all differences were found, and the captures have the same packets and synchronized clocks.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.complete && !self.unrelated && !self.is_early()
    }

    /// Whether packets arrive before they are sent.
    fn is_early(&self) -> bool {
        self.mean_ns.is_some_and(|mean| mean < 0.0)
    }

    fn cautions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unrelated {
            writeln!(
                f,
                "CAUTION: half of the packets are missing in the other capture: addresses are translated in between, or offloads merge \
                 segments (ethtool -K INTERFACE tso off gso off gro off). The figures below are of the other packets"
            )?;
        }
        if self.is_early() {
            writeln!(
                f,
                "CAUTION: packets arrive before they are sent: the clocks differ, and the delays are wrong by as much"
            )?;
        }
        if !self.complete {
            let left = self.intervals.iter().filter(|row| !row.complete).count();
            writeln!(
                f,
                "CAUTION: in {left} intervals not all differences were found (use more --memory): losses are lower bounds"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for RdaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: usize = self.intervals.iter().map(|row| row.bytes).sum();
        writeln!(
            f,
            "rda: {} packets sent, {} received, {} KiB exchanged",
            self.sent,
            self.received,
            bytes.div_ceil(1024)
        )?;
        match (self.mean_ns, self.loss) {
            (Some(mean), Some(loss)) => {
                writeln!(f, "mean delay {}, {} lost ({:.3} %)", signed(mean), self.lost, 100.0 * loss)?;
            }
            _ => writeln!(f, "the delay is unknown: no packet is in both captures")?,
        }
        self.cautions(f)?;
        writeln!(
            f,
            "\n  interval   sent       mean        deviation   lost       late       unexpected cells    mean, from the least to the largest"
        )?;
        let means = self.intervals.iter().filter_map(|row| row.mean_ns);
        let (least, most) =
            means.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), mean| (least.min(mean), most.max(mean)));
        let or_dash = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), signed);
        for (place, row) in self.intervals.iter().enumerate() {
            let (mean, deviation) =
                (or_dash(row.mean_ns), or_dash(row.deviation_ns.filter(|_| !row.deviation_clamped)));
            let lost = format!("{}{}", if row.complete { "" } else { "≥ " }, row.lost);
            let cells = if row.all_sent { "all".to_owned() } else { row.cells.to_string() };
            let bar = row
                .mean_ns
                .map_or(0, |mean| 1 + ((mean - least) / (most - least).max(1.0) * (BAR - 1) as f64) as usize);
            let (sent, late, odd, bar) = (row.sent, row.late, row.odd, "█".repeat(bar));
            writeln!(
                f,
                "  {place:<9}  {sent:<9}  {mean:<10}  {deviation:<10}  {lost:<9}  {late:<9}  {odd:<9}  {cells:<7}  {bar}"
            )?;
        }
        Ok(())
    }
}

/// A delay as text; it is negative if the clocks differ.
fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("−{}", time(-ns)) } else { time(ns) }
}

//! One-way delay and loss between two captures, by RDA: what only one of them has is named and taken out.
//!
//! Both captures are cut into intervals of one clock, each packet by its own time. As on the wire the number of cells follows an estimate of the differences, a second
//! attempt has twice as many, and which of the lost packets were only late is known one interval later.

use core::fmt;
use std::collections::BTreeMap;

use packets::identity;
use serde::Serialize;
use synopses::digest::{Digest, DigestKey};
use synopses::rda::{
    Cache, Deviation, Estimate, Ids, Rda, Reconciliation, Settings, SettingsError, Sizing, Unsettled, XorCounters,
    sizing,
};

use super::SynopsisArgs;
use super::cdf::time;
use super::source::{Opened, file, open};
use crate::failure::Failure;

/// Banks of cells.
const BANKS: usize = 3;
/// More intervals than this are a mistake.
const MOST_INTERVALS: u64 = 10_000;
const MS: f64 = 1e6;
/// What is drawn in a terminal, from the least mean to the largest.
const BAR: usize = 40;

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Measured {
    synopsis: &'static str,
    interval_ms: f64,
    sent: u64,
    received: u64,
    mean_ns: Option<f64>,
    lost: u64,
    loss: Option<f64>,
    /// Every difference of every interval was found.
    complete: bool,
    /// Half of all packets at both ends are unknown to the other.
    unrelated: bool,
    /// The first interval, in nanoseconds since 1970.
    begins_ns: u64,
    /// What is drawn and told of each interval.
    pub intervals: Vec<Row>,
}

/// One interval. What is not known is `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    sent: u64,
    received: u64,
    /// Of all packets that both have, those that were late among them.
    pub mean_ns: Option<f64>,
    /// Of those that were not late.
    pub deviation_ns: Option<f64>,
    lost: u64,
    /// At least, unless `complete`.
    pub loss: Option<f64>,
    late: u64,
    odd: u64,
    packets: u64,
    complete: bool,
    /// The variance came out below 0.
    deviation_clamped: bool,
    /// In all banks.
    cells: usize,
    /// That travelled: cells, or ids and times where that is less.
    bytes: usize,
    /// Ids and times of all packets travelled.
    all_sent: bool,
}

/// Packets of each interval, as they passed.
type Passed = BTreeMap<u64, Vec<(Digest, u64)>>;

/// Reads both captures.
///
/// # Errors
///
/// [`Failure`] if one cannot be read, or what is asked for cannot be.
pub fn measure(args: &SynopsisArgs) -> Result<Measured, Failure> {
    let what = || Failure::to("measure between two points");
    let Some(receiver) = &args.receiver else {
        let advice = "--pcap SENDER.pcap --receiver RECEIVER.pcap: two captures of the same packets";
        return Err(what().because("there is one point only").advice(advice));
    };
    // False for a NaN, too.
    if !(args.interval >= 1.0 && args.interval <= 1e9) {
        return Err(what().because(format!("--interval is {}", args.interval)).advice("1 to 1000000000 ms"));
    }
    let length_ns = (args.interval * MS) as u64;
    let (sent, received) = (passed(args, open(args)?)?, passed(args, file(receiver)?)?);
    let first = |packets: &[(Digest, u64)]| packets.iter().map(|packet| packet.1).min();
    let Some(begins_ns) = first(&sent) else {
        return Err(what().because("no packet of the sender's capture meets the filter"));
    };
    // Where the receiver's clock is behind, its packets are before all of the sender's.
    let begins_ns = begins_ns.min(first(&received).unwrap_or(begins_ns));
    let cut = |packets: Vec<(Digest, u64)>| {
        let mut cut = Passed::new();
        for (digest, now) in packets {
            cut.entry((now - begins_ns) / length_ns).or_default().push((digest, now));
        }
        cut
    };
    let (sent, received) = (cut(sent), cut(received));
    let last = sent.keys().chain(received.keys()).copied().max().unwrap_or(0);
    if last >= MOST_INTERVALS {
        let why = format!("there are more than {MOST_INTERVALS} intervals");
        return Err(what().because(why).advice("a longer --interval, or clocks that agree"));
    }
    let mut ends = Vec::new();
    for interval in 0..=last {
        let of = |passed: &Passed| cache(passed.get(&interval).map_or(&[], Vec::as_slice));
        let both = of(&sent).and_then(|sent| Ok((sent, of(&received)?)));
        let (ours, theirs) = both.map_err(|error| what().caused_by(&error))?;
        ends.push(compare(ours, &theirs, args.memory, interval).map_err(|error| what().caused_by(&error))?);
    }
    Ok(Measured::new(args, begins_ns, rows(&ends)))
}

fn passed(args: &SynopsisArgs, source: Opened) -> Result<Vec<(Digest, u64)>, Failure> {
    let key = DigestKey::new(1);
    let mut found = Vec::new();
    let _ = source.read(args.view(), |packet| {
        if args.filter.meets(packet) {
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

/// Both ends of an interval, compared.
struct Compared {
    exchange: Reconciliation,
    cells: usize,
    bytes: usize,
    all_sent: bool,
}

/// As two agents do it; `memory` KiB are the most that cells take at either.
fn compare(mut ours: Cache, theirs: &Cache, memory: usize, seed: u64) -> Result<Compared, SettingsError> {
    let counters = (XorCounters::of(&ours, seed), XorCounters::of(theirs, seed));
    // Of one seed.
    let differences = counters.0.estimate(&counters.1).unwrap_or(f64::INFINITY);
    let most = (memory.saturating_mul(1024) / 24 / BANKS).clamp(1, synopses::rda::MOST_CELLS);
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
        // What the receiver does not know never was, and then others may be missing.
        while !exchange.missing().is_empty() {
            let times: Vec<_> = exchange.missing().into_iter().map(|id| (id, theirs.time_of(id))).collect();
            bytes += 16 * times.len();
            let asked = times.iter().any(|(_, time)| time.is_none());
            if exchange.answer(&times).is_err() || !asked {
                break;
            }
        }
        return Ok(Compared { exchange, cells: settings.all_cells(), bytes, all_sent });
    }
}

/// What is final of each interval: the next one says what was late.
fn rows(ends: &[Compared]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(ends.len());
    let mut late_before = 0;
    for (place, end) in ends.iter().enumerate() {
        let estimate: Estimate = end.exchange.estimate(Deviation::PerBucket);
        let open = Unsettled::of(&end.exchange);
        // After the last interval nothing comes.
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

impl Measured {
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

    /// Whether everything that differs was found, and the captures are of the same packets on clocks that agree.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.complete && !self.unrelated && !self.is_early()
    }

    /// Packets arrive before they are sent.
    fn is_early(&self) -> bool {
        self.mean_ns.is_some_and(|mean| mean < 0.0)
    }

    fn cautions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unrelated {
            writeln!(
                f,
                "CAUTION: half of all packets are unknown to the other end: addresses are translated in between, or segments were put together (TSO, \
                 GSO, GRO: ethtool -K INTERFACE tso off gso off gro off). What follows is of the others"
            )?;
        }
        if self.is_early() {
            writeln!(f, "CAUTION: packets arrive before they are sent: the clocks differ, and delays with them")?;
        }
        if !self.complete {
            let left = self.intervals.iter().filter(|row| !row.complete).count();
            writeln!(
                f,
                "CAUTION: in {left} intervals not every difference was found (more --memory helps): at least as many are lost"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Measured {
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
            _ => writeln!(f, "of their delay nothing is known: no packet is at both ends")?,
        }
        self.cautions(f)?;
        writeln!(
            f,
            "\n  interval   sent       mean        deviation   lost       late       odd        cells    mean, from the least to the largest"
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

/// A delay, which clocks may make negative.
fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("−{}", time(-ns)) } else { time(ns) }
}

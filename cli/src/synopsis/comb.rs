//! One-way delay and loss between two captures, by FineComb or LDA.
//!
//! The sender's packets are cut into intervals by time. As on the wire, the receiver learns of the end of an interval
//! from packets: the first packet of the next interval that arrives marks it.

use core::fmt;
use std::collections::{HashMap, HashSet};

use packets::identity;
use serde::Serialize;
use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{Deviation, Estimate, FineComb, Interval, Receiver, Rule, Settings, Solver};

use super::args::{Kind, SynopsisArgs};
use super::cdf::time;
use super::source::{file, open};
use crate::failure::Failure;

/// Size of a bucket in bytes.
const BUCKET: usize = 24;
/// Packets kept at either side of an interval's end, to assign reordered packets to their interval.
const STASH: usize = 64;
/// Number of first packets of an interval that mark its beginning. All but one of them may be lost.
const MARKS: usize = 32;
/// More intervals are refused.
const MAX_INTERVALS: usize = 10_000;
const MS: f64 = 1e6;

/// The result of FineComb or LDA.
#[derive(Debug, Serialize)]
pub struct CombReport {
    synopsis: &'static str,
    buckets: usize,
    memory_bytes: usize,
    sampled: f64,
    interval_ms: f64,
    sent: u64,
    received: u64,
    mean_ns: Option<f64>,
    loss: Option<f64>,
    intervals: Vec<Row>,
}

/// One interval. Unknown values are `None`.
#[derive(Debug, Serialize)]
struct Row {
    sent: u64,
    received: u64,
    mean_ns: Option<f64>,
    deviation_ns: Option<f64>,
    deviation_clamped: bool,
    loss: Option<f64>,
    packets: u64,
    useful: u64,
    recovered: u64,
    useless: u64,
}

/// Reads both captures and measures delay and loss.
///
/// # Errors
///
/// [`Failure`] if a capture cannot be read, or an argument is out of range.
pub fn measure(args: &SynopsisArgs) -> Result<CombReport, Failure> {
    let what = || Failure::to("measure between two points");
    let Some(receiver_file) = &args.receiver else {
        let advice = "--pcap SENDER.pcap --receiver RECEIVER.pcap: two captures of the same packets";
        return Err(what().because("there is only one capture").advice(advice));
    };
    // Also false for NaN.
    if !(args.interval >= 1.0 && args.interval <= 1e9) {
        return Err(what().because(format!("--interval is {}", args.interval)).advice("1 to 1000000000 ms"));
    }
    let (rule, stash) = if args.kind == Kind::Lda { (Rule::Lda, 0) } else { (Rule::FineComb, STASH) };
    let settings = Settings::one_bank(args.memory.saturating_mul(1024) / BUCKET, args.sampled, stash, 1);
    let key = DigestKey::new(1);
    let mut receiver = Receiver::new(&settings).map_err(|error| what().caused_by(&error))?;
    let sent = SenderIntervals::read(args, &settings, &key)?;

    // Ends the empty interval before the first one.
    let _ = receiver.sync();
    let (mut ended, mut at): (Vec<Interval>, usize) = (Vec::new(), 0);
    let _ = file(receiver_file)?.read(args.view(), |packet| {
        if !args.filter.matches(packet) {
            return;
        }
        let digest = identity::digest(packet, &key);
        if let Some(&begins) = sent.marks.get(&digest) {
            while at < begins {
                ended.extend(receiver.sync());
                at += 1;
            }
        }
        receiver.insert(digest, packet.time_ns);
    })?;
    ended.extend(receiver.sync());
    ended.extend(receiver.take());

    let mut intervals = Vec::new();
    for (sender, receiver) in sent.combs.iter().zip(ended.iter().skip(1)) {
        let found = receiver.estimate(sender, rule, Solver::Elimination, Deviation::PerBucket);
        let found = found.map_err(|error| what().caused_by(&error))?;
        intervals.push(Row::new(sender, receiver, &found));
    }
    Ok(CombReport::new(args, &settings, receiver.memory_bytes(), intervals))
}

/// The intervals of the sender's capture.
struct SenderIntervals {
    combs: Vec<FineComb>,
    /// The first packets of each interval, with the index of the interval.
    marks: HashMap<Digest, usize>,
}

impl SenderIntervals {
    fn read(args: &SynopsisArgs, settings: &Settings, key: &DigestKey) -> Result<Self, Failure> {
        let what = || Failure::to("cut the sender's packets into intervals");
        let empty = FineComb::new(settings).map_err(|error| what().caused_by(&error))?;
        let mut sent = Self { combs: Vec::new(), marks: HashMap::new() };
        let (mut begins_ns, mut marked, mut too_many) = (0, 0, false);
        // Packets of the previous and of this interval: a packet that is sent again is no mark, since its first copy is
        // already in an interval.
        let mut recent: [HashSet<Digest>; 2] = Default::default();
        let length_ns = (args.interval * MS) as u64;
        let _ = open(args)?.read(args.view(), |packet| {
            if !args.filter.matches(packet) || too_many {
                return;
            }
            if sent.combs.is_empty() {
                (begins_ns, sent.combs) = (packet.time_ns, vec![empty.clone()]);
            }
            while packet.time_ns >= begins_ns + length_ns && !too_many {
                too_many = sent.combs.len() == MAX_INTERVALS;
                sent.combs.push(empty.clone());
                (begins_ns, marked) = (begins_ns + length_ns, 0);
                recent.swap(0, 1);
                recent[1].clear();
            }
            let digest = identity::digest(packet, key);
            let is_new = recent[1].insert(digest) && !recent[0].contains(&digest);
            if marked < MARKS && is_new {
                sent.marks.entry(digest).or_insert(sent.combs.len() - 1);
                marked += 1;
            }
            if let Some(comb) = sent.combs.last_mut() {
                comb.insert(digest, packet.time_ns);
            }
        })?;
        if too_many {
            return Err(what().because(format!("there are more than {MAX_INTERVALS}")).advice("a longer --interval"));
        }
        if sent.combs.is_empty() {
            return Err(what().because("no packet of the capture meets the filter"));
        }
        Ok(sent)
    }
}

impl Row {
    fn new(sender: &FineComb, receiver: &Interval, found: &Estimate) -> Self {
        Self {
            sent: sender.packets(),
            received: receiver.finecomb().packets(),
            mean_ns: found.mean_ns,
            deviation_ns: found.deviation_ns,
            deviation_clamped: found.deviation_clamped,
            loss: found.loss,
            packets: found.packets,
            useful: found.health.useful,
            recovered: found.health.recovered,
            useless: found.health.useless,
        }
    }
}

impl CombReport {
    fn new(args: &SynopsisArgs, settings: &Settings, memory_bytes: usize, intervals: Vec<Row>) -> Self {
        let sum = |of: fn(&Row) -> u64| -> u64 { intervals.iter().map(of).sum() };
        let (sent, received) = (sum(|row| row.sent), sum(|row| row.received));
        let known = sum(|row| if row.mean_ns.is_some() { row.packets } else { 0 });
        let weighted: f64 = intervals.iter().filter_map(|row| Some(row.mean_ns? * row.packets as f64)).sum();
        Self {
            synopsis: if args.kind == Kind::Lda { "lda" } else { "finecomb" },
            buckets: settings.buckets,
            memory_bytes,
            sampled: args.sampled,
            interval_ms: args.interval,
            sent,
            received,
            mean_ns: (known > 0).then(|| weighted / known as f64),
            loss: (sent > 0).then(|| (sent as f64 - received as f64) / sent as f64),
            intervals,
        }
    }

    /// Whether every interval with sent packets has a mean.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.intervals.iter().all(|row| row.sent == 0 || row.mean_ns.is_some())
    }
}

impl fmt::Display for CombReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kib, sampled) = (self.memory_bytes.div_ceil(1024), 100.0 * self.sampled);
        let buckets = self.buckets;
        writeln!(
            f,
            "{} of {buckets} buckets, {kib} KiB at the receiver, {sampled:.1} % of packets sampled",
            self.synopsis
        )?;
        write!(f, "{} packets sent, {} received", self.sent, self.received)?;
        match (self.mean_ns, self.loss) {
            (Some(mean), Some(loss)) => writeln!(f, ": mean delay {}, {:.3} % lost", signed(mean), 100.0 * loss)?,
            _ => writeln!(f, ": the delay is unknown, every bucket has a lost or an unexpected packet")?,
        }
        writeln!(
            f,
            "\n  interval   sent       mean        deviation   lost       packets    buckets useful, recovered, useless"
        )?;
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        for (place, row) in self.intervals.iter().enumerate() {
            let mean = or_dash(row.mean_ns.map(signed));
            let deviation = or_dash(row.deviation_ns.filter(|_| !row.deviation_clamped).map(signed));
            let loss = or_dash(row.loss.map(|loss| format!("{:.3} %", 100.0 * loss)));
            let buckets = format!("{}, {}, {}", row.useful, row.recovered, row.useless);
            let (sent, packets) = (row.sent, row.packets);
            writeln!(f, "  {place:<9}  {sent:<9}  {mean:<10}  {deviation:<10}  {loss:<9}  {packets:<9}  {buckets}")?;
        }
        Ok(())
    }
}

/// A delay as text; it is negative if the clocks differ.
fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("−{}", time(-ns)) } else { time(ns) }
}

//! The result of a fridge as text and as JSON.

use core::fmt;

use packets::{Pair, ParseError};
use serde::Serialize;
use synopses::fridge::Quantile;

use super::cdf;
use super::fridge_totals::FridgeTotals;
use super::source::FrameTotals;

/// The result of a fridge.
#[derive(Debug)]
pub struct FridgeReport {
    /// The kind of requests and responses.
    pub pair: Pair,
    /// Number of slots of the fridge.
    pub slots: usize,
    /// Memory of fridge and histogram in bytes.
    pub bytes: usize,
    /// Counts of frames that were read, dropped and refused.
    pub seen: FrameTotals,
    /// The delays of all intervals.
    pub all: FridgeTotals,
}

/// The shares that are reported.
const SHARES: [f64; 5] = [0.1, 0.5, 0.9, 0.95, 0.99];

/// A quantile of the delay as JSON.
#[derive(Debug, Serialize)]
pub struct QuantileView {
    share: f64,
    delay_ns: f64,
    low_ns: f64,
    high_ns: f64,
    effective_above: f64,
    low_confidence: bool,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
pub struct View {
    synopsis: &'static str,
    pair: &'static str,
    slots: usize,
    memory_bytes: usize,
    probability: f64,
    frames: u64,
    packets: u64,
    requests: u64,
    samples: u64,
    answered: Option<f64>,
    effective: f64,
    repeated: Option<f64>,
    quantiles: Vec<QuantileView>,
    cdf: Vec<(f64, f64)>,
    dropped_by_kernel: u64,
    /// Merged frames (TSO, GSO, GRO), for pairs whose delays are biased by them.
    oversized: u64,
    refused: std::collections::BTreeMap<&'static str, u64>,
}

impl FridgeReport {
    /// The result as JSON.
    #[must_use]
    pub fn view(&self) -> View {
        let quantile = |share: f64| {
            let Quantile { delay_ns, low_ns, high_ns, effective_above, low_confidence } =
                self.all.histogram.estimate(share)?;
            Some(QuantileView { share, delay_ns, low_ns, high_ns, effective_above, low_confidence })
        };
        View {
            synopsis: "fridge",
            pair: self.pair.name(),
            slots: self.slots,
            memory_bytes: self.bytes,
            probability: self.probability(),
            frames: self.seen.frames.frames,
            packets: self.all.intervals.iter().map(|interval| interval.packets).sum(),
            requests: self.requests(),
            samples: self.all.histogram.samples(),
            answered: self.all.histogram.answered(),
            effective: self.all.histogram.effective(),
            repeated: self.repeated(),
            quantiles: SHARES.into_iter().filter_map(quantile).collect(),
            cdf: cdf::points(&self.all.histogram),
            dropped_by_kernel: self.seen.frames.dropped,
            oversized: self.oversized(),
            refused: self.seen.refusals.iter().map(|(reason, count)| (reason.name(), count)).collect(),
        }
    }

    /// Frames that a card or the kernel merged, for pairs whose delays are biased by them.
    const fn oversized(&self) -> u64 {
        if self.pair.is_affected_by_offloads() { self.seen.oversized } else { 0 }
    }

    /// Whether the median has enough samples, no frame was dropped, and no merged frame biases the delays.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let median = self.all.histogram.estimate(0.5);
        median.is_some_and(|median| !median.low_confidence) && self.seen.frames.dropped == 0 && self.oversized() == 0
    }

    fn requests(&self) -> u64 {
        self.all.intervals.iter().map(|interval| interval.tally.requests).sum()
    }

    /// The admission probability of the last interval.
    fn probability(&self) -> f64 {
        self.all.intervals.last().map_or(1.0, |interval| interval.probability)
    }

    fn repeated(&self) -> Option<f64> {
        let sum = |count: fn(&synopses::fridge::Tally) -> u64| -> u64 {
            self.all.intervals.iter().map(|interval| count(&interval.tally)).sum()
        };
        let (entered, again) = (sum(|tally| tally.admitted), sum(|tally| tally.duplicate_requests));
        (entered + again > 0).then(|| again as f64 / (entered + again) as f64)
    }
}

/// The name of a pair in text.
const fn what(pair: Pair) -> &'static str {
    match pair {
        Pair::Handshake => "TCP handshakes",
        Pair::Data => "TCP data to its acknowledgement",
        Pair::Flow => "TCP connections",
        Pair::Dns => "DNS queries",
        Pair::Ntp => "NTP queries",
    }
}

impl fmt::Display for FridgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, packets) =
            (self.seen.frames, self.all.intervals.iter().map(|interval| interval.packets).sum::<u64>());
        let kib = self.bytes.div_ceil(1024);
        writeln!(
            f,
            "{}: {} frames, {packets} packets of the stream, {} requests",
            what(self.pair),
            frames.frames,
            self.requests()
        )?;
        writeln!(f, "fridge of {} slots, p = {:.4}, {kib} KiB with its histogram", self.slots, self.probability())?;
        if frames.dropped > 0 {
            writeln!(
                f,
                "CAUTION: the kernel dropped {} frames because they were not read in time; they are missing below",
                frames.dropped
            )?;
        }
        if self.oversized() > 0 {
            writeln!(
                f,
                "CAUTION: {} frames had been merged by offloads (TSO, GSO, GRO): of the merged segments only the last one is answered,\n         \
                 with the delay of the first. To switch offloads off: ethtool -K INTERFACE tso off gso off gro off",
                self.oversized()
            )?;
        }
        self.refusals(f)?;
        let Some(answered) = self.all.histogram.answered() else {
            return writeln!(f, "\nno request was answered, delays are unknown");
        };
        let (samples, effective) = (self.all.histogram.samples(), self.all.histogram.effective());
        write!(f, "answered: {answered:.0}, estimated from {samples} samples (effective sample size {effective:.0})")?;
        match self.repeated() {
            Some(repeated) if repeated > 0.0 => {
                writeln!(f, "; {:.2} % of requests were repeated before their response", 100.0 * repeated)?;
            }
            _ => writeln!(f)?,
        }
        writeln!(f, "\n  share   delay        95 % confidence")?;
        for share in SHARES {
            let Some(quantile) = self.all.histogram.estimate(share) else { continue };
            let [delay, low, high] = [quantile.delay_ns, quantile.low_ns, quantile.high_ns].map(cdf::time);
            let mark = if quantile.low_confidence { "   too few samples above it" } else { "" };
            writeln!(f, "  {:>4.0} %  {delay:<12} {low} to {high}{mark}", 100.0 * share)?;
        }
        writeln!(f)?;
        cdf::draw(&self.all.histogram, f)
    }
}

impl FridgeReport {
    /// Frames that were not measured. Other protocols are one sum, malformed frames are listed by reason.
    fn refusals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |harmless: bool| self.seen.refusals.iter().filter(move |(reason, _)| reason.is_harmless() == harmless);
        let other: u64 = of(true).map(|(_, count)| count).sum();
        if other > 0 {
            writeln!(f, "other protocols and later fragments: {other} frames")?;
        }
        let broken: Vec<String> = of(false).map(|(reason, count)| format!("{} {count}", words(reason))).collect();
        if broken.is_empty() { Ok(()) } else { writeln!(f, "malformed: {}", broken.join(", ")) }
    }
}

fn words(reason: ParseError) -> String {
    reason.name().replace('_', " ")
}

//! The delays of one stream: filter, pairs, fridge and histogram, and what is said of each interval.

use synopses::digest::DigestKey;
use synopses::fridge::{
    Epoch, Generations, Histogram, HistogramError, HistogramShape, Quantile, Report, Sample, Settings, SettingsError,
    Tally, Tuner,
};
use thiserror::Error;

use crate::filter::Filter;
use crate::packet::Packet;
use crate::pair::Pair;

/// How much longer than the 99th percentile requests may wait in a fridge that was replaced.
const DRAINING: u64 = 4;

/// What is measured, and with how much memory.
#[derive(Clone, Debug)]
pub struct DelaysSettings {
    /// What is a request, and what its response.
    pub pair: Pair,
    /// Which requests count, and what answers them, whatever side its conditions name: `dst port 443` is what is sent to that port and how
    /// long its answers take, and not what comes from there.
    pub filter: Filter,
    /// The fridge.
    pub fridge: Settings,
    /// How fine the histogram is.
    pub histogram: HistogramShape,
    /// Whether the fridge's probability follows the traffic.
    pub tuned: bool,
    /// 128 bits that nobody who crafts packets knows.
    pub secret: u128,
}

/// What cannot be measured so.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DelaysError {
    /// The fridge.
    #[error(transparent)]
    Fridge(#[from] SettingsError),
    /// The histogram.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
}

/// The delays of one stream.
#[derive(Debug)]
pub struct Delays {
    settings: DelaysSettings,
    key: DigestKey,
    fridge: Generations,
    tuner: Tuner,
    histogram: Histogram,
    /// At the end of the last interval.
    before: Tally,
    /// When this interval began, or the first packet of the stream came.
    began_ns: Option<u64>,
    last_ns: u64,
    packets: u64,
}

/// What is known of one interval. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// From its beginning, or the first packet, to its end, in nanoseconds.
    pub length_ns: u64,
    /// Packets of the stream.
    pub packets: u64,
    /// What the fridge did.
    pub tally: Tally,
    /// How many requests were answered: an estimate, unbiased.
    pub answered: Option<f64>,
    /// How many unweighted samples would be as good as those that there are.
    pub effective: f64,
    /// The median, and the 95th and 99th percentile of the delay.
    pub quantiles: Option<[Quantile; 3]>,
    /// The share of requests that came again while they waited: retransmissions that passed here, from what lies behind.
    pub repeated: Option<f64>,
    /// The fridge's probability.
    pub probability: f64,
}

/// An interval of one shard of a stream: of those packets that came by one ring, with a fridge of their own. All packets of a flow have to come by the same
/// ring. What a sample weighs is settled where it is taken, by the size and the probability of the fridge that it was in; so the shards' histograms
/// add up to one whose estimates are without a bias, as each of theirs is.
#[derive(Clone, Debug)]
pub struct Part {
    histogram: Histogram,
    interval: Interval,
}

impl Part {
    /// Another shard's packets of the same interval.
    ///
    /// # Errors
    ///
    /// [`HistogramError`] if its histogram is of another shape; then nothing was added.
    pub fn add(&mut self, other: &Self) -> Result<(), HistogramError> {
        self.histogram.merge(&other.histogram)?;
        let (all, more) = (&mut self.interval, &other.interval);
        all.length_ns = all.length_ns.max(more.length_ns);
        all.packets += more.packets;
        all.tally = each(&all.tally, &more.tally, |one, other| one + other);
        all.probability = all.probability.min(more.probability);
        Ok(())
    }

    /// What is known of all of them. The probability is the smallest of theirs.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval {
            answered: self.histogram.answered(),
            effective: self.histogram.effective(),
            quantiles: quantiles(&self.histogram),
            repeated: repeated(&self.interval.tally),
            ..self.interval
        }
    }
}

/// The shares of [`Interval::quantiles`].
pub const SHARES: [f64; 3] = [0.5, 0.95, 0.99];

impl Delays {
    /// Takes all memory.
    ///
    /// # Errors
    ///
    /// [`DelaysError`] says what is impossible.
    pub fn new(settings: DelaysSettings) -> Result<Self, DelaysError> {
        let fridge = Generations::new(settings.fridge)?;
        Ok(Self {
            key: DigestKey::new(settings.secret),
            tuner: Tuner::new(settings.fridge.slots, fridge.current().probability()),
            fridge,
            histogram: Histogram::new(settings.histogram)?,
            before: Tally::default(),
            began_ns: None,
            last_ns: 0,
            packets: 0,
            settings,
        })
    }

    /// One packet of any stream: a sample, if it answers a request that is known. Costs two digests at most, and allocates nothing.
    #[inline]
    pub fn insert(&mut self, packet: &Packet<'_>) -> Option<Report> {
        let asks = self.settings.filter.meets(packet);
        if !asks && !self.settings.filter.meets_back(packet) {
            return None;
        }
        let now_ns = packet.time_ns;
        self.packets += 1;
        self.began_ns.get_or_insert(now_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let roles = self.settings.pair.roles(packet, &self.key);
        // A segment may be both; it does not answer itself.
        let report = roles.response.and_then(|response| self.fridge.answer(response, now_ns));
        if let Some(report) = report {
            self.histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.weight() });
        }
        if let Some(request) = roles.request.filter(|_| asks) {
            self.fridge.insert(request, now_ns);
        }
        report
    }

    /// What was seen since the last interval ended.
    #[must_use]
    pub fn estimate(&self) -> Interval {
        let tally = since(&self.fridge.tally(), &self.before);
        Interval {
            length_ns: self.began_ns.map_or(0, |began| self.last_ns.saturating_sub(began)),
            packets: self.packets,
            tally,
            answered: self.histogram.answered(),
            effective: self.histogram.effective(),
            quantiles: quantiles(&self.histogram),
            repeated: repeated(&tally),
            probability: self.fridge.current().probability(),
        }
    }

    /// Ends an interval at `now_ns`, and says what it was like. What waits goes on waiting. May replace the fridge by one with another probability.
    pub fn end_interval(&mut self, now_ns: u64) -> Interval {
        self.last_ns = self.last_ns.max(now_ns);
        let interval = self.estimate();
        self.histogram.clear();
        self.before = self.fridge.tally();
        self.began_ns = Some(now_ns);
        self.packets = 0;
        if self.settings.tuned {
            self.tune(&interval, now_ns);
        }
        interval
    }

    /// The same of a shard, to be added to those of the others. Costs a copy of the histogram.
    pub fn end_part(&mut self, now_ns: u64) -> Part {
        let histogram = self.histogram.clone();
        Part { interval: self.end_interval(now_ns), histogram }
    }

    fn tune(&mut self, interval: &Interval, now_ns: u64) {
        let p99_ns = interval.quantiles.map(long_delay);
        let epoch = Epoch { requests: interval.tally.requests, length_ns: interval.length_ns, p99_ns };
        let Some(probability) = self.tuner.update(&epoch) else { return };
        let seed = self.settings.fridge.seed.wrapping_add(1);
        let next = Settings { probability, seed, ..self.settings.fridge };
        let until_ns = now_ns.saturating_add(DRAINING * p99_ns.unwrap_or_default() as u64);
        if self.fridge.replace(next, until_ns).is_ok() {
            self.settings.fridge = next;
            self.before = Tally::default();
        }
    }

    /// The delays of this interval so far.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// When the last packet of the stream came; 0 before the first.
    #[must_use]
    pub const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// What is measured.
    #[must_use]
    pub const fn settings(&self) -> &DelaysSettings {
        &self.settings
    }

    /// Bytes of fridge and histogram. While a fridge is drained that was replaced, there are two.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.fridge.memory_bytes() + self.histogram.memory_bytes()
    }
}

fn quantiles(histogram: &Histogram) -> Option<[Quantile; 3]> {
    let [median, p95, p99] = SHARES.map(|share| histogram.estimate(share));
    Some([median?, p95?, p99?])
}

fn repeated(tally: &Tally) -> Option<f64> {
    let asked = tally.admitted + tally.duplicate_requests;
    (asked > 0).then(|| tally.duplicate_requests as f64 / asked as f64)
}

/// About the 99th percentile: itself if it can be trusted, or what it mostly is beside one that can (of a lognormal delay with σ = 0.9: 1.9 and 8 times).
/// Half or twice as much costs a fridge little. Where none can be trusted the fridge is far from where it should be, and the median shows the way.
fn long_delay([median, p95, p99]: [Quantile; 3]) -> f64 {
    match (p95.low_confidence, p99.low_confidence) {
        (_, false) => p99.delay_ns,
        (false, true) => 2.0 * p95.delay_ns,
        (true, true) => 8.0 * median.delay_ns,
    }
}

fn since(now: &Tally, before: &Tally) -> Tally {
    each(now, before, |now, before| now - before)
}

fn each(one: &Tally, other: &Tally, with: impl Fn(u64, u64) -> u64) -> Tally {
    Tally {
        requests: with(one.requests, other.requests),
        admitted: with(one.admitted, other.admitted),
        duplicate_requests: with(one.duplicate_requests, other.duplicate_requests),
        evicted: with(one.evicted, other.evicted),
        responses: with(one.responses, other.responses),
        matched: with(one.matched, other.matched),
        unmatched: with(one.unmatched, other.unmatched),
        ambiguous: with(one.ambiguous, other.ambiguous),
        clock_anomaly: with(one.clock_anomaly, other.clock_anomaly),
        weight_clamped: with(one.weight_clamped, other.weight_clamped),
    }
}

#[cfg(test)]
mod tests;

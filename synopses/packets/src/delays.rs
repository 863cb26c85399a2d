//! Request-response delays of one stream: filter, pairs, fridge and histogram, with a summary of each interval.

use synopses::digest::DigestKey;
use synopses::fridge::{
    Epoch, Generations, Histogram, HistogramError, HistogramShape, Quantile, Report, Sample, Settings, SettingsError,
    Tally, Tuner,
};
use thiserror::Error;

use crate::filter::Filter;
use crate::packet::Packet;
use crate::pair::Pair;

/// A replaced fridge is drained for this many times the 99th percentile of the delay.
const DRAINING: u64 = 4;

/// What is measured, and the sizes of fridge and histogram.
#[derive(Clone, Debug)]
pub struct DelaysSettings {
    /// The kind of request and response.
    pub pair: Pair,
    /// Selects the requests. Responses match with source and destination exchanged: `dst port 443` measures requests to
    /// that port and their responses, but no requests from that port.
    pub filter: Filter,
    /// Settings of the fridge.
    pub fridge: Settings,
    /// Resolution of the histogram.
    pub histogram: HistogramShape,
    /// Whether the fridge's probability is tuned to the traffic.
    pub tuned: bool,
    /// Secret key of 128 bits, so that crafted packets cannot collide.
    pub secret: u128,
}

/// Why settings of delays are not valid.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DelaysError {
    /// Invalid settings of the fridge.
    #[error(transparent)]
    Fridge(#[from] SettingsError),
    /// Invalid shape of the histogram.
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
    /// Counts at the end of the last interval.
    before: Tally,
    /// When this interval began, or the time of the stream's first packet.
    began_ns: Option<u64>,
    /// The time of the last packet of this interval; before it, when the interval began.
    last_ns: u64,
    packets: u64,
}

/// Delays of one interval. Unknown values are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Length in nanoseconds, from its beginning or the first packet to its end.
    pub length_ns: u64,
    /// Number of packets of the stream.
    pub packets: u64,
    /// Counts of the fridge.
    pub tally: Tally,
    /// Unbiased estimate of the number of requests that got a response.
    pub answered: Option<f64>,
    /// Effective number of samples: unweighted samples of the same precision.
    pub effective: f64,
    /// Median, 95th and 99th percentile of the delay.
    pub quantiles: Option<[Quantile; 3]>,
    /// Share of delays in each class of [`BOUNDS_NS`], and of those beyond; together 1.
    pub classes: Option<[f64; CLASSES]>,
    /// Share of requests that were repeated while pending: retransmissions because of losses behind the capture point.
    pub repeated: Option<f64>,
    /// Probability with which a request enters the fridge, or one of several.
    pub probability: f64,
}

impl Interval {
    /// What samples and counts of an interval say, wherever they were taken. `probability` is that of the fridge, or
    /// the sum of those of several.
    #[must_use]
    pub fn of(histogram: &Histogram, tally: Tally, packets: u64, length_ns: u64, probability: f64) -> Self {
        Self {
            length_ns,
            packets,
            tally,
            answered: histogram.answered(),
            effective: histogram.effective(),
            quantiles: quantiles(histogram),
            classes: classes(histogram),
            repeated: repeated(&tally),
            probability,
        }
    }
}

/// One interval of one shard of a stream. A shard has the packets of one ring, and its own fridge. All packets of a
/// flow have to come through the same ring. A sample's weight depends only on the fridge that it was in, so the sum of
/// the shards' histograms gives unbiased estimates, as each histogram does.
#[derive(Clone, Debug)]
pub struct ShardDelays {
    histogram: Histogram,
    interval: Interval,
}

impl ShardDelays {
    /// Adds another shard of the same interval.
    ///
    /// # Errors
    ///
    /// [`HistogramError`] if its histogram has another shape. Nothing is added then.
    pub fn add(&mut self, other: &Self) -> Result<(), HistogramError> {
        self.histogram.merge(&other.histogram)?;
        let (all, more) = (&mut self.interval, &other.interval);
        all.length_ns = all.length_ns.max(more.length_ns);
        all.packets += more.packets;
        all.tally = each(&all.tally, &more.tally, |one, other| one + other);
        all.probability = all.probability.min(more.probability);
        Ok(())
    }

    /// The interval of all added shards. Its probability is the smallest one of the shards.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval {
            answered: self.histogram.answered(),
            effective: self.histogram.effective(),
            quantiles: quantiles(&self.histogram),
            classes: classes(&self.histogram),
            repeated: repeated(&self.interval.tally),
            ..self.interval
        }
    }
}

/// Inclusive upper bounds of the classes in [`Interval::classes`], in nanoseconds: from 100 µs to 1 s in steps of 2 to
/// 2.5.
pub const BOUNDS_NS: [u64; 13] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
];

/// One class for each bound, and one for what is longer than all.
pub const CLASSES: usize = BOUNDS_NS.len() + 1;

/// The quantiles in [`Interval::quantiles`].
pub const SHARES: [f64; 3] = [0.5, 0.95, 0.99];

impl Delays {
    /// Allocates all memory.
    ///
    /// # Errors
    ///
    /// [`DelaysError`] if a setting is invalid.
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

    /// Selects the requests of other packets from now on; what is known of earlier ones stays. Right after the end of
    /// an interval, all packets of an interval are of one filter.
    pub fn set_filter(&mut self, filter: Filter) {
        self.settings.filter = filter;
    }

    /// Adds a packet. Returns a sample if it is the response to a pending request. Packets of other streams are
    /// ignored. Takes at most two digests and allocates nothing.
    #[inline]
    pub fn insert(&mut self, packet: &Packet<'_>) -> Option<Report> {
        let is_forward = self.settings.filter.matches(packet);
        if !is_forward && !self.settings.filter.matches_reply(packet) {
            return None;
        }
        let now_ns = packet.time_ns;
        self.packets += 1;
        self.began_ns.get_or_insert(now_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let roles = self.settings.pair.roles(packet, &self.key);
        // A segment may be both. The response comes first, so that it does not match itself.
        let report = roles.response.and_then(|response| self.fridge.match_response(response, now_ns));
        if let Some(report) = report {
            self.histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.weight() });
        }
        if let Some(request) = roles.request.filter(|_| is_forward) {
            self.fridge.insert(request, now_ns);
        }
        report
    }

    /// The current interval so far.
    #[must_use]
    pub fn estimate(&self) -> Interval {
        let tally = since(&self.fridge.tally(), &self.before);
        let length_ns = self.began_ns.map_or(0, |began| self.last_ns.saturating_sub(began));
        Interval::of(&self.histogram, tally, self.packets, length_ns, self.fridge.current().probability())
    }

    /// Ends the interval at `now_ns` and returns it. Pending requests stay pending. May replace the fridge by one with
    /// another probability.
    pub fn end_interval(&mut self, now_ns: u64) -> Interval {
        self.last_ns = self.last_ns.max(now_ns);
        let interval = self.estimate();
        self.histogram.clear();
        self.before = self.fridge.tally();
        self.began_ns = Some(now_ns);
        self.packets = 0;
        // A packet of a clock that was ahead makes one interval too long, and not all until that time has come.
        self.last_ns = now_ns;
        if self.settings.tuned {
            self.tune(&interval, now_ns);
        }
        interval
    }

    /// Ends the interval of a shard, to be added to those of the other shards. Copies the histogram.
    pub fn end_shard(&mut self, now_ns: u64) -> ShardDelays {
        let histogram = self.histogram.clone();
        ShardDelays { interval: self.end_interval(now_ns), histogram }
    }

    /// Begins anew after the clock was set back. Call it right after the end of an interval at the time that the clock
    /// shows now. Pending requests are forgotten, since how long they have waited is unknown. Allocates a fridge.
    pub fn set_back(&mut self) {
        // The settings are those of the fridge so far, so they are valid.
        if let Ok(fridge) = Generations::new(self.settings.fridge) {
            self.fridge = fridge;
            self.before = Tally::default();
        }
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

    /// Histogram of the current interval so far.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// Time of the stream's last packet, or of the last end of an interval if that is later, in nanoseconds since 1970;
    /// 0 before the first.
    #[must_use]
    pub const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// The current settings, with the tuned probability.
    #[must_use]
    pub const fn settings(&self) -> &DelaysSettings {
        &self.settings
    }

    /// Bytes of fridge and histogram. Includes a replaced fridge while that is drained.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.fridge.memory_bytes() + self.histogram.memory_bytes()
    }
}

fn quantiles(histogram: &Histogram) -> Option<[Quantile; 3]> {
    let [median, p95, p99] = SHARES.map(|share| histogram.estimate(share));
    Some([median?, p95?, p99?])
}

fn classes(histogram: &Histogram) -> Option<[f64; CLASSES]> {
    let mut shares = [0.0; CLASSES];
    let mut above = 1.0;
    for (class, share) in shares.iter_mut().enumerate() {
        let beyond = match BOUNDS_NS.get(class) {
            // Of what is in the bucket of a bound, a part may count for the class above: never less than nothing.
            Some(bound) => histogram.above(*bound)?.0.min(above),
            None => 0.0,
        };
        (*share, above) = (above - beyond, beyond);
    }
    Some(shares)
}

fn repeated(tally: &Tally) -> Option<f64> {
    let requests = tally.admitted + tally.duplicate_requests;
    (requests > 0).then(|| tally.duplicate_requests as f64 / requests as f64)
}

/// About the 99th percentile: itself if it can be trusted, otherwise twice the 95th percentile or 8 times the median (a
/// lognormal delay with σ = 0.9 has ratios of 1.9 and 8). An error of a factor of two costs a fridge little. If no
/// percentile can be trusted, the fridge's probability is far off, and the median gives the direction.
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

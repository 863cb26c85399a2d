//! An interval of which both ends remember every packet, for RDA and those that it is compared with.

use synopses::digest::Digest;
use synopses::finecomb::{Deviation, FineComb, Interval, Rule, Settings as CombSettings, Solver};
use synopses::rda::{Cache, Estimate, Ids, Reconciliation, Settings};

use crate::streams::{Delays, random};

/// Nanoseconds of an interval.
const LENGTH_NS: u64 = 1_000_000_000;
/// Before its start.
const BASE_NS: u64 = 1 << 40;

/// Packets of both ends, with the times of their passing, and what is true of those that both have.
pub struct Case {
    pub sender: Vec<(Digest, u64)>,
    pub receiver: Vec<(Digest, u64)>,
    pub common: u64,
    pub mean_ns: f64,
    pub deviation_ns: f64,
}

/// Relative errors, and the share of common packets that they rest on.
#[derive(Clone, Copy, Debug, Default)]
pub struct EstimateErrors {
    pub mean: f64,
    pub deviation: f64,
    pub useful: f64,
}

/// Errors of LDA or FineComb by the buckets that are collapsed for the deviation.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollapsedErrors {
    /// Neighbours that are both useful, as LDA and FineComb do.
    pub neighbours: EstimateErrors,
    /// Successive useful ones, as RDA does.
    pub selective: EstimateErrors,
}

impl Case {
    /// `packets` are sent evenly, of which `lost` at random do not arrive; `extra` arrive that were not sent, half at
    /// each border.
    pub fn new(packets: u64, lost: u64, extra: u64, delays: &Delays, seed: u64) -> Self {
        let mut sender = Vec::with_capacity(packets as usize);
        let mut receiver = Vec::with_capacity((packets + extra) as usize);
        let (spacing, mut left) = (LENGTH_NS / packets, lost);
        let (mut sum, mut squares) = (0_u128, 0.0);
        for number in 0..packets {
            let bits = random(number ^ random(seed));
            let (digest, sent) = (Digest(bits), BASE_NS + number * spacing);
            sender.push((digest, sent));
            // So many of those that are left, each equally likely.
            if random(bits) % (packets - number) < left {
                left -= 1;
                continue;
            }
            let delay = delays.draw(random(bits ^ 0xde1a));
            sum += u128::from(delay);
            squares += (delay as f64).powi(2);
            receiver.push((digest, sent + delay));
        }
        for number in 0..extra {
            let from_end = number.is_multiple_of(2);
            let at = if from_end { LENGTH_NS - spacing * number / 2 } else { spacing * number / 2 };
            receiver.push((Digest(random(number ^ random(seed ^ 0xe1))), BASE_NS + at));
        }
        let common = packets - lost;
        let mean_ns = sum as f64 / common.max(1) as f64;
        let deviation_ns = (squares / common.max(1) as f64 - mean_ns * mean_ns).max(0.0).sqrt();
        Self { sender, receiver, common, mean_ns, deviation_ns }
    }

    fn off(&self, mean: Option<f64>, deviation: Option<f64>, useful: u64) -> EstimateErrors {
        let of = |found: Option<f64>, truth: f64| found.map_or(1.0, |found| (found / truth - 1.0).abs());
        EstimateErrors {
            mean: of(mean, self.mean_ns),
            deviation: of(deviation, self.deviation_ns),
            useful: useful as f64 / self.common as f64,
        }
    }

    fn cache(packets: &[(Digest, u64)], ids: Ids) -> Cache {
        let mut cache = Cache::new(packets.len().max(1), ids).expect("possible");
        for (digest, now) in packets {
            cache.insert(*digest, *now);
        }
        cache
    }

    /// The caches of sender and receiver.
    pub fn caches(&self, ids: Ids) -> (Cache, Cache) {
        (Self::cache(&self.sender, ids), Self::cache(&self.receiver, ids))
    }

    /// The whole exchange.
    pub fn reconcile(&self, settings: &Settings) -> Reconciliation {
        let (sender, receiver) = self.caches(settings.ids);
        let mut exchange =
            Reconciliation::new(sender, receiver.aggregate(settings).expect("possible")).expect("same ids");
        for _ in 0..4 {
            let asked = exchange.missing();
            let answers: Vec<_> = asked.iter().map(|id| (*id, receiver.time_of(*id))).collect();
            exchange.add_times(&answers).expect("what was asked");
        }
        exchange
    }

    pub fn rda(&self, settings: &Settings, deviation: Deviation) -> (EstimateErrors, Estimate) {
        let exchange = self.reconcile(settings);
        let found = exchange.estimate(deviation);
        (self.off(found.mean_ns, found.deviation_ns, exchange.useful_packets()), found)
    }

    /// Errors by two ways to collapse buckets for the deviation: neighbours, as published, and all useful ones.
    fn comb(&self, cells: usize, rule: Rule, packets: &[(Digest, u64)]) -> CollapsedErrors {
        let fill = |packets: &[(Digest, u64)]| {
            let mut comb = FineComb::new(&CombSettings::one_bank(cells, 1.0, 0, 1)).expect("possible");
            for (digest, now) in packets {
                comb.insert(*digest, *now);
            }
            comb
        };
        let (interval, sender) = (Interval::without_stash(fill(packets)), fill(&self.sender));
        let errors = |deviation: Deviation| {
            let found = interval.estimate(&sender, rule, Solver::Elimination, deviation).expect("one kind");
            self.off(found.mean_ns, found.deviation_ns, found.packets)
        };
        CollapsedErrors { neighbours: errors(Deviation::Fixed), selective: errors(Deviation::Selective) }
    }

    /// FineComb without the added packets, since enumeration would take too long.
    pub fn fine_comb(&self, cells: usize) -> CollapsedErrors {
        self.comb(cells, Rule::FineCombMinus, &self.receiver[..self.common as usize])
    }

    /// LDA without sampling.
    pub fn lda(&self, cells: usize) -> CollapsedErrors {
        self.comb(cells, Rule::Lda, &self.receiver)
    }
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The mean value.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

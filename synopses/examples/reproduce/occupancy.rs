//! What FineComb has to come to, by a second way: only the packets that spoil buckets are thrown into them. No comb, no
//! digest, no time.
//!
//! A bucket is made good again exactly if none of its packets was lost and all of its displaced ones found a place in a
//! stash.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use synopses::finecomb::{Bank, Settings};

use crate::streams::{DisplacedPackets, Loss};
use crate::sweep::{PACKETS, each};

/// Parts of the runs, each with random numbers of its own.
const PARTS: u64 = 32;

/// One bank, and what happens to the interval.
#[derive(Clone, Copy)]
pub struct Bins {
    pub buckets: usize,
    pub probability: f64,
    /// w, entries of each of the four stashes.
    pub stash: usize,
    pub packets: u64,
    pub loss: Loss,
    pub displaced: DisplacedPackets,
}

/// A mean over runs, and its standard error.
#[derive(Clone, Copy)]
pub struct Mean {
    pub value: f64,
    pub error: f64,
    runs: u64,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let value = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
        Self { value, error: (squares / (count - 1.0) / count).sqrt(), runs: values.len() as u64 }
    }

    /// The standard error of a mean over so many runs.
    pub fn error_of(&self, runs: u64) -> f64 {
        self.error * (self.runs as f64 / runs as f64).sqrt()
    }
}

/// What one bucket lacks and has too much.
#[derive(Clone, Copy, Default)]
struct Bin {
    /// Cannot be made good.
    spoilt: bool,
    /// Sent less received.
    lacks: i64,
    lost: u32,
}

/// How many of `count` have something that each has with this probability: from one to the next by geometric steps.
fn binomial(count: u64, probability: f64, random: &mut ChaCha8Rng) -> u64 {
    if probability >= 1.0 {
        return count;
    }
    let (mut left, mut found) = (count as f64, 0);
    loop {
        left -= 1.0 + ((1.0 - random.random::<f64>()).ln() / (-probability).ln_1p()).floor();
        if left < 0.0 {
            return found;
        }
        found += 1;
    }
}

impl Bins {
    /// The only bank of `settings` in an interval of the published stream.
    pub fn of(settings: &Settings, loss: Loss, displaced: DisplacedPackets) -> Self {
        let Bank { probability, stash, .. } = settings.banks[0];
        Self { buckets: settings.buckets, probability, stash, packets: PACKETS, loss, displaced }
    }

    /// Packets in useful buckets.
    pub fn useful_packets(&self, runs: u64) -> Mean {
        let lost = match self.loss {
            Loss::Share(share) => share,
            Loss::Exactly(lost) => lost as f64 / self.packets as f64,
        };
        let good = self.probability * (1.0 - lost) * self.packets as f64;
        mean(runs, |random| good * self.share_of_useful(random))
    }

    /// Useful buckets as a share of all.
    pub fn useful_share(&self, runs: u64) -> f64 {
        mean(runs, |random| self.share_of_useful(random)).value
    }

    fn share_of_useful(&self, random: &mut ChaCha8Rng) -> f64 {
        let lost = self.sampled_losses(random);
        let useful = self.thrown(lost, random).iter().filter(|bin| !bin.spoilt).count();
        useful as f64 / self.buckets as f64
    }

    /// The relative error of the loss, absolute.
    pub fn error_of_loss(&self, runs: u64) -> Mean {
        mean(runs, |random| {
            let sampled = self.sampled_losses(random);
            let lost = match self.loss {
                Loss::Exactly(lost) => lost,
                Loss::Share(share) => {
                    let other = share * (1.0 - self.probability) / (1.0 - share * self.probability);
                    sampled + binomial(self.packets - sampled, other, random)
                }
            };
            (self.estimated(&self.thrown(sampled, random), lost) - 1.0).abs()
        })
    }

    /// How many of the lost packets are sampled.
    fn sampled_losses(&self, random: &mut ChaCha8Rng) -> u64 {
        match self.loss {
            Loss::Share(share) => binomial(self.packets, share * self.probability, random),
            Loss::Exactly(lost) => binomial(lost, self.probability, random),
        }
    }

    /// The buckets, after sampled losses and displaced packets.
    fn thrown(&self, lost: u64, random: &mut ChaCha8Rng) -> Vec<Bin> {
        let mut bins = vec![Bin::default(); self.buckets];
        for _ in 0..lost {
            let bin = &mut bins[random.random_range(0..self.buckets)];
            *bin = Bin { spoilt: true, lacks: bin.lacks + 1, lost: bin.lost + 1 };
        }
        let DisplacedPackets { pre_start, post_start, pre_end, post_end } = self.displaced;
        for (count, lacks) in [(pre_start, 1), (post_end, 1), (post_start, -1), (pre_end, -1)] {
            for kept in 0..binomial(count, self.probability, random) {
                let bin = &mut bins[random.random_range(0..self.buckets)];
                bin.lacks += lacks;
                bin.spoilt |= kept >= self.stash as u64;
            }
        }
        bins
    }

    /// The loss by the publication's rule, as a share of the true one.
    fn estimated(&self, bins: &[Bin], truly_lost: u64) -> f64 {
        let arrived = self.probability * (self.packets - truly_lost) as f64 / self.buckets as f64;
        let (mut lost, mut of) = (0.0, 0.0);
        for bin in bins {
            if !bin.spoilt {
                of += arrived;
            } else if bin.lacks >= 0 {
                lost += bin.lacks as f64;
                of += arrived + f64::from(bin.lost);
            }
        }
        if of > 0.0 { lost / of / (truly_lost as f64 / self.packets as f64) } else { 0.0 }
    }
}

/// The mean of at least `runs` runs, from seeds of their own.
fn mean(runs: u64, run: impl Fn(&mut ChaCha8Rng) -> f64 + Sync) -> Mean {
    let parts = each(PARTS, |part| {
        let mut random = ChaCha8Rng::seed_from_u64(0x0b5 + part);
        (0..runs.div_ceil(PARTS)).map(|_| run(&mut random)).collect::<Vec<_>>()
    });
    Mean::of(&parts.concat())
}

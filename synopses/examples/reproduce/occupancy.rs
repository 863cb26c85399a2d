//! What FineComb has to come to, by a second way: only the packets that spoil buckets are thrown into them. No comb, no
//! digest, no time.
//!
//! A bucket is made good again exactly if none of its packets was lost and all of its displaced ones found a place in a
//! stash.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use synopses::finecomb::{Bank, Settings};

use crate::streams::DisplacedPackets;
use crate::sweep::PACKETS;

/// One bank, and what happens to the interval.
#[derive(Clone, Copy)]
pub struct Bins {
    pub buckets: usize,
    pub probability: f64,
    /// w, entries of each of the four stashes.
    pub stash: usize,
    pub packets: f64,
    /// Of all packets, sampled or not.
    pub lost: u64,
    pub displaced: DisplacedPackets,
}

/// Means over runs.
#[derive(Clone, Copy, Default)]
pub struct ExpectedResult {
    /// Packets in useful buckets.
    pub packets: f64,
    /// Relative error of the loss, absolute.
    pub loss: f64,
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

impl Bins {
    /// The only bank of `settings` at a point.
    pub fn of(settings: &Settings, lost: u64, displaced: DisplacedPackets) -> Self {
        let Bank { probability, stash, .. } = settings.banks[0];
        Self { buckets: settings.buckets, probability, stash, packets: PACKETS as f64, lost, displaced }
    }

    /// So many runs.
    pub fn expected(&self, runs: u64) -> ExpectedResult {
        let mut expected = ExpectedResult::default();
        let mut random = ChaCha8Rng::seed_from_u64(0x0b5);
        for _ in 0..runs {
            let (packets, loss) = self.run(&mut random);
            expected.packets += packets / runs as f64;
            expected.loss += (loss - 1.0).abs() / runs as f64;
        }
        expected
    }

    /// Packets in useful buckets, and the loss as a share of the true one.
    fn run(&self, random: &mut ChaCha8Rng) -> (f64, f64) {
        let mut bins = vec![Bin::default(); self.buckets];
        let DisplacedPackets { pre_start, post_start, pre_end, post_end } = self.displaced;
        // Lost packets have a stash of no entries, and are among those that were sent.
        let mut throw = |count: u64, stash: usize, lacks: i64, lost: u32| {
            let mut kept = 0;
            for _ in 0..count {
                if random.random::<f64>() >= self.probability {
                    continue;
                }
                let bin = &mut bins[random.random_range(0..self.buckets)];
                bin.lacks += lacks;
                bin.lost += lost;
                kept += 1;
                bin.spoilt |= kept > stash;
            }
        };
        throw(self.lost, 0, 1, 1);
        for (count, lacks) in [(pre_start, 1), (post_end, 1), (post_start, -1), (pre_end, -1)] {
            throw(count, self.stash, lacks, 0);
        }
        let arrived = self.probability * (self.packets - self.lost as f64) / self.buckets as f64;
        let (mut useful, mut lost, mut of) = (0.0, 0.0, 0.0);
        for bin in &bins {
            if !bin.spoilt {
                useful += arrived;
                of += arrived;
            } else if bin.lacks >= 0 {
                lost += bin.lacks as f64;
                of += arrived + f64::from(bin.lost);
            }
        }
        (useful, if of > 0.0 { lost / of / (self.lost as f64 / self.packets) } else { 0.0 })
    }
}

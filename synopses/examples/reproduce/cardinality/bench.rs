//! Synopses side by side, and random numbers.

use synopses::cardinality::{
    Cardinality, Correction, Hash, Settings, SlidingHll, StHll, StHllSettings, TsPcsa, TsPcsaSettings,
};
use synopses::digest::Digest;

use crate::claim::Verdict;

/// A fast generator (SplitMix64: Steele, Lea, Flood, 2014), so that traces take seconds.
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 to 1, without 1.
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }
}

/// A synopsis of the chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    StHll,
    StHllPlus,
    Sliding,
    TsPcsaPlus,
}

/// One of the synopses. The trait is not for trait objects, since `merge` takes its own kind.
pub enum Synopsis {
    StHll(StHll),
    Sliding(SlidingHll),
    TsPcsa(TsPcsa),
}

impl Synopsis {
    /// For about `items` items in a window.
    pub fn new(kind: Kind, registers: usize, window_ns: u64, items: f64, seed: u64) -> Self {
        let common = Settings { registers, window_ns, start_ns: 0, hash: Hash::Seeded(seed) };
        let st_hll = |settings: StHllSettings| {
            Self::StHll(StHll::new(StHllSettings { correction: Correction::Published, ..settings }).expect("possible"))
        };
        match kind {
            Kind::StHll => st_hll(StHllSettings::plain(common)),
            Kind::StHllPlus => st_hll(StHllSettings::plus(common)),
            Kind::Sliding => Self::Sliding(SlidingHll::new(common).expect("possible")),
            Kind::TsPcsaPlus => {
                let settings =
                    TsPcsaSettings { positions: positions(items, registers), ..TsPcsaSettings::plus(common) };
                Self::TsPcsa(TsPcsa::new(settings).expect("possible"))
            }
        }
    }

    pub fn insert(&mut self, item: u64, now_ns: u64) {
        match self {
            Self::StHll(synopsis) => synopsis.insert(Digest(item), now_ns),
            Self::Sliding(synopsis) => synopsis.insert(Digest(item), now_ns),
            Self::TsPcsa(synopsis) => synopsis.insert(Digest(item), now_ns),
        }
    }

    /// Items in the window W.
    pub fn count(&self, now_ns: u64) -> f64 {
        match self {
            Self::StHll(synopsis) => of_window(synopsis, now_ns),
            Self::Sliding(synopsis) => of_window(synopsis, now_ns),
            Self::TsPcsa(synopsis) => of_window(synopsis, now_ns),
        }
    }
}

fn of_window(synopsis: &impl Cardinality, now_ns: u64) -> f64 {
    synopsis.estimate(now_ns, synopsis.settings().window_ns).expect("the window").count
}

/// K for `items` in a window.
pub fn positions(items: f64, registers: usize) -> usize {
    (items / registers as f64).log2().ceil().max(0.0) as usize + 4
}

/// Mean of some numbers.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Mean of their absolute values.
pub fn mean_absolute(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number.abs()).sum::<f64>() / numbers.len() as f64
}

/// On a stand-in: as printed, or at least within our own bar.
pub const fn graded(as_printed: bool, by_own_bar: bool) -> Verdict {
    match (as_printed, by_own_bar) {
        (true, true) => Verdict::HoldsOnStandIn,
        (false, true) => Verdict::HoldsByOwnBar,
        _ => Verdict::Fails,
    }
}

/// A share in per cent, with its sign.
pub fn percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

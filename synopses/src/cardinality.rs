//! Cardinality: how many distinct items (flows, sources, ports) came in the last W seconds, in a few hundred bytes.
//!
//! # Source
//!
//! A. Cornacchia, dissertation, chapter 2: [`StHll`] (ST-HLL and ST-HLL+) and [`TsPcsa`] (TS-PCSA and TS-PCSA+).
//! [`SlidingHll`]: Y. Chabchoub, G. Hébrail, *Sliding HyperLogLog*, ICDMW 2010. [`Hll`]: P. Flajolet, É. Fusy,
//! O. Gandouet, F. Meunier, *HyperLogLog*, AofA 2007. [`LogLog`]: M. Durand, P. Flajolet, *Loglog Counting of Large
//! Cardinalities*, ESA 2003. [`Pcsa`]: P. Flajolet, G. N. Martin, *Probabilistic Counting Algorithms for Data Base
//! Applications*, 1985.
//!
//! # Guarantee
//!
//! Standard errors for m registers of many items each: 1.04/√m for [`Hll`], [`SlidingHll`] and [`StHll`]
//! (1.04/√(m − skipped) if registers are skipped), 1.30/√m for [`LogLog`], 0.78/√m for [`Pcsa`] and [`TsPcsa`].
//! An item counts once, however often it comes. [`SlidingHll`] and [`TsPcsa`] answer for every window up to W.
//!
//! [`StHll`] answers for W only, and takes for granted that distinct items grow in proportion to time:
//!
//! - It is no rectangular window. An item of age u weighs ln(2W/u)/2W: a rise of the rate shows by half after W/2, by
//!   90 % after 1.25 W; a fall shows sooner.
//! - Silence empties the youngest registers, and the harmonic mean takes most notice of these: after a gap of W/10 at
//!   1,000 items per register, plain ST-HLL shows a fifth. With skipped registers (ST-HLL+) gaps up to 2W · skipped/m
//!   do little. Take [`TsPcsa`] for traffic that comes in bursts.
//! - If some items come again and again, the count is up to 12 % too large; that of ST-HLL+ is off by −7 to +2 %.
//!
//! # Parameters
//!
//! Registers m and window W ([`Settings`]); how the lightly loaded range is corrected ([`Correction`]); registers
//! skipped ([`StHllSettings`]); slot, positions and bits of time stamps ([`TsPcsaSettings`]). All have the verbs of
//! [`Cardinality`]; one can take another's place. The baselines [`Hll`], [`LogLog`] and [`Pcsa`] forget all at the end
//! of each window (time binning), and answer for the time since then.
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | [`Hll`], [`LogLog`], [`StHll`] | m |
//! | [`Pcsa`] | 8 m |
//! | [`TsPcsa`] | b K m/8 + 3, for K positions of b bits: 7.5 m with the default settings |
//! | [`SlidingHll`] | 296 m, for 32 entries of 9 bytes; about log₂(n/m)/2 + 1 of them are in use |
//!
//! # Differences from the paper
//!
//! - Hashes have 64 bits and a seed. [`Hash::Ready32`] takes hashes of 32 bits as they are, as published.
//! - ST-HLL: a rate is compared and corrected as a count; the text prints it as a rate, which is right for W = 1 s only
//!   ([`Correction::Published`]). That correction is off by −21 to +17 % where few items are in a register; the
//!   default, [`Correction::Likelihood`], by 1/m. Ages are those of the moment ([`Age::Exact`]).
//! - α is used without 2^−γ′: with both the answer is 0.4 of the right one.
//! - Sliding HLL: a newer entry of equal rank takes the older one's place, or lists grow by half. Ranks saturate at 32.
//! - TS-PCSA has one or two slots of slack in its time stamps, or stale entries would come back as fresh, and four
//!   positions of slack, or large counts would be cut. φ is 0.77351; one figure of the text has 0.775.
//! - PCSA and TS-PCSA never print less than 1.29 m, and LogLog not less than 0.4 m; few items are counted by empty
//!   registers instead.
//! - An empty synopsis says 0.

pub use baseline::{Bins, Hll, HyperLogLog, LogLog, LogLogMean, Pcsa, ProbabilisticCounting, Registers};
pub use distinct::{Cardinality, Estimate, EstimateError, MergeError, Range, Tally};
pub use settings::{
    Age, Correction, Hash, MAX_REGISTERS, MAX_WINDOW_NS, MIN_REGISTERS, Pruning, Rounding, Settings, SettingsError,
    StHllSettings, TsPcsaSettings,
};
pub use sliding::SlidingHll;
pub use staggered::StHll;
pub use stamped::TsPcsa;

mod baseline;
mod cells;
mod codec;
mod distinct;
mod fresh;
mod hash;
mod ranges;
mod settings;
mod sliding;
mod staggered;
mod stamped;

#[cfg(test)]
mod golden;

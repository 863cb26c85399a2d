//! RAP: the heaviest keys of a stream in few entries. A key that has no entry gets one at random (randomised
//! admission), so that a long tail of light keys does not churn the table.
//!
//! # Source
//!
//! R. Ben Basat, X. Chen, G. Einziger, R. Friedman, Y. Kassner, *Randomized Admission Policy for Efficient Top-k,
//! Frequency, and Volume Estimation*; its guarantee is a chapter of the dissertation of Y. Zheng (Princeton).
//! [`SpaceSaving`]: A. Metwally, D. Agrawal, A. El Abbadi, *Efficient Computation of Frequent and Top-k Elements in
//! Data Streams*, ICDT 2005. [`Precision`]: R. Ben Basat, X. Chen, G. Einziger, O. Rottenstreich, *Designing
//! Heavy-Hitter Detection Algorithms for Programmable Switches*.
//!
//! # Guarantee
//!
//! Of k heavy keys of equal frequency f, in any order among ε k f light keys that each occur once, [`Rap`] with k
//! entries stores 0.65 k with probability 0.7, if ε < 10⁻⁷ (theorem 4.1 of the dissertation). It is about which keys
//! are stored, not about their counts, and has gaps in its proof; tests take it as a statistical criterion. Runs store
//! almost all heavy keys for ε up to 1 in random order. If all light keys come last, a share ε of the heavy keys is
//! lost: end epochs ([`HeavyHitters::reset`], [`HeavyHitters::halve`]) before a flood can follow.
//!
//! The largest count exceeds the least one by at most the largest frequency. An estimate may be too large or too small;
//! [`HeavyHitter::since`] is at most the key's true count. [`SpaceSaving`] never underestimates a stored key,
//! overestimates it by at most N/m, and stores each key above N/m.
//!
//! # Parameters
//!
//! Entries m, and the law of admission with c the least count ([`Admission`]). [`Precision`] and [`DWayRap`] have d
//! places for a key, and compare its least count only: a fixed number of memory accesses, as in a switch. All four have
//! the verbs of [`HeavyHitters`]; one can take another's place. [`EpochPrecision`] is a [`Precision`] of each of the
//! last two epochs, where nobody can empty a table in time.
//!
//! # Memory
//!
//! [`Rap`] and [`SpaceSaving`]: 56 bytes per entry, and 16 to 32 for the index. [`Precision`] and [`DWayRap`]: 24 bytes
//! per entry. The least count is found in O(1) (Stream-Summary: buckets of equal counts in a list). [`NamedRap`] has
//! the keys themselves, too.
//!
//! # Differences from the paper
//!
//! - The dissertation admits with probability 1/c, which is undefined for an empty entry. Here an empty entry takes a
//!   key without a coin. The default is the original 1/(c + 1).
//! - Weights ([`HeavyHitters::insert_weighted`]): a key enters with probability w/(c + w). The theorem does not cover
//!   it.
//! - Of several least entries the one that has had this count for longest is replaced.
//! - [`Precision`] replaces in the first pass; a switch recirculates the packet, and must check the victim again.
//! - With u64 counts that saturate, a table whose least count is saturated admits nobody.

pub(crate) use coins::Coins;
pub use epochs::EpochPrecision;
pub use heavy_hitters::{HeavyHitter, HeavyHitters, MergeError, Tally};
pub use named::{NamedHitter, NamedRap};
pub use settings::{Admission, EpochSettings, MAX_ENTRIES, MAX_EPOCH_SHIFT, Settings, SettingsError, WaySettings};
pub(crate) use single::Arrival;
pub use single::Rap;
pub use space_saving::SpaceSaving;
pub use ways::{DWayRap, Layout, Precision, Sets, Stages, Ways};

mod codec;
mod coins;
mod epochs;
mod heavy_hitters;
mod index;
mod named;
mod settings;
mod single;
mod space_saving;
mod summary;
mod ways;

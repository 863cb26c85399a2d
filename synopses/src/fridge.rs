//! Fridges: the distribution of the delay between requests and their responses, without a bias against long ones.
//!
//! # Source
//!
//! Y. Zheng, X. Chen, M. Braverman, J. Rexford, *Unbiased Delay Measurement in the Data Plane*, APOCS 2022, and the
//! chapter on it in the dissertation of Y. Zheng (Princeton).
//!
//! # Guarantee
//!
//! A table in which later requests overwrite earlier ones mostly samples short delays. A fridge counts how many
//! insertions each answered request survived, and weights its sample with the inverse of its chance q to survive them.
//! For requests without duplicates, the sum of weights in any range of delays is an unbiased estimate of the number of
//! requests that were answered after such a delay. This holds for any delays, any rate and any share of unanswered
//! requests, which only add variance. The variance is at most Σ (1/q − 1) over the answered requests.
//!
//! With duplicates ([`Duplicates`]) a copy whose request is still pending evicts nothing and is not counted. But a
//! request that arrived between the two copies might have been evicted by the second one, had they shared a slot. Its
//! weight is too small by 1/M for each such copy while it is pending: 1 % if every request is repeated half a lifetime
//! later. One counter cannot tell such requests from those before the first copy, for which not counting is right.
//!
//! A share or a quantile is a ratio of such estimates, and unbiased only for many samples. A delay of many lifetimes
//! (M/p requests) is sampled so seldom that no confidence interval covers it: [`Quantile::low_confidence`] is set then.
//!
//! # Parameters
//!
//! Slots M, and the probability p with which a request enters. The best p makes the lifetime M/p about the longest
//! delay of interest times the request rate ([`best_probability`]); an error of a factor of two costs little. [`Tuner`]
//! adapts p to the traffic, and [`Generations`] changes it without affecting pending requests. [`Duplicates`] decides
//! about retransmitted requests. Several fridges ([`Fridges`]) cover a wide range of delays.
//!
//! # Memory
//!
//! 12 bytes per slot (fingerprint, tick, stamp); 8 + 4 N for N [`Fridges`] with a vector of counters. A [`Histogram`]
//! has 16 bytes per bucket, 4 KiB by default.
//!
//! # Differences from the paper
//!
//! - The paper's formula p (1 − p/M)ˣ is for a counter of all requests, its text for a counter of admitted requests,
//!   whose formula is p (1 − 1/M)ˣ. Both counters exist, each with its own formula ([`Counter`]). With the wrong one a
//!   delay of 2.4 lifetimes gets a quarter of its weight.
//! - A request is stamped after counting, so that one with nothing in between has x = 0 and weight 1/p.
//! - A duplicate of a pending request is not counted as an insertion, because it cannot evict another request.
//! - A hash of the digest decides whether a request enters ([`Coin::HashSplit`]), so that all copies of a request enter
//!   or none.
//! - All samples of several fridges get the weight 1/Σ qₖ ([`Combination::HtTotal`]). The paper's weights from
//!   estimated variances ([`Combination::Ivw`]) depend on the data and make tails too small.
//! - Chains of fridges, which the paper advises against, are not implemented.

pub use baseline::{NaiveExpiry, NaiveOverwrite, Oracle};
pub use combination::{Combination, combine};
pub use correction::{CorrectionTable, Range, TableError, TableShape};
pub use distribution::{Distribution, Quantile, Sample};
pub use generations::Generations;
pub use histogram::{Histogram, HistogramError, HistogramShape, PerClass};
pub use multi::{
    Constants as FridgesConstants, FridgeSpec, Fridges, Settings as FridgesSettings, Stamp, Weighing as FridgesWeighing,
};
pub use settings::{Coin, Counter, Duplicates, MAX_SLOTS, Settings, SettingsError};
pub use single::{Constants, Fridge, Weighing};
pub use tally::{Report, Tally};
pub use tuner::{Epoch, Tuner, best_probability, starting_probabilities};

mod baseline;
mod codec;
mod combination;
mod correction;
mod distribution;
mod generations;
mod histogram;
mod multi;
mod settings;
mod single;
mod slot;
mod tally;
mod tuner;

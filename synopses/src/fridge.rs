//! Fridges: the distribution of the delay between requests and their responses, without a bias against long ones.
//!
//! # Source
//!
//! Y. Zheng, X. Chen, M. Braverman, J. Rexford, *Unbiased Delay Measurement in the Data Plane*, APOCS 2022, and the chapter on it in the
//! dissertation of Y. Zheng (Princeton).
//!
//! # Guarantee
//!
//! A table in which later requests overwrite earlier ones answers mostly short delays. A fridge counts how many insertions each answered
//! request survived, and weighs it with the inverse of its chance to do so. For requests without duplicates the weighted number of samples in any
//! range of delays is an unbiased estimate of how many requests were answered after such a delay, whatever the delays, the rate, or the share of
//! requests that nobody answers; they cost variance only. The variance is at most Σ (1/q − 1) over the answered requests, q being their chances.
//! With duplicates ([`Duplicates`]) a copy whose request is still there is not counted: it evicts nobody. But whoever came between the two copies might have been
//! evicted by it, had they shared a slot, and is weighed 1/M too little for each such copy while it waits: 1 % where every request comes twice, half a
//! lifetime apart. One counter cannot tell those who came in between from those who came before, for whom not counting is right.
//! A share or a quantile is a ratio of such estimates, unbiased only for many samples. A delay many lifetimes long (M/p requests) is seen so
//! seldom that no interval of confidence covers it: [`Quantile::low_confidence`] says so.
//!
//! # Parameters
//!
//! Slots M and the probability p with which a request enters. The best p makes the lifetime M/p about the longest delay of interest times the rate of
//! requests ([`best_probability`]); half or twice as much costs little. [`Tuner`] follows the traffic and [`Generations`] changes p without
//! spoiling what is in flight. Retransmitted requests: [`Duplicates`]. Several fridges ([`Fridges`]) cover a wide range of delays.
//!
//! # Memory
//!
//! 12 bytes per slot (fingerprint, tick, stamp); [`Fridges`] with a vector of counters 8 + 4 N. A [`Histogram`] has 16 bytes per
//! bucket, 4 KiB as it comes.
//!
//! # Differences from the paper
//!
//! - The paper's chance p (1 − p/M)ˣ belongs to a counter of all requests, its text to one of admitted requests only, whose chance is p (1 − 1/M)ˣ.
//!   Both counters are here, each with its own chance ([`Counter`]). Mixed up, a delay of 2.4 lifetimes counts for a quarter of what it should.
//! - Stamped after counting, so that a request with nothing in between has x = 0 and weighs exactly 1/p.
//! - A duplicate of a request that is still there is not counted as an insertion: it cannot evict anybody else.
//! - Whether a request enters is decided by a hash of its digest ([`Coin::HashSplit`]), so that all its copies share one fate.
//! - Samples of several fridges all get the weight 1/Σ qₖ ([`Combination::HtTotal`]). The paper's weights from estimated variances
//!   ([`Combination::Ivw`]) depend on the data and pull tails down.
//! - Chains of fridges, which the paper advises against, are not here.

pub use baseline::{NaiveExpiry, NaiveOverwrite, Oracle};
pub use combination::{Combination, combine};
pub use correction::{CorrectionTable, Range, TableError, TableShape};
pub use distribution::{Distribution, Quantile, Sample};
pub use generations::Generations;
pub use histogram::{Histogram, HistogramError, HistogramShape, PerClass};
pub use multi::{Fridges, Part, Settings as FridgesSettings, Stamp};
pub use settings::{Coin, Counter, Duplicates, MOST_SLOTS, Settings, SettingsError};
pub use single::Fridge;
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

//! The detector of uview: one **LMAP** (*local metrics analysis pipeline*) per service finds unusual rows of metrics.
//!
//! A row is one sample of all metrics (*columns*) of a service, taken every interval. An LMAP learns from the first
//! rows which directions in the space of metrics are normal, scores each row by its distance from them, and raises an
//! alarm when scores exceed a threshold. Nothing has to be trained or configured by hand.
//!
//! # Pipeline
//!
//! For a row x of m values:
//!
//! | step | formula | module |
//! | --- | --- | --- |
//! | increments | counters become increments per interval | `increments` |
//! | standardise | zⱼ = (xⱼ − mean) / σ of training, clipped softly at ± 50; without constant columns | `standard` |
//! | project | coordinates p = Uᵀz in the learnt basis U (m × k, orthonormal), residual r = z − U p | `scorer` |
//! | score | s = √(Σ rⱼ² / Vⱼ + Σ pᵢ² / Tᵢ + constants that moved), V and T being the variances of r and p | `scorer` |
//! | smooth | s̄ = exponential moving average of s over 3 rows | [`detector`](Detector) |
//! | threshold | the row is over if s̄ ≥ γ; γ is about the 99th percentile of training scores | `fit` |
//! | episode | 2 of 3 rows over begin an alarm, 5 quiet rows end it | `episode` |
//! | explain | each column's share of s² | `explain` |
//! | learn | every 5th row below γ is added to the sketch; after l + 1 of them, new U, V and T | `history` |
//!
//! The sketch is *Frequent Directions* (Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016): l rows that stand
//! for all rows learnt, from which the k leading directions U are decomposed. μView (Sec. 4.4) calls the classifier
//! built on it *FD-Sketch*; [`Settings::paper`] is that pipeline as published, the default adds what public data sets
//! showed to be needed.
//!
//! | symbol | meaning | default |
//! | --- | --- | --- |
//! | m | columns of a row | |
//! | k | rank: directions of the basis | 95 % of the training variance |
//! | l | rows of the sketch | max(25, 2k) |
//! | γ | threshold of the score; an alarm is judged by it | from training |
//! | q | percentile of training scores from which γ comes | 99 |
//! | η | probability that a row above γ is learnt all the same | 0.01 |
//! | δ | what a decomposition takes off every squared singular value of the sketch | |
//!
//! # Use
//!
//! The crate is pure: no clock, no thread, no file, no logging; randomness comes from a seed. It knows columns, not
//! metric names. Expensive work (the decomposition of a sketch, a fit) is returned as a [`Job`] that the caller may run
//! on another thread, so scoring a row never waits and never allocates.
//!
//! ```
//! use lmap::{Column, ColumnKind, Detector, Settings};
//!
//! let columns = vec![Column::new(ColumnKind::Gauge, 1), Column::new(ColumnKind::Increment, 2)];
//! let mut detector = Detector::new(columns, Settings::default(), 7)?;
//! # let rows = (0..200).map(|t| [f64::from(t % 7), f64::from(t % 5)]);
//! for row in rows {
//!     let verdict = detector.score(&row)?;
//!     if let Some(job) = detector.learn() {
//!         detector.install(job.run()); // or on another thread, and installed when it is done
//!     }
//!     assert!(verdict.score >= 0.0);
//! }
//! assert!(detector.gamma().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | what |
//! | --- | --- |
//! | [`detector`](Detector) | one LMAP: scores rows, learns them, fits itself |
//! | [`settings`](Settings) | every constant of the pipeline, with its default |
//! | [`increments`](Increments) | cumulative counters → increments |
//! | [`expression`](Expression) | quantiles over replicas, and arithmetic that an operator writes |
//! | [`frequent_directions`](FrequentDirections) | the sketch |
//! | [`model`](Model) | a fitted pipeline as bytes; several models merged |
//! | [`footprint`](Footprint) | the most memory that a detector takes |
//! | [`canary`](Canary) | compares two versions of a service by their models |
//! | [`preparation`](Preparation) | levels, constants, z and clip by themselves, for detectors to compare with |
//! | `levels`, `latch`, `standard`, `basis`, `scorer`, `history`, `fit` | the steps of the pipeline |
//! | `episode`, `novelty`, `budget`, `explain`, `onsets` | from scores to alarms and reasons |
//! | [`saturation`](Saturation) | columns of waiting, judged by themselves |
//! | `groups`, `long_rows` | groups of columns, in a row and over a second, with limits of their own |
//! | `pools`, `load` | what says nothing for a while: memory that is taken, scores that rise with the load |
//! | `guard` | limits how fast learnt rows may change what is normal |
//! | `kernels`, `eigen`, `aligned`, `lanes` | vectorised arithmetic |

mod aligned;
mod basis;
mod budget;
mod canary;
mod column;
mod constants;
mod counts;
mod detector;
mod eigen;
mod episode;
mod estimates;
mod expectation;
mod explain;
mod expression;
mod fit;
mod footprint;
mod frequent_directions;
mod groups;
mod guard;
mod history;
mod increments;
mod intake;
mod job;
mod kernels;
mod lanes;
mod latch;
mod learning;
mod levels;
mod load;
mod long_rows;
mod model;
mod novelty;
mod onsets;
mod pipeline;
mod pools;
mod preparation;
mod quantile;
mod random;
mod rows;
mod saturation;
mod scorer;
mod settings;
mod spare_rows;
mod standard;
mod verdict;

pub use canary::{Canary, CanaryError, Difference, DifferenceKind, Tolerance};
pub use column::{Column, ColumnKind};
pub use counts::Counts;
pub use detector::{BetweenRow, Detector, InterimBuffer, InterimScore};
pub use episode::Episode;
pub use explain::{Direction, Reason};
pub use expression::{
    Aggregate, Expression, ExpressionError, MAX_OPERATIONS, MAX_QUANTITIES, MAX_TEXT, Name, ReplicaExpression, quantile,
};
pub use footprint::Footprint;
pub use frequent_directions::{FrequentDirections, SketchError};
pub use increments::{Cumulative, Increments};
pub use intake::RowError;
pub use job::{FitJob, Job, JobResult, ShrinkJob};
pub use kernels::prefetch::prefetch;
pub use model::{ColumnRole, ColumnSummary, MergeError, Model, ModelError, ModelSummary};
pub use preparation::Preparation;
pub use quantile::QUANTILES;
pub use saturation::Saturation;
pub use settings::{AlarmBudget, EpisodeRule, LevelRule, ScoreForm, Settings, SettingsError, SketchForm, Threshold};
pub use verdict::{DetectorError, InstallOutcome, State, Verdict};

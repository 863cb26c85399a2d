//! One service's metrics analysis pipeline: prepare → score → explain → learn, and the training that it needs.
//!
//! The crate is pure: no clock, no thread, no file, no logging; randomness comes in as a seed. It knows columns,
//! not metric names. What is costly (the decomposition of a sketch, a fit) is handed out as a [`Job`] that the
//! caller runs where it likes, so that scoring a row never waits and never allocates.
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
//! | module | what |
//! | --- | --- |
//! | [`detector`](Detector) | one LMAP: scores rows, learns them, arms itself |
//! | [`settings`](Settings) | every constant of the pipeline, with its default |
//! | [`increments`](Increments) | cumulative counters → increments |
//! | [`frequent_directions`](FrequentDirections) | the sketch |
//! | [`model`](Model) | a fitted pipeline as bytes; several as one |
//! | [`canary`](Canary) | what two versions of a service do differently |
//! | `levels`, `standard`, `basis`, `scorer`, `fit` | the steps of the pipeline |
//! | `episode`, `budget`, `explain`, `since` | from scores to alarms and reasons |
//! | `guard` | how fast rows may change what is normal |

mod aligned;
mod basis;
mod budget;
mod canary;
mod column;
mod counts;
mod detector;
mod eigen;
mod episode;
mod explain;
mod fit;
mod frequent_directions;
mod guard;
mod increments;
mod intake;
mod job;
mod kernels;
mod lanes;
mod latch;
mod learning;
mod levels;
mod model;
mod past;
mod pipeline;
mod quantile;
mod random;
mod rows;
mod scorer;
mod settings;
mod since;
mod spare;
mod standard;
mod verdict;

pub use canary::{Canary, CanaryError, Difference, Tolerance, Unlike};
pub use column::{Column, ColumnKind};
pub use counts::Counts;
pub use detector::Detector;
pub use episode::Episode;
pub use explain::{Direction, Reason};
pub use frequent_directions::{FrequentDirections, SketchError};
pub use increments::{Cumulative, Increments};
pub use intake::RowError;
pub use job::{Done, FitJob, Job, ShrinkJob};
pub use model::{ColumnRole, ColumnSummary, MergeError, Model, ModelError, ModelSummary};
pub use quantile::QUANTILES;
pub use settings::{AlarmBudget, EpisodeRule, LevelRule, ScoreForm, Settings, SettingsError, SketchForm, Threshold};
pub use verdict::{DetectorError, Installed, State, Verdict};

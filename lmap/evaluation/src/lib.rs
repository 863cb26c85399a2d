//! Compares detectors on labelled data: data files, protocol, figures.
//!
//! [`table`], [`columns`] and [`data_set`] read files; everything else is pure.
//!
//! | module | what |
//! | --- | --- |
//! | [`table`], [`columns`] | rows from CSV or Parquet; kinds and groups of their metrics |
//! | [`data_set`] | a folder of units, a folder of sets |
//! | [`mod@unit`] | training rows, test rows and labels of one service, for any detector |
//! | [`candidate`] | the detectors: LMAP, the paper's, and simpler ones, bare and over rows prepared like the LMAP's |
//! | [`protocol`] | train, score, compute the figures |
//! | [`ranking`], [`surface`], [`episodes`] | the figures |
//! | [`canary`] | a model of one version's rows, to be compared with another's |
//! | [`reproduction`] | published claims and their verdicts |
//! | [`sampling`] | samples that dynamic sampling would send, and the loss of accuracy |
//! | [`folds`], [`choice`] | settings chosen on some services, to be judged on the others |
//! | [`study`] | the LMAP against itself: one setting changed at a time |
//! | [`recording_table`] | a recording as a table |
//! | [`training`], [`redundancy`] | training and held-out rows, trials of k, l and q, quality of the result |

pub mod canary;
pub mod candidate;
pub mod choice;
pub mod columns;
pub mod data_set;
pub mod episodes;
pub mod folds;
pub mod protocol;
pub mod ranking;
pub mod recording_table;
pub mod redundancy;
pub mod reproduction;
pub mod sampling;
pub mod study;
pub mod surface;
pub mod table;
pub mod training;
pub mod unit;

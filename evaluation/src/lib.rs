//! Detectors side by side on labelled data: the files, the protocol, the figures.
//!
//! Files are read in [`table`], [`columns`] and [`data_set`]; everything else is given rows and returns numbers.
//!
//! | module | what |
//! | --- | --- |
//! | [`table`], [`columns`] | a CSV of rows, a CSV of what its metrics are |
//! | [`data_set`] | a folder of units, a folder of sets |
//! | [`mod@unit`] | training rows, test rows and labels of one service, ready for any detector |
//! | [`candidate`] | the detectors behind one trait: ours, the paper's, principal components, max \|z\|, Random Cut Forest |
//! | [`protocol`] | train, judge, take the figures |
//! | [`ranking`], [`surface`], [`episodes`] | the figures |
//! | [`canary`] | one version's rows as a model, to be compared with another's |
//! | [`reproduction`] | published claims and what becomes of them |
//! | [`sampled`] | what dynamic sampling would send of rows, and lose |
//! | [`study`] | ours against itself, one thing changed at a time |
//! | [`recorded`] | a recording as a table |
//! | [`training`], [`redundancy`] | a split into training and held-out rows, k, l and q tried, what is said of the result |

pub mod canary;
pub mod candidate;
pub mod columns;
pub mod data_set;
pub mod episodes;
pub mod protocol;
pub mod ranking;
pub mod recorded;
pub mod redundancy;
pub mod reproduction;
pub mod sampled;
pub mod study;
pub mod surface;
pub mod table;
pub mod training;
pub mod unit;

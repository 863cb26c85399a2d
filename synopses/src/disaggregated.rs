//! Disaggregated sketches: the sizes of flows from count-min rows that lie on different switches and NICs. A flow is
//! counted in some of the fragments along its path, and the least of these counters is its estimate.
//!
//! # Source
//!
//! A. Cornacchia, PhD thesis, chapter 3, on DISCO (which updates every fragment of a path). Count-min: G. Cormode, S.
//! Muthukrishnan, *An Improved Data Stream Summary: The Count-Min Sketch and its Applications*, 2005. Weighted choice:
//! rendezvous hashing with weights. Load-aware weights are ours: the thesis points to them and has no policy.
//!
//! # Guarantee
//!
//! An estimate is never below the number of packets that passed all chosen fragments, hence never below that of a flow
//! that lost none. One sketch of w ≥ e/ε counters in d ≥ ln(1/δ) rows exceeds it by more than ε times all packets with
//! probability δ at most ([`Settings::of_error`]). More fragments help one flow while the others stay as they are, and
//! harm all flows once all do it: every update is noise for others.
//!
//! # Parameters
//!
//! A [`Fragment`] has w counters in each of d rows and a seed of its own. A [`Path`] has fragments in order, K of which
//! each flow updates, and their weights:
//!
//! | policy | how |
//! | --- | --- |
//! | `all` (DISCO) | [`Path::all`] |
//! | `random-k` | [`Path::random`] |
//! | load-aware, soft and strict | [`Path::weighted`] with [`LoadTable::weights`] of the epoch before |
//! | `auto-k` | the same with K by [`count_for_error`] or [`count_for_collisions`], then [`CountClimb`] |
//! | `atomic` | one [`Fragment`] of several rows, no path |
//!
//! A choice depends on the flow and the [`PathTable`] only: every node and the controller make the same one. A table is
//! valid for one epoch.
//!
//! # Memory
//!
//! 4 bytes per counter, and 8 per row. A choice takes O(K |path|) time and no memory of its own.
//!
//! # Differences from the thesis
//!
//! - Counters stop at 2³² − 2, so that 2³² − 1 in a [`Header`] always means that nobody counted.
//! - The header has the epoch and the number of updates, with which the last hop notices that a fragment was skipped.
//! - An estimate is not given unless all chosen fragments counted in one epoch: a minimum over fewer is too small.
//! - Load-aware weights, a number K by load, weights of updates (bytes).
//!
//! The last hop decides locally with a [`LastHop`]. Without space for a header the controller collects fragments
//! ([`Fragment::encode`]) and asks [`PathTable::estimate`]: the same answer, later. Where the only fragments of a path
//! are the NICs at its ends, these agree on its tables by themselves ([`PathOwner`], [`PathTaker`], [`combine`]).

pub use ends::{
    Counting, EndCount, EndReport, EpochTable, PathOwner, PathTaker, PlanSettings, TableRefused, combine, plan,
};
pub use fragment::{Fragment, MergeError};
pub use header::{Estimate, HEADER_BYTES, Header, NoEstimate, global};
pub use last_hop::{Decision, LastHop, Tally};
pub use load::{LoadTable, Weighting};
pub use path::{MAX_PATH, Path, PathError, Selection};
pub use settings::{MAX_COUNTERS, Settings, SettingsError};
pub use sizing::{CountClimb, count_for_collisions, count_for_error, error_probability};
pub use table::{PathTable, TableError};

mod codec;
mod ends;
mod fragment;
mod header;
mod last_hop;
mod load;
mod path;
mod settings;
mod sizing;
mod table;

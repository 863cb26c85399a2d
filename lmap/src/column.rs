//! Columns, as the caller describes them.

use crate::saturation::Saturation;

/// The kind of value in a column, as passed by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// The increment of a cumulative counter since the last row, computed by [`Increments`](crate::Increments).
    Increment,
    /// A value that goes up and down. Training may classify it as a *level*, see [`LevelRule`](crate::LevelRule).
    Gauge,
}

/// One column of the rows that a detector is given.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts about a column that do not depend on each other")]
pub struct Column {
    /// The kind of value.
    pub kind: ColumnKind,
    /// Whether it is a level (judged by its increment), if the user has set it. `None`: training decides, gauges only.
    pub level: Option<bool>,
    /// The group (network, memory, …) that its share of a score counts for. An opaque number.
    pub group: u16,
    /// Whether it is scored and learnt. Otherwise it is only present in the rows.
    pub watched: bool,
    /// Whether any move of it is a fault by itself (a process that is stopped, a scrape without an answer). If it was
    /// constant in training, a row in which it moves is over γ, whatever the rows before it were.
    pub indicator: bool,
    /// Whether it says how much of something the process holds that it takes as needed and keeps (memory, threads,
    /// descriptors, connections), or how it takes it (page faults): that it grows for a moment is ordinary.
    pub pool: bool,
    /// Whether it is an estimate of how many distinct things there are (flows, addresses): it is off by √n + 3.4 % of n
    /// by itself, whatever it did in training, so that a move within that is hardly a deviation. Judged by its value,
    /// unless [`level`](Self::level) is set.
    pub estimated: bool,
    /// Whether it counts the requests that the service has answered in a row. Scores that rise with them may fall with
    /// them ([`Settings::load_rows`](crate::Settings::load_rows)).
    pub load: bool,
    /// For a column that says how long something waited: what of it is too much by itself. It is judged even if it is
    /// not watched.
    pub saturation: Option<Saturation>,
    /// Identifies the column in a [`Model`](crate::Model), for instance a hash of the metric's name. Opaque. Columns
    /// with equal fingerprints are matched in their order.
    pub fingerprint: u64,
}

impl Column {
    /// A column of `kind`, level left to training, in group 0, watched, no indicator, no pool, not estimated, no load,
    /// without a rule of saturation.
    #[must_use]
    pub const fn new(kind: ColumnKind, fingerprint: u64) -> Self {
        let (watched, indicator, pool, estimated, load) = (true, false, false, false, false);
        Self { kind, level: None, group: 0, watched, indicator, pool, estimated, load, saturation: None, fingerprint }
    }
}

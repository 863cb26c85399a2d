//! What the caller says about a column.

/// What a column's value is, as the caller hands it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// A cumulative value that [`Increments`](crate::Increments) has already turned into its increment.
    Increment,
    /// A value that goes up and down. Training may find it to be a *level*, see [`LevelRule`](crate::LevelRule).
    Gauge,
}

/// One column of the rows that a detector is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// What its value is.
    pub kind: ColumnKind,
    /// The user's word on whether it is a level (judged by its increment). `None`: training decides, gauges only.
    pub level: Option<bool>,
    /// The group that its share of a score counts for, an opaque number (network, memory, …).
    pub group: u16,
    /// Whether it is judged. One that is not stands in the rows only: neither scored nor learnt.
    pub watched: bool,
    /// Names the column in a [`Model`](crate::Model), for instance a hash of the metric's name. Opaque; columns with
    /// equal fingerprints are matched in their order.
    pub fingerprint: u64,
}

impl Column {
    /// A column of `kind`, level left to training, in group 0, watched.
    #[must_use]
    pub const fn new(kind: ColumnKind, fingerprint: u64) -> Self {
        Self { kind, level: None, group: 0, watched: true, fingerprint }
    }
}

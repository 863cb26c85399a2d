//! Series that could be watched.

/// What kind of columns a series has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A distribution: three columns.
    Histogram,
    /// A distribution with values below 0: three columns for these, and three for the others.
    TwoSided,
    /// A column of increments.
    Counter,
    /// A column of values.
    Gauge,
    /// A gauge whose values cannot be summed up: a quantile.
    Quantile,
}

impl Form {
    /// Columns of an LMAP.
    #[must_use]
    pub const fn columns(self) -> usize {
        match self {
            Self::Histogram => 3,
            Self::TwoSided => 6,
            Self::Counter | Self::Gauge | Self::Quantile => 1,
        }
    }

    /// Whether it counts something.
    pub(crate) const fn counts(self) -> bool {
        self.is_distribution() || matches!(self, Self::Counter)
    }

    /// Whether it has a tail.
    pub(crate) const fn is_distribution(self) -> bool {
        matches!(self, Self::Histogram | Self::TwoSided)
    }
}

/// A series that could be watched.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// Its labels, as text.
    pub labels: &'a str,
    /// What it would be.
    pub form: Form,
    /// What it did in each scrape: growth of a counter or of a histogram's count, value of a gauge. NaN: absent.
    pub window: &'a [f32],
    /// Whether it is there at the end of the window.
    pub is_present: bool,
}

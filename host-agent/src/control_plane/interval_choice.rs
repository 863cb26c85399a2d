//! What operators choose about the interval of an LMAP, and how often it is fetched while something seems wrong.

use wire::time::Interval;

/// How often an LMAP is fetched while something seems wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastestChoice {
    /// As the configuration says.
    #[default]
    Default,
    /// For its rows only.
    Never,
    /// At most this often.
    AtMost(Interval),
}

impl FastestChoice {
    /// Least time between two fetches if the configuration says `configured`; `None`: for its rows only.
    #[must_use]
    pub fn in_effect(self, configured: Option<Interval>) -> Option<Interval> {
        match self {
            Self::Default => configured,
            Self::Never => None,
            Self::AtMost(fastest) => Some(fastest),
        }
    }
}

/// The interval that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalChoice {
    /// As its metrics and the configuration say.
    Default,
    /// This one, whatever they say.
    Of(Interval),
}

/// A change that an operator asks for. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalChange {
    /// The interval of its rows.
    pub interval: Option<IntervalChoice>,
    /// How often it is fetched while something seems wrong.
    pub fastest: Option<FastestChoice>,
    /// The operator who asks.
    pub by: String,
}

/// What is in effect after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalInEffect {
    /// The interval before.
    pub before: Interval,
    /// The interval from now on.
    pub interval: Interval,
    /// Least time between two fetches while something seems wrong.
    pub fastest: Option<Interval>,
    /// The interval at which rows are judged until it is learnt; `None`: none are.
    pub judged: Option<Interval>,
    /// Rows that have to be learnt first.
    pub rows_needed: u32,
}

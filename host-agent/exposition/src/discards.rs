//! Points of OTLP metrics that are left out, and why.

/// Why a point is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Discard {
    /// It is older than one before of its series, or counts from an older start.
    Older,
    /// Its series has one of the same time.
    Duplicate,
    /// Its series is known with another type.
    Type,
    /// It cannot be decoded, counts do not match bounds, or buckets lie beyond all numbers.
    Malformed,
    /// It has no finite value, or a counter that falls by it.
    Value,
    /// A sum or a histogram whose temporality is not stated.
    Temporality,
    /// There are too many series or buckets, or its attributes are too long.
    NoRoom,
    /// The request has more points than are looked at.
    OverLimit,
    /// Its name or its attributes are no text.
    Name,
}

impl Discard {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Older,
        Self::Duplicate,
        Self::Type,
        Self::Malformed,
        Self::Value,
        Self::Temporality,
        Self::NoRoom,
        Self::OverLimit,
        Self::Name,
    ];

    /// Value of the metric label `reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::Duplicate => "duplicate",
            Self::Type => "type",
            Self::Malformed => "malformed",
            Self::Value => "value",
            Self::Temporality => "temporality",
            Self::NoRoom => "no_room",
            Self::OverLimit => "over_limit",
            Self::Name => "name",
        }
    }
}

/// How many points were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards([u64; Discard::ALL.len()]);

impl Discards {
    /// No point was left out.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; Discard::ALL.len()])
    }

    /// How many for the reason `why`.
    #[must_use]
    pub const fn of(&self, why: Discard) -> u64 {
        self.0[why as usize]
    }

    /// Adds one for the reason `why`.
    pub(crate) const fn add(&mut self, why: Discard) {
        self.0[why as usize] += 1;
    }
}

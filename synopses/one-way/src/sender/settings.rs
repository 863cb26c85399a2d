//! Settings of the requesting end.

use core::num::NonZeroU64;

use wire::time::Nanos;

use crate::plan::{MIN_INTERVALS_PER_KEY, Synopsis};

/// Settings of the sender's end of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderSettings {
    /// Name of the stream, the same as at the receiver.
    pub stream: String,
    /// Length of an interval.
    pub length: Nanos,
    /// The synopsis and its size.
    pub synopsis: Synopsis,
    /// Number of intervals after which the digest key changes; 0 for never.
    pub intervals_per_key: u64,
    /// If a switch measures: the fingerprint of its program's constants, which the receiver's switch has to have, too.
    pub fingerprint: Option<NonZeroU64>,
    /// Time between the start request and the first interval. Longer than a round trip.
    pub start_margin: Nanos,
    /// Deadline for an interval's comparison, counted from the interval's end.
    pub deadline: Nanos,
    /// Timeout of a request.
    pub response_timeout: Nanos,
    /// Bound on the difference of the two clocks. Reports beyond it are flagged.
    pub clock_bound: Nanos,
}

impl SenderSettings {
    /// What a switch measures whose constants have this fingerprint: its key never changes.
    #[must_use]
    pub fn of_switch(self, fingerprint: NonZeroU64) -> Self {
        Self { intervals_per_key: 0, fingerprint: Some(fingerprint), ..self }
    }

    /// Defaults for intervals of `length`: start margin of two intervals, deadline of three, a new key every hour,
    /// and clocks within a millisecond.
    #[must_use]
    pub fn new(stream: String, length: Nanos, synopsis: Synopsis) -> Self {
        let second = Nanos::from_secs(1);
        let in_an_hour = Nanos::from_secs(3600).0.checked_div(length.0).unwrap_or_default();
        Self {
            stream,
            length,
            synopsis,
            intervals_per_key: in_an_hour.max(MIN_INTERVALS_PER_KEY),
            fingerprint: None,
            start_margin: length.plus(length).max(second),
            deadline: length.plus(length).plus(length),
            response_timeout: Nanos(length.0 / 2).min(second),
            clock_bound: Nanos::from_millis(1),
        }
    }
}

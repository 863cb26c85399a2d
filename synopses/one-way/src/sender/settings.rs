//! Settings of the requesting end.

use crate::plan::{MIN_INTERVALS_PER_KEY, Synopsis};

/// Settings of the sender's end of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderSettings {
    /// Name of the stream, the same as at the receiver.
    pub stream: String,
    /// Length of an interval in nanoseconds.
    pub length_ns: u64,
    /// The synopsis and its size.
    pub synopsis: Synopsis,
    /// Number of intervals after which the digest key changes; 0 for never.
    pub intervals_per_key: u64,
    /// Time in nanoseconds between the start request and the first interval. Longer than a round trip.
    pub start_margin_ns: u64,
    /// Deadline for an interval's comparison, in nanoseconds after the interval's end.
    pub deadline_ns: u64,
    /// Timeout of a request in nanoseconds.
    pub response_timeout_ns: u64,
    /// Bound on the difference of the two clocks in nanoseconds. Reports beyond it are flagged.
    pub clock_bound_ns: u64,
}

impl SenderSettings {
    /// Defaults for intervals of `length_ns`: start margin of two intervals, deadline of three, a new key every hour,
    /// and clocks within a millisecond.
    #[must_use]
    pub const fn new(stream: String, length_ns: u64, synopsis: Synopsis) -> Self {
        let second = 1_000_000_000;
        let start_margin_ns = if 2 * length_ns > second { 2 * length_ns } else { second };
        let response_timeout_ns = if length_ns / 2 > second { second } else { length_ns / 2 };
        let (deadline_ns, clock_bound_ns) = (3 * length_ns, 1_000_000);
        let intervals_per_key = match (3_600 * second).checked_div(length_ns) {
            Some(in_an_hour) if in_an_hour > MIN_INTERVALS_PER_KEY => in_an_hour,
            _ => MIN_INTERVALS_PER_KEY,
        };
        Self {
            stream,
            length_ns,
            synopsis,
            intervals_per_key,
            start_margin_ns,
            deadline_ns,
            response_timeout_ns,
            clock_bound_ns,
        }
    }
}

//! What is recorded of each weakness.

use crate::model::{Conditions, Weakness};

/// All weaknesses.
pub const ALL: [Weakness; 3] = [GAUGE, TEN_REQUESTS, LEAK];

/// A gauge of the service itself jumps by 16 of its deviations, on a machine whose other programs make the metrics of
/// the process restless.
pub const GAUGE: Weakness = Weakness {
    name: "gauge",
    seed: 1,
    rows: 440,
    conditions: |row, _| Conditions {
        busy: 1.0,
        entries: if row >= 380 { 16.0 } else { 0.0 },
        ..Conditions::default()
    },
    fault: Some((380, 439, "jump")),
};

/// Ten requests in a row of 100 ms: each takes longer by a millisecond, which is little beside what ten requests differ.
pub const TEN_REQUESTS: Weakness = Weakness {
    name: "ten-requests",
    seed: 2,
    rows: 500,
    conditions: |row, _| Conditions { slower: if row >= 400 { 0.0015 } else { 0.0 }, ..Conditions::default() },
    fault: Some((400, 499, "latency")),
};

/// Memory that is taken and kept, in a service whose memory has grown in training beside two compilers.
pub const LEAK: Weakness = Weakness {
    name: "leak",
    seed: 3,
    rows: 600,
    conditions: |row, noise| Conditions {
        busy: 1.0,
        pages: noise.below(5) + if row >= 400 { 6.0 } else { 0.0 },
        ..Conditions::default()
    },
    fault: Some((400, 599, "leak")),
};

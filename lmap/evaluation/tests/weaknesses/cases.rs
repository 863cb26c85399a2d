//! What is recorded of each weakness.

use crate::model::{Conditions, Weakness};

/// All weaknesses that were seen, and faults that what mends them must not hide.
pub const ALL: [Weakness; 9] =
    [GAUGE, TEN_REQUESTS, LEAK, POOL, POOL_LEAK, ARMING, OVERLOAD, OVERLOAD_LASTS, SLOW_UNDER_LOAD];

/// A gauge of the service itself jumps by 16 of its deviations, on a machine whose other programs make the metrics of
/// the process restless: γ is above that jump. It was 18.8 where this was seen.
pub const GAUGE: Weakness = Weakness {
    name: "gauge",
    seed: 5,
    rows: 440,
    conditions: |row, _| Conditions {
        busy: 1.0,
        entries: if row >= 380 { 16.0 } else { 0.0 },
        ..Conditions::default()
    },
    fault: Some((380, 439, "jump")),
};

/// Ten requests in a row of 100 ms: each takes longer by a millisecond, which is little beside what ten requests
/// differ.
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

/// A burst of requests lets pools of threads, connections and descriptors grow, which stay as they are.
pub const POOL: Weakness = Weakness {
    name: "pool",
    seed: 4,
    rows: 600,
    conditions: |row, _| Conditions {
        requests: if (300..303).contains(&row) { 16.0 } else { 10.0 },
        pool: match row {
            0..300 => 0.0,
            300 => 2.0,
            _ => 4.0,
        },
        pages: if (300..310).contains(&row) { 40.0 } else { 0.0 },
        ..Conditions::default()
    },
    fault: None,
};

/// The same growth that goes on: threads, connections and descriptors are never given back.
pub const POOL_LEAK: Weakness = Weakness {
    name: "pool-leak",
    seed: 5,
    rows: 600,
    conditions: |row, _| Conditions {
        pool: f64::from(row.saturating_sub(299) / 8),
        pages: if row >= 300 { 10.0 } else { 0.0 },
        ..Conditions::default()
    },
    fault: Some((300, 599, "leak")),
};

/// Memory that still grows when the detector is armed, for a moment faster than before.
pub const ARMING: Weakness = Weakness {
    name: "arming",
    seed: 6,
    rows: 600,
    conditions: |row, noise| Conditions {
        pages: match row {
            142..160 => 12.0 + noise.below(8),
            0..300 => noise.below(4),
            _ => 0.0,
        },
        ..Conditions::default()
    },
    fault: None,
};

/// Twice the requests. Each takes longer, and some wait.
fn overloaded(queue: f64) -> Conditions {
    Conditions { requests: 20.0, slower: 0.005, queue, ..Conditions::default() }
}

/// An overload of a second: a queue builds up, and is gone with the load.
pub const OVERLOAD: Weakness = Weakness {
    name: "overload",
    seed: 7,
    rows: 600,
    conditions: |row, _| match row {
        400..410 => overloaded(4.0 * f64::from((row - 399).min(410 - row))),
        _ => Conditions::default(),
    },
    fault: None,
};

/// An overload that goes on.
pub const OVERLOAD_LASTS: Weakness = Weakness {
    name: "overload-lasts",
    seed: 8,
    rows: 500,
    conditions: |row, _| if row >= 400 { overloaded(20.0) } else { Conditions::default() },
    fault: Some((400, 499, "overload")),
};

/// Requests get slower with a second of twice the load, and stay so when that is over.
pub const SLOW_UNDER_LOAD: Weakness = Weakness {
    name: "slow-under-load",
    seed: 9,
    rows: 500,
    conditions: |row, _| Conditions {
        requests: if (400..410).contains(&row) { 20.0 } else { 10.0 },
        slower: if row >= 400 { 0.005 } else { 0.0 },
        ..Conditions::default()
    },
    fault: Some((400, 499, "latency")),
};

//! The cost of hooks: buffered spans, verdicts, remote write samples, and the whole path of a host.

pub mod agents;
pub mod memory;
pub mod path;
pub mod sockets;
pub mod tail;
pub mod traffic;
pub mod verdict;
pub mod writing;

use super::Figure;

/// `figure` with a requirement that is not a ratio.
pub(super) fn judged(figure: Figure, goal: &str, met: bool, note: String) -> Figure {
    println!("{}: {:.3} {} ({goal}: {})", figure.name, figure.value, figure.unit, if met { "yes" } else { "NO" });
    Figure { goal: goal.to_owned(), met: Some(met), note, ..figure }
}

/// Operations per second, from nanoseconds per operation.
pub(super) fn per_second(nanoseconds: f64) -> f64 {
    1e9 / nanoseconds
}

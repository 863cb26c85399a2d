//! Which metrics say how long a service waited, and what of them is too much by itself.

use lmap::Saturation;
use wire::time::Nanos;

/// Counters of the time that threads waited for something, whatever waited for them. Times of all threads add up.
const WAITS: [&str; 6] = [
    "process.cpu.wait_time",
    "process.disk.wait_time",
    "container.cpu.throttled_time",
    "container.cpu.pressure",
    "container.memory.pressure",
    "container.io.pressure",
];
/// The gauge of the time until a scrape was answered.
const ANSWER: &str = "scrape_duration_seconds";
/// Gauges of how long a thread waits each time, in the mean.
const LATENCIES: [&str; 2] = ["process.cpu.run_queue_latency", "process.disk.wait_latency"];

/// Less than this share of the time is not worth an alarm.
const MIN_SHARE: f64 = 0.05;
/// An answer within this time is none either.
const MIN_ANSWER: Nanos = Nanos(5_000_000);
/// Shorter waits are hidden by an answer's own time.
const MIN_LATENCY: Nanos = Nanos(200_000);
/// For so long it has to last,
const LASTING: Nanos = Nanos(2_000_000_000);
/// and for so many observations at least.
const MIN_ROWS: u32 = 3;

/// The rule for the column of the metric `name`, whose values are in `unit` (`ns`, `us`, `ms` or `s`), in rows of
/// `interval`, of which every `every`-th has a new value. `None`: it does not say how long something waited.
#[must_use]
pub fn saturation(name: &str, unit: &str, interval: Nanos, every: u32) -> Option<Saturation> {
    let second = match unit {
        "ns" => 1e9,
        "us" => 1e6,
        "ms" => 1e3,
        "s" => 1.0,
        _ => return None,
    };
    let least = match name {
        ANSWER => MIN_ANSWER.0 as f64 / 1e9,
        _ if LATENCIES.contains(&name) => MIN_LATENCY.0 as f64 / 1e9,
        _ if WAITS.contains(&name) => MIN_SHARE * interval.0 as f64 / 1e9,
        _ => return None,
    };
    let rows = u32::try_from(LASTING.0.div_ceil(interval.0.max(1))).unwrap_or(u32::MAX);
    Some(Saturation { least: least * second, rows: rows.max(MIN_ROWS.saturating_mul(every)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos(1_000_000_000);

    #[test]
    fn a_wait_of_a_twentieth_of_the_interval_counts_in_its_own_unit() {
        let of = |unit| saturation("process.cpu.wait_time", unit, SECOND, 1).map(|of| of.least);

        assert_eq!(of("ns"), Some(5e7));
        assert_eq!(of("s"), Some(0.05));
        assert_eq!(of("{thread}"), None);
        let of_each = saturation("process.cpu.run_queue_latency", "ns", SECOND, 1).map(|of| of.least);
        assert_eq!(of_each, Some(2e5));
        assert_eq!(saturation("process.cpu.time", "ns", SECOND, 1), None);
    }

    #[test]
    fn it_lasts_for_two_seconds_and_three_observations() {
        let rows = |interval, every| saturation("scrape_duration_seconds", "s", interval, every).map(|of| of.rows);

        assert_eq!(rows(SECOND, 1), Some(3));
        assert_eq!(rows(SECOND, 5), Some(15));
        assert_eq!(rows(Nanos(100_000_000), 1), Some(20));
        assert_eq!(rows(Nanos(0), 1), Some(2_000_000_000));
    }
}

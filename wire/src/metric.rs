//! Series: name, labels, kind, unit, and aggregation over replicas. Names and types are sent once, never with the data.

mod aggregation;

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64};

use crate::histogram::Scale;
use crate::name::{Labels, MetricName, Unit};

pub use aggregation::{Aggregation, AggregationError, Declaration, Quantile, stride};

/// Kind of a series: how its slots are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only grows: one u64 slot. An LMAP sees its increments.
    Counter,
    /// Rises and falls by steps: one i64 slot.
    UpDownCounter,
    /// Is set: one slot with the bits of an f64.
    Gauge,
    /// A run of bucket counters and the sum: [`Scale::slots`] u64 slots. An LMAP sees rate, mean and tail of the
    /// interval.
    Histogram(Scale),
}

impl Kind {
    /// Number of slots of a series of this kind.
    #[must_use]
    pub const fn slots(self) -> u32 {
        match self {
            Self::Counter | Self::UpDownCounter | Self::Gauge => 1,
            Self::Histogram(scale) => scale.slots(),
        }
    }

    /// The columns of an LMAP for a series of this kind, in order.
    #[must_use]
    pub const fn statistics(self) -> &'static [Statistic] {
        match self {
            Self::Counter => &[Statistic::Increment],
            Self::UpDownCounter | Self::Gauge => &[Statistic::Value],
            Self::Histogram(_) => &[Statistic::Count, Statistic::Mean, Statistic::P99],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::UpDownCounter => "up-down counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        })
    }
}

/// One column of an LMAP, derived from one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    /// A gauge's or up-down counter's value.
    Value,
    /// Growth of a counter in the interval.
    Increment,
    /// Number of values in a histogram in the interval.
    Count,
    /// The mean of the values that a histogram took in the interval; missing if it took none.
    Mean,
    /// The 99th percentile of the values that a histogram took in the interval, to the bucket's width; missing if it
    /// took none.
    P99,
}

impl Statistic {
    /// Suffix of the metric's name in the name of the column; empty if the series has one column only.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Value | Self::Increment => "",
            Self::Count => ".count",
            Self::Mean => ".mean",
            Self::P99 => ".p99",
        }
    }

    /// Its name among the columns of a histogram: `count`, `mean` or `p99`; empty if the column is the metric itself.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.suffix().trim_start_matches('.')
    }

    /// Whether it is of the values that a histogram took: a mean or a quantile.
    #[must_use]
    pub const fn is_of_a_distribution(self) -> bool {
        matches!(self, Self::Mean | Self::P99)
    }
}

/// Subject of a metric: lets an explanation be a coarse classifier (μView, 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Group {
    /// Requests, errors and durations, and everything else that the service counts itself.
    Service = 0,
    /// Processor time, scheduling, threads.
    Cpu = 1,
    /// Memory and page faults.
    Memory = 2,
    /// Files and block devices.
    Io = 3,
    /// Sockets and network packets.
    Network = 4,
    /// How another metric is measured: its basis, and what was not seen. In rows with the others, and ignored by
    /// detectors.
    Measurement = 5,
    /// Whether it works at all: stopped processes, scrapes without an answer. 0 in a healthy service; each move is a
    /// fault by itself.
    Health = 6,
}

impl Group {
    /// All groups, by number.
    pub const ALL: [Self; 7] =
        [Self::Service, Self::Cpu, Self::Memory, Self::Io, Self::Network, Self::Measurement, Self::Health];

    /// Whether detectors use its metrics.
    #[must_use]
    pub const fn is_judged(self) -> bool {
        !matches!(self, Self::Measurement)
    }

    /// Whether each move of its metrics is a fault by itself.
    #[must_use]
    pub const fn is_indicator(self) -> bool {
        matches!(self, Self::Health)
    }

    /// Its name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Network => "network",
            Self::Measurement => "measurement",
            Self::Health => "health",
        }
    }
}

/// What a process or a container takes as it needs it, and keeps: how the names of such gauges begin.
const POOLS: [&str; 7] = [
    "process.memory.",
    "process.thread.count",
    "process.open_file_descriptor.count",
    "process.unix.file_descriptor.count",
    "process.network.connection.count",
    "container.memory.",
    "container.thread.count",
];

/// Whether the column of a title is about what a process takes as it needs it, and keeps, so that it grows for a moment
/// in ordinary use: the memory, threads, descriptors and connections of a process or a container, which are gauges
/// (`is_gauge`), and minor page faults. A delay, a loss, a share or a queue is none, of whatever group: that it grows
/// is what it is watched for.
#[must_use]
pub fn is_pool(title: &str, is_gauge: bool) -> bool {
    let is_taking = title.contains("paging.faults") && title.contains("\"minor\"");
    let is_kept = !title.contains(".pressure") && POOLS.iter().any(|name| title.starts_with(name));
    is_taking || is_gauge && is_kept
}

/// Counts of distinct things in packets, which are estimates.
const ESTIMATED: [&str; 4] =
    ["network.flows.distinct", "network.sources.distinct", "network.ports.distinct", "network.destination.flows"];

/// Whether the column of a title is an estimate of how many distinct things there are, a gauge (`is_gauge`), so that it
/// is off by an error of its own. Also behind the name of a service: `shop/network.flows.distinct`.
#[must_use]
pub fn is_estimated(title: &str, is_gauge: bool) -> bool {
    let name = title.split('{').next().unwrap_or_default();
    is_gauge && ESTIMATED.contains(&name.rsplit('/').next().unwrap_or_default())
}

/// How the names of columns end that count the requests which a service has answered: of OpenTelemetry's conventions
/// of today and of before, and of the agents' own.
const LOADS: [&str; 5] = [
    "server.requests",
    "server.request.duration.count",
    "server.call.duration.count",
    "server.duration.count",
    "traces.span.metrics.duration.count",
];

/// What labels say of requests that failed. More of these are no load but what is wrong.
const FAILURES: [&str; 4] = ["=\"5", "=\"error\"", "error.type=", "STATUS_CODE_ERROR"];

/// Whether the column of a title counts the requests which a service has answered in an interval, an increment
/// (`is_increment`), but for those of which its labels say that they failed. Also behind the name of a service:
/// `shop/http.server.requests`.
#[must_use]
pub fn is_load(title: &str, is_increment: bool) -> bool {
    let (name, labels) = title.split_once('{').unwrap_or((title, ""));
    if FAILURES.iter().any(|failure| labels.contains(failure)) {
        return false;
    }
    let name = name.rsplit('/').next().unwrap_or_default();
    let is_whole = |before: &str| before.is_empty() || before.ends_with('.');
    is_increment && LOADS.iter().any(|end| name.strip_suffix(end).is_some_and(is_whole))
}

/// Names a column in a model file by its title, see [`Series::column_title`].
#[must_use]
pub fn fingerprint(title: &str) -> u64 {
    fingerprint_of(title.as_bytes())
}

/// The 64-bit FNV-1a hash of `bytes`.
#[must_use]
pub fn fingerprint_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A series as registered by a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// Name of the metric.
    pub name: MetricName,
    /// Labels, unique together with the name within a service.
    pub labels: Labels,
    /// How its slots are read.
    pub kind: Kind,
    /// Its unit, if stated.
    pub unit: Option<Unit>,
    /// What the metric is about.
    pub group: Group,
    /// Parts of the unit in which a histogram's sum is kept (1,000,000 for seconds kept in µs). 1 otherwise.
    pub parts_per_unit: NonZeroU64,
}

impl Series {
    /// Name and labels: identifies a series within a service.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}{}", self.name, self.labels)
    }

    /// The unit of the column of `statistic`: empty if not stated, and for a count, which has none.
    #[must_use]
    pub fn column_unit(&self, statistic: Statistic) -> &str {
        match (statistic, &self.unit) {
            (Statistic::Count, _) | (_, None) => "",
            (_, Some(unit)) => unit.as_str(),
        }
    }

    /// Title of the column of `statistic`.
    #[must_use]
    pub fn column_title(&self, statistic: Statistic) -> String {
        format!("{}{}{}", self.name, statistic.suffix(), self.labels)
    }

    /// Whether `name` in an expression stands for the column of `statistic`: its title, or that without its labels.
    #[must_use]
    pub fn column_is_named(&self, statistic: Statistic, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.name.as_str()).and_then(|rest| rest.strip_prefix(statistic.suffix()))
        else {
            return false;
        };
        rest.is_empty() || rest == self.labels.to_string()
    }
}

/// A metric is read every n-th tick of its LMAP; its last value holds between (decision D5).
pub type TickDivider = NonZeroU32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_a_pool_and_what_is_waited_for_is_none() {
        let gauges = ["process.memory.usage", "process.thread.count", "container.memory.usage{state=\"anon\"}"];
        assert!(gauges.iter().all(|title| is_pool(title, true)));
        assert!(is_pool("process.paging.faults{process.paging.fault_type=\"minor\"}", false));
        let others = [
            "network.delay.p99",
            "network.loss",
            "network.flows.distinct",
            "process.network.queue",
            "process.network.unaccepted",
            "container.memory.pressure",
            "pool.size",
        ];
        assert!(!others.iter().any(|title| is_pool(title, true)));
        assert!(!is_pool("process.memory.usage", false) && !is_pool("process.paging.faults{type=\"major\"}", false));
    }

    #[test]
    fn a_column_is_titled_by_metric_statistic_and_labels() {
        let series = Series {
            name: MetricName::new("http.server.request.duration").unwrap(),
            labels: Labels::new([("route", "/pay")]).unwrap(),
            kind: Kind::Histogram(Scale::DEFAULT),
            unit: Some(Unit::new("s").unwrap()),
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };

        assert_eq!(series.column_title(Statistic::P99), r#"http.server.request.duration.p99{route="/pay"}"#);
        assert_eq!(series.column_unit(Statistic::P99), "s");
        assert_eq!(series.column_unit(Statistic::Count), "");
    }

    #[test]
    fn a_title_has_the_fingerprint_that_model_files_have() {
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn counts_of_distinct_things_are_estimates() {
        assert!(ESTIMATED.iter().all(|title| is_estimated(title, true) && !is_estimated(title, false)));
        assert!(is_estimated(r#"shop/network.flows.distinct{card="a/b"}"#, true));
        let others = [
            "network.source.destinations",
            "network.top_talker.share",
            "network.flows.heavy",
            r#"tcp{of="network.flows.distinct"}"#,
        ];
        assert!(!others.iter().any(|title| is_estimated(title, true)));
    }

    #[test]
    fn counts_of_answered_requests_are_load() {
        let counts = [
            "http.server.requests{route=\"/pay\",status=\"2xx\"}",
            "server.requests{outcome=\"ok\"}",
            "http.server.request.duration.count{route=\"/a/b\"}",
            "rpc.server.call.duration.count",
            "http.server.duration.count",
            "traces.span.metrics.duration.count{span.name=\"GET\"}",
            "shop/http.server.requests",
        ];
        assert!(counts.iter().all(|title| is_load(title, true) && !is_load(title, false)));
        let others = [
            "http.client.requests",
            "http.client.request.duration.count",
            "http.server.request.duration.mean",
            "http.server.errors",
            "observer.requests",
            "queue.wait.count",
            r#"calls{of="http.server.requests"}"#,
            r#"http.server.requests{route="/pay",status="5xx"}"#,
            r#"server.requests{outcome="error"}"#,
            r#"http.server.request.duration.count{error.type="timeout"}"#,
        ];
        assert!(!others.iter().any(|title| is_load(title, true)));
    }
}

//! The metrics. Each group is registered when something of it was counted first, so that a server of HTTP has no
//! metrics of Redis; but then as a whole, so that an error is a change and not a new metric.

use std::sync::OnceLock;

use client::{Client, Counter, Histogram, UpDownCounter};
use turns::Duration;
use wire::metric::Group;

use crate::counts::{Block, COUNTS, Count, Levels, SCALE};

const BASIC: [Count; 8] = [
    Count::Received,
    Count::Transmitted,
    Count::Accepted,
    Count::Tls,
    Count::Http2,
    Count::Upgraded,
    Count::Pipelined,
    Count::Table,
];
/// Groups of counters that are registered together.
const GROUPS: [&[Count]; 5] = [
    &BASIC,
    &[Count::OpenedReceived, Count::OpenedTransmitted],
    &[Count::Success, Count::Redirection, Count::ClientError, Count::ServerError],
    &[Count::Reply, Count::ErrorReply],
    &[Count::Other],
];

/// What is always registered, but the counters.
#[derive(Debug)]
struct LevelMeters {
    connections: UpDownCounter,
    waiting: UpDownCounter,
}

/// The metrics of one registration. A process that forks and registers anew has others.
#[derive(Debug)]
pub(crate) struct Meters {
    counters: [OnceLock<Counter>; COUNTS],
    duration: OnceLock<Histogram>,
    levels: OnceLock<LevelMeters>,
    off: OnceLock<UpDownCounter>,
}

/// Name, label and unit of a counter.
const fn series(count: Count) -> (&'static str, (&'static str, &'static str), &'static str) {
    match count {
        Count::Received => ("server.network.io", ("network.io.direction", "receive"), "By"),
        Count::Transmitted => ("server.network.io", ("network.io.direction", "transmit"), "By"),
        Count::Accepted => ("server.connections", ("", ""), "{connection}"),
        Count::Tls => ("server.unseen", ("reason", "tls"), "{event}"),
        Count::Http2 => ("server.unseen", ("reason", "http2"), "{event}"),
        Count::Upgraded => ("server.unseen", ("reason", "upgraded"), "{event}"),
        Count::Pipelined => ("server.unseen", ("reason", "pipelined"), "{event}"),
        Count::Table => ("server.unseen", ("reason", "table"), "{event}"),
        Count::OpenedReceived => ("client.network.io", ("network.io.direction", "receive"), "By"),
        Count::OpenedTransmitted => ("client.network.io", ("network.io.direction", "transmit"), "By"),
        Count::Success => ("server.requests", ("outcome", "2xx"), "{request}"),
        Count::Redirection => ("server.requests", ("outcome", "3xx"), "{request}"),
        Count::ClientError => ("server.requests", ("outcome", "4xx"), "{request}"),
        Count::ServerError => ("server.requests", ("outcome", "5xx"), "{request}"),
        Count::Reply => ("server.requests", ("outcome", "ok"), "{request}"),
        Count::ErrorReply => ("server.requests", ("outcome", "error"), "{request}"),
        Count::Other => ("server.requests", ("outcome", "unknown"), "{request}"),
    }
}

impl Meters {
    pub(crate) const fn new() -> Self {
        Self {
            counters: [const { OnceLock::new() }; COUNTS],
            duration: OnceLock::new(),
            levels: OnceLock::new(),
            off: OnceLock::new(),
        }
    }

    /// Adds to the metric, or to `block` while it is not registered.
    #[inline]
    pub(crate) fn add(&self, count: Count, by: u64, block: &Block) {
        match self.counters.get(count as usize).and_then(OnceLock::get) {
            Some(counter) => counter.add(by),
            None => block.add(count, by),
        }
    }

    /// Adds a duration likewise.
    #[inline]
    pub(crate) fn observe(&self, duration: Duration, block: &Block) {
        match self.duration.get() {
            Some(histogram) => histogram.observe(duration.0),
            None => block.observe(duration),
        }
    }

    /// Moves what `block` holds to the metrics, and registers those that are missing.
    pub(crate) fn publish(&self, block: &Block, client: &Client) {
        for group in GROUPS.iter().filter(|group| block.has(group)) {
            for count in *group {
                let Some(counter) = self.counters.get(*count as usize) else { continue };
                counter.get_or_init(|| register(client, *count)).add(block.take(*count));
            }
        }
        let duration = self.duration.get_or_init(|| {
            let registration = client.histogram("server.request.duration").unit("s").group(Group::Service);
            registration.parts_per_unit(1_000_000_000).scale(SCALE).register()
        });
        block.take_durations(|mean, count| duration.observe_many(mean, count));
    }

    /// Sets the levels.
    pub(crate) fn set(&self, levels: Levels, client: &Client) {
        let handles = self.levels.get_or_init(|| {
            let connections = client.up_down_counter("server.connection.count").unit("{connection}");
            let waiting = client.up_down_counter("server.active_requests").unit("{request}");
            LevelMeters { connections: connections.group(Group::Network).register(), waiting: waiting.register() }
        });
        handles.connections.add(levels.connections.wrapping_sub(handles.connections.get()));
        handles.waiting.add(levels.waiting.wrapping_sub(handles.waiting.get()));
    }

    /// Says that nothing is counted any more, and why.
    pub(crate) fn say_off(&self, reason: &str, client: &Client) {
        let off = self.off.get_or_init(|| {
            let level = client.up_down_counter("server.watch.off").label("reason", reason);
            level.group(Group::Measurement).register()
        });
        off.add(1_i64.wrapping_sub(off.get()));
    }
}

fn register(client: &Client, count: Count) -> Counter {
    let (name, (key, value), unit) = series(count);
    let group = match name {
        "server.unseen" => Group::Measurement,
        "server.requests" => Group::Service,
        _ => Group::Network,
    };
    let registration = client.counter(name).unit(unit).group(group);
    if key.is_empty() { registration.register() } else { registration.label(key, value).register() }
}

//! The metrics that all services of the shop have: requests, dependencies, queue, cache, runtime.
//!
//! Every label set is registered at the start, so that an LMAP has the series of an error before the first error.

use core::fmt::Debug;
use std::time::Duration;

use client::{Client, Counter, Gauge, Histogram, UpDownCounter};

use super::names;
use crate::graph::{Errand, Service};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// A histogram of durations in seconds, stored in microseconds.
fn seconds(uview: &Client, name: &str, label: Option<(&str, &str)>) -> Histogram {
    let histogram = uview.histogram(name).unit("s").parts_per_unit(MICROS_PER_SECOND);
    match label {
        Some((key, value)) => histogram.label(key, value).register(),
        None => histogram.register(),
    }
}

/// Classes of response statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Status 2xx or 3xx.
    Fine,
    /// Status 4xx, or the client closed the connection.
    Refused,
    /// Responses with status 5xx.
    Failed,
}

impl Class {
    const ALL: [(Self, &str); 3] = [(Self::Fine, "2xx"), (Self::Refused, "4xx"), (Self::Failed, "5xx")];

    /// The class of a status code.
    pub(crate) const fn of(status: u16) -> Self {
        match status {
            0..400 => Self::Fine,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// Metrics of the requests of one path.
#[derive(Debug)]
struct Path {
    by_class: [Counter; 3],
    duration: Histogram,
}

/// Metrics of incoming requests.
#[derive(Debug)]
pub(crate) struct Incoming {
    paths: [Path; 2],
    active: UpDownCounter,
    errors: Counter,
    response_bytes: Counter,
}

impl Incoming {
    pub(crate) fn new(uview: &Client, service: Service) -> Self {
        let path = |errand| {
            let route = service.path(errand);
            let count = |(_, status)| {
                let requests = uview.counter(names::REQUESTS).unit("{request}");
                requests.label("route", route).label(names::STATUS, status).register()
            };
            Path {
                by_class: Class::ALL.map(count),
                duration: seconds(uview, names::REQUEST_DURATION, Some(("route", route))),
            }
        };
        Self {
            paths: Errand::ALL.map(path),
            active: uview.up_down_counter(names::ACTIVE_REQUESTS).unit("{request}").register(),
            errors: uview.counter(names::ERRORS).unit("{error}").register(),
            response_bytes: uview.counter(names::RESPONSE_SIZE).unit("By").register(),
        }
    }

    /// Counts a new request.
    pub(crate) fn began(&self) {
        self.active.add(1);
    }

    /// Counts the end of a request: a response, or a closed connection.
    pub(crate) fn ended(&self, errand: Errand, class: Class, took: Duration, bytes: usize) {
        let path = &self.paths[errand as usize];
        self.active.add(-1);
        path.by_class[class as usize].add(1);
        path.duration.observe_duration(took);
        self.response_bytes.add(bytes as u64);
        if class == Class::Failed {
            self.errors.add(1);
        }
    }
}

/// How a call to a dependency ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A response below 500.
    Fine,
    /// Status 5xx, or a broken connection.
    Failed,
    /// No response in time, or the caller was cancelled.
    TimedOut,
}

impl Outcome {
    const ALL: [(Self, &str); 3] = [(Self::Fine, "ok"), (Self::Failed, "error"), (Self::TimedOut, "timeout")];
}

/// Metrics of the calls to one dependency.
#[derive(Debug)]
pub(crate) struct Outgoing {
    by_outcome: [Counter; 3],
    duration: Histogram,
    active: UpDownCounter,
    bytes: Counter,
}

impl Outgoing {
    pub(crate) fn new(uview: &Client, dependency: Service) -> Self {
        let peer = dependency.name();
        let count = |(_, outcome)| {
            let requests = uview.counter(names::CALLS).unit("{request}");
            requests.label("peer", peer).label("outcome", outcome).register()
        };
        let active = uview.up_down_counter(names::ACTIVE_CALLS).unit("{request}");
        Self {
            by_outcome: Outcome::ALL.map(count),
            duration: seconds(uview, names::CALL_DURATION, Some(("peer", peer))),
            active: active.label("peer", peer).register(),
            bytes: uview.counter(names::CALL_SIZE).unit("By").label("peer", peer).register(),
        }
    }

    /// Counts the start of a call.
    pub(crate) fn began(&self) {
        self.active.add(1);
    }

    /// Counts the end of a call.
    pub(crate) fn ended(&self, outcome: Outcome, took: Duration, bytes: usize) {
        self.active.add(-1);
        self.by_outcome[outcome as usize].add(1);
        self.duration.observe_duration(took);
        self.bytes.add(bytes as u64);
    }
}

/// Metrics of the queue for the worker.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) depth: UpDownCounter,
    pub(crate) wait: Histogram,
    pub(crate) busy: Counter,
    pub(crate) work: Histogram,
}

impl Queue {
    pub(crate) fn new(uview: &Client) -> Self {
        Self {
            depth: uview.up_down_counter(names::QUEUE_DEPTH).unit("{request}").register(),
            wait: seconds(uview, names::QUEUE_WAIT, None),
            busy: uview.counter(names::BUSY_TIME).unit("ns").register(),
            work: seconds(uview, names::WORK_DURATION, None),
        }
    }
}

/// Metrics of a bounded cache.
#[derive(Debug)]
pub(crate) struct CacheMeters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) evictions: Counter,
    pub(crate) entries: Gauge,
}

impl CacheMeters {
    pub(crate) fn new(uview: &Client) -> Self {
        Self {
            hits: uview.counter("cache.hits").unit("{lookup}").register(),
            misses: uview.counter("cache.misses").unit("{lookup}").register(),
            evictions: uview.counter("cache.evictions").unit("{entry}").register(),
            entries: uview.gauge("cache.entries").unit("{entry}").register(),
        }
    }
}

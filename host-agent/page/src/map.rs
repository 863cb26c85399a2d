//! The map: services, who calls whom, and operations where requests enter, with rates of the last seconds.
//!
//! Counters only rise. Two snapshots of them, some seconds apart, give rates. The agent takes one while somebody sees
//! the map, at most once in [`SNAPSHOT_EVERY`], for all viewers together.
//!
//! *Memory*: at most [`MAX_BYTES`], and nothing a minute after the last viewer: four snapshots with [`MAX_OPERATIONS`]
//! operations, about 256 bytes each. Names and calls of paths are bounded where they are learnt.

mod edges;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use wire::time::Nanos;

use self::edges::edges;
use crate::feed::Stream;
use crate::shown;

/// A snapshot serves all that ask within this time.
pub const SNAPSHOT_EVERY: Nanos = Nanos::from_secs(2);
/// Operations that are read one by one; those beyond are read together, by service.
pub const MAX_OPERATIONS: usize = 4_000;
/// Bytes of all snapshots.
pub const MAX_BYTES: usize = 4 << 20;
/// Services, operations where requests enter, other operations, and pairs of caller and callee that are shown.
const SHOWN: [usize; 4] = [250, 300, 700, 2_000];
/// Rates are over so long at least, if the oldest snapshot is as old.
const OVER: Nanos = Nanos::from_secs(8);
/// Snapshots are so far apart, but for the newest one.
const APART: Nanos = Nanos::from_secs(4);
/// Snapshots are dropped when nobody has asked for so long.
const FORGET_AFTER: Nanos = Nanos::from_secs(60);

/// Counters of requests or calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests that ended.
    pub requests: u64,
    /// Number of requests that ended in an error.
    pub errors: u64,
    /// Sum of the times that they took.
    pub took: Nanos,
    /// Number of requests in each class of durations; empty if there are none. In a snapshot, all counters have the
    /// same.
    pub classes: Box<[u64]>,
    /// Number of further calls, which nobody answered.
    pub unanswered: u64,
}

impl Counts {
    /// Adds the counters of `other`.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.took = self.took.plus(other.took);
        if self.classes.len() < other.classes.len() {
            self.classes = vec![0; other.classes.len()].into();
        }
        self.classes.iter_mut().zip(&other.classes).for_each(|(all, one)| *all += one);
    }

    /// What was counted since `before`; everything if that has more: the counters began anew.
    fn since(&self, before: &Self) -> Self {
        if self.requests < before.requests {
            return self.clone();
        }
        let earlier = |class: usize| before.classes.get(class).copied().unwrap_or(0);
        let classes = self.classes.iter().enumerate().map(|(class, count)| count.saturating_sub(earlier(class)));
        Self {
            requests: self.requests - before.requests,
            errors: self.errors.saturating_sub(before.errors),
            took: self.took.since(before.took).unwrap_or_default(),
            classes: classes.collect(),
            unanswered: self.unanswered.saturating_sub(before.unanswered),
        }
    }
}

/// Names of a service and its operation, or of caller and callee.
pub type Pair = (Arc<str>, Arc<str>);

/// What the agent knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSnapshot {
    /// Requests of each operation, by service and operation; `None` if spans are not counted.
    pub operations: Option<BTreeMap<Pair, Counts>>,
    /// Operations that were not read one by one.
    pub unread: usize,
    /// Calls by caller and callee; `None` if paths are not learnt.
    pub calls: Option<BTreeMap<Pair, Counts>>,
    /// One call in so many is counted.
    pub calls_from: u64,
    /// Services on the paths of operations where requests enter, by service and operation.
    pub paths: BTreeMap<Pair, Vec<Arc<str>>>,
    /// Upper bounds of the classes of durations.
    pub bounds: Vec<Nanos>,
}

/// Snapshots of the last seconds.
#[derive(Debug, Default)]
pub struct Map {
    snapshots: VecDeque<(Nanos, MapSnapshot)>,
    asked: Nanos,
    /// The newest as JSON, once somebody needed it.
    written: Option<Arc<str>>,
}

impl Map {
    /// Somebody asks for the map at `now`. Returns whether it needs another snapshot.
    pub fn ask(&mut self, now: Nanos) -> bool {
        self.forget(now);
        self.asked = now;
        self.snapshots.back().is_none_or(|(at, _)| now.since(*at).is_some_and(|age| age >= SNAPSHOT_EVERY))
    }

    /// Takes a snapshot of `now`.
    pub fn take(&mut self, snapshot: MapSnapshot, now: Nanos) {
        self.written = None;
        // The newest one stays only if it is not too near to the one before.
        if let [.., (before, _), (last, _)] = self.snapshots.make_contiguous()
            && last.since(*before).is_none_or(|length| length < APART)
        {
            self.snapshots.pop_back();
        }
        self.snapshots.push_back((now, snapshot));
        // One that is old enough stays.
        while self.snapshots.len() > 2 && self.snapshots.get(1).is_some_and(|(at, _)| is_over(*at, now)) {
            self.snapshots.pop_front();
        }
    }

    /// Drops all snapshots if nobody has asked for a minute.
    pub fn forget(&mut self, now: Nanos) {
        if now.since(self.asked).is_some_and(|length| length >= FORGET_AFTER) {
            (self.written, self.snapshots) = (None, VecDeque::new());
        }
    }

    /// The map as JSON, written once for all viewers; `is_urgent` names services that are shown however few requests
    /// they have. Those of `streams` that are named by a caller and its callee become edges.
    pub fn json(&mut self, is_urgent: impl Fn(&str) -> bool, streams: &[Stream]) -> String {
        if self.written.is_none() {
            self.written = Some(self.write(is_urgent, streams).into());
        }
        self.written.as_deref().unwrap_or_default().to_owned()
    }

    fn write(&self, is_urgent: impl Fn(&str) -> bool, streams: &[Stream]) -> String {
        let Some((at, snapshot)) = self.snapshots.back() else { return shown::json(Value::Null) };
        let before = self.snapshots.front().filter(|(before, _)| before < at);
        let over = before.and_then(|(before, _)| at.since(*before)).map(Nanos::as_secs_f64);
        drawn((snapshot, before.map(|(_, snapshot)| snapshot)), over, is_urgent, streams)
    }
}

fn is_over(before: Nanos, now: Nanos) -> bool {
    now.since(before).is_some_and(|length| length >= OVER)
}

/// A service as it is drawn.
#[derive(Debug, Default)]
struct Service {
    counts: Counts,
    operations: usize,
    is_urgent: bool,
}

/// Counters of `now` since `before`, by what they are of.
fn since(now: &BTreeMap<Pair, Counts>, before: Option<&BTreeMap<Pair, Counts>>) -> Vec<(Pair, Counts)> {
    let nothing = Counts::default();
    let of = |(pair, counts): (&Pair, &Counts)| {
        let earlier = before.and_then(|before| before.get(pair)).unwrap_or(&nothing);
        (pair.clone(), counts.since(earlier))
    };
    now.iter().map(of).collect()
}

fn drawn(
    (snapshot, before): (&MapSnapshot, Option<&MapSnapshot>),
    over: Option<f64>,
    is_urgent: impl Fn(&str) -> bool,
    streams: &[Stream],
) -> String {
    let nothing = BTreeMap::new();
    let before_of =
        |of: fn(&MapSnapshot) -> &Option<BTreeMap<Pair, Counts>>| before.and_then(|snapshot| of(snapshot).as_ref());
    let mut operations = match &snapshot.operations {
        Some(now) => since(now, before_of(|snapshot| &snapshot.operations)),
        // Requests are not counted: operations of paths, without figures.
        None => snapshot.paths.keys().map(|pair| (pair.clone(), Counts::default())).collect(),
    };
    let mut calls = since(snapshot.calls.as_ref().unwrap_or(&nothing), before_of(|snapshot| &snapshot.calls));
    let services = services(&operations, &calls, snapshot, is_urgent);
    let mut order: Vec<(&Arc<str>, &Service)> = services.iter().collect();
    order.sort_by_key(|(name, of)| (!of.is_urgent, core::cmp::Reverse(of.counts.requests), Arc::clone(name)));
    let [most_services, most_entries, most_others, most_calls] = SHOWN;
    let all_services = order.len();
    order.truncate(most_services);
    let places: BTreeMap<&Arc<str>, usize> =
        order.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
    let counted_over = over.filter(|_| snapshot.operations.is_some());
    let figures = |counts: &Counts| figures(counts, counted_over, &snapshot.bounds);
    let shown_services: Vec<_> = order
        .iter()
        .map(|(name, of)| json!({ "name": &***name, "operations": of.operations, "figures": figures(&of.counts) }))
        .collect();

    let all_operations = operations.len() + snapshot.unread;
    operations.retain(|((service, _), _)| places.contains_key(service));
    operations.sort_by_key(|(_, counts)| core::cmp::Reverse(counts.requests));
    let (mut entries, mut others): (Vec<_>, Vec<_>) =
        operations.into_iter().partition(|(pair, _)| snapshot.paths.contains_key(pair));
    entries.truncate(most_entries);
    others.truncate(most_others);
    let operation = |(pair, counts): &(Pair, Counts)| {
        let on_path = snapshot.paths.get(pair);
        let path = on_path.map(|on| on.iter().filter_map(|service| places.get(service)).collect::<Vec<_>>());
        json!({ "service": places.get(&pair.0), "name": &*pair.1, "path": path, "figures": figures(counts) })
    };
    let shown_operations: Vec<_> = entries.iter().chain(&others).map(operation).collect();

    let all_calls = calls.len();
    calls.retain(|((caller, callee), _)| places.contains_key(caller) && places.contains_key(callee));
    calls.sort_by_key(|(_, counts)| core::cmp::Reverse(counts.requests + counts.unanswered));
    calls.truncate(most_calls);
    let call = |((caller, callee), counts): &(Pair, Counts)| {
        let rate = |calls: u64| over.map(|over| rounded((calls * snapshot.calls_from) as f64 / over));
        let (answered, unanswered) = (rate(counts.requests), rate(counts.unanswered));
        json!([places.get(caller), places.get(callee), answered, mean(counts), failed(counts), unanswered])
    };
    let shown_calls: Vec<_> = calls.iter().map(call).collect();
    let left_out = json!({
        "services": all_services - shown_services.len(), "operations": all_operations - shown_operations.len(),
        "calls": all_calls - shown_calls.len(),
    });
    shown::json(json!({
        "counted": snapshot.operations.is_some(), "learnt": snapshot.calls.is_some(), "over": over.map(rounded),
        "services": shown_services, "operations": shown_operations, "calls": shown_calls,
        "streams": edges(streams, &places), "left_out": left_out,
    }))
}

/// All services that have operations, call, are called, or are on a path.
fn services(
    operations: &[(Pair, Counts)],
    calls: &[(Pair, Counts)],
    snapshot: &MapSnapshot,
    is_urgent: impl Fn(&str) -> bool,
) -> BTreeMap<Arc<str>, Service> {
    let mut services: BTreeMap<Arc<str>, Service> = BTreeMap::new();
    for ((service, _), counts) in operations {
        let of = services.entry(Arc::clone(service)).or_default();
        of.counts.add(counts);
        of.operations += 1;
    }
    let named =
        calls.iter().flat_map(|((caller, callee), _)| [caller, callee]).chain(snapshot.paths.values().flatten());
    for service in named {
        services.entry(Arc::clone(service)).or_default();
    }
    for (name, of) in &mut services {
        of.is_urgent = is_urgent(name);
    }
    services
}

/// Requests a second, share of errors, mean duration and bound of the 99th percentile in ms; null: unknown. Without an
/// earlier snapshot, all is of the whole time, and there is no rate (`over`), nor where requests are not counted.
fn figures(counts: &Counts, over: Option<f64>, bounds: &[Nanos]) -> Value {
    let rate = over.map(|over| rounded(counts.requests as f64 / over));
    json!([rate, failed(counts), mean(counts), slowest(counts, bounds)])
}

/// The share of requests that failed.
fn failed(counts: &Counts) -> Option<f64> {
    (counts.requests > 0).then(|| rounded(counts.errors as f64 / counts.requests as f64))
}

fn mean(counts: &Counts) -> Option<f64> {
    (counts.requests > 0).then(|| rounded(counts.took.as_secs_f64() * 1e3 / counts.requests as f64))
}

/// The bound in ms below which 99 % of the requests are; `None` without requests, and beyond the last bound.
fn slowest(counts: &Counts, bounds: &[Nanos]) -> Option<f64> {
    let all: u64 = counts.classes.iter().sum();
    if all == 0 {
        return None;
    }
    let wanted = all - all / 100;
    let mut below = 0;
    let class = counts.classes.iter().position(|count| {
        below += count;
        below >= wanted
    })?;
    bounds.get(class).map(|bound| rounded(bound.as_secs_f64() * 1e3))
}

/// Four decimals are enough for a figure.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests;

//! What changed since the last look, written once for all viewers.
//!
//! Each look at the agent's status becomes at most one event: for each LMAP the fields that differ, and the largest
//! score of its new summary. A viewer that begins, or that was too slow for what is kept, gets a snapshot instead. Both
//! are text that all viewers share. Where nobody looks, nothing is written: scores are remembered, and no more.
//!
//! *Memory*: about 2 kB for an LMAP, and [`MAX_EVENT_BYTES`] of events.

use core::hash::{Hash as _, Hasher as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::DefaultHasher;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use wire::proto::operators::{LmapStatus, Reason, StatusReply, WorkerStatus};
use wire::quantity::quantity;
use wire::time::{Timestamp, UnixNanos};

use crate::dates::Dates;
use crate::history::{Alarm, History, Metric, Observation};
use crate::shown;

/// Bytes of events that are kept for viewers that are behind.
pub const MAX_EVENT_BYTES: usize = 2 << 20;
/// Scores of each service in a snapshot: those of two minutes.
const RECENT: usize = 120;
/// Metrics that explain a score, in what is sent at once.
const METRICS: usize = 12;

/// Events that a snapshot may be behind, so that many viewers who begin do not make as many of them.
const SNAPSHOT_SERVES: u64 = 8;

type Fields = Map<String, Value>;

/// Numbers that change when there is something new to fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// Traces that were kept by now.
    pub traces: u64,
    /// State of the list of incidents.
    pub incidents: u64,
}

/// What names of services that are streams of packets begin with.
pub const STREAMS: &str = "network.";

/// A stream of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Number of its LMAP.
    pub lmap: u32,
    /// Name of its service, which begins with [`STREAMS`].
    pub service: String,
}

/// An LMAP as it was sent last.
#[derive(Clone, Debug, Default)]
struct Card {
    fields: Fields,
    /// [`version_of`] of the status that the fields are of; `None` while nothing was sent.
    version: Option<u64>,
    /// Its summary's own time: another one is a new summary.
    at_unix_ns: u64,
    /// When that summary was seen here.
    seen: UnixNanos,
}

/// When a look is taken: a steady second ([`crate::dates`]), and what the agent's wall clock shows.
#[derive(Clone, Copy, Debug)]
struct FeedTime {
    second: u32,
    wall: UnixNanos,
}

/// An event, ready to be sent.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number; a snapshot has that of the last event in it.
    pub sequence: u64,
    /// Its text, in the format of server-sent events.
    pub text: Arc<str>,
}

/// The state that viewers are told of.
#[derive(Debug)]
pub struct Feed {
    /// What is remembered of scores.
    pub history: History,
    /// Dates of what is remembered.
    pub dates: Dates,
    cards: BTreeMap<u32, Card>,
    node: Fields,
    sequence: u64,
    events: VecDeque<Event>,
    event_bytes: usize,
    snapshot: Option<Event>,
}

impl Feed {
    /// Nothing is known yet; `history` remembers scores.
    #[must_use]
    pub fn new(history: History) -> Self {
        Self {
            history,
            dates: Dates::default(),
            cards: BTreeMap::new(),
            node: Fields::new(),
            sequence: 0,
            events: VecDeque::new(),
            event_bytes: 0,
            snapshot: None,
        }
    }

    /// Takes a look at the time `now`, by the agent's own clocks: `status` of the agent, and what there is to fetch.
    /// Returns whether there is a new event. O(LMAPs), once for all viewers.
    pub fn look(&mut self, status: &StatusReply, revisions: Revisions, now: Timestamp) -> News {
        let time = FeedTime { second: self.dates.look(now), wall: now.wall };
        let known: BTreeSet<u32> = status.lmaps.iter().map(|lmap| lmap.lmap).collect();
        let gone: Vec<u32> = self.cards.keys().copied().filter(|id| !known.contains(id)).collect();
        self.cards.retain(|id, _| known.contains(id));
        let changed: Vec<Value> = status.lmaps.iter().filter_map(|lmap| self.lmap(lmap, time)).collect();
        let node = differences(&mut self.node, node(status, revisions));
        if gone.is_empty() && changed.is_empty() && node.is_empty() {
            return News::None;
        }
        let mut data = Fields::new();
        for (key, value) in [("gone", json!(gone)), ("lmaps", Value::Array(changed)), ("node", Value::Object(node))] {
            if value.as_array().is_none_or(|array| !array.is_empty())
                && value.as_object().is_none_or(|of| !of.is_empty())
            {
                data.insert(key.to_owned(), value);
            }
        }
        self.sequence += 1;
        let event = written("delta", self.sequence, Value::Object(data));
        self.event_bytes += event.text.len();
        self.events.push_back(event);
        while self.event_bytes > MAX_EVENT_BYTES
            && let Some(oldest) = self.events.pop_front()
        {
            self.event_bytes -= oldest.text.len();
        }
        News::Event
    }

    /// Takes a look that nobody sees, at the time `now`: scores of new summaries are remembered, and no event is
    /// written. Of `lmaps`, all that there are, it needs what [`History`] takes: number, service, time, scores and γ,
    /// alarm and rank, and the reasons of scores from γ on; number and time of one that [is not new](Self::is_new).
    /// Before the next event, or a snapshot, there has to be a [look](Self::look). O(LMAPs).
    pub fn remember(&mut self, lmaps: &[LmapStatus], now: Timestamp) {
        let time = FeedTime { second: self.dates.look(now), wall: now.wall };
        let known: BTreeSet<u32> = lmaps.iter().map(|lmap| lmap.lmap).collect();
        self.cards.retain(|id, _| known.contains(id));
        for lmap in lmaps {
            self.record(lmap, time);
        }
        // Nobody is told what is gone: who begins gets all anew.
        self.snapshot = None;
        self.events.clear();
        self.event_bytes = 0;
    }

    /// Whether the summary of `lmap` that was made at `at_unix_ns` was not seen yet.
    #[must_use]
    pub fn is_new(&self, lmap: u32, at_unix_ns: u64) -> bool {
        self.cards.get(&lmap).is_none_or(|card| card.at_unix_ns != at_unix_ns)
    }

    /// What changed of one LMAP until `now`; `None`: nothing.
    fn lmap(&mut self, lmap: &LmapStatus, now: FeedTime) -> Option<Value> {
        let highest = self.record(lmap, now);
        let card = self.cards.get_mut(&lmap.lmap)?;
        let version = Some(version_of(lmap));
        if card.version == version {
            return None;
        }
        card.version = version;
        let mut changes = differences(&mut card.fields, fields(lmap));
        if let Some(highest) = highest.filter(|highest| highest.is_finite()) {
            changes.insert("s".to_owned(), rounded(f64::from(highest)));
            changes.insert("at".to_owned(), json!(now.wall.millis()));
        }
        if changes.is_empty() {
            return None;
        }
        changes.insert("id".to_owned(), json!(lmap.lmap));
        Some(Value::Object(changes))
    }

    /// Remembers the scores of a summary until `now`. Returns the largest one, NaN if there is none; `None` if the
    /// summary is not new.
    fn record(&mut self, lmap: &LmapStatus, now: FeedTime) -> Option<f32> {
        let card = self.cards.entry(lmap.lmap).or_default();
        if card.at_unix_ns == lmap.at_unix_ns {
            return None;
        }
        (card.at_unix_ns, card.seen) = (lmap.at_unix_ns, now.wall);
        let highest = lmap.scores.iter().copied().fold(f32::NAN, f32::max);
        let observed = Observation {
            service: &lmap.service,
            second: now.second,
            highest,
            gamma: if lmap.gamma > 0.0 { lmap.gamma as f32 } else { f32::NAN },
            alarm: if lmap.alarm { Alarm::On } else { Alarm::Quiet },
            rank: lmap.rank,
            points_at: &lmap.points_at,
            reasons: &lmap.reasons,
        };
        self.history.record(&observed);
        // Then they are those of the row with the highest score.
        let ratio = f64::from(highest) / lmap.gamma;
        if lmap.gamma > 0.0 && ratio >= 1.0 {
            let parts = lmap.reasons.iter().map(|of| (of.column.as_str(), (of.share * ratio * ratio) as f32));
            self.history.explain(&lmap.service, now.second, parts);
        }
        Some(highest)
    }

    /// What a viewer gets that has seen everything up to the event `seen`: the next one, or a snapshot if that is no
    /// longer there; `None` if it has seen all. A viewer that begins has seen `None`.
    pub fn next(&mut self, seen: Option<u64>) -> Option<Event> {
        if seen == Some(self.sequence) {
            return None;
        }
        let first = self.events.front().map_or(u64::MAX, |event| event.sequence);
        let next = seen.and_then(|seen| seen.checked_add(1)).filter(|next| first <= *next && *next <= self.sequence);
        let event = next.and_then(|next| self.events.get((next - first) as usize).cloned());
        Some(event.unwrap_or_else(|| self.snapshot()))
    }

    /// Everything, written when somebody needs it. One that is a few events old does, if these are still there.
    fn snapshot(&mut self) -> Event {
        let oldest = self.events.front().map_or(u64::MAX, |event| event.sequence);
        let serves = |snapshot: &&Event| {
            let behind = self.sequence - snapshot.sequence;
            behind == 0 || (behind <= SNAPSHOT_SERVES && oldest <= snapshot.sequence + 1)
        };
        if let Some(snapshot) = self.snapshot.as_ref().filter(serves) {
            return snapshot.clone();
        }
        let lmap = |(id, card): (&u32, &Card)| {
            let mut fields = card.fields.clone();
            let service = fields.get("service").and_then(Value::as_str).unwrap_or_default().to_owned();
            let recent: Vec<_> = self.history.recent(&service, RECENT).map(|score| rounded(f64::from(score))).collect();
            fields.insert("recent".to_owned(), Value::Array(recent));
            fields.insert("id".to_owned(), json!(id));
            fields.insert("at".to_owned(), json!(card.seen.millis()));
            Value::Object(fields)
        };
        let lmaps: Vec<Value> = self.cards.iter().map(lmap).collect();
        let snapshot = written("snapshot", self.sequence, json!({ "lmaps": lmaps, "node": self.node }));
        self.snapshot = Some(snapshot.clone());
        snapshot
    }

    /// Services in alarm, or silent.
    #[must_use]
    pub fn urgent(&self) -> BTreeSet<String> {
        let is_urgent = |card: &&Card| matches!(text(card, "state"), Some("alarm" | "silent"));
        let named = self.cards.values().filter(is_urgent).filter_map(|card| text(card, "service"));
        named.map(ToOwned::to_owned).collect()
    }

    /// Streams of packets, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<Stream> {
        let stream = |(lmap, card): (&u32, &Card)| {
            let service = text(card, "service").filter(|service| service.starts_with(STREAMS))?;
            Some(Stream { lmap: *lmap, service: service.to_owned() })
        };
        let mut streams: Vec<_> = self.cards.iter().filter_map(stream).collect();
        streams.sort_by(|a, b| a.service.cmp(&b.service));
        streams
    }

    /// Name of the service of an LMAP.
    #[must_use]
    pub fn service(&self, lmap: u32) -> Option<&str> {
        text(self.cards.get(&lmap)?, "service")
    }
}

fn text<'a>(card: &'a Card, field: &str) -> Option<&'a str> {
    card.fields.get(field)?.as_str()
}

/// Whether a look found something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum News {
    /// There is an event.
    Event,
    /// All is as it was.
    None,
}

fn written(name: &str, sequence: u64, data: Value) -> Event {
    // One line, whatever others said.
    let data = shown::json(data);
    Event { sequence, text: format!("id: {sequence}\nevent: {name}\ndata: {data}\n\n").into() }
}

/// Fields of `new` that are not the same in `old`, which becomes `new`. A field that is gone is null.
fn differences(old: &mut Fields, new: Fields) -> Fields {
    let mut changes: Fields =
        new.iter().filter(|(key, value)| old.get(*key) != Some(value)).map(|(k, v)| (k.clone(), v.clone())).collect();
    changes.extend(old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null)));
    *old = new;
    changes
}

/// Three digits are enough for a chart; null if there is no number.
fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let scale = if value.abs() < 100.0 { 1_000.0 } else { 10.0 };
    json!((value * scale).round() / scale)
}

/// A number for what fields are made of: another one with a new summary, and with what may change between two of them.
/// To write them costs a hundred times as much. Not a secure hash.
fn version_of(lmap: &LmapStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (lmap.at_unix_ns, &lmap.state, lmap.alarm, lmap.alarms, lmap.rank, &lmap.points_at).hash(&mut hasher);
    (lmap.incident_unix_ns, lmap.replicas, lmap.worker, lmap.interval_us, &lmap.silent_replicas).hash(&mut hasher);
    lmap.members.iter().for_each(|member| member.service.hash(&mut hasher));
    hasher.finish()
}

/// Its title is shown, and nobody takes it apart: the parts are with each metric ([`crate::documents::metrics`]).
fn reason(reason: &Reason) -> Value {
    let since = if reason.since_us == 0 { String::new() } else { quantity(reason.since_us as f64, "us") };
    let Metric { title, seen, expected, share } = Metric::from(reason);
    let Reason { group, about, replica, .. } = reason;
    json!({
        "title": title, "group": group, "seen": seen, "expected": expected, "share": rounded(share), "since": since,
        "about": about, "replica": replica,
    })
}

/// What is sent of an LMAP. Counters of samples are left out: they change with every summary and tell nothing.
fn fields(lmap: &LmapStatus) -> Fields {
    let state = if lmap.alarm && lmap.state != "silent" { "alarm" } else { lmap.state.as_str() };
    let members: Vec<_> = lmap.members.iter().map(|member| member.service.as_str()).collect();
    let all = [
        ("service", json!(lmap.service)),
        ("state", json!(state)),
        ("gamma", if lmap.gamma > 0.0 { rounded(lmap.gamma) } else { Value::Null }),
        ("budget", rounded(lmap.alarms_per_day)),
        ("factor", rounded(lmap.gamma_factor)),
        ("rows", json!(lmap.rows.min(lmap.rows_needed))),
        ("needed", json!(lmap.rows_needed)),
        ("rank", json!(lmap.rank)),
        ("points_at", json!(lmap.points_at)),
        ("incident", json!(lmap.incident_unix_ns / 1_000_000)),
        ("alarms", json!(lmap.alarms)),
        ("replicas", json!(lmap.replicas)),
        ("silent", json!(lmap.silent_replicas)),
        ("columns", json!(lmap.columns)),
        ("unwatched", json!(lmap.unwatched)),
        ("interval", json!(quantity(lmap.interval_us as f64, "us"))),
        // As text: the first worker is 0, and zeros are not sent.
        ("worker", json!(lmap.worker.map(|worker| worker.to_string()))),
        ("members", json!(members)),
        ("groups", json!(lmap.groups.iter().map(|of| json!([of.group, rounded(of.share)])).collect::<Vec<_>>())),
        ("reasons", json!(lmap.reasons.iter().take(METRICS).map(reason).collect::<Vec<_>>())),
    ];
    // What says nothing is not sent: zero, empty, null.
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Object(_) => true,
    };
    all.into_iter().filter(|(_, value)| says(value)).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn worker(worker: &WorkerStatus) -> Value {
    json!({
        "worker": worker.worker, "connected": worker.connected, "transport": worker.transport, "lmaps": worker.lmaps,
        "late": worker.late_ticks, "lost": worker.lost_verdicts, "failed": worker.failed_regions,
        "drained_by": worker.drained_by,
    })
}

/// What is sent of the node.
fn node(status: &StatusReply, revisions: Revisions) -> Fields {
    let all = [
        ("version", json!(status.version)),
        ("workers", json!(status.workers.iter().map(worker).collect::<Vec<_>>())),
        ("problems", json!(status.problems)),
        ("warnings", json!(status.warnings)),
        ("notes", json!(status.notes)),
        ("traces", json!(revisions.traces)),
        ("incidents", json!(revisions.incidents)),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests;

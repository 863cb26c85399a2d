//! Follows incidents from their first alarm until nothing more can be known, and keeps the newest within a budget.
//!
//! Verdicts come as they are made; [`Recorder::look`] comes once a second with the ranking. A record is open until
//! [`SETTLES_AFTER`] its end, since traces are decided late. What is to be written or removed on a disk comes out of
//! [`Recorder::take_steps`].
//!
//! *Memory*: the encoded records and [`RECORD_COST`] for each, within the budget; [`OPEN_BYTES`] for each of
//! [`MAX_OPEN`] open ones; what [`crate::recent`] and [`crate::changes`] take.

mod packets;
mod record;
mod shelf;

use std::collections::{BTreeMap, BTreeSet};

use page::alarm_metrics::AlarmMetrics;
use page::traces::Traces;
use wire::incident::IncidentId;
use wire::proto::operators::{Incident, IncidentProfile, IncidentService, IncidentSummary, Reason};
use wire::time::{Nanos, UnixNanos};

pub(crate) use self::record::short;
pub use self::record::{MAX_METRICS, MAX_RECORD_BYTES, MAX_SERVICES, MAX_STEPS, summary};
use self::record::{order, push};
use self::shelf::Shelf;
pub use self::shelf::{FindError, RECORD_COST, RestoreError, Step};
use crate::changes::{ChangeLog, REMEMBERED};
use crate::evidence::{Evidence, Scene};
use crate::logs::{LogEvidence, RecentLogs};
use crate::recent::Recent;
use crate::words;

/// Records that are open at a time; the oldest is closed for a further one.
pub const MAX_OPEN: usize = 8;
/// Bytes of an open record, with its traces, the ids of those that are counted, and columns that may be named.
pub const OPEN_BYTES: usize = 2 << 20;
/// Bytes of the columns of one service that may be named, with their texts.
const MAX_COLUMN_BYTES: usize = 16 << 10;
const _: () = assert!(MAX_SERVICES * MAX_COLUMN_BYTES <= OPEN_BYTES / 4, "columns leave room for traces");
/// A record is open so long after its end.
pub const SETTLES_AFTER: Nanos = Nanos::from_secs(75);
/// Scores are shown from so many seconds before the first alarm, which are what was normal.
pub const BEFORE_S: u32 = 120;
/// Scores go on so long after the end.
const AFTER: Nanos = Nanos::from_secs(30);
/// Traces count that began so long before the first alarm.
const TRACES_BEFORE: Nanos = Nanos::from_secs(30);
/// Time between two writes of a record that changes.
const WRITTEN_EVERY: Nanos = Nanos::from_secs(10);
/// Services that did not fit and are counted.
const MAX_LEFT_OUT: usize = 1_000;
/// Changes of one record.
const MAX_CHANGES: usize = 64;
/// Profiles of one record.
const MAX_PROFILES: usize = 3;
/// Traces that a look goes back beyond those that are new: spans come late.
const LOOKED_AGAIN: u64 = 200;

/// Where a verdict is in its service's alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The alarm begins.
    Begin,
    /// It goes on.
    Middle,
    /// It is over.
    End,
    /// There is none.
    Quiet,
}

/// What an LMAP found.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// When, since 1970.
    pub at: UnixNanos,
    /// The incident of the alarm; `None` without an alarm.
    pub incident: Option<IncidentId>,
    /// Where it is in the alarm.
    pub phase: Phase,
    /// The score as a multiple of γ.
    pub ratio: f64,
    /// Silent replicas by name.
    pub silent: &'a [String],
    /// Metrics that explain the score, the largest share first.
    pub metrics: &'a [Reason],
}

/// An incident as the control plane has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// Its address on this node.
    pub id: IncidentId,
    /// Its services, the suspected cause first.
    pub services: Vec<RankedService>,
}

/// A service of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedService {
    /// Name of the service.
    pub service: String,
    /// The service that its metrics name; empty: none.
    pub points_at: String,
    /// When its alarm began, since 1970.
    pub began: UnixNanos,
    /// Whether it is in alarm now.
    pub is_on: bool,
}

/// A record that may still change.
#[derive(Clone, Debug, Default)]
struct OpenIncident {
    record: Incident,
    evidence: Evidence,
    logs: LogEvidence,
    /// Columns that made the alarm of each service.
    made_by: BTreeMap<String, AlarmMetrics>,
    /// When it was seen to be over.
    over: Option<UnixNanos>,
    written: Option<UnixNanos>,
    has_changed: bool,
    /// Traces that were taken by the last look.
    traces: u64,
    /// The service that was suspected then.
    cause: String,
    /// Services that did not fit.
    left_out: BTreeSet<String>,
}

/// All incidents that are kept.
#[derive(Clone, Debug)]
pub struct Recorder {
    node: String,
    open: BTreeMap<IncidentId, OpenIncident>,
    shelf: Shelf,
    /// Scores of the last minutes.
    pub recent: Recent,
    /// What was changed lately.
    pub changes: ChangeLog,
    revision: u64,
}

impl Recorder {
    /// Nothing yet, for the node `node`. `budget` bytes are for records, at least 4 MiB.
    #[must_use]
    pub fn new(node: &str, budget: usize) -> Self {
        Self {
            node: record::short(node),
            open: BTreeMap::new(),
            shelf: Shelf::new(budget),
            recent: Recent::default(),
            changes: ChangeLog::default(),
            revision: 0,
        }
    }

    /// Goes on with a record that an earlier run has written.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] if it is none.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<IncidentId, RestoreError> {
        self.revision += 1;
        self.shelf.restore(bytes)
    }

    /// Takes what an LMAP found.
    pub fn verdict(&mut self, verdict: &Verdict<'_>) {
        let second = (verdict.at.0 / 1_000_000_000) as u32;
        self.recent.add(verdict.service, second, verdict.ratio as f32);
        let (Some(id), Phase::Begin | Phase::Middle) = (verdict.incident, verdict.phase) else {
            if verdict.phase != Phase::Middle {
                self.ends(verdict.service, verdict.at);
            }
            return;
        };
        self.open(id);
        let recent = &self.recent;
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(service) = open.join(verdict.service, verdict.at, recent) else { return };
        if verdict.phase == Phase::Begin {
            service.alarms += 1;
        }
        service.ended_unix_ns = 0;
        let is_higher = verdict.ratio > service.peak || service.peak_unix_ns == 0;
        if verdict.ratio.is_finite() && is_higher {
            (service.peak, service.peak_unix_ns) = (verdict.ratio, verdict.at.0);
        }
        for replica in verdict.silent.iter().take(MAX_METRICS).map(|name| record::short(name)) {
            if service.silent_replicas.len() < MAX_METRICS && !service.silent_replicas.contains(&replica) {
                service.silent_replicas.push(replica);
            }
        }
        let name = service.service.clone();
        open.made_by.entry(name).or_default().add(verdict.ratio, verdict.metrics, MAX_COLUMN_BYTES);
        open.has_changed = true;
    }

    /// The alarm of `service` ended.
    fn ends(&mut self, service: &str, at: UnixNanos) {
        for open in self.open.values_mut() {
            let services = open.record.services.iter_mut();
            for of in services.filter(|of| of.service == service && of.ended_unix_ns == 0) {
                of.ended_unix_ns = at.0.max(of.began_unix_ns);
                open.has_changed = true;
            }
        }
    }

    /// Opens a record, unless it is open. One that was closed for others stays as it is.
    fn open(&mut self, id: IncidentId) {
        if self.open.contains_key(&id) || self.shelf.has(id) {
            return;
        }
        while self.open.len() >= MAX_OPEN
            && let Some((oldest, mut open)) = self.open.pop_first()
        {
            open.conclude();
            self.shelf.put(oldest, open.record);
        }
        let record = Incident {
            id: id.to_string(),
            node: self.node.clone(),
            began_unix_ns: id.began().0,
            ..Incident::default()
        };
        self.open.insert(id, OpenIncident { record, has_changed: true, ..OpenIncident::default() });
        self.revision += 1;
    }

    /// Looks at the ranking, at scores and changes, at the moment `now` since 1970. Once a second.
    pub fn look(&mut self, rankings: &[Ranking], now: UnixNanos) {
        for ranking in rankings.iter().filter(|ranking| ranking.services.iter().any(|service| service.is_on)) {
            self.open(ranking.id);
        }
        let none = Vec::new();
        for (id, open) in &mut self.open {
            let before = summary(&open.record);
            let ranking = rankings.iter().find(|ranking| ranking.id == *id);
            open.rank(ranking.map_or(&none, |ranking| &ranking.services), &self.recent, now);
            // A clock that was set back would keep it open until it has caught up.
            open.over = open.over.map(|over| over.min(now));
            open.follow(&self.recent, now);
            open.change(&self.changes, now);
            open.conclude();
            if before != summary(&open.record) {
                open.has_changed = true;
                self.revision += 1;
            }
        }
        let over = |open: &OpenIncident| open.over.is_some_and(|over| now.since(over) >= SETTLES_AFTER);
        let settled: Vec<_> = self.open.iter().filter(|(_, open)| over(open)).map(|(id, _)| *id).collect();
        for id in settled {
            if let Some(open) = self.open.remove(&id) {
                self.shelf.put(id, open.record);
            }
        }
        self.recent.forget((now.0 / 1_000_000_000) as u32);
    }

    /// Looks at kept log records, while an incident is open. After [`traces`](Self::traces): those of its traces belong
    /// to it.
    pub fn logs(&mut self, recent: &RecentLogs) {
        for (id, open) in &mut self.open {
            let address = id.at(&self.node);
            let OpenIncident { record, evidence, logs, has_changed, .. } = open;
            let services: Vec<&str> = record.services.iter().map(|service| service.service.as_str()).collect();
            let scene = Scene { address: &address, services: &services, during: during(record) };
            if logs.look(recent, &scene, evidence) {
                (record.logs, record.kept_logs) = (logs.best(), logs.count());
                *has_changed = true;
                self.revision += 1;
            }
        }
    }

    /// Looks at kept traces, while an incident is open.
    pub fn traces(&mut self, traces: &Traces) {
        for (id, open) in &mut self.open {
            let cause = open.record.services.first().map(|service| service.service.clone()).unwrap_or_default();
            let is_same = cause == open.cause;
            open.cause = cause;
            let new = traces.taken().saturating_sub(open.traces).saturating_add(LOOKED_AGAIN);
            // All of them, if they were chosen by what was suspected before.
            let new = if is_same { new } else { u64::MAX };
            open.traces = traces.taken();
            let address = id.at(&self.node);
            let services: Vec<&str> = open.record.services.iter().map(|service| service.service.as_str()).collect();
            let scene = Scene { address: &address, services: &services, during: during(&open.record) };
            if !is_same {
                open.evidence.rank_again(&scene);
            }
            let newest = traces.newest().take(usize::try_from(new).unwrap_or(usize::MAX));
            let looked: Vec<bool> = newest.map(|(id, trace)| open.evidence.look(id, trace, &scene)).collect();
            if looked.contains(&true) || (!is_same && open.evidence.count() > 0) {
                open.record.traces = open.evidence.best();
                open.record.kept_traces = open.evidence.count();
                open.has_changed = true;
                self.revision += 1;
            }
        }
    }

    /// Whether the incident `id` is followed, has room for a profile, and has none of `service`.
    #[must_use]
    pub fn wants_profile(&self, id: IncidentId, service: &str) -> bool {
        let name = record::short(service);
        self.open.get(&id).is_some_and(|open| {
            let profiles = &open.record.profiles;
            profiles.len() < MAX_PROFILES && profiles.iter().all(|profile| profile.service != name)
        })
    }

    /// Adds a profile of one of its services to the incident `id`, if it [wants](Self::wants_profile) it.
    pub fn profile(&mut self, id: IncidentId, profile: &IncidentProfile) {
        if !self.wants_profile(id, &profile.service) {
            return;
        }
        if let Some(open) = self.open.get_mut(&id) {
            open.record.profiles.push(record::bounded_profile(profile));
            open.has_changed = true;
            self.revision += 1;
        }
    }

    /// What is to be done on the disk by now: the newest state of records that have changed, at most every ten seconds
    /// of one that is open, and those that had to make room. With `must`, everything that has changed.
    pub fn take_steps(&mut self, now: UnixNanos, must: bool) -> Vec<Step> {
        for (id, open) in &mut self.open {
            let since = open.written.filter(|written| now >= *written).map(|written| now.since(written));
            let is_due = open.written.is_none() || since.is_none_or(|since| since >= WRITTEN_EVERY);
            if open.has_changed && (must || is_due) && !open.record.services.is_empty() {
                (open.written, open.has_changed) = (Some(now), false);
                open.conclude();
                self.shelf.put(*id, open.record.clone());
            }
        }
        let open: BTreeSet<_> = self.open.keys().copied().collect();
        self.shelf.take_steps(&open)
    }

    /// `step` was not done: it comes again.
    pub fn again(&mut self, step: &Step) {
        self.shelf.again(step);
    }

    /// Whether all steps that are due were taken, and none came back.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.shelf.is_written()
    }

    /// Whether an incident is on, or was lately.
    #[must_use]
    pub fn is_following(&self) -> bool {
        !self.open.is_empty()
    }

    /// Changes with each change of the list.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The list, the newest first.
    #[must_use]
    pub fn list(&self) -> Vec<IncidentSummary> {
        let mut all: BTreeMap<IncidentId, IncidentSummary> = self.shelf.summaries();
        let open = self.open.iter().filter(|(_, open)| !open.record.services.is_empty());
        all.extend(open.map(|(id, open)| (*id, summary(&open.record))));
        all.into_values().rev().collect()
    }

    /// The incident `id`; `None` if it is not kept.
    #[must_use]
    pub fn get(&self, id: IncidentId) -> Option<Incident> {
        let open = self.open.get(&id).filter(|open| !open.record.services.is_empty());
        open.map(|open| open.record.clone()).or_else(|| self.shelf.get(id))
    }

    /// The incident that `text` names: an address, its unique beginning, or nothing for the newest. What stands before
    /// a slash is a node's name.
    ///
    /// # Errors
    ///
    /// [`FindError`] if there is none, or several.
    pub fn find(&self, text: &str) -> Result<IncidentId, FindError> {
        let (node, text) = text.rsplit_once('/').unwrap_or(("", text));
        if !node.is_empty() && node != self.node {
            return Err(FindError::Elsewhere { node: record::short(node), here: self.node.clone() });
        }
        let listed = self.list();
        let mut fitting = listed.iter().filter(|of| of.id.starts_with(text));
        let none = || FindError::None { text: record::short(text), kept: listed.len() };
        let first = fitting.next().ok_or_else(none)?;
        let others = fitting.count();
        if others > 0 && !text.is_empty() {
            return Err(FindError::Several { text: record::short(text), fitting: others + 1 });
        }
        first.id.parse().map_err(|_| none())
    }

    /// Bytes that the kept records take, as they count for the budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shelf.bytes()
    }
}

/// From when to when what is kept may belong to it, in nanoseconds since 1970.
fn during(record: &Incident) -> (UnixNanos, UnixNanos) {
    let until = if record.ended_unix_ns == 0 { u64::MAX } else { record.ended_unix_ns };
    (UnixNanos(record.began_unix_ns).minus(TRACES_BEFORE), UnixNanos(until))
}

impl OpenIncident {
    /// The entry of `service`, whose alarm began `at` if it is new; `None` if there is no room.
    fn join(&mut self, service: &str, at: UnixNanos, recent: &Recent) -> Option<&mut IncidentService> {
        let name = record::short(service);
        if let Some(known) = self.record.services.iter().position(|of| of.service == name) {
            return self.record.services.get_mut(known);
        }
        if self.record.services.len() >= MAX_SERVICES {
            if self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.insert(name);
            }
            self.record.further_services = self.left_out.len() as u32;
            return None;
        }
        let second = (at.0 / 1_000_000_000) as u32;
        let usual = recent.usual(service, second.saturating_sub(1), BEFORE_S);
        let from = (self.record.began_unix_ns / 1_000_000_000).saturating_sub(u64::from(BEFORE_S));
        let mut joined = IncidentService {
            service: name,
            began_unix_ns: at.0,
            usual: usual.median,
            usual_maximum: usual.maximum,
            usual_seconds: usual.seconds,
            ratios_from_s: from,
            ratio_step_s: 1,
            ..IncidentService::default()
        };
        recent.since(service, from as u32).for_each(|(second, ratio)| push(&mut joined, u64::from(second), ratio));
        self.over = None;
        self.record.ended_unix_ns = 0;
        self.record.services.push(joined);
        self.record.services.last_mut()
    }

    /// Names the metrics that made the alarm of each service by now, and what is named first.
    fn conclude(&mut self) {
        for service in &mut self.record.services {
            let made_by = self.made_by.get_mut(&service.service);
            if let Some(metrics) = made_by.and_then(|metrics| metrics.take_top(MAX_METRICS)) {
                service.metrics = metrics;
            }
        }
        self.record.cause = words::cause(&self.record);
    }

    /// Takes over the ranking of its services. Those that are not in it are over.
    fn rank(&mut self, ranked: &[RankedService], recent: &Recent, now: UnixNanos) {
        for of in ranked.iter().filter(|of| of.is_on) {
            self.join(&of.service, of.began, recent);
        }
        for service in &mut self.record.services {
            let of = ranked.iter().position(|of| record::short(&of.service) == service.service);
            if let Some(place) = of {
                service.rank = place as u32 + 1;
                service.points_at = record::short(&ranked[place].points_at);
            } else {
                service.rank = service.rank.saturating_add(MAX_SERVICES as u32);
            }
            let is_on = of.is_some_and(|place| ranked[place].is_on);
            if !is_on && service.ended_unix_ns == 0 {
                service.ended_unix_ns = now.0.max(service.began_unix_ns);
            }
        }
        order(&mut self.record);
        let is_over = self.record.services.iter().all(|service| service.ended_unix_ns != 0);
        if is_over && self.over.is_none() {
            self.over = Some(now);
            self.written = None;
        } else if !is_over {
            self.over = None;
        }
        let last = self.record.services.iter().map(|service| service.ended_unix_ns).max().unwrap_or_default();
        self.record.ended_unix_ns = if is_over { last } else { 0 };
    }

    /// Adds the scores of the last seconds, until some time after the end.
    fn follow(&mut self, recent: &Recent, now: UnixNanos) {
        if self.over.is_some_and(|over| now.since(over) > AFTER) {
            return;
        }
        let lately = (now.0 / 1_000_000_000).saturating_sub(5) as u32;
        for service in &mut self.record.services {
            let name = service.service.clone();
            recent.since(&name, lately).for_each(|(second, ratio)| push(service, u64::from(second), ratio));
        }
        self.has_changed = true;
    }

    /// Adds what was changed before and during it.
    fn change(&mut self, log: &ChangeLog, now: UnixNanos) {
        let record = &mut self.record;
        let from = UnixNanos(record.began_unix_ns.saturating_sub(REMEMBERED.0));
        let until = if record.ended_unix_ns == 0 { now } else { UnixNanos(record.ended_unix_ns) };
        for change in log.between(from, until) {
            let is_known = record.changes.iter().any(|known| {
                (known.at_unix_ns, &known.service, &known.text) == (change.at_unix_ns, &change.service, &change.text)
            });
            if !is_known && record.changes.len() < MAX_CHANGES {
                record.changes.push(change.clone());
            }
        }
        record.changes.sort_by_key(|change| change.at_unix_ns);
        words::mark(record);
    }
}

#[cfg(test)]
mod tests;

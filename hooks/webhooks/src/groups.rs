//! Alert groups of one receiver: what to send, and when. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use wire::backoff::RetryRule;
use wire::time::{Nanos, UnixNanos};

/// An alert that the status of its service contradicts is over only if it had no event for this long: events arrive
/// before the status changes.
const SETTLE_TIME: Nanos = Nanos::from_secs(5);

/// Memory of an alert besides its texts.
const ALERT_BYTES: usize = 256;

/// Timing and limits of a receiver's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupingRule {
    /// Delay from the first alert of a service to its message: others may follow (`group_wait`).
    pub wait: Nanos,
    /// Minimum time between two messages about one service (`group_interval`).
    pub interval: Nanos,
    /// Time after which a firing service is sent again (`repeat_interval`).
    pub repeat: Nanos,
    /// Maximum number of services; alerts of further ones are only counted.
    pub groups: usize,
    /// Maximum number of alerts per service.
    pub alerts: usize,
    /// Maximum memory of all alerts, in bytes: further ones are only counted.
    pub bytes: usize,
    /// When a failed message is sent again.
    pub retry: RetryRule,
}

impl Default for GroupingRule {
    /// 1 s, 10 s and 4 hours; 1,000 services, 100 alerts each, 16 MiB; back-off from 100 ms to 30 s.
    fn default() -> Self {
        Self {
            wait: Nanos::from_secs(1),
            interval: Nanos::from_secs(10),
            repeat: Nanos::from_secs(4 * 3600),
            groups: 1_000,
            alerts: 100,
            bytes: 16 << 20,
            retry: RetryRule::default(),
        }
    }
}

/// Kind of an alert.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// The service's LMAP (local metrics analysis pipeline) is in alarm.
    Anomaly,
    /// This replica of the service has gone silent.
    SilentReplica(String),
}

/// An alert began, went on, or ended.
#[derive(Clone, Debug)]
pub struct AlertEvent {
    /// Name of the service.
    pub service: String,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Whether it fires; `false`: it has ended.
    pub firing: bool,
    /// Whether it begins with this event. If the alert fires already, it has another cause, which is sent.
    pub begins: bool,
    /// Wall-clock time of the event.
    pub at: UnixNanos,
    /// One line of text.
    pub summary: String,
    /// Full text; may be empty.
    pub description: String,
    /// Address of the incident: node, slash, id; empty: unknown.
    pub incident: String,
}

/// Current status of a service at the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Whether its LMAP is in alarm.
    pub alarm: bool,
    /// Names of its silent replicas.
    pub silent_replicas: BTreeSet<String>,
}

/// An alert of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Wall-clock time of its beginning.
    pub began: UnixNanos,
    /// Wall-clock time of its end; `None` while it fires.
    pub ended: Option<UnixNanos>,
    /// One line of text.
    pub summary: String,
    /// Full text; may be empty.
    pub description: String,
    /// Address of the incident; empty: unknown.
    pub incident: String,
    /// Monotonic time of the last event.
    updated: Nanos,
    /// Whether its texts are of another cause that was not sent yet. Until then they stay.
    is_untold: bool,
}

/// The alerts of a service, for one message.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Alerts by kind, firing or resolved.
    pub alerts: &'a BTreeMap<AlertKind, Alert>,
}

/// What to do next.
#[derive(Debug)]
#[must_use]
pub enum Step<'a> {
    /// Send this, then call [`AlertGroups::complete`] with the reply.
    Send(Notification<'a>),
    /// Nothing before then, unless there is an event.
    Wait(Nanos),
}

/// A receiver's reply to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An HTTP response.
    Http {
        /// HTTP status code.
        status: u16,
        /// Pause that the receiver asks for, by the header `Retry-After`.
        retry_after: Option<Nanos>,
    },
    /// No reply: no connection, a broken one, or a timeout. Whether the message was accepted is unknown.
    None,
}

/// Result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver accepted it.
    Accepted,
    /// The receiver refused it for good: it is not sent again.
    Refused,
    /// It is sent again after this pause.
    Retry(Nanos),
    /// No message was in flight.
    Unexpected,
}

impl Alert {
    /// Its memory, with that of its service's name.
    fn bytes(&self, service: &str, kind: &AlertKind) -> usize {
        let instance = match kind {
            AlertKind::Anomaly => 0,
            AlertKind::SilentReplica(instance) => instance.len(),
        };
        ALERT_BYTES + service.len() + instance + self.summary.len() + self.description.len() + self.incident.len()
    }
}

#[derive(Debug, Default)]
struct Group {
    alerts: BTreeMap<AlertKind, Alert>,
    /// Since when there is a change that was not sent.
    changed: Option<Nanos>,
    sent: Option<Nanos>,
    failures: u32,
    not_before: Nanos,
}

/// The message in flight: the service, since when its change was pending, and which alerts it reports as resolved.
#[derive(Debug)]
struct InFlight {
    service: String,
    changed: Option<Nanos>,
    over: Vec<(AlertKind, UnixNanos)>,
}

/// Alert groups of one receiver.
#[derive(Debug)]
pub struct AlertGroups {
    rule: GroupingRule,
    groups: BTreeMap<String, Group>,
    in_flight: Option<InFlight>,
    /// Memory of all alerts.
    bytes: usize,
    over_limit: u64,
}

impl Group {
    /// When its next message is due; `None` if there is nothing to send.
    fn due(&self, rule: &GroupingRule) -> Option<Nanos> {
        let due = match (self.changed, self.sent) {
            (Some(changed), None) => changed.plus(rule.wait),
            (Some(changed), Some(sent)) => changed.max(sent.plus(rule.interval)),
            (None, Some(sent)) if self.alerts.values().any(|alert| alert.ended.is_none()) => sent.plus(rule.repeat),
            (None, _) => return None,
        };
        Some(due.max(self.not_before))
    }

    fn end(&mut self, over: impl Fn(&AlertKind, &Alert) -> bool, at: UnixNanos, now: Nanos) {
        for (kind, alert) in &mut self.alerts {
            if alert.ended.is_none() && over(kind, alert) {
                alert.ended = Some(at);
                self.changed.get_or_insert(now);
            }
        }
    }
}

impl AlertGroups {
    /// Makes an empty set of groups.
    #[must_use]
    pub const fn new(rule: GroupingRule) -> Self {
        Self { rule, groups: BTreeMap::new(), in_flight: None, bytes: 0, over_limit: 0 }
    }

    /// Sends by `rule` from now on. Alerts that are known stay, also those over other limits.
    pub const fn set_rule(&mut self, rule: GroupingRule) {
        self.rule = rule;
    }

    /// Records an event.
    pub fn record(&mut self, event: AlertEvent, now: Nanos) {
        let AlertEvent { service, kind, firing, begins, at, summary, description, incident } = event;
        if !firing {
            if let Some(group) = self.groups.get_mut(&service) {
                group.end(|known, _| *known == kind, at, now);
            }
            return;
        }
        let group = self.groups.get(&service);
        let known = group.and_then(|group| group.alerts.get(&kind));
        // An alert that ended and was not sent yet has come back: it is the same alert.
        let goes_on = known.is_some_and(|alert| alert.ended.is_none());
        let began = known.map_or(at, |alert| if goes_on { alert.began } else { alert.began.min(at) });
        let another = goes_on && begins;
        let untold = known.filter(|alert| goes_on && !begins && alert.is_untold);
        let (summary, description) =
            untold.map_or((summary, description), |alert| (alert.summary.clone(), alert.description.clone()));
        let is_untold = another || untold.is_some();
        let alert = Alert { began, ended: None, summary, description, incident, updated: now, is_untold };
        let before = known.map_or(0, |alert| alert.bytes(&service, &kind));
        let after = self.bytes - before + alert.bytes(&service, &kind);
        let has_place = known.is_some()
            || group.map_or(self.groups.len() < self.rule.groups, |group| group.alerts.len() < self.rule.alerts);
        if !has_place || after > self.rule.bytes {
            self.over_limit += 1;
            // It goes on with its earlier text.
            let known = self.groups.get_mut(&service).and_then(|group| group.alerts.get_mut(&kind));
            if let Some(alert) = known.filter(|_| goes_on) {
                alert.updated = now;
            }
            return;
        }
        self.bytes = after;
        let group = self.groups.entry(service).or_default();
        group.alerts.insert(kind, alert);
        if !goes_on || another {
            group.changed.get_or_insert(now);
        }
    }

    /// Compares alerts with the status of all services: those that it contradicts, or whose service is gone, end at
    /// `at`.
    pub fn reconcile(&mut self, services: &BTreeMap<String, ServiceStatus>, at: UnixNanos, now: Nanos) {
        for (service, group) in &mut self.groups {
            let status = services.get(service);
            let over = |kind: &AlertKind, alert: &Alert| {
                let on = status.is_some_and(|status| match kind {
                    AlertKind::Anomaly => status.alarm,
                    AlertKind::SilentReplica(instance) => status.silent_replicas.contains(instance),
                });
                !on && now.since(alert.updated).is_some_and(|unseen| unseen >= SETTLE_TIME)
            };
            group.end(over, at, now);
        }
    }

    /// Returns what to do at `now`. One message is in flight at a time: meanwhile this returns [`Step::Wait`].
    pub fn next(&mut self, now: Nanos) -> Step<'_> {
        if self.in_flight.is_some() {
            return Step::Wait(Nanos::NEVER);
        }
        let due = self.groups.iter().filter_map(|(service, group)| Some((group.due(&self.rule)?, service)));
        let Some((due, service)) = due.min() else { return Step::Wait(Nanos::NEVER) };
        if due > now {
            return Step::Wait(due);
        }
        let service = service.clone();
        let Some(group) = self.groups.get_mut(&service) else { return Step::Wait(now) };
        let over = group.alerts.iter().filter_map(|(kind, alert)| Some((kind.clone(), alert.ended?))).collect();
        // Later events are another change.
        let changed = group.changed.take();
        let in_flight = self.in_flight.insert(InFlight { service, changed, over });
        Step::Send(Notification { service: &in_flight.service, alerts: &group.alerts })
    }

    /// Handles the reply to the message in flight, at the monotonic time `now`; `random` is uniform in \[0, 1).
    pub fn complete(&mut self, reply: Reply, now: Nanos, random: f64) -> Delivery {
        let Some(InFlight { service, changed, over }) = self.in_flight.take() else { return Delivery::Unexpected };
        let Some(group) = self.groups.get_mut(&service) else { return Delivery::Unexpected };
        let retry = |asked| Delivery::Retry(self.rule.retry.pause(group.failures.saturating_add(1), asked, random));
        let delivery = match reply {
            Reply::Http { status: 200..=299, .. } => Delivery::Accepted,
            Reply::Http { status: 408 | 429 | 500..=599, retry_after } => retry(retry_after),
            Reply::Http { .. } => Delivery::Refused,
            Reply::None => retry(None),
        };
        if let Delivery::Retry(pause) = delivery {
            group.failures = group.failures.saturating_add(1);
            group.not_before = now.plus(pause);
            // It was not sent, and has waited long enough already.
            group.changed = Some(changed.unwrap_or(now));
            return delivery;
        }
        group.failures = 0;
        group.sent = Some(now);
        if group.changed.is_none() {
            group.alerts.values_mut().for_each(|alert| alert.is_untold = false);
        }
        for (kind, ended) in over {
            if group.alerts.get(&kind).is_some_and(|alert| alert.ended == Some(ended))
                && let Some(alert) = group.alerts.remove(&kind)
            {
                self.bytes -= alert.bytes(&service, &kind);
            }
        }
        if group.alerts.is_empty() {
            self.groups.remove(&service);
        }
        delivery
    }

    /// Number of services with something to send or to repeat.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether no service has an alert, and all receivers' ends were sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns and resets the number of alerts over the limits.
    pub fn over_limit(&mut self) -> u64 {
        core::mem::take(&mut self.over_limit)
    }
}

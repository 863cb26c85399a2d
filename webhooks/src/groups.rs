//! What one receiver is owed, and when. Pure: given the time.

use std::collections::{BTreeMap, BTreeSet};

use hooks::time::UnixNanos;
use remote_write::answer::{Answer, Backoff, retry_after};
use wire::time::Nanos;

/// An alert is taken for over by how things stand only if nobody has said anything of it for so long: what is said overtakes the standing.
const SETTLES: Nanos = Nanos::from_secs(5);

/// When a receiver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// From the first alert of a service until it is told: others of it may follow.
    pub wait: Nanos,
    /// Between two messages about one service, at least.
    pub interval: Nanos,
    /// While a service goes on in alarm it is told again after this.
    pub repeat: Nanos,
    /// Services at one time; further ones are counted, not told.
    pub groups: usize,
    /// Alerts of one service at one time.
    pub alerts: usize,
    /// After a failure.
    pub backoff: Backoff,
}

impl Default for Rule {
    /// 1 s, 10 s and 4 hours; 1,000 services, 100 alerts each; after a failure 100 ms and more, 30 s at most.
    fn default() -> Self {
        Self {
            wait: Nanos::from_secs(1),
            interval: Nanos::from_secs(10),
            repeat: Nanos::from_secs(4 * 3600),
            groups: 1_000,
            alerts: 100,
            backoff: Backoff::default(),
        }
    }
}

/// What is the matter with a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Its LMAP is in an alarm.
    Anomaly,
    /// This replica of it says nothing any more.
    Silent(String),
}

/// Something that was said of a service.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Which service.
    pub service: String,
    /// What is the matter, or is not any more.
    pub what: What,
    /// Whether it is.
    pub firing: bool,
    /// When that was so.
    pub at: UnixNanos,
    /// In a line.
    pub summary: String,
    /// In full.
    pub description: String,
}

/// How a service stands by what the agent knows, whether it was said or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// In an alarm.
    pub alarm: bool,
    /// Replicas that say nothing.
    pub silent: BTreeSet<String>,
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// When it began.
    pub began: UnixNanos,
    /// When it ended.
    pub ended: Option<UnixNanos>,
    /// In a line.
    pub summary: String,
    /// In full.
    pub description: String,
    /// When something was said of it last.
    seen: Nanos,
}

/// A service's alerts, as a message tells them.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// Which service.
    pub service: &'a str,
    /// What is the matter, firing or over.
    pub alerts: &'a BTreeMap<What, Alert>,
}

/// What to do.
#[derive(Debug)]
#[must_use]
pub enum Step<'a> {
    /// Tell this, and then [what was heard](Groups::answered).
    Send(Notice<'a>),
    /// Nothing before then, unless something is said.
    Wait(Nanos),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The receiver has it.
    Taken,
    /// It will not have it: it is not told again.
    Refused,
    /// Again after so long.
    Again(Nanos),
    /// Nothing was under way.
    Unasked,
}

#[derive(Debug, Default)]
struct Group {
    alerts: BTreeMap<What, Alert>,
    /// Since when there is something that was not told.
    changed: Option<Nanos>,
    told: Option<Nanos>,
    failures: u32,
    not_before: Nanos,
}

/// What is under way: the service, since when something of it is not told, and which of its alerts are told as over.
#[derive(Debug)]
struct UnderWay {
    service: String,
    changed: Option<Nanos>,
    over: Vec<(What, UnixNanos)>,
}

/// What one receiver is owed.
#[derive(Debug)]
pub struct Groups {
    rule: Rule,
    owed: BTreeMap<String, Group>,
    under_way: Option<UnderWay>,
    crowded: u64,
}

impl Group {
    /// When it is to be told; `None` if there is nothing to tell.
    fn due(&self, rule: &Rule) -> Option<Nanos> {
        let due = match (self.changed, self.told) {
            (Some(changed), None) => changed.plus(rule.wait),
            (Some(changed), Some(told)) => changed.max(told.plus(rule.interval)),
            (None, Some(told)) if self.alerts.values().any(|alert| alert.ended.is_none()) => told.plus(rule.repeat),
            (None, _) => return None,
        };
        Some(due.max(self.not_before))
    }

    fn end(&mut self, over: impl Fn(&What, &Alert) -> bool, at: UnixNanos, now: Nanos) {
        for (what, alert) in &mut self.alerts {
            if alert.ended.is_none() && over(what, alert) {
                alert.ended = Some(at);
                self.changed.get_or_insert(now);
            }
        }
    }
}

impl Groups {
    /// Nothing to tell yet.
    #[must_use]
    pub const fn new(rule: Rule) -> Self {
        Self { rule, owed: BTreeMap::new(), under_way: None, crowded: 0 }
    }

    /// Something was said of a service.
    pub fn see(&mut self, sight: Sight, now: Nanos) {
        let Sight { service, what, firing, at, summary, description } = sight;
        if !firing {
            if let Some(group) = self.owed.get_mut(&service) {
                group.end(|known, _| *known == what, at, now);
            }
            return;
        }
        let room = self.owed.len() < self.rule.groups;
        let Some(group) =
            (if room { Some(self.owed.entry(service).or_default()) } else { self.owed.get_mut(&service) })
        else {
            self.crowded += 1;
            return;
        };
        if let Some(alert) = group.alerts.get_mut(&what).filter(|alert| alert.ended.is_none()) {
            (alert.seen, alert.summary, alert.description) = (now, summary, description);
            return;
        }
        if group.alerts.len() >= self.rule.alerts && !group.alerts.contains_key(&what) {
            self.crowded += 1;
            return;
        }
        // One that is over and was not told yet is one alert with this one: it came back.
        let began = group.alerts.get(&what).map_or(at, |alert| alert.began.min(at));
        group.alerts.insert(what, Alert { began, ended: None, summary, description, seen: now });
        group.changed.get_or_insert(now);
    }

    /// How all services stand: what was said of one that stands otherwise, or that is gone, is over at `at`.
    pub fn stand(&mut self, services: &BTreeMap<String, Standing>, at: UnixNanos, now: Nanos) {
        for (service, group) in &mut self.owed {
            let standing = services.get(service);
            let over = |what: &What, alert: &Alert| {
                let on = standing.is_some_and(|standing| match what {
                    What::Anomaly => standing.alarm,
                    What::Silent(instance) => standing.silent.contains(instance),
                });
                !on && now.since(alert.seen).is_some_and(|unseen| unseen >= SETTLES)
            };
            group.end(over, at, now);
        }
    }

    /// What to do at `now`. Messages go one at a time: what is asked while one is under way, is to wait.
    pub fn next(&mut self, now: Nanos) -> Step<'_> {
        if self.under_way.is_some() {
            return Step::Wait(Nanos::NEVER);
        }
        let due = self.owed.iter().filter_map(|(service, group)| Some((group.due(&self.rule)?, service)));
        let Some((due, service)) = due.min() else { return Step::Wait(Nanos::NEVER) };
        if due > now {
            return Step::Wait(due);
        }
        let service = service.clone();
        let Some(group) = self.owed.get_mut(&service) else { return Step::Wait(now) };
        let over = group.alerts.iter().filter_map(|(what, alert)| Some((what.clone(), alert.ended?))).collect();
        // What is said from now on is another change.
        let changed = group.changed.take();
        let under_way = self.under_way.insert(UnderWay { service, changed, over });
        Step::Send(Notice { service: &under_way.service, alerts: &group.alerts })
    }

    /// What the receiver answered, at `now`, which is `at` of the day; `random` is uniform in \[0, 1).
    pub fn answered(&mut self, answer: &Answer, at: UnixNanos, now: Nanos, random: f64) -> Heard {
        let Some(UnderWay { service, changed, over }) = self.under_way.take() else { return Heard::Unasked };
        let Some(group) = self.owed.get_mut(&service) else { return Heard::Unasked };
        let heard = match answer {
            Answer::Answered { status: 200..=299, .. } => Heard::Taken,
            Answer::Answered { status: 408 | 429 | 500..=599, retry_after: asked, .. } => {
                let pause = self.rule.backoff.pause(group.failures + 1, random);
                let asked = asked.as_deref().and_then(|text| retry_after(text, at)).unwrap_or(Nanos::ZERO);
                Heard::Again(pause.max(asked.min(self.rule.backoff.longest_asked)))
            }
            Answer::Answered { .. } => Heard::Refused,
            // The others are of OTLP: no webhook answers so.
            Answer::None | Answer::Exported { .. } | Answer::Failed { .. } => {
                Heard::Again(self.rule.backoff.pause(group.failures + 1, random))
            }
        };
        if let Heard::Again(pause) = heard {
            group.failures = group.failures.saturating_add(1);
            group.not_before = now.plus(pause);
            // It was not told, and has waited already.
            group.changed = Some(changed.unwrap_or(now));
            return heard;
        }
        group.failures = 0;
        group.told = Some(now);
        for (what, ended) in over {
            if group.alerts.get(&what).is_some_and(|alert| alert.ended == Some(ended)) {
                group.alerts.remove(&what);
            }
        }
        if group.alerts.is_empty() {
            self.owed.remove(&service);
        }
        heard
    }

    /// Services that there is something of to tell, or to tell again.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owed.len()
    }

    /// Whether all is well, and everybody knows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Takes how many alerts found no room since the last call.
    pub fn crowded(&mut self) -> u64 {
        core::mem::take(&mut self.crowded)
    }
}

//! Kept log records as evidence: the newest of all within a budget, and of an incident how many there are and which
//! five are the best.
//!
//! A record belongs to an incident if it says so (`uview.incident`), if its trace does, or if a service of the incident
//! wrote it during it and it is kept for a reason other than chance. The most severe are the best, of these the
//! earliest.

use std::collections::{BTreeSet, VecDeque};

use page::shown::shortened;
use wire::proto::operators::IncidentLog;
use wire::time::UnixNanos;

use crate::evidence::{Evidence, Scene};

/// Records that are kept with an incident.
pub const BEST: usize = 5;
/// Records that are counted one by one; beyond it the number stands still.
pub const MAX_COUNTED: usize = 10_000;
/// Characters of a text.
pub const MAX_TEXT: usize = 500;
/// Characters of a name.
const MAX_NAME: usize = 200;
/// Bytes of a record beside its texts.
pub const LOG_BYTES: usize = size_of::<Log>() + 16;
/// The policy that keeps by chance.
const FLOOR: &str = "floor";

/// A kept log record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// When it was written.
    pub at: UnixNanos,
    /// OTLP's number, 1 to 24; 0: not stated.
    pub severity: u8,
    /// The name of the severity, such as `ERROR`.
    pub level: Box<str>,
    /// The service that wrote it.
    pub service: Box<str>,
    /// Its body; empty if that is no text.
    pub text: Box<str>,
    /// The trace that it was written in.
    pub trace: Option<u128>,
    /// The policy that kept it, such as `error`.
    pub policy: Box<str>,
    /// Why it is kept, a sentence.
    pub reason: Box<str>,
    /// Address of the incident that it is of; empty: none.
    pub incident: Box<str>,
}

/// `text` in one printable line of at most `most` characters.
fn shown(text: &str, most: usize) -> Box<str> {
    shortened(text, most).into()
}

impl Log {
    /// The same record with texts that can be shown and are not too long.
    fn bounded(self) -> Self {
        Self {
            level: shown(&self.level, MAX_NAME),
            service: shown(&self.service, MAX_NAME),
            text: shown(&self.text, MAX_TEXT),
            policy: shown(&self.policy, MAX_NAME),
            reason: shown(&self.reason, MAX_TEXT),
            incident: shown(&self.incident, MAX_NAME),
            ..self
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.level, &self.service, &self.text, &self.policy, &self.reason, &self.incident];
        LOG_BYTES + texts.iter().map(|text| text.len()).sum::<usize>()
    }

    fn kept(&self) -> IncidentLog {
        IncidentLog {
            at_unix_ns: self.at.0,
            severity: u32::from(self.severity),
            level: self.level.to_string(),
            service: self.service.to_string(),
            text: self.text.to_string(),
            trace: self.trace.map(|trace| format!("{trace:032x}")).unwrap_or_default(),
            policy: self.policy.to_string(),
            reason: self.reason.to_string(),
        }
    }
}

/// The newest kept records, within a budget of bytes.
#[derive(Clone, Debug)]
pub struct RecentLogs {
    budget: usize,
    bytes: usize,
    /// Records that were ever added: the number of the next one.
    added: u64,
    logs: VecDeque<Log>,
}

impl RecentLogs {
    /// None, and room for `budget` bytes.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self { budget, bytes: 0, added: 0, logs: VecDeque::new() }
    }

    /// Adds a record; the oldest make room.
    pub fn add(&mut self, log: Log) {
        let log = log.bounded();
        self.bytes += log.bytes();
        self.added += 1;
        self.logs.push_back(log);
        while self.bytes > self.budget
            && let Some(oldest) = self.logs.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// Bytes that they take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of them with their numbers, as they came.
    fn numbered(&self) -> impl Iterator<Item = (u64, &Log)> {
        (self.added - self.logs.len() as u64..).zip(&self.logs)
    }
}

/// Kept log records of one incident.
#[derive(Clone, Debug, Default)]
pub struct LogEvidence {
    counted: BTreeSet<u64>,
    /// The best first, with their numbers.
    best: Vec<(u64, Log)>,
}

impl LogEvidence {
    /// Looks at the newest records, those that are known included: of some the trace came later. Returns whether
    /// something changed.
    pub fn look(&mut self, recent: &RecentLogs, scene: &Scene<'_>, traces: &Evidence) -> bool {
        let mut has_changed = false;
        for (number, log) in recent.numbered().filter(|(_, log)| belongs(log, scene, traces)) {
            if self.counted.len() >= MAX_COUNTED || !self.counted.insert(number) {
                continue;
            }
            has_changed = true;
            let key = |log: &Log| (core::cmp::Reverse(log.severity), log.at);
            let place = self.best.partition_point(|(_, better)| key(better) <= key(log));
            if place < BEST {
                self.best.insert(place, (number, log.clone()));
                self.best.truncate(BEST);
            }
        }
        has_changed
    }

    /// Records of the incident, the best included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counted.len() as u64
    }

    /// The best records, as they are kept.
    #[must_use]
    pub fn best(&self) -> Vec<IncidentLog> {
        self.best.iter().map(|(_, log)| log.kept()).collect()
    }
}

fn belongs(log: &Log, scene: &Scene<'_>, traces: &Evidence) -> bool {
    let is_named = !log.incident.is_empty() && *log.incident == *scene.address;
    let is_during = (scene.during.0..=scene.during.1).contains(&log.at);
    let is_chosen = is_during && &*log.policy != FLOOR && scene.services.contains(&&*log.service);
    is_named || is_chosen || log.trace.is_some_and(|trace| traces.has(trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENE: Scene<'static> = Scene {
        address: "node-3/20261127-064215-123",
        services: &["store", "payment"],
        during: (UnixNanos(1_000), UnixNanos(2_000)),
    };

    fn log(service: &str, severity: u8, at: u64) -> Log {
        Log {
            at: UnixNanos(at),
            severity,
            service: service.into(),
            text: format!("{at}").into(),
            policy: "error".into(),
            ..Log::default()
        }
    }

    fn looked(logs: Vec<Log>) -> LogEvidence {
        let (mut recent, mut evidence) = (RecentLogs::new(1 << 20), LogEvidence::default());
        for log in logs {
            recent.add(log);
        }
        evidence.look(&recent, &SCENE, &Evidence::default());
        assert!(!evidence.look(&recent, &SCENE, &Evidence::default()), "each counts once");
        evidence
    }

    #[test]
    fn a_record_belongs_to_an_incident_by_its_name_or_by_service_and_time() {
        let named = Log { incident: SCENE.address.into(), policy: "lmap".into(), ..log("cart", 9, 9_000) };
        let evidence = looked(vec![
            named,
            log("payment", 17, 1_000),
            log("payment", 17, 999),
            log("cart", 17, 1_500),
            Log { policy: FLOOR.into(), ..log("store", 17, 1_500) },
            Log { incident: "node-4/20261127-064215-123".into(), ..log("cart", 17, 1_500) },
        ]);

        let texts: Vec<_> = evidence.best().into_iter().map(|log| log.text).collect();
        assert_eq!((evidence.count(), texts), (2, vec!["1000".to_owned(), "9000".to_owned()]));
    }

    #[test]
    fn the_most_severe_come_first_and_of_these_the_earliest() {
        let logs = [(9, 1_100), (17, 1_300), (21, 1_400), (17, 1_200), (0, 1_000), (18, 1_900), (17, 1_250)];
        let evidence = looked(logs.into_iter().map(|(severity, at)| log("store", severity, at)).collect());

        let order: Vec<_> = evidence.best().into_iter().map(|log| (log.severity, log.at_unix_ns)).collect();
        assert_eq!(order, [(21, 1_400), (18, 1_900), (17, 1_200), (17, 1_250), (17, 1_300)]);
        assert_eq!(evidence.count(), 7);
    }

    #[test]
    fn the_newest_are_held_within_the_budget_and_texts_are_short_and_printable() {
        let mut recent = RecentLogs::new(20_000);
        for at in 0..1_000 {
            recent.add(Log { text: "a\u{202e}\n".repeat(1_000).into(), ..log("store", 9, at) });
            assert!(recent.bytes() <= 20_000);
        }

        let all: Vec<_> = recent.numbered().collect();
        assert!((5..50).contains(&all.len()), "{}", all.len());
        assert_eq!((all.last().unwrap().0, all.last().unwrap().1.at), (999, UnixNanos(999)));
        assert!(all.iter().all(|(_, log)| log.text.chars().all(wire::printable::is_printable)));
        assert!(all.iter().all(|(_, log)| log.text.chars().count() <= MAX_TEXT + 1));
    }
}

//! Alarms that belong together, and which of their services is the suspected cause: the rule of [`ranking`], on what verdicts say.
//!
//! An **incident** begins with an alarm. Alarms that begin within [`JOINED_WITHIN`] of its latest one join it, and it is over when the last of
//! its services is quiet: until then even one that is quiet again keeps its place, since a cause may be over before what it did. A service
//! is in one incident at a time.
//!
//! Each is ranked by what it showed until [`RANKED_AFTER`] the incident's first alarm, or its own if that came later; silence counts
//! whenever it comes, since no victim falls silent. Where rows are slow, both windows have room for three of them.

use std::collections::BTreeMap;

use ranking::{Answers, Calls, EXPLAINED_BY, Explanation, Flagged, RANKED_AFTER};
use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

use super::NamedReason;
use crate::span_metrics::is_of_spans;

/// An alarm that begins so long after the latest one of an incident belongs to it: what a fault stirs up may take so long to come.
pub const JOINED_WITHIN: Nanos = Nanos::from_secs(10);

/// Rows that a window has room for.
const ROWS: u64 = 3;

/// What is suspected of a service in an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Its place, from 1; 1 is the suspected cause.
    pub rank: u32,
    /// The service of the same incident that it points at.
    pub points_at: Option<ServiceName>,
    /// When the first alarm of the incident began, since 1970.
    pub incident: Nanos,
}

/// A verdict inside an alarm.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    pub lmap: LmapId,
    pub service: &'a ServiceName,
    pub interval: Interval,
    /// Since 1970.
    pub at: Nanos,
    /// It is the alarm's first.
    pub begins: bool,
    /// The score as a multiple of γ.
    pub ratio: f64,
    pub silent: bool,
    pub reasons: &'a [NamedReason],
}

impl Said<'_> {
    /// `length`, or room for a few rows if that is longer.
    fn room(&self, length: Nanos) -> Nanos {
        length.max(Nanos(self.interval.length().0.saturating_mul(ROWS)))
    }
}

#[derive(Debug)]
struct Flag {
    service: ServiceName,
    began: Nanos,
    silent: bool,
    strength: f64,
    explanation: Explanation,
    peer: Option<String>,
    answers: Answers,
}

impl Flag {
    fn new(said: &Said<'_>) -> Self {
        Self {
            service: said.service.clone(),
            began: said.at,
            silent: false,
            strength: 0.0,
            explanation: Explanation::default(),
            peer: None,
            answers: Answers::Unknown,
        }
    }

    /// Whether anything has changed that the ranking goes by.
    fn add(&mut self, said: &Said<'_>, incident: Nanos) -> bool {
        let before = (self.silent, self.strength, self.peer.clone(), self.answers);
        self.silent |= said.silent;
        let window = said.room(RANKED_AFTER);
        let first = incident.plus(window);
        let until = if self.began > first { self.began.plus(window) } else { first };
        if said.at <= until {
            self.strength = self.strength.max(said.ratio);
        }
        if said.at < self.began.plus(said.room(EXPLAINED_BY)) {
            self.explanation.add(said.ratio, said.reasons.iter().map(|reason| (reason.column.as_str(), reason.share)));
            self.peer = self.explanation.peer().map(str::to_owned);
            // What counts is the row that says most in that time.
            if said.ratio >= self.strength || self.answers == Answers::Unknown {
                self.answers = answers(said.reasons);
            }
        }
        before != (self.silent, self.strength, self.peer.clone(), self.answers)
    }
}

/// What `reasons` say of a service's answers: that there is less, if the first one does, or that they are worse, if a quarter is of its spans.
fn answers(reasons: &[NamedReason]) -> Answers {
    if reasons.first().is_some_and(|reason| reason.seen < reason.expected) {
        return Answers::Less;
    }
    let whole: f64 = reasons.iter().map(|reason| reason.share).sum();
    let of_spans = reasons.iter().filter(|reason| is_of_spans(&reason.column)).map(|reason| reason.share).sum::<f64>();
    if of_spans > 0.0 && 4.0 * of_spans >= whole { Answers::Worse } else { Answers::Unknown }
}

#[derive(Debug)]
struct Incident {
    began: Nanos,
    latest: Nanos,
    flagged: BTreeMap<LmapId, Flag>,
    /// In the order of suspicion, with whom each points at.
    ranked: Vec<(LmapId, Option<LmapId>)>,
}

impl Incident {
    fn add(&mut self, said: &Said<'_>, calls: &Calls) {
        let known = self.ranked.len() == self.flagged.len();
        let changed = self.flagged.get_mut(&said.lmap).is_some_and(|flag| flag.add(said, self.began));
        if changed || !known {
            self.rank(calls);
        }
    }

    fn rank(&mut self, calls: &Calls) {
        let ids: Vec<LmapId> = self.flagged.keys().copied().collect();
        let flagged = self.flagged.values().map(|flag| Flagged {
            service: flag.service.as_str(),
            silent: flag.silent,
            peer: flag.peer.as_deref(),
            answers: flag.answers,
            strength: flag.strength,
            began: flag.began,
        });
        let ranked = ranking::rank(&flagged.collect::<Vec<_>>(), calls).into_iter();
        self.ranked = ranked.map(|place| (ids[place.flagged], place.points_at.map(|at| ids[at]))).collect();
    }

    fn suspicions(&self) -> impl Iterator<Item = (LmapId, Suspicion)> {
        (1..).zip(&self.ranked).map(|(rank, (lmap, points_at))| {
            let points_at = points_at.and_then(|at| self.flagged.get(&at)).map(|flag| flag.service.clone());
            (*lmap, Suspicion { rank, points_at, incident: self.began })
        })
    }

    fn is_on(&self, is_on: impl Fn(LmapId) -> bool) -> bool {
        self.flagged.keys().any(|lmap| is_on(*lmap))
    }
}

/// All incidents of the node, the oldest first, at most one for each LMAP in alarm; and who calls whom.
#[derive(Debug, Default)]
pub struct Incidents(Vec<Incident>, Calls);

impl Incidents {
    /// From now on services are ranked by who calls whom in `calls`.
    pub fn know(&mut self, calls: Calls) {
        if self.1 != calls {
            self.1 = calls;
            self.0.iter_mut().for_each(|incident| incident.rank(&self.1));
        }
    }

    /// Takes a verdict inside an alarm in; `is_on` tells who is in alarm, `said.lmap` included. What is over is forgotten.
    pub fn heard(&mut self, said: &Said<'_>, is_on: impl Fn(LmapId) -> bool) {
        let was_on = |lmap| (lmap != said.lmap || !said.begins) && is_on(lmap);
        self.0.retain(|incident| incident.is_on(was_on));
        if said.begins {
            self.join(said);
        }
        if let Some(incident) = self.0.iter_mut().rfind(|incident| incident.flagged.contains_key(&said.lmap)) {
            incident.add(said, &self.1);
        }
    }

    fn join(&mut self, said: &Said<'_>) {
        let window = said.room(JOINED_WITHIN);
        let joins = |incident: &&mut Incident| said.at <= incident.latest.plus(window);
        if let Some(incident) = self.0.last_mut().filter(joins) {
            incident.latest = said.at;
            incident.flagged.entry(said.lmap).or_insert_with(|| Flag::new(said));
        } else {
            let flagged = BTreeMap::from([(said.lmap, Flag::new(said))]);
            self.0.push(Incident { began: said.at, latest: said.at, flagged, ranked: Vec::new() });
        }
        if let Some((_, before)) = self.0.split_last_mut() {
            for incident in before {
                if incident.flagged.remove(&said.lmap).is_some() {
                    incident.rank(&self.1);
                }
            }
        }
    }

    /// What is suspected of `lmap`, as of the verdict heard last.
    pub fn suspicion(&self, lmap: LmapId) -> Option<Suspicion> {
        let incident = self.0.iter().rfind(|incident| incident.flagged.contains_key(&lmap))?;
        incident.suspicions().find(|(of, _)| *of == lmap).map(|(_, suspicion)| suspicion)
    }

    /// What is suspected of everyone; `is_on` tells who is in alarm. Incidents that are over are left out.
    pub fn suspicions(&self, is_on: impl Fn(LmapId) -> bool) -> BTreeMap<LmapId, Suspicion> {
        let on = self.0.iter().filter(|incident| incident.is_on(&is_on));
        on.flat_map(Incident::suspicions).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::metric::Group;

    use super::*;

    /// Services by number, and who is in alarm.
    #[derive(Default)]
    struct Node {
        incidents: Incidents,
        on: BTreeSet<LmapId>,
    }

    const NAMES: [&str; 4] = ["cart", "payment", "store", "frontend"];

    impl Node {
        fn says(&mut self, at_ms: u64, who: u32, ratio: f64, about: Option<&str>, silent: bool) {
            let column = about.map_or("work".to_owned(), |peer| format!("calls{{peer=\"{peer}\"}}"));
            self.says_of(at_ms, who, ratio, (column, 1.0), silent);
        }

        fn says_of(&mut self, at_ms: u64, who: u32, ratio: f64, (column, seen): (String, f64), silent: bool) {
            let service = ServiceName::new(NAMES[who as usize]).unwrap();
            let reason = NamedReason {
                column,
                group: Group::Service,
                unit: String::new(),
                share: 1.0,
                seen,
                expected: 0.5,
                since: Nanos::ZERO,
            };
            let begins = self.on.insert(LmapId(who));
            let said = Said {
                lmap: LmapId(who),
                service: &service,
                interval: Interval::new(Nanos::from_millis(100)).unwrap(),
                at: Nanos::from_millis(at_ms),
                begins,
                ratio,
                silent,
                reasons: &[reason],
            };
            self.incidents.heard(&said, |lmap| self.on.contains(&lmap));
        }

        fn alarm(&mut self, at_ms: u64, who: u32, ratio: f64) {
            self.says(at_ms, who, ratio, None, false);
        }

        fn ends(&mut self, who: u32) {
            self.on.remove(&LmapId(who));
        }

        /// Names and places, in the order of LMAPs.
        fn ranks(&self) -> Vec<(&'static str, u32)> {
            let suspicions = self.incidents.suspicions(|lmap| self.on.contains(&lmap));
            suspicions.into_iter().map(|(lmap, suspicion)| (NAMES[lmap.0 as usize], suspicion.rank)).collect()
        }
    }

    #[test]
    fn what_traces_tell_of_calls_ranks_services_that_only_send_spans() {
        let duration = |seen| (r#"traces.span.metrics.duration.mean{span.name="handle"}"#.to_owned(), seen);
        let mut node = Node::default();
        node.says_of(1000, 3, 17.0, duration(0.9), false);
        node.says_of(1100, 1, 5.0, duration(0.9), false);
        node.says_of(1200, 2, 9.0, duration(0.1), false);
        assert_eq!(
            node.ranks(),
            [("payment", 3), ("store", 2), ("frontend", 1)],
            "by scores, as long as nothing is known"
        );

        node.incidents.know(Calls::new([("frontend", "payment"), ("frontend", "store")]));

        assert_eq!(node.ranks(), [("payment", 1), ("store", 3), ("frontend", 2)]);
        let suspicion = node.incidents.suspicion(LmapId(3)).unwrap();
        assert_eq!(suspicion.points_at, Some(ServiceName::new("payment").unwrap()));
    }

    #[test]
    fn services_in_alarm_are_ranked_and_whoever_points_at_another_comes_last() {
        let mut node = Node::default();

        node.says(1000, 1, 50.0, Some("store"), false);
        assert_eq!(node.ranks(), [("payment", 1)]);
        node.alarm(1300, 2, 3.0);

        assert_eq!(node.ranks(), [("payment", 2), ("store", 1)]);
        let suspicion = node.incidents.suspicion(LmapId(1)).unwrap();
        assert_eq!(suspicion.points_at, Some(ServiceName::new("store").unwrap()));
        assert_eq!(suspicion.incident, Nanos::from_millis(1000));
    }

    #[test]
    fn a_score_after_two_seconds_changes_no_place_and_silence_does() {
        let mut node = Node::default();
        node.alarm(1000, 0, 5.0);
        node.alarm(1500, 1, 4.0);

        node.alarm(3000, 1, 4.5);
        node.alarm(3001, 1, 90.0);
        assert_eq!(node.ranks(), [("cart", 1), ("payment", 2)]);

        node.says(4000, 1, 0.0, None, true);
        assert_eq!(node.ranks(), [("cart", 2), ("payment", 1)]);
    }

    #[test]
    fn whoever_comes_later_is_ranked_by_its_own_first_two_seconds() {
        let mut node = Node::default();
        node.alarm(1000, 0, 1.2);
        node.alarm(6000, 1, 8.0);
        node.alarm(7000, 1, 40.0);

        assert_eq!(node.ranks(), [("cart", 2), ("payment", 1)]);
    }

    #[test]
    fn a_cause_that_is_quiet_again_keeps_its_place_until_all_are_quiet() {
        let mut node = Node::default();
        node.says(1000, 1, 50.0, Some("store"), false);
        node.alarm(1300, 2, 3.0);

        node.ends(2);
        assert_eq!(node.ranks(), [("payment", 2), ("store", 1)]);
        node.ends(1);
        assert_eq!(node.ranks(), []);
        node.alarm(4000, 1, 2.0);
        assert_eq!(node.ranks(), [("payment", 1)], "another incident");
        assert_eq!(node.incidents.0.len(), 1);
    }

    #[test]
    fn an_alarm_long_after_the_others_is_another_incident() {
        let mut node = Node::default();
        node.alarm(1000, 0, 2.0);
        node.alarm(11_000, 1, 3.0);
        node.alarm(21_001, 2, 9.0);

        assert_eq!(node.ranks(), [("cart", 2), ("payment", 1), ("store", 1)]);

        node.ends(0);
        node.alarm(25_000, 0, 20.0);
        assert_eq!(node.ranks(), [("cart", 1), ("payment", 1), ("store", 2)], "nobody is in two incidents");
    }

    #[test]
    fn clocks_that_jump_break_nothing() {
        let mut node = Node::default();
        node.alarm(u64::MAX / 2_000_000, 0, 2.0);
        node.alarm(0, 1, f64::INFINITY);
        node.alarm(5, 0, f64::NAN);

        assert_eq!(node.ranks().len(), 2);
    }
}

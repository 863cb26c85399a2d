//! Groups alarms into incidents and ranks the services of each by suspicion ([`hooks::suspects`]).
//!
//! An **incident** begins with an alarm. Alarms within [`JOINED_WITHIN`] of its latest alarm join it. It ends when all
//! its services are quiet; until then a quiet service keeps its rank, since the cause may recover before its effects
//! do. A service is in one incident at a time: another alarm of one that is in alarm belongs to the same, and does not
//! prolong the time in which others join. A fault that lasts would gather what has nothing to do with it.
//!
//! A service is ranked by its verdicts until [`RANKED_AFTER`] after the incident's first alarm, or after its own first
//! alarm if that came later. Silence counts at any time, since victims do not fall silent. With slow rows, both windows
//! are extended to three rows.

use std::collections::BTreeMap;

use ::incidents::recorder::{RankedService, Ranking};
use hooks::suspects::{
    Calls, Cause, EXPLAINED_BY, Explanation, RANKED_AFTER, ResponseChange, ServiceInAlarm, longest_delay,
};
use wire::id::LmapId;
use wire::incident::IncidentId;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos, UnixNanos};

use super::named_reason::NamedReason;
use crate::span_columns::is_of_spans;

/// An alarm this long after the latest one of an incident still belongs to it: effects of a fault may take that long.
pub const JOINED_WITHIN: Nanos = Nanos::from_secs(10);

/// Minimum rows in a window.
const ROWS: u64 = 3;

/// Rank of a service within an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// 1 is the suspected cause.
    pub rank: u32,
    /// The service of the same incident that this one's reasons name.
    pub points_at: Option<ServiceName>,
    /// When the incident's first alarm began.
    pub incident: UnixNanos,
}

/// A verdict during an alarm.
#[derive(Clone, Copy, Debug)]
pub struct AlarmVerdict<'a> {
    pub lmap: LmapId,
    pub service: &'a ServiceName,
    pub interval: Interval,
    /// Time of the tick.
    pub at: UnixNanos,
    /// Whether it is the alarm's first verdict.
    pub begins: bool,
    /// The score as a multiple of γ.
    pub ratio: f64,
    pub silent: bool,
    pub reasons: &'a [NamedReason],
}

impl AlarmVerdict<'_> {
    /// `length`, extended to [`ROWS`] rows.
    fn window(&self, length: Nanos) -> Nanos {
        length.max(Nanos(self.interval.length().0.saturating_mul(ROWS)))
    }
}

#[derive(Debug)]
struct Flag {
    service: ServiceName,
    began: UnixNanos,
    silent: bool,
    strength: f64,
    explanation: Explanation,
    peer: Option<String>,
    answers: ResponseChange,
    /// By how many seconds its responses take longer.
    slower: Option<f64>,
}

impl Flag {
    fn new(verdict: &AlarmVerdict<'_>) -> Self {
        Self {
            service: verdict.service.clone(),
            began: verdict.at,
            silent: false,
            strength: 0.0,
            explanation: Explanation::default(),
            peer: None,
            answers: ResponseChange::Unknown,
            slower: None,
        }
    }

    /// Adds a verdict. Returns whether the input of the ranking changed.
    fn add(&mut self, verdict: &AlarmVerdict<'_>, incident: UnixNanos) -> bool {
        let before = (self.silent, self.strength, self.peer.clone(), self.answers, self.slower);
        self.silent |= verdict.silent;
        let window = verdict.window(RANKED_AFTER);
        let first = incident.plus(window);
        let until = if self.began > first { self.began.plus(window) } else { first };
        if verdict.at <= until {
            self.strength = self.strength.max(verdict.ratio);
        }
        if verdict.at < self.began.plus(verdict.window(EXPLAINED_BY)) {
            let columns: Vec<String> = verdict.reasons.iter().map(NamedReason::column).collect();
            let reasons = columns.iter().zip(verdict.reasons);
            let causes = reasons.map(|(column, reason)| Cause::of(column, reason.series.labels.iter(), reason.share));
            self.explanation.add(verdict.ratio, causes);
            self.peer = self.explanation.peer().map(str::to_owned);
            // The row with the highest score in the window counts; as long as none has said anything of responses, the
            // latest. An incident's metrics are of the whole alarm; what answers are like is not summed so: after a
            // second, those who wait are as slow as whom they wait for.
            if verdict.ratio >= self.strength || self.answers == ResponseChange::Unknown {
                (self.answers, self.slower) = (answers(verdict.reasons), slower(verdict.reasons));
            }
        }
        before != (self.silent, self.strength, self.peer.clone(), self.answers, self.slower)
    }
}

/// What `reasons` say of a service's responses: fewer, if the first reason fell below its expectation; worse, if a
/// quarter of the score is of spans.
fn answers(reasons: &[NamedReason]) -> ResponseChange {
    if reasons.first().is_some_and(|reason| reason.seen < reason.expected) {
        return ResponseChange::Less;
    }
    let whole: f64 = reasons.iter().map(|reason| reason.share).sum();
    let of_spans = reasons
        .iter()
        .filter(|reason| is_of_spans(reason.series.name.as_str()))
        .map(|reason| reason.share)
        .sum::<f64>();
    if of_spans > 0.0 && 4.0 * of_spans >= whole { ResponseChange::Worse } else { ResponseChange::Unknown }
}

/// By how many seconds something took longer, of the means and quantiles of durations among `reasons`.
fn slower(reasons: &[NamedReason]) -> Option<f64> {
    let durations = reasons.iter().filter(|reason| reason.statistic.is_of_a_distribution());
    longest_delay(durations.map(|reason| (reason.seen - reason.expected, reason.unit())))
}

#[derive(Debug)]
struct Incident {
    began: UnixNanos,
    latest: UnixNanos,
    flagged: BTreeMap<LmapId, Flag>,
    /// By descending suspicion, each with the LMAP that it points at.
    ranked: Vec<(LmapId, Option<LmapId>)>,
}

impl Incident {
    fn add(&mut self, verdict: &AlarmVerdict<'_>, calls: &Calls) {
        let known = self.ranked.len() == self.flagged.len();
        let changed = self.flagged.get_mut(&verdict.lmap).is_some_and(|flag| flag.add(verdict, self.began));
        if changed || !known {
            self.rank(calls);
        }
    }

    fn rank(&mut self, calls: &Calls) {
        let ids: Vec<LmapId> = self.flagged.keys().copied().collect();
        let flagged = self.flagged.values().map(|flag| ServiceInAlarm {
            service: flag.service.as_str(),
            silent: flag.silent,
            peer: flag.peer.as_deref(),
            responses: flag.answers,
            slower: flag.slower,
            strength: flag.strength,
            began: Nanos(flag.began.0),
        });
        let ranked = hooks::suspects::rank(&flagged.collect::<Vec<_>>(), calls).into_iter();
        self.ranked = ranked.map(|place| (ids[place.flagged], place.points_at.map(|at| ids[at]))).collect();
    }

    fn suspicions(&self) -> impl Iterator<Item = (LmapId, Suspicion)> {
        (1..).zip(&self.ranked).map(|(rank, (lmap, points_at))| {
            let points_at = points_at.and_then(|at| self.flagged.get(&at)).map(|flag| flag.service.clone());
            (*lmap, Suspicion { rank, points_at, incident: self.began })
        })
    }

    /// Its services as they are ranked.
    fn ranking(&self, is_on: impl Fn(LmapId) -> bool) -> Ranking {
        let service = |(lmap, points_at): &(LmapId, Option<LmapId>)| {
            let points_at = points_at.and_then(|at| self.flagged.get(&at)).map(|flag| flag.service.to_string());
            self.flagged.get(lmap).map(|flag| RankedService {
                service: flag.service.to_string(),
                points_at: points_at.unwrap_or_default(),
                began: flag.began,
                is_on: is_on(*lmap),
            })
        };
        Ranking { id: IncidentId::of(self.began), services: self.ranked.iter().filter_map(service).collect() }
    }

    fn is_on(&self, is_on: impl Fn(LmapId) -> bool) -> bool {
        self.flagged.keys().any(|lmap| is_on(*lmap))
    }
}

/// All incidents of the node, oldest first, at most one for each LMAP in alarm; and the call graph.
#[derive(Debug, Default)]
pub struct Incidents(Vec<Incident>, Calls);

impl Incidents {
    /// Ranks by the call graph `calls` from now on.
    pub fn set_calls(&mut self, calls: Calls) {
        if self.1 != calls {
            self.1 = calls;
            self.0.iter_mut().for_each(|incident| incident.rank(&self.1));
        }
    }

    /// Adds a verdict during an alarm. `is_on` tells which LMAPs are in alarm, including `verdict.lmap`. Incidents that
    /// are over are removed.
    pub fn add(&mut self, verdict: &AlarmVerdict<'_>, is_on: impl Fn(LmapId) -> bool) {
        let was_on = |lmap| (lmap != verdict.lmap || !verdict.begins) && is_on(lmap);
        self.0.retain(|incident| incident.is_on(was_on));
        if verdict.begins {
            self.join(verdict);
        }
        if let Some(incident) = self.0.iter_mut().rfind(|incident| incident.flagged.contains_key(&verdict.lmap)) {
            incident.add(verdict, &self.1);
        }
    }

    fn join(&mut self, verdict: &AlarmVerdict<'_>) {
        let window = verdict.window(JOINED_WITHIN);
        // The clock may have been set back since.
        let joins = |incident: &&mut Incident| {
            verdict.at <= incident.latest.plus(window) && incident.latest <= verdict.at.plus(window)
        };
        if let Some(incident) = self.0.last_mut().filter(joins) {
            incident.latest = verdict.at;
            incident.flagged.entry(verdict.lmap).or_insert_with(|| Flag::new(verdict));
        } else {
            let flagged = BTreeMap::from([(verdict.lmap, Flag::new(verdict))]);
            self.0.push(Incident { began: verdict.at, latest: verdict.at, flagged, ranked: Vec::new() });
        }
        if let Some((_, before)) = self.0.split_last_mut() {
            for incident in before {
                if incident.flagged.remove(&verdict.lmap).is_some() {
                    incident.rank(&self.1);
                }
            }
        }
    }

    /// The suspicion of `lmap`, as of its latest verdict.
    pub fn suspicion(&self, lmap: LmapId) -> Option<Suspicion> {
        let incident = self.0.iter().rfind(|incident| incident.flagged.contains_key(&lmap))?;
        incident.suspicions().find(|(of, _)| *of == lmap).map(|(_, suspicion)| suspicion)
    }

    /// The rankings of all incidents, also of those that are over, until the next alarm begins.
    pub fn rankings(&self, is_on: impl Fn(LmapId) -> bool) -> Vec<Ranking> {
        self.0.iter().map(|incident| incident.ranking(&is_on)).collect()
    }

    /// The suspicions of all services; `is_on` tells which LMAPs are in alarm. Incidents that are over are left out.
    pub fn suspicions(&self, is_on: impl Fn(LmapId) -> bool) -> BTreeMap<LmapId, Suspicion> {
        let on = self.0.iter().filter(|incident| incident.is_on(&is_on));
        on.flat_map(Incident::suspicions).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::metric::{Series, Statistic};

    use super::*;
    use crate::control_plane::testing::{counter, histogram, labelled, reason};

    /// Services by number, and those in alarm.
    #[derive(Default)]
    struct Node {
        incidents: Incidents,
        on: BTreeSet<LmapId>,
    }

    const NAMES: [&str; 4] = ["cart", "payment", "store", "frontend"];

    impl Node {
        fn says(&mut self, at_ms: u64, who: u32, ratio: f64, about: Option<&str>, silent: bool) {
            let series = about.map_or(counter("work"), |peer| labelled(counter("calls"), "peer", peer));
            self.says_of(at_ms, who, ratio, (series, 1.0), silent);
        }

        fn says_of(&mut self, at_ms: u64, who: u32, ratio: f64, (series, seen): (Series, f64), silent: bool) {
            let service = ServiceName::new(NAMES[who as usize]).unwrap();
            let reason = reason(series, Statistic::Increment, [seen, 0.5]);
            let begins = self.on.insert(LmapId(who));
            let verdict = AlarmVerdict {
                lmap: LmapId(who),
                service: &service,
                interval: Interval::new(Nanos::from_millis(100)).unwrap(),
                at: UnixNanos::from_millis(at_ms),
                begins,
                ratio,
                silent,
                reasons: &[reason],
            };
            self.incidents.add(&verdict, |lmap| self.on.contains(&lmap));
        }

        fn alarm(&mut self, at_ms: u64, who: u32, ratio: f64) {
            self.says(at_ms, who, ratio, None, false);
        }

        fn ends(&mut self, who: u32) {
            self.on.remove(&LmapId(who));
        }

        /// Names and ranks, in the order of LMAPs.
        fn ranks(&self) -> Vec<(&'static str, u32)> {
            let suspicions = self.incidents.suspicions(|lmap| self.on.contains(&lmap));
            suspicions.into_iter().map(|(lmap, suspicion)| (NAMES[lmap.0 as usize], suspicion.rank)).collect()
        }
    }

    #[test]
    fn the_call_graph_of_traces_ranks_services_that_only_send_spans() {
        let duration = |seen| (labelled(histogram("traces.span.metrics.duration"), "span.name", "handle"), seen);
        let mut node = Node::default();
        node.says_of(1000, 3, 17.0, duration(0.9), false);
        node.says_of(1100, 1, 5.0, duration(0.9), false);
        node.says_of(1200, 2, 9.0, duration(0.1), false);
        assert_eq!(
            node.ranks(),
            [("payment", 3), ("store", 2), ("frontend", 1)],
            "by scores, as long as nothing is known"
        );

        node.incidents.set_calls(Calls::new([("frontend", "payment"), ("frontend", "store")]));

        assert_eq!(node.ranks(), [("payment", 1), ("store", 3), ("frontend", 2)]);
        let suspicion = node.incidents.suspicion(LmapId(3)).unwrap();
        assert_eq!(suspicion.points_at, Some(ServiceName::new("payment").unwrap()));
    }

    #[test]
    fn a_peak_that_says_nothing_of_responses_leaves_it_to_the_rows_after_it() {
        let duration = || (labelled(histogram("traces.span.metrics.duration"), "span.name", "handle"), 0.9);
        let mut node = Node::default();
        node.incidents.set_calls(Calls::new([("frontend", "payment")]));
        node.says_of(1000, 3, 60.0, (counter("runtime.tasks"), 37.0), false);
        node.says_of(1100, 1, 5.0, duration(), false);
        assert_eq!(node.ranks(), [("payment", 2), ("frontend", 1)], "nobody points at anybody yet");

        node.says_of(1200, 3, 28.0, duration(), false);

        assert_eq!(node.ranks(), [("payment", 1), ("frontend", 2)]);
    }

    #[test]
    fn services_in_alarm_are_ranked_and_one_that_points_at_another_comes_last() {
        let mut node = Node::default();

        node.says(1000, 1, 50.0, Some("store"), false);
        assert_eq!(node.ranks(), [("payment", 1)]);
        node.alarm(1300, 2, 3.0);

        assert_eq!(node.ranks(), [("payment", 2), ("store", 1)]);
        let suspicion = node.incidents.suspicion(LmapId(1)).unwrap();
        assert_eq!(suspicion.points_at, Some(ServiceName::new("store").unwrap()));
        assert_eq!(suspicion.incident, UnixNanos::from_millis(1000));
    }

    #[test]
    fn a_ranking_has_its_address_and_says_who_is_quiet_again() {
        let mut node = Node::default();
        node.says(1000, 1, 50.0, Some("store"), false);
        node.alarm(1300, 2, 3.0);
        node.ends(2);

        let rankings = node.incidents.rankings(|lmap| node.on.contains(&lmap));

        let services: Vec<_> =
            rankings[0].services.iter().map(|of| (of.service.as_str(), of.points_at.as_str(), of.is_on)).collect();
        assert_eq!(services, [("store", "", false), ("payment", "store", true)]);
        assert_eq!((rankings.len(), rankings[0].id.to_string().as_str()), (1, "19700101-000001-000"));
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
    fn a_later_alarm_is_ranked_by_its_own_first_two_seconds() {
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
    fn an_alarm_after_the_clock_was_set_back_is_another_incident() {
        let mut node = Node::default();
        node.alarm(3_600_000, 0, 2.0);
        node.alarm(3_599_000, 2, 1.5);
        node.alarm(5_000, 1, 3.0);

        assert_eq!(node.ranks(), [("cart", 1), ("payment", 1), ("store", 2)], "verdicts may come out of order");
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

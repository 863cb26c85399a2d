//! What services declare about their metrics: how replicas are aggregated, and how often values are worth reading.
//!
//! Replicas of a service may declare different things, such as while a new version is rolled out. The aggregation that
//! most of them declare is in effect, the first by order of [`Aggregation`] if there are several; and the shortest
//! period. Replicas that declare nothing have no say. `uview status` names what replicas do not agree about.

use std::collections::BTreeMap;

use wire::id::LmapId;
use wire::metric::{Aggregation, AggregationError, Declaration};
use wire::time::{Interval, Nanos};

use super::{ConnectionId, ControlPlane};

/// Disagreements in the status, at most.
const MAX_LINES: usize = 16;

/// What the replicas of a service declare about one series, by order, each with its replicas. Mostly one, or none: a
/// tree would take ten times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations(Vec<(Declaration, u32)>);

impl Declarations {
    /// One more replica declares this.
    pub fn add(&mut self, declared: &Declaration) {
        if *declared == Declaration::NONE {
            return;
        }
        match self.0.binary_search_by(|(known, _)| known.cmp(declared)) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (declared.clone(), 1));
            }
        }
    }

    /// One replica fewer declares this.
    pub fn remove(&mut self, declared: &Declaration) {
        if let Ok(at) = self.0.binary_search_by(|(known, _)| known.cmp(declared)) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    /// Whether replicas declare different things.
    pub fn disagree(&self) -> bool {
        self.0.len() > 1
    }

    /// What is in effect.
    pub fn in_effect(&self) -> (Option<Aggregation>, Option<Interval>) {
        let mut votes: BTreeMap<&Aggregation, u32> = BTreeMap::new();
        for (declared, replicas) in &self.0 {
            if let Some(aggregation) = declared.aggregation() {
                *votes.entry(aggregation).or_default() += replicas;
            }
        }
        // The last of equal ones is the first by order.
        let aggregation = votes.into_iter().rev().max_by_key(|(_, votes)| *votes).map(|(aggregation, _)| aggregation);
        (aggregation.cloned(), self.0.iter().filter_map(|(declared, _)| declared.read_every).min())
    }

    /// What replicas declare, for the status.
    fn described(&self) -> String {
        let one = |(declared, replicas): &(Declaration, u32)| format!("{declared} ({replicas})");
        self.0.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// The interval of an LMAP whose interval is `usual` if nothing is declared. `periods` has what each series of the
/// service declares. The shortest counts, as `usual` does if a series declares nothing; within `bounds`, which services
/// cannot leave, though `usual` may.
fn interval_for(
    usual: Interval,
    periods: impl Iterator<Item = Option<Interval>>,
    (fastest, slowest): (Interval, Interval),
) -> Interval {
    let asked = periods.map(|period| period.unwrap_or(usual)).min().unwrap_or(usual);
    asked.clamp(fastest.min(usual), slowest.max(usual))
}

impl ControlPlane {
    /// Takes the interval that the LMAP's metrics ask for, unless an operator has set one. One that runs only becomes
    /// faster: it would have to learn what is normal at another interval.
    pub(super) fn follow_declared(&mut self, id: LmapId) {
        let Some(asked) = self.declared_interval(id) else { return };
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.interval = if lmap.sent.is_some() { asked.min(lmap.interval) } else { asked };
        }
    }

    /// The interval that the LMAP's metrics ask for; `None` if an operator has set one.
    pub(super) fn declared_interval(&self, id: LmapId) -> Option<Interval> {
        let Self { lmaps, services, settings, .. } = self;
        let lmap = lmaps.get(&id)?;
        let (service, usual) = (services.get(&lmap.service)?, lmap.usual_interval?);
        // The agent's own metrics follow.
        let is_own = |name| settings.periods.contains_key(name);
        let watched = lmap.numbers().keys().filter(|key| !is_own(&key.name));
        let periods = watched.map(|key| service.catalogue.declared(key).and_then(|declared| declared.in_effect().1));
        Some(interval_for(usual, periods, settings.interval_bounds))
    }

    /// Tells a service, once for a message, that the agent does not know what it declares about some series.
    pub(super) fn refuse_declared(&mut self, connection: ConnectionId, unknown: &[(String, AggregationError)]) {
        if let [(title, error), more @ ..] = unknown {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            self.refuse(connection, &format!("aggregation of {title}{more}"), error);
        }
    }

    /// Series about which replicas declare different things, and what is in effect.
    pub(super) fn disagreements(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let watched = self.lmaps.iter().filter_map(|(id, lmap)| Some((self.services.get(&lmap.service)?, *id)));
        for (service, id) in watched {
            for key in service.catalogue.disagreeing() {
                let (Some(lmap), Some(series)) = (self.lmaps.get(&id), service.catalogue.get(key)) else { continue };
                let Some(declared) = service.catalogue.declared(key) else { continue };
                if lines.len() == MAX_LINES {
                    lines.push("replicas of more services declare different aggregations".to_owned());
                    return lines;
                }
                let watch = lmap.watch(key, series, &service.catalogue, &self.settings);
                lines.push(format!(
                    "{}: replicas declare {} differently: {}; in effect: {} ({}), every {}",
                    lmap.service,
                    series.title(),
                    declared.described(),
                    watch.aggregation,
                    watch.decided_by,
                    Nanos(lmap.interval.length().0.saturating_mul(u64::from(watch.every.get()))),
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(aggregation: &str, millis: u32) -> Declaration {
        Declaration::from_message(aggregation, millis)
    }

    fn interval(millis: u64) -> Interval {
        Interval::new(Nanos::from_millis(millis)).unwrap()
    }

    #[test]
    fn most_replicas_decide_whatever_their_order_and_who_declares_nothing_has_no_say() {
        let mut declarations = Declarations::default();
        for declared in [of("", 0), of("max", 0), of("", 0), of("", 0)] {
            declarations.add(&declared);
        }
        assert!(!declarations.disagree());
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Max), None));

        for declared in [of("mean", 5000), of("mean", 2000)] {
            declarations.add(&declared);
        }
        assert!(declarations.disagree());
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Mean), Some(interval(2000))));

        declarations.remove(&of("mean", 2000));
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Max), Some(interval(5000))), "one each: by order");
        declarations.remove(&of("mean", 5000));
        declarations.remove(&of("max", 0));
        assert_eq!(declarations, Declarations::default());
    }

    #[test]
    fn the_interval_is_the_shortest_that_is_asked_for_within_bounds() {
        let bounds = (interval(100), interval(10_000));
        let of = |periods: &[Option<u64>]| {
            interval_for(interval(1000), periods.iter().map(|period| period.map(interval)), bounds).length()
        };

        assert_eq!(of(&[]), Nanos::from_secs(1));
        assert_eq!(of(&[None]), Nanos::from_secs(1));
        assert_eq!(of(&[Some(5000), Some(7000)]), Nanos::from_secs(5));
        assert_eq!(of(&[Some(5000), None]), Nanos::from_secs(1), "what declares nothing is read as usual");
        assert_eq!(of(&[Some(200), None]), Nanos::from_millis(200));
        assert_eq!(of(&[Some(1)]), Nanos::from_millis(100), "no faster than operators allow");
        assert_eq!(of(&[Some(3_600_000)]), Nanos::from_secs(10), "nor slower");
        // An operator's own interval is no matter of these bounds.
        let slow = interval_for(interval(60_000), [Some(interval(90_000))].into_iter(), bounds);
        assert_eq!(slow.length(), Nanos::from_secs(60));
    }
}

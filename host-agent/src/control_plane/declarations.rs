//! What services declare about their metrics: how replicas are aggregated, and how often values are worth reading.
//!
//! Replicas of a service may declare different things, such as while a new version is rolled out. Each owner of
//! replicas (a pod or container, else a user) has one vote, so that nobody decides by starting many: it is for the
//! aggregation that most of its replicas declare, the first by order of [`Aggregation`] if there are several. The
//! aggregation with most votes is in effect; with equal votes, that of the owner who came first. And of the periods,
//! the shortest. Replicas that declare nothing have no say. `uview status` names what replicas do not agree about.

use std::collections::BTreeMap;

use wire::id::{LmapId, Owner};
use wire::metric::{Aggregation, AggregationError, Declaration};
use wire::time::{Interval, Nanos};

use super::{ConnectionId, ControlPlane};

/// Disagreements in the status, at most.
const MAX_LINES: usize = 16;

/// What replicas of one owner declare about one series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    owner: Owner,
    declaration: Declaration,
    replicas: u32,
}

/// What the replicas of a service declare about one series, in the order in which owners came. Mostly one, or none: a
/// tree would take ten times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations(Vec<Declared>);

impl Declarations {
    fn find(&mut self, owner: Owner, declaration: &Declaration) -> Option<usize> {
        self.0.iter().position(|known| known.owner == owner && known.declaration == *declaration)
    }

    /// One more replica of `owner` declares this.
    pub fn add(&mut self, owner: Owner, declaration: &Declaration) {
        if *declaration == Declaration::NONE {
            return;
        }
        if let Some(at) = self.find(owner, declaration) {
            self.0[at].replicas += 1;
        } else {
            self.0.reserve_exact(1);
            self.0.push(Declared { owner, declaration: declaration.clone(), replicas: 1 });
        }
    }

    /// One replica of `owner` fewer declares this.
    pub fn remove(&mut self, owner: Owner, declaration: &Declaration) {
        if let Some(at) = self.find(owner, declaration) {
            self.0[at].replicas -= 1;
            if self.0[at].replicas == 0 {
                self.0.remove(at);
            }
        }
    }

    /// Whether replicas declare different things.
    pub fn disagree(&self) -> bool {
        self.0.iter().skip(1).any(|known| known.declaration != self.0[0].declaration)
    }

    /// The aggregation that an owner is for: that of most of its replicas, the first by order if there are several.
    fn vote_of(&self, owner: Owner) -> Option<&Aggregation> {
        let mut votes: BTreeMap<&Aggregation, u32> = BTreeMap::new();
        for known in self.0.iter().filter(|known| known.owner == owner) {
            if let Some(aggregation) = known.declaration.aggregation() {
                *votes.entry(aggregation).or_default() += known.replicas;
            }
        }
        // The last of equal ones is the first by order.
        votes.into_iter().rev().max_by_key(|(_, votes)| *votes).map(|(aggregation, _)| aggregation)
    }

    /// What is in effect.
    pub fn in_effect(&self) -> (Option<Aggregation>, Option<Interval>) {
        let mut owners: Vec<Owner> = Vec::new();
        for known in self.0.iter().filter(|known| known.declaration.aggregation().is_some()) {
            if !owners.contains(&known.owner) {
                owners.push(known.owner);
            }
        }
        let votes: Vec<_> = owners.iter().filter_map(|owner| self.vote_of(*owner)).collect();
        let of = |aggregation: &Aggregation| votes.iter().filter(|vote| **vote == aggregation).count();
        // The last of equal ones is that of the owner who came first.
        let aggregation = votes.iter().rev().max_by_key(|vote| of(vote)).map(|vote| (*vote).clone());
        (aggregation, self.0.iter().filter_map(|known| known.declaration.read_every).min())
    }

    /// What replicas declare, for the status.
    fn described(&self) -> String {
        let mut declared: BTreeMap<&Declaration, (u32, u32)> = BTreeMap::new();
        for known in &self.0 {
            let (replicas, owners) = declared.entry(&known.declaration).or_default();
            (*replicas, *owners) = (*replicas + known.replicas, *owners + 1);
        }
        let has_several = self.0.iter().any(|known| known.owner != self.0[0].owner);
        let one = |(declaration, (replicas, owners)): (&&Declaration, &(u32, u32))| {
            if has_several {
                let plural = if *owners == 1 { "" } else { "s" };
                format!("{declaration} ({replicas} of {owners} owner{plural})")
            } else {
                format!("{declaration} ({replicas})")
            }
        };
        declared.iter().map(one).collect::<Vec<_>>().join("; ")
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
    /// Takes the interval that the LMAP's metrics ask for, and at which its replicas change, unless an operator has set
    /// one. One that runs only becomes faster: it would have to learn what is normal at another interval, and what a
    /// fast source adds is worth that.
    pub(super) fn follow_declared(&mut self, id: LmapId) {
        let by_itself = self.lmaps.get(&id).filter(|lmap| lmap.usual_interval.is_some() && lmap.members.is_none());
        let usual = by_itself.map(|lmap| self.interval_of(&lmap.service));
        if let Some((lmap, usual)) = self.lmaps.get_mut(&id).zip(usual) {
            lmap.usual_interval = Some(usual);
        }
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

    const USER: Owner = Owner::User(1000);

    const fn pod(number: u8) -> Owner {
        Owner::Container([number; 16])
    }

    #[test]
    fn most_replicas_of_an_owner_decide_whatever_their_order_and_who_declares_nothing_has_no_say() {
        let mut declarations = Declarations::default();
        for declared in [of("", 0), of("max", 0), of("", 0), of("", 0)] {
            declarations.add(USER, &declared);
        }
        assert!(!declarations.disagree());
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Max), None));

        for declared in [of("mean", 5000), of("mean", 2000)] {
            declarations.add(USER, &declared);
        }
        assert!(declarations.disagree());
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Mean), Some(interval(2000))));

        declarations.remove(USER, &of("mean", 2000));
        assert_eq!(declarations.in_effect(), (Some(Aggregation::Max), Some(interval(5000))), "one each: by order");
        declarations.remove(USER, &of("mean", 5000));
        declarations.remove(USER, &of("max", 0));
        assert_eq!(declarations, Declarations::default());
    }

    #[test]
    fn an_owner_with_many_replicas_has_one_vote_and_who_came_first_stays() {
        let mut declarations = Declarations::default();
        declarations.add(pod(1), &of("mean", 0));
        for _ in 0..100 {
            declarations.add(pod(9), &of("max", 0));
        }
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Mean), "one pod each");
        assert_eq!(declarations.described(), "aggregated by max (100 of 1 owner); aggregated by mean (1 of 1 owner)");

        declarations.add(pod(2), &of("mean", 0));
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Mean));
        declarations.add(pod(3), &of("max", 0));
        declarations.add(pod(4), &of("max", 0));
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Max), "as in a rollout: three pods of five");

        (0..100).for_each(|_| declarations.remove(pod(9), &of("max", 0)));
        declarations.remove(pod(4), &of("max", 0));
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Mean));
        declarations.remove(pod(1), &of("mean", 0));
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Mean), "one each, and pod 2 came before pod 3");
        declarations.remove(pod(3), &of("mean", 0));
        declarations.remove(pod(2), &of("mean", 0));
        assert_eq!(declarations.in_effect().0, Some(Aggregation::Max));
        assert!(!declarations.disagree());
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

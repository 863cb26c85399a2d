//! What services declare about their metrics: how replicas are aggregated, and how often values are worth reading.
//!
//! Replicas of a service may declare different things, such as while a new version is rolled out. Each owner of
//! replicas (a pod or container, else a user) has one vote, so that nobody decides by starting many: it is for the
//! aggregation that most of its replicas declare, the first by order of [`Aggregation`] if there are several. The
//! aggregation with most votes is in effect; with equal votes, that of the owner who came first. And of the periods,
//! the shortest. Replicas that declare nothing have no say. `uview status` names what replicas do not agree about.

use std::collections::BTreeMap;

use wire::id::Owner;
use wire::metric::{Aggregation, Declaration};
use wire::time::Interval;

/// What replicas of one owner declare about one series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnerDeclaration {
    owner: Owner,
    declaration: Declaration,
    replicas: u32,
}

/// What the replicas of a service declare about one series, in the order in which owners came. Mostly one, or none: a
/// tree would take ten times as much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations(Vec<OwnerDeclaration>);

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
            self.0.push(OwnerDeclaration { owner, declaration: declaration.clone(), replicas: 1 });
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

    /// Bytes that they take, as they were asked for.
    pub fn kept_bytes(&self) -> usize {
        self.0.capacity() * size_of::<OwnerDeclaration>()
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
    pub fn described(&self) -> String {
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

#[cfg(test)]
mod tests {
    use wire::time::Nanos;

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
}

//! Which models of services that are gone have to go, and which detectors of services without a configuration. Whoever
//! has most of them loses its oldest one, so that a flood of names by one owner costs no other owner a model.

use std::collections::BTreeMap;

use wire::id::Owner;
use wire::name::ServiceName;
use wire::time::Nanos;

use crate::retained_lmap::RetainedLmap;

/// A model that may have to go.
#[derive(Clone, Debug)]
struct Candidate {
    service: ServiceName,
    owner: Owner,
    since: Nanos,
    bytes: u64,
}

/// Removes models until there are at most `models` of them, and at most `bytes` bytes. Returns how many. Entries with
/// detectors do not count.
pub(super) fn evict(retained: &mut BTreeMap<ServiceName, RetainedLmap>, models: usize, bytes: u64) -> u64 {
    let candidates = retained.iter().filter_map(|(service, of)| {
        Some(Candidate { service: service.clone(), owner: of.owner, since: of.since, bytes: of.model_bytes()? })
    });
    let surplus = surplus(candidates.collect(), models, bytes);
    for service in &surplus {
        retained.remove(service);
    }
    surplus.len() as u64
}

/// Drops detectors until those that are left take at most `bytes` bytes, and keeps their models. Returns how many.
pub(super) fn evict_detectors(retained: &mut BTreeMap<ServiceName, RetainedLmap>, bytes: u64) -> u64 {
    let candidates = retained.iter().filter_map(|(service, of)| {
        Some(Candidate { service: service.clone(), owner: of.owner, since: of.since, bytes: of.detector_bytes()? })
    });
    let surplus = surplus(candidates.collect(), usize::MAX, bytes);
    for service in &surplus {
        if let Some(of) = retained.get_mut(service) {
            of.drop_detectors();
        }
    }
    surplus.len() as u64
}

/// Those that have to go.
fn surplus(mut all: Vec<Candidate>, models: usize, bytes: u64) -> Vec<ServiceName> {
    let mut surplus = Vec::new();
    all.sort_by_key(|model| core::cmp::Reverse(model.since));
    let mut held: BTreeMap<Owner, (u64, u64)> = BTreeMap::new();
    for model in &all {
        let (count, of_bytes) = held.entry(model.owner).or_default();
        (*count, *of_bytes) = (*count + 1, *of_bytes + model.bytes);
    }
    loop {
        let total = held.values().map(|(_, bytes)| *bytes).sum::<u64>();
        let most = if total > bytes {
            held.iter().max_by_key(|(_, (_, bytes))| *bytes)
        } else if all.len() > models {
            held.iter().max_by_key(|(_, (count, _))| *count)
        } else {
            return surplus;
        };
        let Some(owner) = most.map(|(owner, _)| *owner) else { return surplus };
        // The newest are first.
        let Some(at) = all.iter().rposition(|model| model.owner == owner) else { return surplus };
        let model = all.remove(at);
        if let Some((count, of_bytes)) = held.get_mut(&owner) {
            (*count, *of_bytes) = (*count - 1, *of_bytes - model.bytes);
        }
        surplus.push(model.service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Owner = Owner::User(1000);
    const FLOOD: Owner = Owner::User(65_534);

    fn model(name: &str, owner: Owner, since: u64, bytes: u64) -> Candidate {
        Candidate { service: ServiceName::new(name).unwrap(), owner, since: Nanos::from_secs(since), bytes }
    }

    fn names(surplus: &[ServiceName]) -> Vec<&str> {
        surplus.iter().map(ServiceName::as_str).collect()
    }

    #[test]
    fn the_oldest_models_of_one_owner_go_first() {
        let all = vec![model("b", ALICE, 2, 10), model("a", ALICE, 1, 10), model("c", ALICE, 3, 10)];

        assert_eq!(names(&surplus(all.clone(), 3, 30)), Vec::<&str>::new());
        assert_eq!(names(&surplus(all.clone(), 1, 30)), ["a", "b"]);
        assert_eq!(names(&surplus(all.clone(), 3, 19)), ["a", "b"]);
        assert_eq!(surplus(all, 0, 0).len(), 3);
    }

    #[test]
    fn a_flood_of_names_evicts_its_own_models_only() {
        let mut all = vec![model("cart", ALICE, 1, 500), model("payment", ALICE, 2, 400)];
        all.extend((0..1000).map(|n| model(&format!("flood-{n}"), FLOOD, 10 + n, 100)));

        for (models, bytes) in [(usize::MAX, 4000), (20, u64::MAX), (20, 2500)] {
            let gone = surplus(all.clone(), models, bytes);

            assert!(names(&gone).iter().all(|name| name.starts_with("flood-")), "{gone:?}");
            assert_eq!(names(&gone)[0], "flood-0");
        }
    }

    #[test]
    fn few_large_models_go_before_many_small_ones_of_another_owner() {
        let mut all = vec![model("huge-1", FLOOD, 5, 1000), model("huge-2", FLOOD, 6, 1000)];
        all.extend((0..9).map(|n| model(&format!("small-{n}"), ALICE, n, 100)));

        assert_eq!(names(&surplus(all, 256, 2000)), ["huge-1"]);
    }
}

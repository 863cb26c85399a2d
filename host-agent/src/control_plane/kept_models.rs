//! What detectors have learnt, kept for the next worker that runs their LMAP.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::control::DetectorSpec;
use wire::id::{LmapId, Owner};
use wire::name::ServiceName;
use wire::time::Interval;

/// The latest model of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptModel {
    /// The model, encoded by its worker.
    pub bytes: Arc<[u8]>,
    /// The LMAP whose detector has learnt it; `None` if that was in an earlier run of the host agent.
    pub lmap: Option<LmapId>,
    /// Time between the rows that were learnt.
    pub interval: Interval,
    /// Settings of that detector.
    pub detector: DetectorSpec,
    /// Who pays for it: the owner of the service's first replica.
    pub owner: Owner,
}

/// Most models, however small they are: one for each LMAP that a worker may have.
pub(crate) const MAX_KEPT_MODELS: usize = wire::control::MAX_LMAPS;

/// A model, and its place in the order of arrivals.
#[derive(Debug)]
struct Entry {
    model: KeptModel,
    /// Place in the order of arrivals.
    arrival: u64,
}

/// Models of services, bounded in bytes. Whoever holds most loses the oldest first: those of services that run come
/// again and again.
#[derive(Debug)]
pub struct KeptModels {
    models: BTreeMap<ServiceName, Entry>,
    bytes: usize,
    limit: usize,
    arrivals: u64,
}

impl KeptModels {
    pub const fn new(limit: usize) -> Self {
        Self { models: BTreeMap::new(), bytes: 0, limit, arrivals: 0 }
    }

    /// Keeps a model in the place of an earlier one of the service. Returns the number of models dropped to make room,
    /// this one included if it alone is too large.
    pub fn put(&mut self, service: &ServiceName, model: KeptModel) -> u64 {
        self.forget(service);
        let bytes = model.bytes.len();
        if bytes > self.limit {
            return 1;
        }
        let mut dropped = 0;
        while self.bytes + bytes > self.limit || self.models.len() >= MAX_KEPT_MODELS {
            let Some(oldest) = self.oldest_of_the_largest_owner() else { break };
            self.forget(&oldest);
            dropped += 1;
        }
        self.arrivals += 1;
        self.bytes += bytes;
        self.models.insert(service.clone(), Entry { model, arrival: self.arrivals });
        dropped
    }

    fn oldest_of_the_largest_owner(&self) -> Option<ServiceName> {
        let mut held: BTreeMap<Owner, usize> = BTreeMap::new();
        for entry in self.models.values() {
            *held.entry(entry.model.owner).or_default() += entry.model.bytes.len();
        }
        let (largest, _) = held.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        let its = self.models.iter().filter(|(_, entry)| entry.model.owner == largest);
        its.min_by_key(|(_, entry)| entry.arrival).map(|(name, _)| name.clone())
    }

    pub fn get(&self, service: &ServiceName) -> Option<&KeptModel> {
        self.models.get(service).map(|entry| &entry.model)
    }

    /// Forgets what a service's detectors have learnt.
    pub fn forget(&mut self, service: &ServiceName) {
        if let Some(old) = self.models.remove(service) {
            self.bytes -= old.model.bytes.len();
        }
    }

    /// All models by service, each with its place in the order of arrivals.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceName, u64, &KeptModel)> {
        self.models.iter().map(|(service, entry)| (service, entry.arrival, &entry.model))
    }

    /// Place of the latest model in the order of arrivals.
    pub const fn last_arrival(&self) -> u64 {
        self.arrivals
    }

    /// Bytes of all models.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use wire::time::Nanos;

    use super::*;

    fn service(name: &str) -> ServiceName {
        ServiceName::new(name).unwrap()
    }

    fn put(models: &mut KeptModels, name: &str, bytes: usize) -> u64 {
        put_of(models, 1, name, bytes)
    }

    fn put_of(models: &mut KeptModels, uid: u32, name: &str, bytes: usize) -> u64 {
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let detector = DetectorSpec::default();
        models.put(
            &service(name),
            KeptModel { bytes: vec![0; bytes].into(), lmap: None, interval, detector, owner: Owner::User(uid) },
        )
    }

    #[test]
    fn the_oldest_models_make_room_and_are_counted() {
        let mut models = KeptModels::new(100);
        for name in ["a", "b", "c"] {
            assert_eq!(put(&mut models, name, 30), 0);
        }
        // Again: it is the newest now, in the place of the one before.
        assert_eq!(put(&mut models, "a", 40), 0);
        assert_eq!(models.bytes(), 100);

        assert_eq!(put(&mut models, "d", 50), 2);

        assert!(models.get(&service("b")).is_none() && models.get(&service("c")).is_none());
        assert!(models.get(&service("a")).is_some() && models.get(&service("d")).is_some());
        assert_eq!(models.bytes(), 90);
    }

    #[test]
    fn a_user_with_many_models_loses_its_own_first() {
        let mut models = KeptModels::new(100);
        put_of(&mut models, 1, "small", 20);
        for name in ["a", "b", "c"] {
            put_of(&mut models, 2, name, 40);
        }

        assert!(models.get(&service("small")).is_some() && models.get(&service("a")).is_none());
    }

    #[test]
    fn a_model_that_is_too_large_is_dropped_with_the_one_before_and_nothing_else() {
        let mut models = KeptModels::new(100);
        put(&mut models, "a", 30);
        put(&mut models, "b", 30);

        assert_eq!(put(&mut models, "a", 101), 1);

        assert!(models.get(&service("a")).is_none(), "the one before is of another time");
        assert_eq!(models.bytes(), 30);
        models.forget(&service("b"));
        assert_eq!(models.bytes(), 0);
    }
}

//! What detectors have learnt, kept for the next worker that runs their LMAP, and for an interval that comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::control::DetectorSpec;
use wire::id::{LmapId, Owner};
use wire::name::ServiceName;
use wire::time::Interval;

/// The latest model of one service at one interval.
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

/// A model is of one service, and of rows at one interval.
pub type ModelKey = (ServiceName, Interval);

/// Intervals of one service whose models are kept; the model that arrived first makes room.
const INTERVALS: usize = 4;

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
    models: BTreeMap<ModelKey, Entry>,
    bytes: usize,
    limit: usize,
    arrivals: u64,
    /// LMAPs whose workers were asked for their models because the agent ends.
    asked: BTreeSet<LmapId>,
}

impl KeptModels {
    pub const fn new(limit: usize) -> Self {
        Self { models: BTreeMap::new(), bytes: 0, limit, arrivals: 0, asked: BTreeSet::new() }
    }

    /// The worker of `lmap` was asked for its model.
    pub fn asked(&mut self, lmap: LmapId) {
        self.asked.insert(lmap);
    }

    /// What the worker of `lmap` knows of it has come, whether or not that is a model.
    pub fn arrived(&mut self, lmap: LmapId) {
        self.asked.remove(&lmap);
    }

    /// LMAPs whose models were asked for and have not come.
    pub fn awaited(&self) -> impl Iterator<Item = &LmapId> {
        self.asked.iter()
    }

    /// Keeps a model in the place of an earlier one of the service and interval. Returns the number of models dropped
    /// to make room, this one included if it alone is too large.
    pub fn put(&mut self, service: &ServiceName, model: KeptModel) -> u64 {
        let key = (service.clone(), model.interval);
        self.remove(&key);
        let bytes = model.bytes.len();
        if bytes > self.limit {
            return 1;
        }
        let mut dropped = 0;
        if self.of(service).count() == INTERVALS
            && let Some((_, oldest)) = self.of(service).map(|(key, entry)| (entry.arrival, key.clone())).min()
        {
            self.remove(&oldest);
            dropped += 1;
        }
        while self.bytes + bytes > self.limit || self.models.len() >= MAX_KEPT_MODELS {
            let Some(oldest) = self.oldest_of_the_largest_owner() else { break };
            self.remove(&oldest);
            dropped += 1;
        }
        self.arrivals += 1;
        self.bytes += bytes;
        self.models.insert(key, Entry { model, arrival: self.arrivals });
        dropped
    }

    fn oldest_of_the_largest_owner(&self) -> Option<ModelKey> {
        let mut held: BTreeMap<Owner, usize> = BTreeMap::new();
        for entry in self.models.values() {
            *held.entry(entry.model.owner).or_default() += entry.model.bytes.len();
        }
        let (largest, _) = held.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        let its = self.models.iter().filter(|(_, entry)| entry.model.owner == largest);
        its.min_by_key(|(_, entry)| entry.arrival).map(|(key, _)| key.clone())
    }

    /// The models of a service, by interval.
    fn of<'a>(&'a self, service: &'a ServiceName) -> impl Iterator<Item = (&'a ModelKey, &'a Entry)> + 'a {
        let first = (service.clone(), Interval::MIN);
        self.models.range(first..).take_while(move |((name, _), _)| name == service)
    }

    /// What was learnt of a service at `interval`.
    pub fn get(&self, service: &ServiceName, interval: Interval) -> Option<&KeptModel> {
        self.models.get(&(service.clone(), interval)).map(|entry| &entry.model)
    }

    /// Whether a model of the service was learnt by `lmap`.
    pub fn has_of(&self, service: &ServiceName, lmap: LmapId) -> bool {
        self.of(service).any(|(_, entry)| entry.model.lmap == Some(lmap))
    }

    /// Forgets what a service's detectors have learnt, at all intervals.
    pub fn forget(&mut self, service: &ServiceName) {
        let keys: Vec<ModelKey> = self.of(service).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &ModelKey) {
        if let Some(old) = self.models.remove(key) {
            self.bytes -= old.model.bytes.len();
        }
    }

    /// All models by service and interval, each with its place in the order of arrivals.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelKey, u64, &KeptModel)> {
        self.models.iter().map(|(key, entry)| (key, entry.arrival, &entry.model))
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

    fn second(seconds: u64) -> Interval {
        Interval::new(Nanos::from_secs(seconds)).unwrap()
    }

    fn has(models: &KeptModels, name: &str) -> bool {
        models.get(&service(name), second(1)).is_some()
    }

    fn put(models: &mut KeptModels, name: &str, bytes: usize) -> u64 {
        put_of(models, 1, name, bytes)
    }

    fn put_of(models: &mut KeptModels, uid: u32, name: &str, bytes: usize) -> u64 {
        let (interval, detector) = (second(1), DetectorSpec::default());
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

        assert!(!has(&models, "b") && !has(&models, "c"));
        assert!(has(&models, "a") && has(&models, "d"));
        assert_eq!(models.bytes(), 90);
    }

    #[test]
    fn a_user_with_many_models_loses_its_own_first() {
        let mut models = KeptModels::new(100);
        put_of(&mut models, 1, "small", 20);
        for name in ["a", "b", "c"] {
            put_of(&mut models, 2, name, 40);
        }

        assert!(has(&models, "small") && !has(&models, "a"));
    }

    #[test]
    fn a_model_that_is_too_large_is_dropped_with_the_one_before_and_nothing_else() {
        let mut models = KeptModels::new(100);
        put(&mut models, "a", 30);
        put(&mut models, "b", 30);

        assert_eq!(put(&mut models, "a", 101), 1);

        assert!(!has(&models, "a"), "the one before is of another time");
        assert_eq!(models.bytes(), 30);
        models.forget(&service("b"));
        assert_eq!(models.bytes(), 0);
    }

    #[test]
    fn a_service_has_a_model_for_each_of_its_last_intervals() {
        let mut models = KeptModels::new(1000);
        let mut put = |seconds: u64| {
            let (interval, detector, owner) = (second(seconds), DetectorSpec::default(), Owner::User(1));
            let model = KeptModel { bytes: vec![0; 10].into(), lmap: Some(LmapId(7)), interval, detector, owner };
            models.put(&service("cart"), model)
        };

        assert_eq!([1, 2, 3, 4, 1].map(&mut put), [0; 5], "the same interval again is no other model");
        assert_eq!(put(5), 1, "that of two seconds is the oldest");

        let known = |seconds| models.get(&service("cart"), second(seconds)).is_some();
        assert_eq!([1, 2, 3, 4, 5].map(known), [true, false, true, true, true]);
        assert!(models.has_of(&service("cart"), LmapId(7)) && !models.has_of(&service("car"), LmapId(7)));
        models.forget(&service("cart"));
        assert_eq!(models.bytes(), 0);
    }
}

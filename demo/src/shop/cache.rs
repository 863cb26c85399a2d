//! A bounded cache that evicts the oldest entry first, with metrics.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use client::Client;

use super::meters::CacheMeters;
use crate::noise::mix;

/// Values by key.
#[derive(Debug)]
pub(crate) struct Cache {
    limit: usize,
    entries: Mutex<Entries>,
    meters: CacheMeters,
}

#[derive(Debug, Default)]
struct Entries {
    values: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl Cache {
    /// A cache of `limit` entries, full from the start: `make` computes values for keys below `keys`. A monitored
    /// service has usually run for a while, and a cache that is still filling behaves differently.
    pub(crate) fn new(uview: &Client, limit: usize, keys: u64, make: impl Fn(u64) -> u64) -> Self {
        let mut entries = Entries::default();
        for key in (0..).map(|number| mix(number) % keys) {
            if entries.order.len() >= limit.min(keys as usize) {
                break;
            }
            if entries.values.insert(key, make(key)).is_none() {
                entries.order.push_back(key);
            }
        }
        let meters = CacheMeters::new(uview);
        meters.entries.set(entries.order.len() as f64);
        Self { limit, entries: Mutex::new(entries), meters }
    }

    /// The cached value for `key`; on a miss, computes it by `make` and caches it.
    pub(crate) fn get_or(&self, key: u64, make: impl FnOnce() -> u64) -> u64 {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = entries.values.get(&key) {
            self.meters.hits.add(1);
            return *value;
        }
        self.meters.misses.add(1);
        let value = make();
        entries.values.insert(key, value);
        entries.order.push_back(key);
        if entries.order.len() > self.limit
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.values.remove(&oldest);
            self.meters.evictions.add(1);
        }
        self.meters.entries.set(entries.values.len() as f64);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_full_from_the_start_and_forgets_the_oldest_entry_first() {
        let uview = client::connect(client::Service::new("test").socket("/nonexistent/services.sock"));
        let cache = Cache::new(&uview, 3, 100, |key| key);
        let held: Vec<u64> = cache.entries.lock().unwrap().order.iter().copied().collect();
        assert_eq!(held.len(), 3);

        assert_eq!(cache.get_or(1000, || 7), 7);
        assert_eq!(cache.get_or(1000, || 8), 7, "it is kept");

        let entries = cache.entries.lock().unwrap();
        assert_eq!(entries.order, [held[1], held[2], 1000]);
        assert_eq!(entries.values.len(), 3);
        assert_eq!((cache.meters.hits.get(), cache.meters.misses.get(), cache.meters.evictions.get()), (1, 1, 1));
    }
}

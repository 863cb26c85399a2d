//! A bounded cache that forgets the oldest entry first, and counts what it does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use client::Client;

use super::meters::CacheMeters;

/// Answers by key.
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
    /// Holds at most `limit` entries.
    pub(crate) fn new(uview: &Client, limit: usize) -> Self {
        Self { limit, entries: Mutex::default(), meters: CacheMeters::new(uview) }
    }

    /// What is kept for `key`, or what `make` makes of it, which is kept from then on.
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

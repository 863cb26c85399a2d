//! What the shards of a stream say together. Each of an interface's rings has its own thread and its own fridge of each stream; once an interval, each
//! hands its part in here, and whoever is the last writes what all of them say.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use packets::delays::Part;

use super::stream::Metrics;
use crate::config::StreamConfig;

/// Intervals that wait for their last shard. One that lies so far behind is told without: a thread hangs, or its ring was opened later.
const WAITING: usize = 3;

/// What a shard hands in.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    pub(super) part: Part,
    /// Frames of the stream that were put together from several, where that does its figures harm.
    pub(super) oversized: u64,
}

#[derive(Debug)]
struct Waiting {
    handed: Handed,
    shards: usize,
}

/// A stream, for all its shards.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) metrics: Metrics,
    name: String,
    interface: String,
    /// It was told that packets are put together.
    told: AtomicBool,
    shards: usize,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

impl Together {
    pub(super) fn new(config: &StreamConfig, socket: &Path, shards: usize) -> Self {
        Self {
            metrics: Metrics::new(&config.service(), socket, config.interval_ms),
            name: config.name.clone(),
            interface: config.interface.clone(),
            told: AtomicBool::new(false),
            shards,
            waiting: Mutex::new(BTreeMap::new()),
        }
    }

    /// Tells once that packets are put together on this machine.
    fn warn(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                stream = self.name,
                interface = self.interface,
                "segments are put together before they are seen here (TSO, GSO, GRO): of several that are one frame the last one only is found answered, and as \
                 late as the first one was seen. network.flag.oversized says which intervals have such. Switch that off for delays of each segment: \
                 ethtool -K {} tso off gso off gro off",
                self.interface
            );
        }
    }

    /// One shard's part of the interval that was to end at `end_ns`.
    pub(super) fn hand_in(&self, end_ns: u64, handed: Handed) {
        if handed.oversized > 0 {
            self.warn();
        }
        if self.shards == 1 {
            return self.metrics.write(&handed.part.interval(), handed.oversized);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = if let Some(there) = waiting.get_mut(&end_ns) {
            // Of one shape, since of one configuration.
            drop(there.handed.part.add(&handed.part));
            there.handed.oversized += handed.oversized;
            there.shards += 1;
            there.shards == self.shards
        } else {
            waiting.insert(end_ns, Waiting { handed, shards: 1 });
            false
        };
        if whole && let Some(all) = waiting.remove(&end_ns) {
            self.metrics.write(&all.handed.part.interval(), all.handed.oversized);
        }
        // What is before a whole one will not become whole: each shard hands in one interval after the other. Figures are those of the whole one.
        while whole && waiting.keys().next().is_some_and(|first| *first < end_ns) {
            let Some((_, left)) = waiting.pop_first() else { break };
            self.metrics.count(&left.handed.part.interval(), left.handed.oversized);
        }
        while waiting.len() > WAITING {
            let Some((_, left)) = waiting.pop_first() else { break };
            self.metrics.write_counts(&left.handed.part.interval(), left.handed.oversized);
        }
    }
}

#[cfg(test)]
impl Together {
    /// Intervals that wait for their last shard.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

//! Merges the shards of a stream. Each ring of an interface has its own thread and its own fridge of each stream. Once
//! an interval, each thread submits its shard's interval; the last one writes the metrics of all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use packets::delays::ShardDelays;
use wire::time::{Nanos, UnixNanos};

use super::delay_metrics::DelayMetrics;
use crate::config::StreamConfig;

/// Most intervals that wait for their last shard. An older one is written without it: a thread hangs, or its ring was
/// opened later.
const MAX_PENDING: usize = 3;

/// What a shard submits for one interval.
#[derive(Clone, Debug)]
pub(super) struct ShardReport {
    pub(super) delays: ShardDelays,
    /// Merged frames of the stream that bias its figures.
    pub(super) oversized: u64,
}

#[derive(Debug)]
struct PendingInterval {
    report: ShardReport,
    shards: usize,
}

/// A stream, for all its shards.
#[derive(Debug)]
pub(super) struct ShardedStream {
    pub(super) metrics: DelayMetrics,
    name: String,
    interface: String,
    /// Whether merged frames have been logged.
    warned: AtomicBool,
    shards: usize,
    /// By the time at which the interval was to end.
    pending: Mutex<BTreeMap<UnixNanos, PendingInterval>>,
}

impl ShardedStream {
    pub(super) fn new(config: &StreamConfig, socket: &Path, shards: usize) -> Self {
        Self {
            metrics: DelayMetrics::new(&config.service(), socket, config.interval_ms),
            name: config.name.clone(),
            interface: config.interface.clone(),
            warned: AtomicBool::new(false),
            shards,
            pending: Mutex::new(BTreeMap::new()),
        }
    }

    /// Logs once that segments are merged on this machine.
    fn warn(&self) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                stream = self.name,
                interface = self.interface,
                "segments are merged before they are captured (TSO, GSO, GRO): of a merged frame only the last segment has a delay, measured \
                 from the first. network.flag.oversized marks such intervals. For the delay of each segment: ethtool -K {} tso off gso off gro off",
                self.interface
            );
        }
    }

    /// Adds one shard's report of the interval that was to end at `end`.
    pub(super) fn submit(&self, end: UnixNanos, report: ShardReport) {
        if report.oversized > 0 {
            self.warn();
        }
        if self.shards == 1 {
            return self.metrics.write(&report.delays.interval(), report.oversized);
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_complete = if let Some(merged) = pending.get_mut(&end) {
            // The histograms have one shape, since all shards have one configuration.
            drop(merged.report.delays.add(&report.delays));
            merged.report.oversized += report.oversized;
            merged.shards += 1;
            merged.shards == self.shards
        } else {
            pending.insert(end, PendingInterval { report, shards: 1 });
            false
        };
        if is_complete && let Some(PendingInterval { report, .. }) = pending.remove(&end) {
            self.metrics.write(&report.delays.interval(), report.oversized);
        }
        // An interval before a complete one stays incomplete, since each shard submits its intervals in order. Its
        // counts are added; the gauges are those of the complete one.
        while is_complete && pending.keys().next().is_some_and(|first| *first < end) {
            let Some((_, PendingInterval { report, .. })) = pending.pop_first() else { break };
            self.metrics.count(&report.delays.interval(), report.oversized);
        }
        while pending.len() > MAX_PENDING {
            let Some((_, PendingInterval { report, .. })) = pending.pop_first() else { break };
            self.metrics.write_counts(&report.delays.interval(), report.oversized);
        }
    }

    /// Adds one shard's report of an interval that was cut short, since the clock was set back: its counts. Gauges are
    /// missing. The shard's next interval ends at `next`. What waits for a shard and was to end later would wait until
    /// the clock has caught up, and be taken for an interval of then: its counts are added, too.
    pub(super) fn submit_cut(&self, next: UnixNanos, report: &ShardReport) {
        if report.oversized > 0 {
            self.warn();
        }
        let later = next.plus(Nanos(1));
        let waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner).split_off(&later);
        for PendingInterval { report, .. } in waiting.into_values() {
            self.metrics.count(&report.delays.interval(), report.oversized);
        }
        self.metrics.clock_steps.add(1);
        self.metrics.write_counts(&report.delays.interval(), report.oversized);
    }
}

#[cfg(test)]
impl ShardedStream {
    /// Intervals that wait for their last shard.
    pub(super) fn pending(&self) -> usize {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

//! The counters of a worker, its summaries for the host agent, and the status for its own metrics.

use transport::Loss;
use wire::control::State;
use wire::id::Epoch;
use wire::proto::control as proto;
use wire::time::{Nanos, Timestamp, UnixNanos};

use super::{Link, Worker, retained_models};
use crate::lmap_runtime::LmapRuntime;
use crate::regions::DiscardCounts;
use crate::retained_lmap::RetainedLmap;
use crate::settings::WorkerSettings;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) fetched_regions: u64,
    pub(super) failed_regions: u64,
    /// Lost batches, in the order of [`Loss::ALL`].
    lost: [u64; Loss::ALL.len()],
    pub(super) revoked_regions: u64,
    /// Regions that are not read any more, since their services have punched holes into them.
    pub(super) punched_regions: u64,
    /// Regions fetched between rows.
    pub(super) extra_regions: u64,
    /// Rows after which an LMAP was not fetched faster, since the worker's bounds are reached.
    pub(super) refused_extra: u64,
    /// Models of services that are gone, dropped before their time.
    evicted_models: u64,
    /// Detectors of services without a configuration, dropped before their time.
    evicted_detectors: u64,
    cpu_ns: u64,
    pub(super) unexpected_messages: u64,
    pub(super) welcomes: u64,
    /// Discarded samples of all LMAPs, including removed ones.
    pub(super) discarded: DiscardCounts,
}

impl Counters {
    /// Counts a batch that failed as a whole.
    pub(super) fn lost(&mut self, loss: Loss) {
        for (count, _) in self.lost.iter_mut().zip(Loss::ALL).filter(|(_, known)| *known == loss) {
            *count += 1;
        }
    }
}

/// The status of a worker, from which its metrics are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerStatus {
    /// The counters, as in the summary.
    pub counters: proto::WorkerCounters,
    /// Name of the transport; empty before the first welcome.
    pub transport: String,
    /// Whether the queue pair is connected; always false without RDMA.
    pub connected: bool,
    /// Whether a session with the host agent is open.
    pub welcomed: bool,
    /// The last epoch that is in effect; 0 if there is none.
    pub epoch: u64,
    /// LMAPs that are learning, armed, drifted, or have a silent replica, in this order.
    pub lmaps: [usize; 4],
    /// Replicas whose heartbeat has stopped.
    pub silent_replicas: usize,
    /// Region samples that were not used since the start: because the layout changed, the header was invalid, or the
    /// region was not read.
    pub discarded: [u64; 3],
    /// Sessions with the host agent since the start.
    pub welcomes: u64,
    /// Services without a configuration whose detectors are retained.
    pub retained_detectors: usize,
    /// Bytes of these detectors.
    pub retained_detector_bytes: u64,
    /// Such detectors since the start that were dropped before their time, since they took too much.
    pub evicted_detectors: u64,
    /// Bytes of the detectors and rows of all LMAPs, without the place for rows that have not come yet.
    pub lmap_bytes: u64,
    /// Bytes of the columns of all LMAPs: where each value is read, and what is kept of it until the next read.
    pub column_bytes: u64,
    /// Bytes into which regions are fetched.
    pub buffer_bytes: u64,
    /// Services without a configuration of which only the model is retained.
    pub retained_models: usize,
    /// Bytes of these models.
    pub retained_model_bytes: u64,
    /// Such models since the start that were dropped before their time, since there were too many.
    pub evicted_models: u64,
    /// Regions that are attached.
    pub attached: usize,
    /// Regions of which neither success nor failure of an attempt to attach them is known yet.
    pub pending_regions: usize,
    /// Regions in use.
    pub regions: usize,
    /// Regions since the start that are not read any more, since their services have punched holes into them.
    pub punched_regions: u64,
    /// Batches that failed as a whole, in the order of [`Loss::ALL`].
    pub lost_batches: [u64; Loss::ALL.len()],
    /// LMAPs that are fetched between rows now, since something seems wrong.
    pub fast_lmaps: usize,
    /// Bytes of their columns.
    pub fast_bytes: u64,
    /// LMAPs that learn another interval than the one at which they judge.
    pub learning_intervals: usize,
    /// Regions since the start that were fetched between rows.
    pub extra_regions: u64,
    /// Rows since the start after which an LMAP was not fetched faster, since the bounds were reached.
    pub refused_extra: u64,
    /// Alarms since the start that began, and that ended, between two rows.
    pub early_alarms: [u64; 2],
}

impl WorkerStatus {
    /// Bytes of all that is counted in bytes.
    #[must_use]
    pub const fn kept_bytes(&self) -> u64 {
        let retained = self.retained_detector_bytes + self.retained_model_bytes;
        self.lmap_bytes + self.column_bytes + self.buffer_bytes + self.fast_bytes + retained
    }
}

impl Worker {
    /// Sets the CPU time used so far, which the runner measures.
    pub fn set_cpu(&mut self, used: Nanos) {
        self.counters.cpu_ns = used.0;
    }

    /// Whether the queue pair is connected, as far as the worker knows; always false without RDMA.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.queue_pair.is_up()
    }

    /// The current status. Cheap, but not meant for every tick.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        let mut lmaps = [0; 4];
        for runtime in self.runtimes.values() {
            lmaps[match runtime.reported_state() {
                State::Learning => 0,
                State::Armed => 1,
                State::Drifted => 2,
                State::Silent => 3,
            }] += 1;
        }
        let (attached, regions) = self.attachments.count();
        let discarded = self.counters.discarded;
        WorkerStatus {
            counters: self.counters(),
            transport: self.transport.clone(),
            connected: self.is_connected(),
            welcomed: self.link == Link::Up,
            epoch: self.epoch.unwrap_or(Epoch::NONE).0,
            lmaps,
            silent_replicas: self.runtimes.values().map(|runtime| runtime.regions.silent().count()).sum(),
            discarded: [discarded.generation, discarded.header, discarded.unread],
            welcomes: self.counters.welcomes,
            retained_detectors: self.retained.values().filter_map(RetainedLmap::detectors).count(),
            retained_detector_bytes: self.retained.values().filter_map(RetainedLmap::detector_bytes).sum(),
            evicted_detectors: self.counters.evicted_detectors,
            lmap_bytes: self.runtimes.values().map(LmapRuntime::used_bytes).sum(),
            column_bytes: self.runtimes.values().map(LmapRuntime::column_bytes).sum(),
            buffer_bytes: self.runtimes.values().map(LmapRuntime::buffer_bytes).sum(),
            retained_model_bytes: self.retained.values().filter_map(RetainedLmap::model_bytes).sum(),
            evicted_models: self.counters.evicted_models,
            retained_models: self.retained.values().filter(|retained| retained.detectors().is_none()).count(),
            attached,
            pending_regions: self.attachments.pending(),
            regions,
            punched_regions: self.counters.punched_regions,
            lost_batches: self.counters.lost,
            fast_lmaps: self.extra.lmaps,
            fast_bytes: self.extra.bytes,
            learning_intervals: self.runtimes.values().filter(|of| of.intervals()[1].is_some()).count(),
            extra_regions: self.counters.extra_regions,
            refused_extra: self.counters.refused_extra,
            early_alarms: [self.shared.early_alarms, self.shared.early_ends],
        }
    }

    fn counters(&self) -> proto::WorkerCounters {
        let Counters { fetched_regions, failed_regions, lost, revoked_regions, cpu_ns, unexpected_messages, .. } =
            self.counters;
        proto::WorkerCounters {
            ticks: self.schedule.ticks(),
            late_ticks: self.schedule.late(),
            fetched_regions,
            failed_regions,
            failed_batches: lost.iter().sum(),
            lost_rows: self.shared.outbox.lost_rows(),
            lost_verdicts: self.shared.outbox.lost_verdicts(),
            cpu_ns,
            unexpected_messages,
            connections: self.queue_pair.connections(),
            revoked_regions,
        }
    }

    pub(super) fn summarise(&mut self, now: Nanos) {
        self.expire_retained(now);
        if let Some(every) = self.handover.every() {
            for (id, runtime) in &mut self.runtimes {
                if runtime.model_is_due(now, every) {
                    self.handover.ask(*id);
                }
            }
        }
        let (period, shared) = (self.period, &mut self.shared);
        let lmaps: Vec<_> = self.runtimes.values_mut().map(|runtime| runtime.summarise(now, period, shared)).collect();
        if self.link == Link::Up {
            let counters = Some(self.counters());
            let since = |then: Timestamp| then.wall.plus(now.since(then.monotonic).unwrap_or(Nanos::ZERO));
            let at = self.wall_clock.map_or(UnixNanos(0), since);
            self.shared.outbox.summary(proto::Summary { at_unix_ns: at.0, lmaps, counters, account: None });
        }
    }

    /// Drops the oldest detectors of services without a configuration while they take too much, and keeps their models.
    pub(super) fn evict_detectors(&mut self) {
        let most = self.settings.max_retained_detector_bytes;
        self.counters.evicted_detectors += retained_models::evict_detectors(&mut self.retained, most);
    }

    /// Drops the models of other intervals of running LMAPs, of those with most bytes first, until they take at most
    /// `most` bytes. Returns how many they take. The host agent keeps them, too.
    fn bound_shelves(&mut self, most: u64) -> u64 {
        loop {
            let bytes: u64 = self.runtimes.values().map(LmapRuntime::shelf_bytes).sum();
            if bytes <= most {
                return bytes;
            }
            let largest = self.runtimes.values_mut().max_by_key(|runtime| runtime.shelf_bytes());
            self.counters.evicted_models += largest.map_or(0, LmapRuntime::clear_shelf);
        }
    }

    /// Drops detectors and models whose retention is over. Detectors are retained for a host agent that comes back, and
    /// models for longer, for a service that does.
    fn expire_retained(&mut self, now: Nanos) {
        let WorkerSettings { detector_retention, model_retention, max_retained_models, .. } = self.settings;
        let model_bytes = self.settings.max_retained_model_bytes;
        let older =
            |retained: &RetainedLmap, than: Nanos| now.since(retained.since).is_some_and(|length| length >= than);
        let detectors = self.retained.values().filter_map(RetainedLmap::detectors).count();
        for retained in self.retained.values_mut().filter(|retained| older(retained, detector_retention)) {
            retained.drop_detectors();
        }
        self.evict_detectors();
        self.retained
            .retain(|_, retained| retained.is_useful() && !older(retained, model_retention.max(detector_retention)));
        let running = self.bound_shelves(model_bytes / 2);
        let left = model_bytes.saturating_sub(running);
        self.counters.evicted_models += retained_models::evict(&mut self.retained, max_retained_models, left);
        if self.retained.values().filter_map(RetainedLmap::detectors).count() < detectors {
            self.drop_orphaned_jobs();
        }
    }
}

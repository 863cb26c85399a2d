//! What a worker counts, and what it says of itself: the summary for the host agent, the status for its own metrics.

use transport::Loss;
use wire::control::State;
use wire::id::Epoch;
use wire::proto::control as proto;
use wire::time::Nanos;

use super::{Link, Worker};
use crate::fetched::Discarded;
use crate::settings::WorkerSettings;
use crate::watch::Parked;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) fetched_regions: u64,
    pub(super) failed_regions: u64,
    /// Batches, in the order of [`Loss::ALL`].
    lost: [u64; Loss::ALL.len()],
    pub(super) revoked_regions: u64,
    cpu_ns: u64,
    pub(super) foreign_messages: u64,
    pub(super) welcomes: u64,
    /// Of all LMAPs, those that are gone included.
    pub(super) discarded: Discarded,
}

impl Counted {
    /// One batch failed as a whole.
    pub(super) fn lost(&mut self, loss: Loss) {
        for (count, _) in self.lost.iter_mut().zip(Loss::ALL).filter(|(_, known)| *known == loss) {
            *count += 1;
        }
    }
}

/// What a worker's own metrics are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerStatus {
    /// As the summary has them.
    pub counters: proto::WorkerCounters,
    /// How regions are fetched, by its name in the hello; empty before the first welcome.
    pub transport: String,
    /// Whether the queue pair is connected; always false without RDMA.
    pub connected: bool,
    /// Whether the host agent has welcomed it.
    pub welcomed: bool,
    /// The last epoch that is in effect.
    pub epoch: u64,
    /// LMAPs that learn, are armed, drifted, or have a silent replica.
    pub lmaps: [usize; 4],
    /// Replicas whose heartbeat stands still.
    pub silent_replicas: usize,
    /// Samples of regions that were not used since the start: the layout changed, the header is none, could not be read.
    pub discarded: [u64; 3],
    /// How often a host agent has welcomed it.
    pub welcomes: u64,
    /// Detectors kept for a host agent that comes back.
    pub remembered: usize,
    /// Services that are gone and whose model is kept for their next start.
    pub known: usize,
    /// Regions that are attached.
    pub attached: usize,
    /// Regions in use.
    pub regions: usize,
    /// Batches that failed as a whole, in the order of [`Loss::ALL`].
    pub lost_batches: [u64; Loss::ALL.len()],
}

impl Worker {
    /// Processor time that the worker's thread has used so far, from a clock that this crate's edge reads.
    pub fn set_cpu(&mut self, used: Nanos) {
        self.counted.cpu_ns = used.0;
    }

    /// Whether the queue pair is connected, as far as is known; always false without RDMA.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.queue_pair.is_up()
    }

    /// What its own metrics are made of. Cheap, but not for every tick.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        let mut lmaps = [0; 4];
        for watch in self.watches.values() {
            lmaps[match watch.said() {
                State::Learning => 0,
                State::Armed => 1,
                State::Drifted => 2,
                State::Silent => 3,
            }] += 1;
        }
        let (attached, regions) = self.attachments.count();
        let discarded = self.counted.discarded;
        WorkerStatus {
            counters: self.counters(),
            transport: self.transport.clone(),
            connected: self.is_connected(),
            welcomed: self.link == Link::Up,
            epoch: self.epoch.unwrap_or(Epoch::NONE).0,
            lmaps,
            silent_replicas: self.watches.values().map(|watch| watch.regions.silent().count()).sum(),
            discarded: [discarded.generation, discarded.header, discarded.unread],
            welcomes: self.counted.welcomes,
            remembered: self.parked.values().filter_map(Parked::judges).count(),
            known: self.parked.values().filter(|parked| parked.judges().is_none()).count(),
            attached,
            regions,
            lost_batches: self.counted.lost,
        }
    }

    fn counters(&self) -> proto::WorkerCounters {
        let Counted { fetched_regions, failed_regions, lost, revoked_regions, cpu_ns, foreign_messages, .. } =
            self.counted;
        proto::WorkerCounters {
            ticks: self.schedule.ticks(),
            late_ticks: self.schedule.late(),
            fetched_regions,
            failed_regions,
            failed_batches: lost.iter().sum(),
            lost_rows: self.shared.outbox.lost_rows(),
            lost_verdicts: self.shared.outbox.lost_verdicts(),
            cpu_ns,
            foreign_messages,
            connections: self.queue_pair.connections(),
            revoked_regions,
        }
    }

    pub(super) fn summarise(&mut self, now: Nanos) {
        self.forget_what_is_old(now);
        let (period, shared) = (self.period, &mut self.shared);
        let lmaps: Vec<_> = self.watches.values_mut().map(|watch| watch.summarise(now, period, shared)).collect();
        if self.link == Link::Up {
            let counters = Some(self.counters());
            let since = |(then, unix): (Nanos, u64)| unix.saturating_add(now.since(then).unwrap_or(Nanos::ZERO).0);
            let at_unix_ns = self.time_of_day.map_or(0, since);
            self.shared.outbox.summary(proto::Summary { at_unix_ns, lmaps, counters });
        }
    }

    /// Detectors are kept for a host agent that comes back, and what they know for longer, for a service that does.
    fn forget_what_is_old(&mut self, now: Nanos) {
        let WorkerSettings { remembered, known, most_known, .. } = self.settings;
        let older = |parked: &Parked, than: Nanos| now.since(parked.since).is_some_and(|length| length >= than);
        let detectors = self.parked.values().filter_map(Parked::judges).count();
        for parked in self.parked.values_mut().filter(|parked| older(parked, remembered)) {
            parked.forget_detectors();
        }
        self.parked.retain(|_, parked| parked.is_of_use() && !older(parked, known.max(remembered)));
        while self.parked.values().filter(|parked| parked.judges().is_none()).count() > most_known {
            let of_use = self.parked.iter().filter(|(_, parked)| parked.judges().is_none());
            let oldest = of_use.min_by_key(|(_, parked)| parked.since).map(|(service, _)| service.clone());
            let Some(oldest) = oldest else { break };
            self.parked.remove(&oldest);
        }
        if self.parked.values().filter_map(Parked::judges).count() < detectors {
            self.forget_jobs();
        }
    }
}

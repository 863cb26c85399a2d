//! A tick: the regions that are due, the outcome of the fetch, and the LMAPs that use it.

use transport::{BatchError, FetchStatus, RegionBuffer, RegionError};
use wire::proto::control as proto;
use wire::time::{Interval, Nanos, Timestamp, UnixNanos};

use super::{Link, Step, Worker};
use crate::attachments::Effect;
use crate::error::UnexpectedMessage;
use crate::lmap_runtime::{LmapRuntime, Tick};
use crate::outbox::ROWS_BYTES;
use crate::pace::{ExtraReads, FAST_BYTES};
use crate::settings::{Fetching, WorkerSettings};
use crate::ticker::Schedule;

impl Worker {
    /// The next action at `now`. Skipped intervals are counted, and never ticked later.
    pub fn poll(&mut self, now: Nanos) -> Step {
        self.now = now;
        if self.in_flight.is_some() {
            return Step::Fetch;
        }
        self.attachments.poll(now);
        if let Some(effect) = self.queue_pair.poll(now, &mut self.seeds) {
            self.attachments.push(Effect::QueuePair(effect));
        }
        if self.is_without_host_for_too_long(now) {
            self.retain_all(now);
        }
        let mut due = core::mem::take(&mut self.due);
        self.schedule.poll(now, &mut due);
        self.due = due;
        // A summary waits for the tick, but not for ever.
        let wait = if self.due.is_empty() { Nanos::ZERO } else { Nanos(self.period.0 / 2) };
        if now >= self.next_summary.plus(wait) || self.next_summary > now.plus(self.period) {
            self.next_summary = self.summary_after(now);
            self.summarise(now);
        }
        if self.due.is_empty() {
            return Step::SleepUntil(self.deadline());
        }
        self.gather(now);
        self.in_flight = Some(now);
        Step::Fetch
    }

    /// The regions to fetch when [`Worker::poll`] returns [`Step::Fetch`]. May be empty: a tick without regions is
    /// still a tick.
    pub fn batch(&mut self) -> &mut [RegionBuffer] {
        &mut self.batch
    }

    /// The batch was fetched, or failed as a whole. Ticks all LMAPs that are due, then takes the deferred messages of
    /// the host agent. `wall` is the wall-clock time. Returns the messages that were rejected.
    pub fn fetched(&mut self, now: Nanos, wall: UnixNanos, outcome: &Result<(), BatchError>) -> Vec<UnexpectedMessage> {
        let Some(at) = self.in_flight.take() else { return Vec::new() };
        self.wall_clock = Some(Timestamp { monotonic: now, wall });
        if let Err(error) = outcome {
            self.counters.lost(error.loss());
        }
        self.scatter(outcome.is_ok());
        let (mut verdicts, mut bytes) = (Vec::new(), 0);
        let (batch, alone) = (outcome.is_ok(), self.link != Link::Up);
        let mut ticking = self.runtimes.values_mut().filter_map(|runtime| {
            let due = runtime.due(&self.due, at);
            due.is_any().then_some((runtime, due))
        });
        let (mut first, mut second) = (ticking.next(), ticking.next());
        while let Some((runtime, due)) = first {
            // Meanwhile the memory of those that are next is on its way.
            let third = ticking.next();
            if let Some((runtime, _)) = &third {
                runtime.prefetch_head();
            }
            if let Some((runtime, _)) = &second {
                runtime.prefetch();
            }
            let tick = Tick { at, wall, due, batch, alone };
            let before = runtime.regions.discarded;
            let intervals = runtime.intervals();
            let verdict = runtime.tick(tick, &mut self.shared);
            if due.row.is_some() {
                self.counters.refused_extra += u64::from(!change_pace(runtime, &mut self.extra, &self.settings));
            }
            join_and_leave(&mut self.schedule, intervals, runtime.intervals(), now);
            bytes += verdict.as_ref().and_then(|verdict| verdict.features.as_ref()).map_or(0, features_bytes);
            verdicts.extend(verdict);
            // Rows share messages of bounded size, and the outbox loses the oldest of them.
            if bytes >= ROWS_BYTES {
                bytes = 0;
                let verdicts = core::mem::take(&mut verdicts);
                self.shared.outbox.verdicts(proto::Verdicts { at_unix_ns: wall.0, verdicts });
            }
            self.counters.discarded.add(runtime.regions.discarded.since(before));
            (first, second) = (second, third);
        }
        if !verdicts.is_empty() {
            self.shared.outbox.verdicts(proto::Verdicts { at_unix_ns: wall.0, verdicts });
        }
        if outcome.is_err() {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        self.detach_revoked(now);
        self.detach_punched();
        let deferred = core::mem::take(&mut self.deferred);
        deferred.into_iter().filter_map(|message| self.on_host(now, message).err()).collect()
    }

    /// When a summary is due after `now`: at the next multiple of its period, as ticks are at multiples of theirs. So
    /// it is sent with a row wherever it can be, and the thread does not wake for it alone.
    pub(super) fn summary_after(&self, now: Nanos) -> Nanos {
        let period = self.period.0.max(1);
        Nanos((now.0 / period + 1).saturating_mul(period))
    }

    fn deadline(&self) -> Nanos {
        let alone = match self.link {
            Link::Gone { since } if !self.runtimes.is_empty() => since.plus(self.settings.without_host_agent),
            _ => Nanos::NEVER,
        };
        let tries = self.attachments.next().min(self.queue_pair.next());
        let model = if self.link == Link::Up { self.handover.deadline(self.now) } else { Nanos::NEVER };
        self.schedule.next().min(self.next_summary).min(tries).min(alone).min(model)
    }

    fn is_without_host_for_too_long(&self, now: Nanos) -> bool {
        let Link::Gone { since } = self.link else { return false };
        !self.runtimes.is_empty() && now.since(since).is_some_and(|length| length >= self.settings.without_host_agent)
    }

    /// Moves the buffers of all LMAPs that are due into one batch. Does not allocate once the batch has reached its
    /// size.
    fn gather(&mut self, at: Nanos) {
        self.batch.clear();
        self.owners.clear();
        for (id, runtime) in &mut self.runtimes {
            let due = runtime.due(&self.due, at);
            if !due.is_any() {
                continue;
            }
            let first = self.owners.len();
            self.owners.extend(runtime.regions.to_fetch().map(|at| (*id, at)));
            self.counters.extra_regions += if due.row.is_none() { (self.owners.len() - first) as u64 } else { 0 };
            for (_, at) in self.owners.iter().skip(first) {
                if let Some(buffer) = runtime.regions.buffers.get_mut(*at) {
                    let (words, runs) = (core::mem::take(&mut buffer.words), core::mem::take(&mut buffer.runs));
                    self.batch.push(RegionBuffer { region: buffer.region, words, runs, status: FetchStatus::Pending });
                }
            }
        }
    }

    /// Moves the buffers back to their LMAPs.
    fn scatter(&mut self, batch: bool) {
        for (buffer, (id, at)) in self.batch.drain(..).zip(self.owners.drain(..)) {
            let fetched = batch && matches!(buffer.status, FetchStatus::Fetched);
            self.counters.fetched_regions += u64::from(fetched);
            self.counters.failed_regions += u64::from(!fetched);
            if batch && buffer.status == FetchStatus::Failed(RegionError::Revoked) {
                self.revoked.push(buffer.region);
            }
            if batch && matches!(buffer.status, FetchStatus::Failed(RegionError::Punched { .. })) {
                self.punched.push(buffer.region);
            }
            if let Some(place) = self.runtimes.get_mut(&id).and_then(|runtime| runtime.regions.buffers.get_mut(at)) {
                *place = buffer;
            }
        }
    }

    /// Stops reading regions of which pages have vanished. Their replicas fall silent, which is what operators see.
    fn detach_punched(&mut self) {
        while let Some(region) = self.punched.pop() {
            self.counters.punched_regions += 1;
            self.attachments.punched(region);
            for runtime in self.runtimes.values_mut() {
                runtime.regions.attached(region, false);
            }
        }
    }

    /// Stops reading regions whose key was revoked. With RDMA, the attempt has cost the queue pair its connection.
    fn detach_revoked(&mut self, now: Nanos) {
        let mut revoked = core::mem::take(&mut self.revoked);
        revoked.sort_unstable();
        revoked.dedup();
        self.counters.revoked_regions += revoked.len() as u64;
        if !revoked.is_empty() && self.fetching == Fetching::Verbs {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        for region in revoked.drain(..) {
            self.attachments.revoked(now, region, &mut self.seeds);
            for runtime in self.runtimes.values_mut() {
                runtime.regions.set_attached(region, false);
            }
        }
        self.revoked = revoked;
    }
}

/// Fetches an LMAP faster from now on, or for its rows only, as its pace says. Returns whether it could be done: not
/// beyond the worker's bounds of extra READs and their memory.
fn change_pace(runtime: &mut LmapRuntime, extra: &mut ExtraReads, settings: &WorkerSettings) -> bool {
    let Some((parts, more)) = runtime.wanted_extra() else {
        extra.release(runtime.go_slow().unwrap_or_default());
        return true;
    };
    if runtime.is_fast() {
        return true;
    }
    let admitted = extra.admit(more, settings.extra_reads_per_s, FAST_BYTES);
    if admitted {
        runtime.go_fast(parts, more);
    }
    admitted
}

/// Joins the intervals at which an LMAP ticks now, and leaves those at which it did before.
fn join_and_leave(schedule: &mut Schedule, before: [Option<Interval>; 3], after: [Option<Interval>; 3], now: Nanos) {
    let changed = || before.into_iter().zip(after).filter(|(before, after)| before != after);
    // The tick that is now has been.
    let from = now.plus(Nanos(1));
    changed().filter_map(|(_, after)| after).for_each(|interval| schedule.join(interval, from));
    changed().filter_map(|(before, _)| before).for_each(|interval| schedule.leave(interval, now));
}

/// Bytes of a row in a message.
fn features_bytes(features: &proto::Features) -> usize {
    size_of_val(&features.values[..]) + size_of_val(&features.residuals[..])
}

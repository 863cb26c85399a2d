//! A tick: which regions are due, what the fetch brought, and who judges it.

use transport::{BatchError, FetchStatus, RegionBuffer, RegionError};
use wire::proto::control as proto;
use wire::time::Nanos;

use super::{Link, Step, Worker};
use crate::attachments::Effect;
use crate::error::ForeignMessage;
use crate::settings::Fetching;
use crate::watch::Tick;

impl Worker {
    /// What to do at `now`. Ticks missed by whole intervals are counted, not made up for.
    pub fn poll(&mut self, now: Nanos) -> Step {
        if self.out.is_some() {
            return Step::Fetch;
        }
        self.attachments.poll(now);
        if let Some(effect) = self.queue_pair.poll(now, &mut self.seeds) {
            self.attachments.push(Effect::QueuePair(effect));
        }
        if self.is_alone_for_too_long(now) {
            self.park_all(now);
        }
        let mut due = core::mem::take(&mut self.due);
        self.schedule.poll(now, &mut due);
        self.due = due;
        // A summary waits for the tick, but not for ever.
        let wait = if self.due.is_empty() { Nanos::ZERO } else { Nanos(self.period.0 / 2) };
        if now >= self.next_summary.plus(wait) || self.next_summary > now.plus(self.period) {
            self.next_summary = now.plus(self.period);
            self.summarise(now);
        }
        if self.due.is_empty() {
            return Step::SleepUntil(self.deadline());
        }
        self.gather();
        self.out = Some(now);
        Step::Fetch
    }

    /// The regions to fetch, when [`Worker::poll`] says so. May be empty: a tick without anything to read is still a tick.
    pub fn batch(&mut self) -> &mut [RegionBuffer] {
        &mut self.batch
    }

    /// The batch was fetched, or could not be as a whole. Judges all LMAPs that are due, then takes in what the host agent has said
    /// meanwhile. `at_unix_ns` is the time of day. Returns what of that was not taken.
    pub fn fetched(&mut self, now: Nanos, at_unix_ns: u64, outcome: &Result<(), BatchError>) -> Vec<ForeignMessage> {
        let Some(at) = self.out.take() else { return Vec::new() };
        self.time_of_day = Some((now, at_unix_ns));
        if let Err(error) = outcome {
            self.counted.lost(error.loss());
        }
        self.scatter(outcome.is_ok());
        let mut verdicts = Vec::new();
        let (batch, alone) = (outcome.is_ok(), self.link != Link::Up);
        for watch in self.watches.values_mut() {
            let Some((_, missed)) = self.due.iter().find(|(interval, _)| *interval == watch.interval) else { continue };
            let tick = Tick { at, at_unix_ns, missed: *missed, batch, alone };
            let before = watch.regions.discarded;
            verdicts.extend(watch.tick(tick, &mut self.shared));
            self.counted.discarded.add(watch.regions.discarded.since(before));
        }
        if !verdicts.is_empty() {
            self.shared.outbox.verdicts(proto::Verdicts { at_unix_ns, verdicts });
        }
        if outcome.is_err() {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        self.leave_revoked(now);
        let deferred = core::mem::take(&mut self.deferred);
        deferred.into_iter().filter_map(|message| self.on_host(now, message).err()).collect()
    }

    fn deadline(&self) -> Nanos {
        let alone = match self.link {
            Link::Gone { since } if !self.watches.is_empty() => since.plus(self.settings.alone),
            _ => Nanos::NEVER,
        };
        let tries = self.attachments.next().min(self.queue_pair.next());
        self.schedule.next().min(self.next_summary).min(tries).min(alone)
    }

    fn is_alone_for_too_long(&self, now: Nanos) -> bool {
        let Link::Gone { since } = self.link else { return false };
        !self.watches.is_empty() && now.since(since).is_some_and(|length| length >= self.settings.alone)
    }

    /// Moves the buffers of all LMAPs that are due into one batch. Does not allocate once the batch has had its size.
    fn gather(&mut self) {
        self.batch.clear();
        self.owners.clear();
        for (id, watch) in &mut self.watches {
            if !self.due.iter().any(|(interval, _)| *interval == watch.interval) {
                continue;
            }
            let first = self.owners.len();
            self.owners.extend(watch.regions.to_fetch().map(|at| (*id, at)));
            for (_, at) in self.owners.iter().skip(first) {
                if let Some(buffer) = watch.regions.buffers.get_mut(*at) {
                    let words = core::mem::take(&mut buffer.words);
                    self.batch.push(RegionBuffer { region: buffer.region, words, status: FetchStatus::Pending });
                }
            }
        }
    }

    /// Moves the buffers back.
    fn scatter(&mut self, batch: bool) {
        for (buffer, (id, at)) in self.batch.drain(..).zip(self.owners.drain(..)) {
            let fetched = batch && matches!(buffer.status, FetchStatus::Fetched);
            self.counted.fetched_regions += u64::from(fetched);
            self.counted.failed_regions += u64::from(!fetched);
            if batch && buffer.status == FetchStatus::Failed(RegionError::Revoked) {
                self.revoked.push(buffer.region);
            }
            if let Some(place) = self.watches.get_mut(&id).and_then(|watch| watch.regions.buffers.get_mut(at)) {
                *place = buffer;
            }
        }
    }

    /// Reads regions that must not be read any more no longer. With RDMA, trying has cost the queue pair.
    fn leave_revoked(&mut self, now: Nanos) {
        let mut revoked = core::mem::take(&mut self.revoked);
        revoked.sort_unstable();
        revoked.dedup();
        self.counted.revoked_regions += revoked.len() as u64;
        if !revoked.is_empty() && self.fetching == Fetching::Verbs {
            self.queue_pair.lost(now, self.link == Link::Up, &mut self.seeds);
        }
        for region in revoked.drain(..) {
            self.attachments.revoked(now, region, &mut self.seeds);
            for watch in self.watches.values_mut() {
                watch.regions.set_attached(region, false);
            }
        }
        self.revoked = revoked;
    }
}

//! The queue of samples to be sent, bounded by bytes and age.
//!
//! # Order
//! Each service has a queue of its own. Services in alarm go first, with up to three quarters of a request while others
//! are queued; among the others the one whose samples are oldest. Within a service the oldest go first, since a
//! receiver accepts no sample of a series older than its newest: "newest first" applies across services. Only for a
//! receiver that accepts samples out of order does a service in alarm send its newest first; the older ones follow.
//!
//! # What is lost
//! When memory is short, the oldest of the service with the most queued samples; a service in alarm counts a quarter of
//! its samples. So a service that floods the queue loses its own samples. Samples over the maximum age are lost, too.

use std::collections::{BTreeMap, VecDeque};

use wire::time::Nanos;

use crate::series::{Point, ServiceNumber};

/// Bookkeeping bytes per group of samples that arrived together: its place in the queue, spare capacity, and the
/// allocation.
const GROUP_BYTES: usize = 128;
/// Maximum samples per group: the unit that is sent, or lost, at once.
const GROUP: usize = 1000;

/// Limits of the queue and of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Memory of all samples queued or in flight. At least 64 KiB.
    pub bytes: usize,
    /// Maximum age of a sample, 1 s to 55 min.
    pub age: Nanos,
    /// Samples of one request, approximately: a group of 1,000 is not divided.
    pub batch: usize,
    /// Bytes of one request before compression, approximately.
    pub batch_bytes: usize,
    /// How long samples are held back to share a request; not those of a service in alarm.
    pub linger: Nanos,
    /// The receiver accepts samples older than its newest.
    pub out_of_order: bool,
}

impl Default for QueueLimits {
    /// 32 MiB (a million samples), 10 minutes, requests of 10,000 samples and 2 MiB, held back for a second, in order.
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            age: Nanos::from_secs(600),
            batch: 10_000,
            batch_bytes: 2 << 20,
            linger: Nanos::from_secs(1),
            out_of_order: false,
        }
    }
}

/// A limit out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Memory for less than a few groups.
    #[error("queue of {0} bytes: at least 65536 are needed")]
    Bytes(usize),
    /// Less than a second, or longer than a receiver goes back.
    #[error(
        "maximum age of {0}: must be 1 s to 55 min, since Prometheus refuses samples an hour older than its newest"
    )]
    Age(Nanos),
    /// A request would be empty.
    #[error("a request of {samples} samples and {bytes} bytes is empty: at least 1 of each is needed")]
    Batch {
        /// Configured samples of a request.
        samples: usize,
        /// Configured bytes of a request.
        bytes: usize,
    },
}

impl QueueLimits {
    /// Maximum of [`age`](Self::age).
    pub const LONGEST_AGE: Nanos = Nanos::from_secs(55 * 60);

    /// # Errors
    ///
    /// [`LimitError`] if a limit is out of range.
    pub fn check(&self) -> Result<(), LimitError> {
        if self.bytes < 65_536 {
            return Err(LimitError::Bytes(self.bytes));
        }
        if !(Nanos::from_secs(1) <= self.age && self.age <= Self::LONGEST_AGE) {
            return Err(LimitError::Age(self.age));
        }
        if self.batch == 0 || self.batch_bytes == 0 {
            return Err(LimitError::Batch { samples: self.batch, bytes: self.batch_bytes });
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Group {
    since: Nanos,
    points: Box<[Point]>,
    bytes: usize,
}

impl Group {
    fn new(points: &[Point], since: Nanos) -> Self {
        let bytes = GROUP_BYTES + points.iter().map(Point::bytes).sum::<usize>();
        Self { since, points: points.into(), bytes }
    }
}

#[derive(Debug, Default)]
struct ServiceQueue {
    groups: VecDeque<Group>,
    points: usize,
    alarm: bool,
}

impl ServiceQueue {
    const fn weight(&self) -> usize {
        if self.alarm { self.points.div_ceil(4) } else { self.points }
    }
}

/// Samples of one request. They count as memory of the queue until [`Queue::release`].
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Grouped by series, each in order of time.
    pub points: Vec<Point>,
    /// When the oldest of them was queued.
    pub since: Nanos,
    bytes: usize,
}

/// The queue. See the module's documentation.
#[derive(Debug)]
pub struct Queue {
    limits: QueueLimits,
    services: BTreeMap<ServiceNumber, ServiceQueue>,
    bytes: usize,
    points: usize,
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// [`LimitError`] if a limit is out of range.
    pub fn new(limits: QueueLimits) -> Result<Self, LimitError> {
        limits.check()?;
        Ok(Self { limits, services: BTreeMap::new(), bytes: 0, points: 0 })
    }

    /// Limits of the queue.
    #[must_use]
    pub const fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// Memory of all samples queued or in flight; never over the limit.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Samples and stale markers queued, without those in flight.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.points
    }

    /// Whether nothing is queued.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// Sets whether `service` is in alarm.
    pub fn set_alarm(&mut self, service: ServiceNumber, alarm: bool) {
        if alarm || self.services.contains_key(&service) {
            self.services.entry(service).or_default().alarm = alarm;
        }
    }

    /// Removes a service that is gone, if nothing of it is queued.
    pub fn forget(&mut self, service: ServiceNumber) {
        if self.services.get(&service).is_some_and(|queue| queue.groups.is_empty()) {
            self.services.remove(&service);
        }
    }

    /// Whether anything of `service` is queued.
    #[must_use]
    pub fn holds(&self, service: ServiceNumber) -> bool {
        self.services.get(&service).is_some_and(|queue| !queue.groups.is_empty())
    }

    /// Queues `points` of `service`. Evicted samples go to `lost`; so do `points` themselves if they do not fit at all.
    pub fn push(&mut self, service: ServiceNumber, points: &[Point], now: Nanos, mut lost: impl FnMut(&[Point])) {
        for points in points.chunks(GROUP) {
            let group = Group::new(points, now);
            while self.bytes + group.bytes > self.limits.bytes {
                let Some(evicted) = self.to_evict().and_then(|service| self.pop(service, false)) else { break };
                self.bytes -= evicted.bytes;
                lost(&evicted.points);
            }
            if self.bytes + group.bytes > self.limits.bytes {
                lost(points);
                continue;
            }
            self.bytes += group.bytes;
            self.points += points.len();
            let queue = self.services.entry(service).or_default();
            queue.points += points.len();
            queue.groups.push_back(group);
        }
    }

    /// Removes samples over the maximum age; they go to `lost`.
    pub fn expire(&mut self, now: Nanos, mut lost: impl FnMut(&[Point])) {
        let age = self.limits.age;
        let too_old = |group: &Group| now.since(group.since).is_some_and(|waited| waited > age);
        for queue in self.services.values_mut() {
            while let Some(evicted) = queue.groups.pop_front_if(|group| too_old(group)) {
                queue.points -= evicted.points.len();
                self.points -= evicted.points.len();
                self.bytes -= evicted.bytes;
                lost(&evicted.points);
            }
        }
    }

    /// When the next request is due: at once if a service in alarm has samples, or enough are queued for a request;
    /// else when the oldest was held back long enough; `None` if nothing is queued.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        let oldest = self.services.values().filter_map(|queue| queue.groups.front()).map(|group| group.since).min()?;
        let alarm = self.services.values().any(|queue| queue.alarm && !queue.groups.is_empty());
        let at_once = alarm || self.points >= self.limits.batch;
        Some(if at_once { oldest } else { oldest.plus(self.limits.linger) })
    }

    /// From now on samples are not held back.
    pub const fn stop_lingering(&mut self) {
        self.limits.linger = Nanos::ZERO;
    }

    /// Takes the samples of the next request; `None` if nothing is queued.
    pub fn take(&mut self) -> Option<Batch> {
        let (mut points_left, mut bytes_left) = (self.limits.batch, self.limits.batch_bytes);
        let (mut points, mut since, mut bytes) = (Vec::new(), Nanos::NEVER, 0);
        // Services in alarm take up to three quarters, then the others, then whatever is left.
        let others_pending = self.services.values().any(|queue| !(queue.alarm || queue.groups.is_empty()));
        let first = if others_pending { points_left - points_left / 4 } else { points_left };
        for (alarm, quota) in [(true, first), (false, usize::MAX), (true, usize::MAX)] {
            let mut quota = quota;
            while points_left > 0 && bytes_left > 0 && quota > 0 {
                let newest = alarm && self.limits.out_of_order;
                let Some(group) = self.next(alarm).and_then(|next| self.pop(next, newest)) else { break };
                points_left = points_left.saturating_sub(group.points.len());
                quota = quota.saturating_sub(group.points.len());
                bytes_left = bytes_left.saturating_sub(encoded_bytes(&group.points));
                since = since.min(group.since);
                bytes += group.bytes;
                points.extend(group.points);
            }
        }
        // No sample is queued twice, so the order is unique.
        points.sort_unstable_by_key(|point: &Point| (point.series.number, point.at_ms));
        (!points.is_empty()).then_some(Batch { points, since, bytes })
    }

    /// Releases the memory of a batch that got its reply.
    pub fn release(&mut self, batch: &Batch) {
        self.bytes = self.bytes.saturating_sub(batch.bytes);
    }

    /// The service whose samples are evicted next. O(services).
    fn to_evict(&self) -> Option<ServiceNumber> {
        let services = self.services.iter().filter(|(_, queue)| queue.points > 0);
        services.max_by_key(|(number, queue)| (queue.weight(), core::cmp::Reverse(**number))).map(|(number, _)| *number)
    }

    /// The service in alarm, or not in alarm, with the oldest samples. O(services).
    fn next(&self, alarm: bool) -> Option<ServiceNumber> {
        let services = self.services.iter().filter(|(_, queue)| queue.alarm == alarm);
        let heads = services.filter_map(|(number, queue)| Some((queue.groups.front()?.since, *number)));
        heads.min().map(|(_, number)| number)
    }

    fn pop(&mut self, service: ServiceNumber, newest: bool) -> Option<Group> {
        let queue = self.services.get_mut(&service)?;
        let group = if newest { queue.groups.pop_back() } else { queue.groups.pop_front() }?;
        queue.points -= group.points.len();
        self.points -= group.points.len();
        Some(group)
    }
}

/// Approximate encoded bytes, as if each sample were alone in its series.
fn encoded_bytes(points: &[Point]) -> usize {
    points.iter().map(|point| point.series.encoded_labels().len() + point.bytes() - size_of::<Point>() + 24).sum()
}

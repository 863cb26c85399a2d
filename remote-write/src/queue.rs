//! Samples that wait to be sent, bounded by bytes and by age.
//!
//! # Order
//! Each service has a line of its own. Services in alarm go first, with up to three quarters of a request while others wait; among the others
//! whoever waits longest. Within a line the oldest go first, since a receiver takes no sample of a series that is older than what it has: "newest
//! first" is across services. Only for a receiver that is said to take samples out of order does a service in alarm send its newest first,
//! and what it could not send before follows.
//!
//! # What is lost
//! When memory is short, the oldest of the longest line; a service in alarm counts as a quarter as long as it is. So one that floods pays
//! itself. What waited too long is lost, too.

use std::collections::{BTreeMap, VecDeque};

use wire::time::Nanos;

use crate::series::{Point, ServiceNumber};

/// Memory of samples that came together, beside themselves: their place in the line, with room to grow, and the allocation.
const GROUP_BYTES: usize = 128;
/// Samples of one group: what is sent, or lost, at once.
const GROUP: usize = 1000;

/// How much may wait, and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Memory of all samples that wait or are under way. 64 KiB at the least.
    pub bytes: usize,
    /// How long a sample may wait.
    pub age: Nanos,
    /// Samples of one request, more or less: a group of 1,000 is not divided.
    pub batch: usize,
    /// Bytes of one request before it is compressed, more or less.
    pub batch_bytes: usize,
    /// How long samples wait for others to travel with; not those of a service in alarm.
    pub linger: Nanos,
    /// The receiver is said to take samples that are older than what it has.
    pub out_of_order: bool,
}

impl Default for QueueLimits {
    /// 32 MiB (a million samples), 10 minutes, requests of 10,000 samples and 2 MiB, together after a second, in order.
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

/// A limit that no queue can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Too little memory for a few groups.
    #[error("{0} bytes are less than 65,536")]
    Bytes(usize),
    /// No time at all, or more than a receiver goes back.
    #[error(
        "{0} is not between a second and 55 minutes: Prometheus takes nothing that is an hour older than its newest"
    )]
    Age(Nanos),
    /// No samples.
    #[error("a request of {samples} samples and {bytes} bytes holds nothing")]
    Batch {
        /// Samples.
        samples: usize,
        /// Bytes.
        bytes: usize,
    },
}

impl QueueLimits {
    /// The longest that a sample may wait.
    pub const LONGEST_AGE: Nanos = Nanos::from_secs(55 * 60);

    /// # Errors
    ///
    /// [`LimitError`] for what is out of range.
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
struct Line {
    groups: VecDeque<Group>,
    points: usize,
    alarm: bool,
}

impl Line {
    const fn weight(&self) -> usize {
        if self.alarm { self.points.div_ceil(4) } else { self.points }
    }
}

/// Samples that were taken out to be sent. They count as memory of the queue until [`Queue::release`].
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Together by series, each in the order of time.
    pub points: Vec<Point>,
    /// Since when the oldest of them waited.
    pub since: Nanos,
    bytes: usize,
}

/// Samples that wait. See the module's documentation.
#[derive(Debug)]
pub struct Queue {
    limits: QueueLimits,
    lines: BTreeMap<ServiceNumber, Line>,
    bytes: usize,
    points: usize,
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// [`LimitError`] for what is out of range.
    pub fn new(limits: QueueLimits) -> Result<Self, LimitError> {
        limits.check()?;
        Ok(Self { limits, lines: BTreeMap::new(), bytes: 0, points: 0 })
    }

    /// Its limits.
    #[must_use]
    pub const fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// Memory of all samples that wait or are under way; never more than the limit.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Samples and marks that wait, without those under way.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.points
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// Whether `service` is in alarm.
    pub fn set_alarm(&mut self, service: ServiceNumber, alarm: bool) {
        if alarm || self.lines.contains_key(&service) {
            self.lines.entry(service).or_default().alarm = alarm;
        }
    }

    /// A service is gone: its line goes when it is empty.
    pub fn forget(&mut self, service: ServiceNumber) {
        if self.lines.get(&service).is_some_and(|line| line.groups.is_empty()) {
            self.lines.remove(&service);
        }
    }

    /// Whether anything of `service` waits.
    #[must_use]
    pub fn holds(&self, service: ServiceNumber) -> bool {
        self.lines.get(&service).is_some_and(|line| !line.groups.is_empty())
    }

    /// Puts `points` of `service` behind what waits. What is lost for it goes to `lost`, and `points` themselves if there is no room at all.
    pub fn push(&mut self, service: ServiceNumber, points: &[Point], now: Nanos, mut lost: impl FnMut(&[Point])) {
        for points in points.chunks(GROUP) {
            let group = Group::new(points, now);
            while self.bytes + group.bytes > self.limits.bytes {
                let Some(gone) = self.longest().and_then(|longest| self.pop(longest, false)) else { break };
                self.bytes -= gone.bytes;
                lost(&gone.points);
            }
            if self.bytes + group.bytes > self.limits.bytes {
                lost(points);
                continue;
            }
            self.bytes += group.bytes;
            self.points += points.len();
            let line = self.lines.entry(service).or_default();
            line.points += points.len();
            line.groups.push_back(group);
        }
    }

    /// What waited too long goes to `lost`.
    pub fn expire(&mut self, now: Nanos, mut lost: impl FnMut(&[Point])) {
        let age = self.limits.age;
        let too_old = |group: &Group| now.since(group.since).is_some_and(|waited| waited > age);
        for line in self.lines.values_mut() {
            while let Some(gone) = line.groups.pop_front_if(|group| too_old(group)) {
                line.points -= gone.points.len();
                self.points -= gone.points.len();
                self.bytes -= gone.bytes;
                lost(&gone.points);
            }
        }
    }

    /// When there is something to send: at once if a service in alarm has something, or enough waits for a request, else when the oldest
    /// has waited long enough; `None` if nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        let oldest = self.lines.values().filter_map(|line| line.groups.front()).map(|group| group.since).min()?;
        let alarm = self.lines.values().any(|line| line.alarm && !line.groups.is_empty());
        let at_once = alarm || self.points >= self.limits.batch;
        Some(if at_once { oldest } else { oldest.plus(self.limits.linger) })
    }

    /// Samples do not wait for others any more.
    pub const fn hurry(&mut self) {
        self.limits.linger = Nanos::ZERO;
    }

    /// Takes what is to be sent next; `None` if nothing waits.
    pub fn take(&mut self) -> Option<Batch> {
        let (mut room, mut bytes_left) = (self.limits.batch, self.limits.batch_bytes);
        let (mut points, mut since, mut bytes) = (Vec::new(), Nanos::NEVER, 0);
        // Those in alarm may take most of it, then come the others, then whoever is left.
        let others_wait = self.lines.values().any(|line| !(line.alarm || line.groups.is_empty()));
        let first = if others_wait { room - room / 4 } else { room };
        for (alarm, share) in [(true, first), (false, usize::MAX), (true, usize::MAX)] {
            let mut share = share;
            while room > 0 && bytes_left > 0 && share > 0 {
                let newest = alarm && self.limits.out_of_order;
                let Some(group) = self.next(alarm).and_then(|next| self.pop(next, newest)) else { break };
                room = room.saturating_sub(group.points.len());
                share = share.saturating_sub(group.points.len());
                bytes_left = bytes_left.saturating_sub(encoded_bytes(&group.points));
                since = since.min(group.since);
                bytes += group.bytes;
                points.extend(group.points);
            }
        }
        // The same sample never waits twice, so that there is no other order.
        points.sort_unstable_by_key(|point: &Point| (point.series.number, point.at_ms));
        (!points.is_empty()).then_some(Batch { points, since, bytes })
    }

    /// A batch is answered for: its memory is free.
    pub fn release(&mut self, batch: &Batch) {
        self.bytes = self.bytes.saturating_sub(batch.bytes);
    }

    /// The line that gives way. Cost: O(services).
    fn longest(&self) -> Option<ServiceNumber> {
        let lines = self.lines.iter().filter(|(_, line)| line.points > 0);
        lines.max_by_key(|(number, line)| (line.weight(), core::cmp::Reverse(**number))).map(|(number, _)| *number)
    }

    /// The line in alarm, or not in alarm, that has waited longest. Cost: O(services).
    fn next(&self, alarm: bool) -> Option<ServiceNumber> {
        let lines = self.lines.iter().filter(|(_, line)| line.alarm == alarm);
        let heads = lines.filter_map(|(number, line)| Some((line.groups.front()?.since, *number)));
        heads.min().map(|(_, number)| number)
    }

    fn pop(&mut self, service: ServiceNumber, newest: bool) -> Option<Group> {
        let line = self.lines.get_mut(&service)?;
        let group = if newest { line.groups.pop_back() } else { line.groups.pop_front() }?;
        line.points -= group.points.len();
        self.points -= group.points.len();
        Some(group)
    }
}

/// About how long they are in a request, as if each were alone in its series.
fn encoded_bytes(points: &[Point]) -> usize {
    points.iter().map(|point| point.series.encoded_labels().len() + point.bytes() - size_of::<Point>() + 24).sum()
}

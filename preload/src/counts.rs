//! Counts in memory that a process shares with the children that it forks: what has no region yet, and the levels of
//! each process.
//!
//! The publisher's thread moves counts from here to the metrics ten times a second. Once these are registered, wrapped
//! calls add to them directly; only children that were forked before go on counting here.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use turns::Duration;
use wire::histogram::Scale;

/// Buckets of durations: in nanoseconds, four per power of two.
pub(crate) const SCALE: Scale = match Scale::exponential(2) {
    Ok(scale) => scale,
    Err(_) => Scale::DEFAULT,
};
const BUCKETS: usize = SCALE.buckets() as usize + 1;
/// Processes that share a block, at most. Connections of further ones are missing in levels.
pub(crate) const PROCESSES: usize = 1024;
/// Places that a process looks at for a free one.
const PROBES: usize = 64;

/// What is counted: the index of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    Received,
    Transmitted,
    Accepted,
    Tls,
    Http2,
    Upgraded,
    Pipelined,
    /// Connections and processes that had no place in a table.
    Table,
    /// Bytes of connections that the process has opened itself.
    OpenedReceived,
    OpenedTransmitted,
    Success,
    Redirection,
    ClientError,
    ServerError,
    Reply,
    ErrorReply,
    Other,
}

/// Number of counters.
pub(crate) const COUNTS: usize = Count::Other as usize + 1;

/// Durations of one bucket: how many, and their sum in nanoseconds.
#[derive(Debug)]
struct Bucket {
    count: AtomicU64,
    sum: AtomicU64,
}

/// Levels of one process.
#[derive(Debug)]
pub(crate) struct Process {
    /// 0: the place is free.
    pid: AtomicU32,
    /// The process whose thread publishes for it.
    publisher: AtomicU32,
    connections: AtomicI64,
    waiting: AtomicI64,
}

/// The shared memory. Zeros are a valid one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block {
    counts: [AtomicU64; COUNTS],
    durations: [Bucket; BUCKETS],
    processes: [Process; PROCESSES],
}

/// Sums of the levels of a publisher's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) connections: i64,
    pub(crate) waiting: i64,
}

impl Block {
    pub(crate) fn add(&self, count: Count, by: u64) {
        if let Some(word) = self.counts.get(count as usize) {
            word.fetch_add(by, Relaxed);
        }
    }

    pub(crate) fn observe(&self, duration: Duration) {
        if let Some(bucket) = self.durations.get(SCALE.bucket(duration.0) as usize) {
            bucket.count.fetch_add(1, Relaxed);
            bucket.sum.fetch_add(duration.0, Relaxed);
        }
    }

    /// Whether there is something to take of `counts`.
    pub(crate) fn has(&self, counts: &[Count]) -> bool {
        counts.iter().any(|count| self.counts.get(*count as usize).is_some_and(|word| word.load(Relaxed) > 0))
    }

    /// Takes a count away.
    pub(crate) fn take(&self, count: Count) -> u64 {
        let word = self.counts.get(count as usize);
        word.map_or(0, |word| if word.load(Relaxed) == 0 { 0 } else { word.swap(0, Relaxed) })
    }

    /// Takes all durations away: a mean and how many there are of it, bucket by bucket.
    pub(crate) fn take_durations(&self, mut to: impl FnMut(u64, u64)) {
        for bucket in self.durations.iter().filter(|bucket| bucket.count.load(Relaxed) > 0) {
            let (count, sum) = (bucket.count.swap(0, Relaxed), bucket.sum.swap(0, Relaxed));
            if let Some(mean) = sum.checked_div(count) {
                to(mean, count);
            }
        }
    }

    pub(crate) fn process(&self, place: usize) -> Option<&Process> {
        self.processes.get(place)
    }

    /// A place for the process `pid`, which has none yet.
    pub(crate) fn join(&self, pid: u32, publisher: u32) -> Option<usize> {
        (0..PROBES).map(|probe| (pid as usize).wrapping_add(probe) % PROCESSES).find(|place| {
            let Some(process) = self.processes.get(*place) else { return false };
            let won = process.pid.compare_exchange(0, pid, Relaxed, Relaxed).is_ok();
            if won {
                process.publisher.store(publisher, Relaxed);
            }
            won
        })
    }

    /// The levels of the processes for which `publisher` publishes. Frees the places of those that are not `alive`.
    pub(crate) fn levels(&self, publisher: u32, alive: impl Fn(u32) -> bool) -> Levels {
        let mut levels = Levels::default();
        for process in &self.processes {
            let pid = process.pid.load(Relaxed);
            if pid == 0 {
                continue;
            }
            if !alive(pid) {
                process.connections.store(0, Relaxed);
                process.waiting.store(0, Relaxed);
                process.pid.store(0, Relaxed);
            } else if process.publisher.load(Relaxed) == publisher {
                levels.connections = levels.connections.wrapping_add(process.connections.load(Relaxed));
                levels.waiting = levels.waiting.wrapping_add(process.waiting.load(Relaxed));
            }
        }
        levels
    }
}

impl Process {
    /// Adds to the levels.
    pub(crate) fn change(&self, connections: i64, waiting: i64) {
        if connections != 0 {
            self.connections.fetch_add(connections, Relaxed);
        }
        if waiting != 0 {
            self.waiting.fetch_add(waiting, Relaxed);
        }
    }

    /// From now on `publisher` publishes for it.
    pub(crate) fn publish_by(&self, publisher: u32) {
        self.publisher.store(publisher, Relaxed);
    }
}

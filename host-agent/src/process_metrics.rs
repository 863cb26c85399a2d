//! Measures registered processes from /proc, on a thread of its own, into regions that the agent owns: an LMAP sees them beside what the
//! service says of itself.

mod cpu_time;
mod measures;
mod process;
mod tasks;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use region::OwnedRegion;
use wire::layout::RegionSize;
use wire::registration::PlacedSeries;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::control_plane::ConnectionId;
use measures::Values;
pub use measures::periods;
use process::Measured;
pub use process::ProcessError;

/// Processes that wait to be measured or forgotten.
const QUEUE: usize = 4096;

/// A process to measure, or one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Measure the process behind this connection.
    Measure {
        /// Of which replica.
        connection: ConnectionId,
        /// Which process.
        pid: u32,
        /// When it connected, after boot.
        connected: Nanos,
    },
    /// The connection is gone.
    Forget(ConnectionId),
}

/// What the thread counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Samples of one process each.
    pub samples: AtomicU64,
    /// Processes that could not be measured, or no longer, though they were connected.
    pub unreadable: AtomicU64,
    /// Rounds that took longer than the time between them: skipped, not made up for.
    pub late_rounds: AtomicU64,
    /// Orders lost because too many waited.
    pub lost_orders: AtomicU64,
}

/// Where orders for the measuring thread are left.
#[derive(Clone, Debug)]
pub struct Orders {
    sender: SyncSender<Order>,
    counts: Arc<Counts>,
}

impl Orders {
    /// Leaves `order`. Does not block: what is too much is lost and counted.
    pub fn leave(&self, order: Order) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(order) {
            self.counts.lost_orders.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Announces a region with a process's values.
pub type Announce = Box<dyn Fn(ConnectionId, &OwnedRegion, Vec<PlacedSeries>) + Send>;

/// Starts the thread, which keeps about `files` files open at most. It ends when all [`Orders`] are gone.
///
/// # Errors
///
/// What the system said: no thread.
pub fn start(
    interval: Nanos,
    files: usize,
    clock: Clock,
    counts: Arc<Counts>,
    announce: Announce,
) -> std::io::Result<(Orders, JoinHandle<()>)> {
    let (sender, orders) = sync_channel(QUEUE);
    let mut measuring = Measuring { processes: BTreeMap::new(), files, announce, counts: Arc::clone(&counts) };
    let thread = std::thread::Builder::new()
        .name("process-metrics".to_owned())
        .spawn(move || measuring.run(&orders, interval, clock))?;
    Ok((Orders { sender, counts }, thread))
}

struct Process {
    measured: Measured,
    region: OwnedRegion,
}

struct Measuring {
    processes: BTreeMap<ConnectionId, Process>,
    /// How many files may be open.
    files: usize,
    announce: Announce,
    counts: Arc<Counts>,
}

impl Measuring {
    fn run(&mut self, orders: &Receiver<Order>, interval: Nanos, clock: Clock) {
        let mut next = clock.now().plus(interval);
        loop {
            let now = clock.now();
            let Some(wait) = next.since(now).filter(|wait| *wait > Nanos::ZERO) else {
                if self.processes.is_empty() {
                    next = now.plus(interval);
                    continue;
                }
                self.round(now);
                let late = clock.now().0.saturating_sub(next.0) / interval.0.max(1);
                self.counts.late_rounds.fetch_add(late, Ordering::Relaxed);
                next = next.plus(Nanos(interval.0.saturating_mul(late + 1)));
                continue;
            };
            // Without a process there is nothing to wake up for.
            let wait = if self.processes.is_empty() { Nanos::from_secs(3600) } else { wait };
            match orders.recv_timeout(wait.into()) {
                Ok(order) => {
                    if self.processes.is_empty() {
                        next = clock.now().plus(interval);
                    }
                    self.obey(order, clock.now());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn obey(&mut self, order: Order, now: Nanos) {
        match order {
            Order::Forget(connection) => {
                self.processes.remove(&connection);
            }
            Order::Measure { connection, pid, connected } => match Measured::open(pid, connected) {
                Ok(measured) => self.add(connection, pid, measured, now),
                Err(error) => self.lost(&error),
            },
        }
    }

    fn add(&mut self, connection: ConnectionId, pid: u32, mut measured: Measured, now: Nanos) {
        let values = match measured.sample(now, self.files_left()) {
            Ok(values) => values,
            Err(error) => return self.lost(&error),
        };
        let region = match OwnedRegion::create(&format!("uview-process-{pid}"), RegionSize::ONE_PAGE) {
            Ok(region) => region,
            Err(error) => {
                self.counts.unreadable.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(pid, error = &error as &dyn core::error::Error, "no region for process metrics");
                return;
            }
        };
        store(&region, &values);
        (self.announce)(connection, &region, measures::placed(values.iter().map(|(measure, _)| measure)));
        self.processes.insert(connection, Process { measured, region });
    }

    fn round(&mut self, now: Nanos) {
        let mut gone = Vec::new();
        let mut left = self.files;
        for (&connection, process) in &mut self.processes {
            let sampled = process.measured.sample(now, left);
            left = left.saturating_sub(process.measured.files());
            match sampled {
                Ok(values) => {
                    store(&process.region, &values);
                    self.counts.samples.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => gone.push((connection, error)),
            }
        }
        for (connection, error) in gone {
            self.processes.remove(&connection);
            self.lost(&error);
        }
    }

    fn files_left(&self) -> usize {
        let open: usize = self.processes.values().map(|process| process.measured.files()).sum();
        self.files.saturating_sub(open)
    }

    fn lost(&self, error: &ProcessError) {
        self.counts.unreadable.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(error = error as &dyn core::error::Error, "a process is not measured");
    }
}

fn store(region: &OwnedRegion, values: &Values) {
    for (measure, value) in values.iter() {
        if let Some(slot) = region.slot(measure.slot()) {
            // Relaxed: each value stands for itself, readers conclude nothing from two of them.
            slot.store(value, Ordering::Relaxed);
        }
    }
    region.beat();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_process_is_announced_measured_and_forgotten() {
        let (announced, announcements) = channel();
        let announce: Announce = Box::new(move |connection, region, series| {
            let values: Vec<_> = series.iter().map(|s| region.slot(s.first).unwrap().load(Ordering::Relaxed)).collect();
            announced.send((connection, series, values)).unwrap();
        });
        let counts = Arc::new(Counts::default());
        let (orders, thread) =
            start(Nanos::from_millis(100), 100, Clock::start(), Arc::clone(&counts), announce).unwrap();

        let connected = crate::clock::since_boot();
        orders.leave(Order::Measure { connection: ConnectionId(1), pid: std::process::id(), connected });
        orders.leave(Order::Measure { connection: ConnectionId(2), pid: u32::MAX, connected });
        let (connection, series, values) = announcements.recv_timeout(Duration::from_mins(1)).unwrap();

        assert_eq!(connection, ConnectionId(1));
        let usage = series.iter().position(|s| s.series.name.as_str() == "process.memory.usage").unwrap();
        assert!(values[usage] > 100_000);
        orders.leave(Order::Forget(ConnectionId(1)));
        drop(orders);
        thread.join().unwrap();
        assert_eq!(counts.unreadable.load(Ordering::Relaxed), 1);
    }
}

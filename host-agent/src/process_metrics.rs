//! Process metrics: a thread measures registered processes from /proc into regions of the agent, so that LMAPs see them
//! along with the service's own metrics.

mod candidates;
mod connections;
mod cpu_time;
mod family;
mod measures;
mod proc_file;
mod process;
mod tasks;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use agent_runtime::Count;
use region::OwnedRegion;
use wire::layout::RegionSize;
use wire::registration::PlacedSeries;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::control_plane::ConnectionId;
pub use candidates::{UnreadableMetrics, denied};
pub use family::Family;
pub use measures::{Measure, Values, periods};
use process::MeasuredProcess;
pub use process::ProcessError;
pub use tracker::ProcessTracker;

/// Queued requests to the thread.
const QUEUE: usize = 4096;

/// A request to the measuring thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Measure the process of a connection.
    Measure {
        /// The replica's connection.
        connection: ConnectionId,
        /// The process id.
        pid: u32,
        /// When it connected, since boot: a process that started later is another one.
        connected: Nanos,
    },
    /// The connection ended.
    Forget(ConnectionId),
}

/// Counters of the thread.
#[derive(Debug, Default)]
pub struct Counts {
    /// Samples, each of one process.
    pub samples: Count,
    /// Processes that could not be measured, or not any more, while connected.
    pub unreadable: Count,
    /// Rounds skipped because the previous one took too long.
    pub late_rounds: Count,
    /// Requests lost because the queue was full.
    pub lost_requests: Count,
}

/// Sends requests to the measuring thread.
#[derive(Clone, Debug)]
pub struct RequestSender {
    sender: SyncSender<Request>,
    counts: Arc<Counts>,
}

impl RequestSender {
    /// Sends `request`. Never blocks: if the queue is full, the request is lost and counted.
    pub fn leave(&self, request: Request) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(request) {
            self.counts.lost_requests.one_more();
        }
    }

    /// A sender, and what it sends.
    #[cfg(test)]
    pub(crate) fn for_test() -> (Self, Receiver<Request>) {
        let (sender, requests) = sync_channel(QUEUE);
        (Self { sender, counts: Arc::default() }, requests)
    }
}

/// Announces a region with a process's values.
pub type Announce = Box<dyn Fn(ConnectionId, &OwnedRegion, Vec<PlacedSeries>) + Send>;

/// Starts the thread. It keeps at most about `files` files open, and ends when all [`RequestSender`]s are dropped.
///
/// # Errors
///
/// The error of the operating system if it starts no thread.
pub fn start(
    interval: Nanos,
    files: usize,
    clock: Clock,
    counts: Arc<Counts>,
    announce: Announce,
) -> std::io::Result<(RequestSender, JoinHandle<()>)> {
    let (sender, requests) = sync_channel(QUEUE);
    let mut measuring = Measurer::new(files, announce, Arc::clone(&counts));
    let thread = std::thread::Builder::new()
        .name("process-metrics".to_owned())
        .spawn(move || measuring.run(&requests, interval, clock))?;
    Ok((RequestSender { sender, counts }, thread))
}

struct MonitoredProcess {
    measured: MeasuredProcess,
    region: OwnedRegion,
}

struct Measurer {
    processes: BTreeMap<ConnectionId, MonitoredProcess>,
    /// Limit of open files.
    files: usize,
    /// Whether files with context switches stay open, which are half of those of threads.
    keeps_statuses: bool,
    announce: Announce,
    counts: Arc<Counts>,
}

impl Measurer {
    fn new(files: usize, announce: Announce, counts: Arc<Counts>) -> Self {
        Self { processes: BTreeMap::new(), files, keeps_statuses: true, announce, counts }
    }

    fn run(&mut self, requests: &Receiver<Request>, interval: Nanos, clock: Clock) {
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
                self.counts.late_rounds.add(late);
                next = next.plus(Nanos(interval.0.saturating_mul(late + 1)));
                continue;
            };
            // Without a process there is nothing to measure.
            let wait = if self.processes.is_empty() { Nanos::from_secs(3600) } else { wait };
            match requests.recv_timeout(wait.into()) {
                Ok(request) => {
                    if self.processes.is_empty() {
                        next = clock.now().plus(interval);
                    }
                    self.obey(request, clock.now());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn obey(&mut self, request: Request, now: Nanos) {
        match request {
            Request::Forget(connection) => {
                self.processes.remove(&connection);
            }
            Request::Measure { connection, pid, connected } => match MeasuredProcess::open(pid, connected) {
                Ok(measured) => self.add(connection, pid, measured, now),
                Err(error) => self.lost(&error),
            },
        }
    }

    fn add(&mut self, connection: ConnectionId, pid: u32, mut measured: MeasuredProcess, now: Nanos) {
        measured.keep_statuses(self.keeps_statuses);
        let values = match measured.sample(now, self.files_left()) {
            Ok(values) => values,
            Err(error) => return self.lost(&error),
        };
        let region = match OwnedRegion::create(&format!("uview-process-{pid}"), RegionSize::ONE_PAGE) {
            Ok(region) => region,
            Err(error) => {
                self.counts.unreadable.one_more();
                tracing::warn!(
                    pid,
                    error = &error as &dyn core::error::Error,
                    "cannot create a region for process metrics"
                );
                return;
            }
        };
        store(&region, &values);
        (self.announce)(connection, &region, measures::placed(values.iter().map(|(measure, _)| measure)));
        self.processes.insert(connection, MonitoredProcess { measured, region });
    }

    fn round(&mut self, now: Nanos) {
        self.make_room();
        let mut gone = Vec::new();
        let mut left = self.files;
        for (&connection, process) in &mut self.processes {
            let sampled = process.measured.sample(now, left);
            left = left.saturating_sub(process.measured.files());
            match sampled {
                Ok(values) => {
                    store(&process.region, &values);
                    self.counts.samples.one_more();
                }
                Err(error) => gone.push((connection, error)),
            }
        }
        for (connection, error) in gone {
            self.processes.remove(&connection);
            self.lost(&error);
        }
    }

    /// Closes files with context switches once less than a quarter of the files is left. They stay open again when more
    /// than three quarters are, so that they do not come and go.
    fn make_room(&mut self) {
        let left = self.files_left();
        let keeps = left > self.files / 4 * 3 || (self.keeps_statuses && left >= self.files / 4);
        if core::mem::replace(&mut self.keeps_statuses, keeps) != keeps {
            self.processes.values_mut().for_each(|process| process.measured.keep_statuses(keeps));
        }
    }

    fn files_left(&self) -> usize {
        let open: usize = self.processes.values().map(|process| process.measured.files()).sum();
        self.files.saturating_sub(open)
    }

    fn lost(&self, error: &ProcessError) {
        self.counts.unreadable.one_more();
        tracing::debug!(error = error as &dyn core::error::Error, "process not measured");
    }
}

fn store(region: &OwnedRegion, values: &Values) {
    for (measure, value) in values.iter() {
        if let Some(slot) = region.slot(measure.slot()) {
            // Relaxed: values are independent of each other.
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
        let (requests, thread) =
            start(Nanos::from_millis(100), 100, Clock::start(), Arc::clone(&counts), announce).unwrap();

        let connected = crate::clock::since_boot();
        requests.leave(Request::Measure { connection: ConnectionId(1), pid: std::process::id(), connected });
        requests.leave(Request::Measure { connection: ConnectionId(2), pid: u32::MAX, connected });
        let (connection, series, values) = announcements.recv_timeout(Duration::from_mins(1)).unwrap();

        assert_eq!(connection, ConnectionId(1));
        let usage = series.iter().position(|s| s.series.name.as_str() == "process.memory.usage").unwrap();
        assert!(values[usage] > 100_000);
        requests.leave(Request::Forget(ConnectionId(1)));
        drop(requests);
        thread.join().unwrap();
        assert_eq!(counts.unreadable.get(), 1);
    }

    #[test]
    fn files_with_context_switches_are_closed_where_few_are_left_and_stay_open_when_most_are() {
        let mut children: Vec<_> =
            (0..3).map(|_| std::process::Command::new("sleep").arg("100").spawn().unwrap()).collect();
        let mut measuring = Measurer::new(20, Box::new(|_, _, _| {}), Arc::default());
        let measure = |measuring: &mut Measurer, pid: u32| {
            let (connection, connected) = (ConnectionId(pid.into()), Nanos::NEVER);
            measuring.obey(Request::Measure { connection, pid, connected }, Nanos::ZERO);
        };
        let open = |measuring: &Measurer| measuring.files - measuring.files_left();

        // Of each: its folder, stat, io, the folder of its files, and two files of its thread.
        children.iter().for_each(|child| measure(&mut measuring, child.id()));
        assert_eq!(open(&measuring), 18);
        measuring.round(Nanos(1));
        assert_eq!(open(&measuring), 15);

        for child in &children {
            measuring.obey(Request::Forget(ConnectionId(child.id().into())), Nanos(2));
        }
        measuring.round(Nanos(3));
        measure(&mut measuring, children[0].id());
        assert_eq!(open(&measuring), 6);

        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

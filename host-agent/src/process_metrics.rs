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
use std::time::Duration;

use agent_runtime::Count;
use region::OwnedRegion;
use wire::layout::RegionSize;
use wire::name::ServiceName;
use wire::registration::PlacedSeries;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::control_plane::{ConnectionId, Paces};
use crate::sampling_times::SamplingTimes;
pub use candidates::{UnreadableMetrics, denied};
pub use family::Family;
pub use measures::{Measure, Values, periods};
use process::MeasuredProcess;
pub use process::ProcessError;
pub use tracker::ProcessTracker;

/// Queued requests to the thread.
const QUEUE: usize = 4096;

/// A request to the measuring thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Measure the process of a connection.
    Measure {
        /// The replica's connection.
        connection: ConnectionId,
        /// The service that it is a replica of.
        service: ServiceName,
        /// The process id.
        pid: u32,
        /// When it connected, since boot: a process that started later is another one.
        connected: Nanos,
    },
    /// The connection ended.
    Forget(ConnectionId),
    /// Processes of these services are measured as often as those are fetched.
    Follow(Paces),
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
    let mut measuring = Measurer::new(interval, files, announce, Arc::clone(&counts));
    let thread = std::thread::Builder::new()
        .name("process-metrics".to_owned())
        .spawn(move || measuring.run(&requests, clock))?;
    Ok((RequestSender { sender, counts }, thread))
}

struct MonitoredProcess {
    measured: MeasuredProcess,
    region: OwnedRegion,
    service: ServiceName,
    /// The time from which its next sample counts.
    last: Nanos,
}

struct Measurer {
    processes: BTreeMap<ConnectionId, MonitoredProcess>,
    times: SamplingTimes,
    /// Limit of open files.
    files: usize,
    /// Whether files with context switches stay open, which are half of those of threads.
    keeps_statuses: bool,
    announce: Announce,
    counts: Arc<Counts>,
}

impl Measurer {
    fn new(interval: Nanos, files: usize, announce: Announce, counts: Arc<Counts>) -> Self {
        let (processes, times) = (BTreeMap::new(), SamplingTimes::new(interval));
        Self { processes, times, files, keeps_statuses: true, announce, counts }
    }

    fn run(&mut self, requests: &Receiver<Request>, clock: Clock) {
        loop {
            let due = self.processes.values().map(|process| self.times.due(&process.service, process.last)).min();
            // Without a process there is nothing to measure.
            let wait = due.map_or(Nanos::from_secs(3600), |due| due.since(clock.now()).unwrap_or(Nanos::ZERO));
            if wait == Nanos::ZERO {
                self.round(clock);
            }
            // However long a turn takes, what was asked for meanwhile is heard before the next one.
            let mut asked = requests.recv_timeout(wait.into());
            while let Ok(request) = asked {
                self.obey(request, clock);
                asked = requests.recv_timeout(Duration::ZERO);
            }
            if asked == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    fn obey(&mut self, request: Request, clock: Clock) {
        match request {
            Request::Forget(connection) => {
                self.processes.remove(&connection);
            }
            Request::Measure { connection, service, pid, connected } => match MeasuredProcess::open(pid, connected) {
                Ok(measured) => self.add(connection, service, (pid, measured), clock.now()),
                Err(error) => self.lost(&error),
            },
            Request::Follow(paces) => self.times.follow(paces),
        }
    }

    fn add(
        &mut self,
        connection: ConnectionId,
        service: ServiceName,
        (pid, mut measured): (u32, MeasuredProcess),
        now: Nanos,
    ) {
        measured.keep_statuses(self.keeps_statuses);
        let values = match measured.sample_all(now, self.files_left()) {
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
        store(&region, &values, now);
        (self.announce)(connection, &region, measures::placed(values.iter().map(|(measure, _)| measure)));
        // From now on in one turn with the others.
        let last = self.processes.values().map(|process| process.last).max().unwrap_or(now);
        self.processes.insert(connection, MonitoredProcess { measured, region, service, last });
    }

    /// Measures the processes that are due, and those that are in a moment.
    fn round(&mut self, clock: Clock) {
        self.make_room();
        let Self { processes, times, files, counts, .. } = self;
        let (began, mut gone, mut left) = (clock.now(), Vec::new(), *files);
        let (mut extra, mut all, mut missed) = (0, 0, 0);
        for (&connection, process) in processes {
            if times.is_due(&process.service, process.last, began) {
                let now = clock.now();
                let measured = &mut process.measured;
                let sampled = if times.is_hurried(&process.service) {
                    measured.sample_all(now, left)
                } else {
                    measured.sample(now, left)
                };
                match sampled {
                    Ok(values) => {
                        store(&process.region, &values, now);
                        counts.samples.one_more();
                    }
                    Err(error) => gone.push((connection, error)),
                }
                let taken = times.taken(&process.service, process.last, now);
                process.last = taken.last;
                (extra, all, missed) = (extra + usize::from(taken.is_extra), all + 1, taken.missed.max(missed));
            }
            left = left.saturating_sub(process.measured.files());
        }
        counts.late_rounds.add(missed);
        let now = clock.now();
        times.rest(now, now.since(began).unwrap_or(Nanos::ZERO), (extra, all));
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

/// Writes what was sampled at `now`.
fn store(region: &OwnedRegion, values: &Values, now: Nanos) {
    for (measure, value) in values.iter() {
        if let Some(slot) = region.slot(measure.slot()) {
            // Relaxed: values are independent of each other.
            slot.store(value, Ordering::Relaxed);
        }
    }
    region.sampled(now);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

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
        let measure = |number, pid| {
            let service = ServiceName::new("payment").unwrap();
            Request::Measure { connection: ConnectionId(number), service, pid, connected }
        };
        requests.leave(measure(1, std::process::id()));
        requests.leave(measure(2, u32::MAX));
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
        let (second, clock) = (Nanos::from_secs(1), Clock::start());
        let mut measuring = Measurer::new(second, 20, Box::new(|_, _, _| {}), Arc::default());
        let measure = |measuring: &mut Measurer, pid: u32| {
            let (connection, connected) = (ConnectionId(pid.into()), Nanos::NEVER);
            let service = ServiceName::new("payment").unwrap();
            measuring.obey(Request::Measure { connection, service, pid, connected }, clock);
        };
        let open = |measuring: &Measurer| measuring.files - measuring.files_left();

        // Of each: its folder, stat, io, the folder of its files, and two files of its thread.
        for child in &children {
            measure(&mut measuring, child.id());
        }
        assert_eq!(open(&measuring), 18);
        measuring.round(clock);
        assert_eq!(open(&measuring), 15);

        for child in &children {
            measuring.obey(Request::Forget(ConnectionId(child.id().into())), clock);
        }
        measuring.round(clock);
        measure(&mut measuring, children[0].id());
        assert_eq!(open(&measuring), 6);

        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

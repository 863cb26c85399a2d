//! Process metrics: a thread measures registered processes from /proc into regions of the agent, so that LMAPs see them
//! along with the service's own metrics.

mod candidates;
mod connections;
mod cpu_time;
mod family;
mod measures;
mod proc_file;
mod process;
mod regions;
mod tasks;
mod tracker;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_runtime::{Count, lock};
use region::OwnedRegion;
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
use regions::ProcessRegions;
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
    /// Services are fetched at other paces: [`RequestSender::follow`] has left them.
    Follow,
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

/// The latest paces, until the thread has taken them.
type LatestPaces = Arc<Mutex<Option<Paces>>>;

/// Sends requests to the measuring thread.
#[derive(Clone, Debug)]
pub struct RequestSender {
    sender: SyncSender<Request>,
    paces: LatestPaces,
    counts: Arc<Counts>,
}

impl RequestSender {
    /// Sends `request`. Never blocks: if the queue is full, the request is lost and counted.
    pub fn leave(&self, request: Request) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(request) {
            self.counts.lost_requests.one_more();
        }
    }

    /// Has processes of these services measured as often as those are fetched, and the others as usual. Never blocks,
    /// and is never lost: nobody says it again before the paces change.
    pub fn follow(&self, paces: Paces) {
        *lock(&self.paces) = Some(paces);
        // If the queue is full, the thread takes them after what is in it.
        _ = self.sender.try_send(Request::Follow);
    }

    /// A sender, and what it sends.
    #[cfg(test)]
    pub(crate) fn for_test() -> (Self, Receiver<Request>) {
        let (sender, requests) = sync_channel(QUEUE);
        (Self { sender, paces: Arc::default(), counts: Arc::default() }, requests)
    }
}

/// Announces a region with a process's values, of which there may be two.
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
    let paces = Arc::clone(&measuring.paces);
    let thread = std::thread::Builder::new()
        .name("process-metrics".to_owned())
        .spawn(move || measuring.run(&requests, clock))?;
    Ok((RequestSender { sender, paces, counts }, thread))
}

struct MonitoredProcess {
    measured: MeasuredProcess,
    regions: ProcessRegions,
    service: ServiceName,
    /// The time from which its next sample counts.
    last: Nanos,
}

struct Measurer {
    processes: BTreeMap<ConnectionId, MonitoredProcess>,
    interval: Nanos,
    times: SamplingTimes,
    paces: LatestPaces,
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
        Self { processes, interval, times, paces: Arc::default(), files, keeps_statuses: true, announce, counts }
    }

    fn run(&mut self, requests: &Receiver<Request>, clock: Clock) {
        loop {
            let due = self.processes.values().map(|process| self.times.due(&process.service, process.last)).min();
            // Without a process there is nothing to measure.
            let wait = due.map_or(Nanos::from_secs(3600), |due| due.since(clock.now()).unwrap_or(Nanos::ZERO));
            if wait == Nanos::ZERO {
                self.round(&|| clock.now());
            }
            // However long a turn takes, what was asked for meanwhile is heard before the next one.
            let mut asked = requests.recv_timeout(wait.into());
            while let Ok(request) = asked {
                self.obey(request, clock);
                asked = requests.recv_timeout(Duration::ZERO);
            }
            if let Some(paces) = lock(&self.paces).take() {
                self.times.follow(paces);
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
            // They are taken when nothing more is asked for.
            Request::Follow => {}
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
        let regions = match ProcessRegions::create(pid, self.interval) {
            Ok(regions) => regions,
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
        regions.store(&values, now);
        for (region, series) in regions.placed(&values) {
            (self.announce)(connection, region, series);
        }
        // From now on in one turn with the others.
        let last = self.processes.values().map(|process| process.last).max().unwrap_or(now);
        self.processes.insert(connection, MonitoredProcess { measured, regions, service, last });
    }

    /// Measures the processes that are due, and those that are in a moment. Asks `time` for each.
    fn round(&mut self, time: &dyn Fn() -> Nanos) {
        self.make_room();
        let Self { processes, times, files, counts, .. } = self;
        let (began, mut gone, mut left) = (time(), Vec::new(), *files);
        let (mut extra, mut all, mut missed) = (0, 0, 0);
        for (&connection, process) in processes {
            if times.is_due(&process.service, process.last, began) {
                let now = time();
                let measured = &mut process.measured;
                let sampled = if times.is_hurried(&process.service) {
                    measured.sample_all(now, left)
                } else {
                    measured.sample(now, left)
                };
                match sampled {
                    Ok(values) => {
                        process.regions.store(&values, now);
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
        let now = time();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;

    use wire::time::Interval;

    use super::*;

    fn payment() -> ServiceName {
        ServiceName::new("payment").unwrap()
    }

    /// `payment` is fetched every `millis`.
    fn paces(millis: u64) -> Paces {
        Arc::new([(payment(), Interval::new(Nanos::from_millis(millis)).unwrap())].into())
    }

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
        let measure =
            |number, pid| Request::Measure { connection: ConnectionId(number), service: payment(), pid, connected };
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
            measuring.obey(Request::Measure { connection, service: payment(), pid, connected }, clock);
        };
        let open = |measuring: &Measurer| measuring.files - measuring.files_left();

        // Of each: its folder, stat, io, the folder of its files, and two files of its thread.
        for child in &children {
            measure(&mut measuring, child.id());
        }
        assert_eq!(open(&measuring), 18);
        measuring.round(&|| clock.now());
        assert_eq!(open(&measuring), 15);

        for child in &children {
            measuring.obey(Request::Forget(ConnectionId(child.id().into())), clock);
        }
        measuring.round(&|| clock.now());
        measure(&mut measuring, children[0].id());
        assert_eq!(open(&measuring), 6);

        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn paces_reach_the_thread_however_many_requests_wait_for_it() {
        let (sender, requests) = RequestSender::for_test();
        for number in 0..=QUEUE as u64 {
            sender.leave(Request::Forget(ConnectionId(number)));
        }
        assert_eq!(sender.counts.lost_requests.get(), 1, "the queue is full");
        let mut measuring = Measurer::new(Nanos::from_secs(1), 20, Box::new(|_, _, _| {}), Arc::default());
        measuring.paces = Arc::clone(&sender.paces);

        sender.follow(paces(200));
        drop(sender);
        measuring.run(&requests, Clock::start());

        assert!(measuring.times.is_hurried(&payment()));
    }

    #[test]
    fn expensive_values_have_the_time_of_their_own_sample_whether_samples_come_faster_or_no_more() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let millis = Nanos::from_millis;
        let mut measuring = Measurer::new(millis(500), 100, Box::new(|_, _, _| {}), Arc::default());
        let measured = MeasuredProcess::open(child.id(), Nanos::NEVER).unwrap();
        measuring.add(ConnectionId(1), payment(), (child.id(), measured), millis(100));
        // When all values, and the expensive ones, were sampled last, in ms.
        let times = |measuring: &mut Measurer, at: u64| {
            measuring.round(&|| millis(at));
            let (usual, expensive) = measuring.processes[&ConnectionId(1)].regions.times();
            (usual / 1_000, expensive.unwrap() / 1_000)
        };

        let usual = [600, 1_100, 1_600].map(|at| times(&mut measuring, at));
        measuring.times.follow(paces(100));
        let faster = [1_700, 1_800].map(|at| times(&mut measuring, at));
        measuring.times.follow(Paces::default());
        let afterwards = [2_300, 2_800].map(|at| times(&mut measuring, at));

        assert_eq!(usual, [(600, 100), (1_100, 1_100), (1_600, 1_100)]);
        assert_eq!(faster, [(1_700, 1_700), (1_800, 1_800)]);
        assert_eq!(afterwards, [(2_300, 1_800), (2_800, 2_800)]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

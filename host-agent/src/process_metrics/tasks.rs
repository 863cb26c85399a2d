//! Running and waiting time of the threads of one process, in nanoseconds, and their context switches.
//!
//! Their files stay open between samples: opening one costs six times as much as reading it. Those with context
//! switches, which are read ten times as seldom, only where there is room.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;

use procfs::process::Process;
use rustix::fs::Dir;

use super::proc_file::read;
use crate::kernel_file::read_whole;
use sources::process::{FromText as _, Schedstat, Switches};

/// Most bytes of a thread's status: it lists the groups of its user, of which there are 65,536 at most.
const STATUS_BYTES: usize = 1 << 20;

/// What becomes of the files that say context switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFiles {
    /// They are not read.
    Unread,
    /// They are opened, read and closed.
    Opened,
    /// They are read, and stay open.
    Kept,
}

struct OpenTask {
    schedstat: File,
    status: Option<File>,
    ran_ns: u64,
    waited_ns: u64,
    /// How long it had run when its context switches were counted last.
    counted_at_ns: Option<u64>,
    voluntary: u64,
    involuntary: u64,
}

/// Totals over all threads since the process was opened, including threads that ended, as far as they were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time on a CPU.
    pub ran_ns: u64,
    /// Time runnable and waiting for a CPU.
    pub waited_ns: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
}

/// The threads of one process.
#[derive(Default)]
pub struct Tasks {
    open: BTreeMap<i32, OpenTask>,
    /// Whether all threads are open, so that any other thread is new.
    complete: bool,
    totals: Totals,
}

impl Tasks {
    /// Adds what the threads did since the last call. Context switches are expensive, and read as `statuses` says. If
    /// threads started or ended, they are listed again. `None` if the kernel has no statistics of threads, or there are
    /// more than `most`.
    pub fn advance(&mut self, process: &Process, threads: usize, most: usize, statuses: StatusFiles) -> Option<Totals> {
        if threads > most {
            self.open.clear();
            self.complete = false;
            return None;
        }
        let before = self.open.len();
        let Self { open, totals, .. } = self;
        open.retain(|_, task| task.advance(totals).is_some());
        // A thread that ended cannot be read, so a change shows even if the number of threads is the same.
        let changed = !self.complete || open.len() < before || open.len() != threads;
        if changed {
            self.list(process, most, statuses == StatusFiles::Kept)?;
        } else if statuses != StatusFiles::Unread {
            for (tid, task) in open {
                task.count_switches(process, *tid, totals, statuses == StatusFiles::Kept);
            }
        }
        (!self.open.is_empty()).then_some(self.totals)
    }

    /// How many files are open.
    pub fn files(&self) -> usize {
        self.open.values().map(|task| 1 + usize::from(task.status.is_some())).sum()
    }

    /// Closes files with context switches.
    pub fn close_statuses(&mut self) {
        self.open.values_mut().for_each(|task| task.status = None);
    }

    fn list(&mut self, process: &Process, most: usize, keep: bool) -> Option<()> {
        // What threads did before the first look does not count. New threads count from their start.
        let mut before = Totals::default();
        let totals = if self.complete { &mut self.totals } else { &mut before };
        let tasks = Dir::read_from(process.open_relative("task").ok()?).ok()?;
        let threads = tasks.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
        for tid in threads.take(most) {
            // Threads that end right now are covered by the clock ticks.
            if let Entry::Vacant(entry) = self.open.entry(tid)
                && let Some(mut opened) = OpenTask::open(process, tid)
                && opened.advance(totals).is_some()
            {
                entry.insert(opened);
            }
            if let Some(opened) = self.open.get_mut(&tid) {
                opened.count_switches(process, tid, totals, keep);
            }
        }
        self.complete = true;
        Some(())
    }
}

impl OpenTask {
    fn open(process: &Process, tid: i32) -> Option<Self> {
        let schedstat = process.open_relative(format!("task/{tid}/schedstat")).ok()?;
        let (status, counted_at_ns) = (None, None);
        Some(Self { schedstat, status, ran_ns: 0, waited_ns: 0, counted_at_ns, voluntary: 0, involuntary: 0 })
    }

    /// `None` if it has ended.
    fn advance(&mut self, totals: &mut Totals) -> Option<()> {
        let now: Schedstat = read(&self.schedstat)?;
        totals.ran_ns += now.ran_ns.saturating_sub(self.ran_ns);
        totals.waited_ns += now.waited_ns.saturating_sub(self.waited_ns);
        (self.ran_ns, self.waited_ns) = (now.ran_ns, now.waited_ns);
        Some(())
    }

    /// Counts context switches; their file stays open with `keep`.
    fn count_switches(&mut self, process: &Process, tid: i32, totals: &mut Totals, keep: bool) {
        // Who has not run has not switched. Some kernels do not say how long a thread ran: then it is 0.
        if self.ran_ns > 0 && self.counted_at_ns == Some(self.ran_ns) {
            return;
        }
        let Some(switches) = self.switches(process, tid, keep) else { return };
        self.counted_at_ns = Some(self.ran_ns);
        let voluntary = switches.voluntary.unwrap_or(self.voluntary);
        let involuntary = switches.involuntary.unwrap_or(self.involuntary);
        totals.voluntary += voluntary.saturating_sub(self.voluntary);
        totals.involuntary += involuntary.saturating_sub(self.involuntary);
        (self.voluntary, self.involuntary) = (voluntary, involuntary);
    }

    /// Its context switches; `None` if it has ended. A file that was kept stays open.
    fn switches(&mut self, process: &Process, tid: i32, keep: bool) -> Option<Switches> {
        let (file, stays) = match self.status.take() {
            Some(file) => (file, true),
            None => (process.open_relative(format!("task/{tid}/status")).ok()?, keep),
        };
        let switches = Switches::from_text(&read_whole(&file, STATUS_BYTES)?);
        self.status = stays.then_some(file);
        switches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_switches_of_a_thread_are_counted_again_when_it_has_run_and_not_before() {
        let process = Process::new(std::process::id() as i32).unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let (said, saying) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            said.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            for () in gone {
                said.send(0).unwrap();
            }
        });
        let tid = saying.recv().unwrap();
        let mut task = OpenTask::open(&process, tid).unwrap();
        // All that there are, or none if its status is not read.
        let mut counted = || {
            let mut totals = Totals::default();
            task.advance(&mut totals).unwrap();
            task.voluntary = 0;
            task.count_switches(&process, tid, &mut totals, true);
            totals.voluntary
        };

        assert!((0..1_000_000).any(|_| counted() > 0), "it waits for the first time");
        assert!((0..1_000_000).any(|_| counted() == 0), "it sleeps");
        go.send(()).unwrap();
        assert_eq!(saying.recv(), Ok(0));
        assert!((0..1_000_000).any(|_| counted() > 1), "it waits again");

        drop(go);
        thread.join().unwrap();
    }

    #[test]
    fn files_with_context_switches_stay_open_if_they_are_kept_until_they_are_closed() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::new(child.id() as i32).unwrap();
        let files = |statuses: &[StatusFiles]| {
            let mut tasks = Tasks::default();
            let mut advance = |statuses| {
                tasks.advance(&process, 1, 64, statuses).unwrap();
                tasks.files()
            };
            let files: Vec<_> = statuses.iter().map(|statuses| advance(*statuses)).collect();
            tasks.close_statuses();
            (files, tasks.files())
        };

        assert_eq!(files(&[StatusFiles::Opened, StatusFiles::Unread]), (vec![1, 1], 1));
        assert_eq!(files(&[StatusFiles::Kept, StatusFiles::Unread]), (vec![2, 2], 1));

        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn threads_that_come_and_go_are_followed_and_totals_never_go_back() {
        let process = Process::new(std::process::id() as i32).unwrap();
        let threads = || process.stat().unwrap().num_threads as usize;
        let mut tasks = Tasks::default();
        let first = tasks.advance(&process, threads(), 64, StatusFiles::Kept).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || _ = stopped.recv());

        let with = tasks.advance(&process, threads(), 64, StatusFiles::Unread).unwrap();
        drop(stop);
        thread.join().unwrap();
        let without = tasks.advance(&process, threads(), 64, StatusFiles::Opened).unwrap();

        assert_eq!(first, Totals::default(), "what was before is not counted");
        assert!(with.ran_ns > 0 && without.ran_ns >= with.ran_ns);
        assert!(without.voluntary + without.involuntary > 0);
        assert_eq!(tasks.advance(&process, 65, 64, StatusFiles::Unread), None);
        let again = tasks.advance(&process, threads(), 64, StatusFiles::Unread).unwrap();
        assert_eq!(again, without, "nothing is counted twice");
    }
}

//! Running and waiting time of the threads of one process, in nanoseconds.
//!
//! Their files stay open between samples: opening one costs six times as much as reading it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Read as _;

use procfs::process::Process;
use rustix::fs::Dir;

use super::proc_file::read;
use sources::process::{FromText as _, Schedstat, Switches};

struct OpenTask {
    schedstat: File,
    ran_ns: u64,
    waited_ns: u64,
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
    /// Adds what the threads did since the last call. Context switches are expensive and read only with `switches`. If
    /// threads started or ended, they are listed again. `None` if the kernel has no statistics of threads, or there are
    /// more than `most`.
    pub fn advance(&mut self, process: &Process, threads: usize, most: usize, switches: bool) -> Option<Totals> {
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
            self.list(process, most)?;
        } else if switches {
            for (tid, task) in open {
                task.count_switches(process, *tid, totals);
            }
        }
        (!self.open.is_empty()).then_some(self.totals)
    }

    /// How many files are open.
    pub fn files(&self) -> usize {
        self.open.len()
    }

    fn list(&mut self, process: &Process, most: usize) -> Option<()> {
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
                opened.count_switches(process, tid, totals);
            }
        }
        self.complete = true;
        Some(())
    }
}

impl OpenTask {
    fn open(process: &Process, tid: i32) -> Option<Self> {
        let schedstat = process.open_relative(format!("task/{tid}/schedstat")).ok()?;
        Some(Self { schedstat, ran_ns: 0, waited_ns: 0, voluntary: 0, involuntary: 0 })
    }

    /// `None` if it has ended.
    fn advance(&mut self, totals: &mut Totals) -> Option<()> {
        let now: Schedstat = read(&self.schedstat)?;
        totals.ran_ns += now.ran_ns.saturating_sub(self.ran_ns);
        totals.waited_ns += now.waited_ns.saturating_sub(self.waited_ns);
        (self.ran_ns, self.waited_ns) = (now.ran_ns, now.waited_ns);
        Some(())
    }

    fn count_switches(&mut self, process: &Process, tid: i32, totals: &mut Totals) {
        let Some(switches) = switches(process, tid) else { return };
        let voluntary = switches.voluntary.unwrap_or(self.voluntary);
        let involuntary = switches.involuntary.unwrap_or(self.involuntary);
        totals.voluntary += voluntary.saturating_sub(self.voluntary);
        totals.involuntary += involuntary.saturating_sub(self.involuntary);
        (self.voluntary, self.involuntary) = (voluntary, involuntary);
    }
}

/// Context switches of thread `tid`; `None` if it has ended.
fn switches(process: &Process, tid: i32) -> Option<Switches> {
    // The file has no size limit: it lists the user's groups.
    let mut text = Vec::with_capacity(4096);
    process.open_relative(format!("task/{tid}/status")).ok()?.read_to_end(&mut text).ok()?;
    Switches::from_text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_and_go_are_followed_and_totals_never_go_back() {
        let process = Process::new(std::process::id() as i32).unwrap();
        let threads = || process.stat().unwrap().num_threads as usize;
        let mut tasks = Tasks::default();
        let first = tasks.advance(&process, threads(), 64, true).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || _ = stopped.recv());

        let with = tasks.advance(&process, threads(), 64, false).unwrap();
        drop(stop);
        thread.join().unwrap();
        let without = tasks.advance(&process, threads(), 64, true).unwrap();

        assert_eq!(first, Totals::default(), "what was before is not counted");
        assert!(with.ran_ns > 0 && without.ran_ns >= with.ran_ns);
        assert!(without.voluntary + without.involuntary > 0);
        assert_eq!(tasks.advance(&process, 65, 64, false), None);
        let again = tasks.advance(&process, threads(), 64, false).unwrap();
        assert_eq!(again, without, "nothing is counted twice");
    }
}

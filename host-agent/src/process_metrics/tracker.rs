//! Follows the processes of a program from sample to sample, and looks only at those that are new.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use procfs::process::Process;
use sources::selection::{Candidate, SelectedProcesses, Selector, select};
use wire::time::Nanos;

use super::candidates::{candidate, candidates};

/// All processes are listed again after this time: one may have changed its name, or lost its parent.
const LIST_EVERY: Nanos = Nanos::from_secs(10);
/// With more new processes than this since the last look, listing all of them costs less.
const MAX_NEW: u32 = 256;
/// A process that executes a program has no words for a moment. One that has none for longer is the kernel's.
const WORDLESS: Nanos = Nanos::from_secs(1);

/// The processes that a selector names, kept current.
///
/// The kernel tells the id that it gave last (/proc/loadavg), so that a look costs one small file, one for each root,
/// and a few for each process or thread that started since the last one. A program that restarts is found at the next
/// look.
#[derive(Debug)]
pub struct ProcessTracker {
    selector: Selector,
    own: u32,
    known: BTreeMap<u32, Candidate>,
    selected: SelectedProcesses,
    /// The newest id at the last look; `None` if the kernel does not tell.
    newest: Option<u32>,
    /// Those that were new at the last look, or have no words yet, and since when. They may have executed their program
    /// only after it.
    young: Vec<(u32, Nanos)>,
    next_list: Nanos,
    lists: u64,
}

impl ProcessTracker {
    /// Follows what `selector` names, never process `own`, which asks, nor its ancestors.
    #[must_use]
    pub fn new(selector: Selector, own: u32) -> Self {
        Self {
            selector,
            own,
            known: BTreeMap::new(),
            selected: SelectedProcesses::default(),
            newest: None,
            young: Vec::new(),
            next_list: Nanos::ZERO,
            lists: 0,
        }
    }

    /// What names the program.
    #[must_use]
    pub const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The processes at `now`. None are left if the program does not run.
    ///
    /// # Errors
    ///
    /// The error of the operating system if /proc cannot be listed.
    pub fn look(&mut self, now: Nanos) -> io::Result<&SelectedProcesses> {
        let newest = newest();
        let new = self.newest.zip(newest).and_then(|(before, newest)| Some((before, newest.checked_sub(before)?)));
        self.newest = newest;
        match new {
            Some((before, count)) if count <= MAX_NEW && now < self.next_list && self.has_its_roots() => {
                self.add(before + 1..=before + count, now);
            }
            _ => self.list(now)?,
        }
        Ok(&self.selected)
    }

    /// How often all processes were listed.
    #[must_use]
    pub const fn lists(&self) -> u64 {
        self.lists
    }

    fn list(&mut self, now: Nanos) -> io::Result<()> {
        let all = candidates(&self.selector)?;
        self.known = all.into_iter().map(|candidate| (candidate.pid, candidate)).collect();
        self.young.clear();
        // A program that does not run is looked for at each look that sees a new process.
        self.next_list = now.plus(LIST_EVERY);
        self.lists += 1;
        self.select();
        Ok(())
    }

    /// Whether the roots are those of the last look, and still there.
    fn has_its_roots(&self) -> bool {
        self.selected.roots.iter().all(|&(pid, started)| {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok();
            stat.and_then(|text| Candidate::from_stat(&text)).is_some_and(|root| root.started == started)
        })
    }

    fn add(&mut self, new: core::ops::RangeInclusive<u32>, now: Nanos) {
        let young = core::mem::take(&mut self.young).into_iter();
        let looked_at: Vec<_> = young.chain(new.map(|pid| (pid, now))).collect();
        if looked_at.is_empty() {
            return;
        }
        for (pid, since) in looked_at {
            // Threads have ids, too, and their stat looks like a process's.
            let found = if is_process(pid) { candidate(pid, &self.selector) } else { None };
            let Some(found) = found else {
                self.known.remove(&pid);
                continue;
            };
            let has_words = !self.selector.needs_commands() || !found.command.is_empty();
            let is_executing = !has_words && now.since(since).is_none_or(|age| age < WORDLESS);
            if self.known.insert(pid, found).is_none() || is_executing {
                self.young.push((pid, since));
            }
        }
        self.select();
    }

    fn select(&mut self) {
        let known: Vec<_> = self.known.values().cloned().collect();
        self.selected = select(&self.selector, &known, self.own);
    }
}

/// The id that the kernel gave last in the namespace of this process.
fn newest() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

fn is_process(pid: u32) -> bool {
    let status = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.status().ok());
    status.is_some_and(|status| u32::try_from(status.tgid) == Ok(pid))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use support::wait::Wait;

    use super::*;

    const WAIT: Wait = Wait::up_to(Duration::from_secs(20));

    /// A shell that runs the lines that it is told, and says when.
    struct Shell(Child, BufReader<std::process::ChildStdout>);

    impl Shell {
        fn start() -> Self {
            let mut child =
                Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh is installed");
            let out = BufReader::new(child.stdout.take().unwrap());
            Self(child, out)
        }

        /// Runs `line`, which prints one line.
        fn run(&mut self, line: &str) -> String {
            writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
            let mut said = String::new();
            self.1.read_line(&mut said).unwrap();
            said.trim().to_owned()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_child_and_its_end_are_seen_without_another_list() {
        let mut shell = Shell::start();
        let mut tracker = ProcessTracker::new(Selector::Pid(shell.0.id()), std::process::id());
        assert_eq!(tracker.look(Nanos::ZERO).unwrap().all.len(), 1);

        let child: u32 = shell.run("sleep 100 & echo $!").parse().unwrap();
        let all = tracker.look(Nanos(1)).unwrap().all.clone();

        assert_eq!(all, [shell.0.id(), child].into());
        // Other tests may start more processes at once than are looked at one by one.
        assert!(tracker.lists() <= 2, "{}", tracker.lists());
        shell.run(&format!("kill {child}; wait; echo done"));
        assert_eq!(tracker.look(LIST_EVERY).unwrap().all, [shell.0.id()].into());
    }

    #[test]
    fn threads_are_no_processes() {
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_pid() as u32).join().unwrap();
        let own = std::process::id();
        let running = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_pid() as u32;
            (id, is_process(id), std::path::Path::new(&format!("/proc/{id}/stat")).exists())
        });

        assert!(is_process(own));
        assert!(!is_process(thread));
        let (id, is_process, has_stat) = running.join().unwrap();
        assert!(!is_process && has_stat, "{id}");
    }

    #[test]
    fn an_id_that_was_given_to_another_process_is_no_root_any_more() {
        let shell = Shell::start();
        let pid = shell.0.id();
        let mut tracker = ProcessTracker::new(Selector::Pid(pid), std::process::id());
        let roots = tracker.look(Nanos::ZERO).unwrap().roots.clone();
        let lists = tracker.lists();

        // The root that is known had this id before: it started earlier.
        let started = |roots: &BTreeSet<(u32, u64)>| roots.iter().map(|(_, started)| *started).collect::<Vec<_>>();
        tracker.selected.roots = [(pid, started(&roots)[0] - 1)].into();
        assert_eq!(tracker.look(Nanos(1)).unwrap().roots, roots);
        assert_eq!(tracker.lists(), lists + 1, "all are listed again");

        // One that a name had selected, and whose id another program has now.
        tracker.selector = Selector::Name("uview-no-such-program".to_owned());
        tracker.selected.roots = [(pid, started(&roots)[0] - 1)].into();
        let found = tracker.look(Nanos(2)).unwrap();
        assert!(found.roots.is_empty() && found.all.is_empty(), "{found:?}");
    }

    #[test]
    fn ids_that_begin_again_from_below_are_listed_anew() {
        let shell = Shell::start();
        let pid = shell.0.id();
        let mut tracker = ProcessTracker::new(Selector::Pid(pid), std::process::id());
        tracker.look(Nanos::ZERO).unwrap();
        let (lists, ended) = (tracker.lists(), u32::MAX - 1);

        // A child of before the ids began again, which may be another process by now.
        tracker.known.insert(ended, Candidate { pid: ended, parent: pid, ..Candidate::default() });
        tracker.selected.all.insert(ended);
        tracker.newest = Some(u32::MAX);
        let all = tracker.look(Nanos(1)).unwrap().all.clone();

        assert_eq!((all, tracker.lists()), ([pid].into(), lists + 1));
    }

    #[test]
    fn a_program_that_starts_again_is_found_at_the_next_look() {
        let name = format!("uview-tracked-{}", std::process::id());
        let line = format!("while :; do sleep 1; done # {name}");
        let start = || Command::new("sh").args(["-c", &line]).spawn().unwrap();
        let mut first = start();
        let mut tracker = ProcessTracker::new(Selector::Command(name), 0);
        let mut now = 0;
        let mut root = || {
            now += 1;
            tracker.look(Nanos(now)).unwrap().roots.iter().next().map(|(pid, _)| *pid)
        };
        // It may still be a copy of this process, which has other words.
        assert_eq!(WAIT.until("the first is found", &mut root), first.id());

        first.kill().unwrap();
        first.wait().unwrap();
        // What it has just forked may still be a copy of it, too.
        WAIT.until("it has ended", || root().is_none());
        let mut second = start();

        assert_eq!(WAIT.until("the second is found", &mut root), second.id());
        second.kill().unwrap();
        second.wait().unwrap();
    }
}

//! Sums over the processes of one program: itself, its workers and other children.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use super::connections::{self, ConnectionReader};
use super::measures::{Measure, SLOW, Values};
use super::process::MeasuredProcess;
use crate::sampling_times::FASTEST;

/// Processes that are looked at between samples; further ones are not.
const LOOKED_AT: usize = 64;
/// The longest time for which one look stands.
const LOOK_STANDS: Nanos = Nanos(250_000_000);
/// Files that are kept open for all of them; with more threads, CPU time is accurate to a clock tick only.
const FILES: usize = 512;

struct Member {
    measured: MeasuredProcess,
    /// What it did before it was seen counts: it started meanwhile.
    from_start: bool,
    last: Values,
}

/// The processes of one program, measured as one.
///
/// Counters begin at 0 with the first sample and never go back, whatever processes come and go. What a process did
/// between its last sample and its end is not counted. Values that rise and fall are sums over those that live, but for
/// memory that they share: that of the process with most of it counts, once. It is as much as all share where they are
/// of one program; who shares what with whom is known to `smaps` only, which takes milliseconds to read.
pub struct Family {
    members: BTreeMap<u32, Member>,
    counted: Values,
    /// Bytes of shared memory that are in the sum of resident memory more than once.
    shared_again: u64,
    begun: bool,
    last_sample: Option<Nanos>,
    last_look: Option<Nanos>,
    slow_every: Nanos,
    last_slow: Option<Nanos>,
    /// Expensive counters are read with each sample.
    counts_all: bool,
    reader: ConnectionReader,
    connections: Values,
    /// When connections are read again, at the earliest.
    next_connections: Nanos,
    cpu_waits: MeanWait,
    disk_waits: MeanWait,
}

/// How long threads wait for one thing, in the mean of the turns that they have had since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct MeanWait {
    /// Time that all threads had waited, in ns, and their turns.
    before: Option<(u64, u64)>,
    /// `None` if the kernel does not tell.
    mean_ns: Option<u64>,
}

impl core::fmt::Debug for Family {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Family").field("processes", &self.members.keys()).finish_non_exhaustive()
    }
}

impl Family {
    /// Nothing measured yet; a sample is to be taken every `interval`. Expensive values are read once a second at most,
    /// and connections less often if there are many: listing them takes three percent of a core, as calculated. Where
    /// samples may come faster, each has all counters: what is of an earlier sample would be divided by a wrong time.
    #[must_use]
    pub fn new(interval: Nanos) -> Self {
        // A sample may come a little early.
        let slow_every = Nanos(interval.max(SLOW).0.saturating_sub(interval.0 / 2));
        Self {
            members: BTreeMap::new(),
            counted: Values::default(),
            shared_again: 0,
            begun: false,
            last_sample: None,
            last_look: None,
            slow_every,
            last_slow: None,
            counts_all: FASTEST < interval,
            reader: ConnectionReader::default(),
            connections: Values::default(),
            next_connections: Nanos::ZERO,
            cpu_waits: MeanWait::default(),
            disk_waits: MeanWait::default(),
        }
    }

    /// The values of processes `pids` at `now`. Those that cannot be read, or have ended, do not count.
    pub fn sample(&mut self, pids: &BTreeSet<u32>, now: Nanos) -> Values {
        let is_due = self.last_slow.is_none_or(|last| now >= last.plus(self.slow_every));
        self.sample_with(pids, now, (is_due || self.counts_all, is_due))
    }

    /// The same, between samples as they are usual: with all counters, also the expensive ones. Means over the last
    /// second and connections are not read more often.
    pub fn sample_all(&mut self, pids: &BTreeSet<u32>, now: Nanos) -> Values {
        let is_due = self.last_slow.is_none_or(|last| now >= last.plus(SLOW));
        self.sample_with(pids, now, (true, is_due))
    }

    /// `expensive`: with expensive counters; `slow`: with what is of the last second.
    fn sample_with(&mut self, pids: &BTreeSet<u32>, now: Nanos, (expensive, slow): (bool, bool)) -> Values {
        self.members.retain(|pid, _| pids.contains(pid));
        for &pid in pids {
            if !self.members.contains_key(&pid)
                && let Ok(measured) = MeasuredProcess::open(pid, Nanos::NEVER)
            {
                self.members.insert(pid, Member { measured, from_start: self.begun, last: Values::default() });
            }
        }
        let mut ended = Vec::new();
        let mut left = FILES;
        let mut network = true;
        let mut stopped = 0;
        let several = self.members.len() > 1;
        let (mut shared, mut most_shared) = (0_u64, 0);
        for (&pid, member) in &mut self.members {
            // At the same time for all of them: sums of expensive and other values are compared.
            let sampled = member.measured.sample_with(left, expensive);
            left = left.saturating_sub(member.measured.files());
            let Ok(mut values) = sampled else {
                ended.push(pid);
                continue;
            };
            // They share the namespace, so one of them tells its counters.
            if expensive && core::mem::take(&mut network) && member.measured.has_own_network() {
                self.reader.count(pid, &mut values);
            }
            stopped += u64::from(member.measured.is_stopped());
            if several && let Some(memory) = member.measured.memory() {
                values.set(Measure::MemoryUsage, memory.resident);
                (shared, most_shared) = (shared.saturating_add(memory.shared), memory.shared.max(most_shared));
            }
            count(&mut self.counted, &values, member);
        }
        for pid in ended {
            self.members.remove(&pid);
        }
        let elapsed = self.last_sample.and_then(|last| now.since(last)).unwrap_or_default();
        add(&mut self.counted, Measure::Stopped, elapsed.0.saturating_mul(stopped));
        self.last_sample = Some(now);
        self.shared_again = shared.saturating_sub(most_shared);
        self.begun |= !self.members.is_empty();
        if slow {
            self.last_slow = Some(now);
            let kinds = [Measure::SwitchesVoluntary, Measure::SwitchesInvoluntary];
            self.cpu_waits.advance(&self.counted, Measure::CpuWait, &kinds);
            self.disk_waits.advance(&self.counted, Measure::DiskWait, &kinds[..1]);
            if now >= self.next_connections {
                self.read_connections(now);
            }
        }
        self.sums()
    }

    /// Looks, between two samples, which processes sleep for a disk. Most kernels do not account for that time (sysctl
    /// `kernel.task_delayacct`, off since Linux 5.14): each look stands for the time since the one before. The more
    /// looks between two samples, the better the estimate. Nothing is done where the kernel accounts for it.
    pub fn look(&mut self, now: Nanos) {
        if self.members.values().next().is_none_or(|first| first.measured.accounts_for_disks()) {
            return;
        }
        let stands = self.last_look.and_then(|last| now.since(last)).unwrap_or_default().min(LOOK_STANDS);
        self.last_look = Some(now);
        let looked_at = self.members.values().take(LOOKED_AT);
        let asleep = looked_at.filter(|member| member.measured.is_in_disk_sleep()).count() as u64;
        add(&mut self.counted, Measure::DiskWait, stands.0.saturating_mul(asleep));
    }

    fn read_connections(&mut self, now: Nanos) {
        self.connections = Values::default();
        let same_network = self.members.values().next().is_some_and(|first| first.measured.has_same_network());
        let found = self.reader.connections(self.members.keys().copied(), same_network);
        if let Some(found) = found {
            connections::set(&found, &mut self.connections);
        }
        self.next_connections = now.plus(self.reader.pause());
    }

    /// Bytes of text that connections took when they were last read.
    #[must_use]
    pub fn connection_bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// The number of processes that the last sample is of.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.members.len()
    }

    fn sums(&self) -> Values {
        let mut sums = self.counted;
        let live = self.members.values().flat_map(|member| member.last.iter()).chain(self.connections.iter());
        for (measure, value) in live.filter(|(measure, _)| !measure.is_counter()) {
            add(&mut sums, measure, value);
        }
        if let Some(resident) = sums.get(Measure::MemoryUsage) {
            sums.set(Measure::MemoryUsage, resident.saturating_sub(self.shared_again));
        }
        let means =
            [(Measure::RunQueueLatency, self.cpu_waits.mean_ns), (Measure::DiskLatency, self.disk_waits.mean_ns)];
        for (measure, mean) in means.into_iter().filter_map(|(measure, mean)| Some((measure, mean?))) {
            sums.set(measure, mean);
        }
        sums
    }
}

impl MeanWait {
    /// Takes in how long all threads have waited by now, and how many context switches of `kinds` they have had: after
    /// each wait for a processor there is one of some kind, before one for a disk a voluntary one.
    fn advance(&mut self, counted: &Values, waited: Measure, kinds: &[Measure]) {
        let Some(waited_ns) = counted.get(waited) else { return };
        let turns = kinds.iter().filter_map(|kind| counted.get(*kind)).fold(0, u64::saturating_add);
        let (waited_before, turns_before) = self.before.replace((waited_ns, turns)).unwrap_or((waited_ns, turns));
        self.mean_ns = Some(waited_ns.saturating_sub(waited_before) / turns.saturating_sub(turns_before).max(1));
    }
}

/// Adds what `member` did since its last sample, and keeps this one.
fn count(counted: &mut Values, values: &Values, member: &mut Member) {
    for (measure, value) in values.iter() {
        if measure.is_counter() {
            let first = if member.from_start { 0 } else { value };
            let before = member.last.get(measure).unwrap_or(first);
            add(counted, measure, value.saturating_sub(before));
        }
        member.last.set(measure, value);
    }
}

fn add(sums: &mut Values, measure: Measure, value: u64) {
    sums.set(measure, sums.get(measure).unwrap_or(0).saturating_add(value));
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command};

    use super::*;

    struct Killed(Child);

    impl Killed {
        fn start(script: &str) -> Self {
            Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
        }
    }

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn cpu(values: &Values) -> u64 {
        values.get(Measure::CpuUser).unwrap() + values.get(Measure::CpuSystem).unwrap()
    }

    #[test]
    fn counters_begin_at_zero_and_never_go_back_when_processes_end() {
        let (one, mut two) = (Killed::start("exec sleep 100"), Killed::start("while :; do :; done"));
        let both: BTreeSet<u32> = [one.0.id(), two.0.id()].into();
        let is_asleep =
            || std::fs::read_to_string(format!("/proc/{}/comm", one.0.id())).is_ok_and(|name| name == "sleep\n");
        assert!((0..1_000_000).any(|_| is_asleep()), "it runs its own program");
        let mut family = Family::new(SLOW);

        let mut last = family.sample(&both, Nanos::ZERO);
        assert_eq!((cpu(&last), family.processes()), (0, 2));
        // The other one does by then, too.
        while cpu(&last) < 20_000_000 {
            last = family.sample(&both, Nanos(1));
        }
        let memory = last.get(Measure::MemoryUsage).unwrap();
        two.0.kill().unwrap();
        two.0.wait().unwrap();
        let after = family.sample(&both, Nanos(2));

        assert_eq!(family.processes(), 1);
        assert!(cpu(&after) >= cpu(&last), "{} {}", cpu(&after), cpu(&last));
        assert!(after.get(Measure::MemoryUsage).unwrap() < memory);
        assert_eq!(after.get(Measure::Threads), Some(1));
    }

    #[test]
    fn memory_that_several_processes_share_counts_once() {
        let both = [Killed::start("exec sleep 100"), Killed::start("exec sleep 100")];
        let pids: BTreeSet<u32> = both.iter().map(|killed| killed.0.id()).collect();
        let statm = |pid: &u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
            let pages: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
            (pages[1] * procfs::page_size(), pages[2] * procfs::page_size())
        };
        let mut family = Family::new(SLOW);

        // They may still be loading their libraries.
        let agree = (0..10_000).any(|_| {
            let measured = family.sample(&pids, Nanos::ZERO).get(Measure::MemoryUsage).unwrap();
            let each: Vec<_> = pids.iter().map(statm).collect();
            let (resident, shared) = (each[0].0 + each[1].0, each[0].1.min(each[1].1));
            shared > 0 && measured == resident - shared
        });

        assert!(agree, "{:?} of {:?}", family.sums(), pids.iter().map(statm).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_process_did_before_it_joined_counts_if_it_started_meanwhile() {
        let one = Killed::start("exec sleep 100");
        let mut family = Family::new(SLOW);
        family.sample(&[one.0.id()].into(), Nanos::ZERO);
        let two = Killed::start("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exec sleep 100");
        let stat = format!("/proc/{}/comm", two.0.id());
        while std::fs::read_to_string(&stat).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }

        let joined = family.sample(&[one.0.id(), two.0.id()].into(), Nanos(1));

        assert!(cpu(&joined) >= 10_000_000, "{}", cpu(&joined));
    }

    #[test]
    fn connections_are_read_once_a_second_at_most_and_the_more_there_are_the_less_often() {
        let own: BTreeSet<u32> = [std::process::id()].into();
        let mut family = Family::new(Nanos::from_millis(100));
        // Each reading moves the time of the next one.
        let at = |millis, family: &mut Family| {
            let before = family.next_connections;
            family.sample(&own, Nanos::from_millis(millis));
            family.next_connections != before
        };

        assert!(at(0, &mut family));
        // As if there were few, however many other programs have.
        family.next_connections = Nanos(1);
        assert_eq!([500, 900, 1000].map(|millis| at(millis, &mut family)), [false, false, true]);
        // As after ten seconds' worth of them.
        family.next_connections = Nanos::from_secs(11);
        assert_eq!([3000, 10_900, 11_900].map(|millis| at(millis, &mut family)), [false, false, true]);
    }

    #[test]
    fn the_time_for_which_a_signal_has_stopped_a_process_is_counted() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pids: BTreeSet<u32> = [std::process::id(), child.id()].into();
        let mut family = Family::new(SLOW);
        let mut now = Nanos::ZERO;
        let mut grows = || {
            let before = family.sums().get(Measure::Stopped);
            now = now.plus(Nanos(7));
            let after = family.sample(&pids, now).get(Measure::Stopped).unwrap();
            after - before.unwrap_or(0)
        };
        let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert_eq!((grows(), grows()), (0, 0));

        signal(rustix::process::Signal::STOP);
        // The signal takes effect when the child is next scheduled.
        assert!((0..1_000_000).any(|_| grows() == 7));
        signal(rustix::process::Signal::CONT);
        assert!((0..1_000_000).any(|_| grows() == 0));

        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_mean_wait_for_a_processor_is_that_since_the_last_look() {
        let counted = |waited, voluntary, involuntary| {
            let mut values = Values::default();
            values.set(Measure::CpuWait, waited);
            values.set(Measure::SwitchesVoluntary, voluntary);
            values.set(Measure::SwitchesInvoluntary, involuntary);
            values
        };
        let mut waits = MeanWait::default();
        let mut mean = |values: &Values| {
            waits.advance(values, Measure::CpuWait, &[Measure::SwitchesVoluntary, Measure::SwitchesInvoluntary]);
            waits.mean_ns
        };

        assert_eq!(mean(&Values::default()), None);
        assert_eq!(mean(&counted(900, 50, 50)), Some(0));
        assert_eq!(mean(&counted(1_900, 55, 55)), Some(100));
        // Nobody ran.
        assert_eq!(mean(&counted(1_900, 55, 55)), Some(0));
    }

    #[test]
    fn expensive_values_of_all_processes_are_read_with_the_same_sample() {
        let (one, two) = (Killed::start("exec sleep 100"), Killed::start("while :; do :; done"));
        let mut family = Family::new(Nanos::from_millis(100));
        family.sample(&[one.0.id()].into(), Nanos::ZERO);
        let both = [one.0.id(), two.0.id()].into();
        let switches = |values: &Values| values.get(Measure::SwitchesInvoluntary);

        // The second one joins between.
        let joined = family.sample(&both, Nanos::from_millis(500));
        let with_expensive = |family: &mut Family, millis| {
            let before = family.members.values().filter(|member| switches(&member.last).is_some()).count();
            family.sample(&both, Nanos::from_millis(millis));
            (before, family.members.values().filter(|member| switches(&member.last).is_some()).count())
        };

        assert!(joined.get(Measure::CpuWait).is_none_or(|_| switches(&joined).is_some()));
        assert_eq!(with_expensive(&mut family, 900), (1, 1));
        assert_eq!(with_expensive(&mut family, 1_000), (1, 2));
    }

    #[test]
    fn where_samples_may_come_faster_each_has_the_expensive_counters() {
        let pid = std::process::id();
        let is_read_again = |millis| {
            let mut family = Family::new(Nanos::from_millis(millis));
            family.sample(&[pid].into(), Nanos::ZERO);
            family.members.get_mut(&pid).unwrap().last.set(Measure::Descriptors, u64::MAX);
            family.sample(&[pid].into(), Nanos::from_millis(millis));
            family.members[&pid].last.get(Measure::Descriptors) != Some(u64::MAX)
        };

        assert_eq!([100, 200, 500, 1_000].map(is_read_again), [false, true, true, true]);
    }

    #[test]
    fn processes_that_share_a_processor_wait_for_it() {
        // The first one that this process may use. By exec, so that the loop is what is killed.
        let burner = "exec taskset -c \"$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')\" sh -c 'while :; do :; done'";
        let both = [burner; 2].map(Killed::start);
        let pids: BTreeSet<u32> = both.iter().map(|killed| killed.0.id()).collect();
        let mut family = Family::new(SLOW);

        let waited = (0..1_000_000_u64).any(|second| {
            let values = family.sample(&pids, Nanos::from_secs(second));
            values.get(Measure::RunQueueLatency) > Some(100_000)
        });

        assert!(waited, "{:?}", family.cpu_waits);
    }

    #[test]
    fn time_in_uninterruptible_sleep_is_estimated_from_looks_where_the_kernel_does_not_account_for_it() {
        // Until its child executes a program, a process that made it by vfork sleeps uninterruptibly. The child waits
        // for the writer of a pipe, which opens it only at the end.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = "import os, sys\nos.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, \
                      sys.argv[1], os.O_RDONLY, 0)])\nprint(1, flush=True)\nimport time\ntime.sleep(100)";
        let python = Command::new("python3").args(["-c", script]).arg(&pipe).spawn();
        let Ok(python) = python else {
            return support::harness::not_run("it needs python3");
        };
        let python = Killed(python);
        let pids: BTreeSet<u32> = [python.0.id()].into();
        let mut family = Family::new(SLOW);
        family.sample(&pids, Nanos::ZERO);
        let (mut now, mut before) = (Nanos::ZERO, 0);
        let mut grows = |family: &mut Family| {
            now = now.plus(Nanos::from_millis(100));
            family.look(now);
            let waited = family.sums().get(Measure::DiskWait).unwrap_or_default();
            core::mem::replace(&mut before, waited) != waited
        };
        if family.members.values().all(|member| member.measured.accounts_for_disks()) {
            assert!(!grows(&mut family), "the kernel accounts for it");
            return;
        }

        assert!((0..1_000_000).any(|_| grows(&mut family)), "it waits for its child");
        let waited = family.sums().get(Measure::DiskWait).unwrap();
        assert_eq!(waited % 100_000_000, 0, "{waited}");
        std::fs::write(&pipe, "").unwrap();
        assert!((0..1_000_000).any(|_| !grows(&mut family)), "its child has gone on");
    }

    #[test]
    fn connections_of_this_process_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own: BTreeSet<u32> = [std::process::id()].into();
        let mut family = Family::new(SLOW);
        family.sample(&own, Nanos::ZERO);

        let _clients: Vec<_> = (0..3).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        let values = family.sample(&own, SLOW);

        // Other tests of this process may have connections of their own, which come and go.
        assert!(values.get(Measure::Unaccepted).unwrap() >= 3);
        assert!(values.get(Measure::Established).unwrap() >= 3);
    }
}

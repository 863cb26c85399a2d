//! Reads one process's values from /proc.

use std::fs::File;
use std::path::PathBuf;

use procfs::ProcError;
use procfs::process::Process;
use wire::time::Nanos;

use super::cpu_time::CpuTime;
use super::measures::{Measure, SLOW, Values};
use super::proc_file::read;
use super::tasks::{StatusFiles, Tasks};
use sources::process::{Io, Stat, Statm};

/// Threads of a process with more threads than this are not read: its CPU time is accurate to a clock tick only, and
/// its waiting time is missing.
pub const MAX_TASKS: usize = 64;
/// Expensive values are read again after this time: a sample may come a little early, and would have none of them.
pub(super) const SLOW_AT: Nanos = Nanos(SLOW.0 - SLOW.0 / 20);

/// Why a process is not measured, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It has ended, or /proc hides it from this user.
    #[error("process {pid} cannot be read")]
    Unreadable {
        /// The process id.
        pid: u32,
        /// The cause, from /proc.
        #[source]
        cause: ProcError,
    },
    /// It has ended.
    #[error("process {0} has ended")]
    Ended(u32),
    /// The process id was given to another process.
    #[error("process id {0} was reused by another process")]
    Reused(u32),
}

/// The network namespace of a process, beside that of this one.
#[derive(Clone, Copy, Debug)]
enum NetworkNamespace {
    Same,
    Own,
    Unknown,
}

/// A measured process. Holds a descriptor of its /proc directory, so that the process id cannot come to mean another
/// process.
pub struct MeasuredProcess {
    pid: u32,
    process: Process,
    stat: File,
    /// `None` if access is denied: for other users' processes, only root may read it.
    io: Option<File>,
    /// Opened when it is first read: only programs of several processes need it.
    statm: Option<File>,
    /// The folder of its open files, opened when they are first counted. `None` if access is denied.
    folder: Option<File>,
    started: u64,
    tick_ns: u64,
    page_bytes: u64,
    network: NetworkNamespace,
    stopped: bool,
    delay_accounting: bool,
    cpu: CpuTime,
    tasks: Tasks,
    keeps_statuses: bool,
    ran_ns: u64,
    last_slow: Option<Nanos>,
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it.
    pub resident: u64,
    /// Of it, what other processes may map, too.
    pub shared: u64,
}

fn network_of(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

impl MeasuredProcess {
    /// Opens process `pid`, which connected at `connected` since boot.
    ///
    /// # Errors
    ///
    /// [`ProcessError`] if it has ended, is hidden, or is another process by now.
    pub fn open(pid: u32, connected: Nanos) -> Result<Self, ProcessError> {
        let unreadable = |cause| ProcessError::Unreadable { pid, cause };
        let process = Process::new(i32::try_from(pid).unwrap_or(0)).map_err(unreadable)?;
        let stat_file = process.open_relative("stat").map_err(unreadable)?;
        let stat: Stat = read(&stat_file).ok_or(ProcessError::Ended(pid))?;
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        if stat.started.saturating_mul(tick_ns) > connected.0 {
            return Err(ProcessError::Reused(pid));
        }
        let (own, its) = (network_of("self"), network_of(&pid.to_string()));
        let accounting = std::fs::read_to_string("/proc/sys/kernel/task_delayacct");
        Ok(Self {
            pid,
            io: process.open_relative("io").ok(),
            process,
            statm: None,
            folder: None,
            stat: stat_file,
            started: stat.started,
            tick_ns,
            page_bytes: procfs::page_size(),
            network: match its {
                None => NetworkNamespace::Unknown,
                its if its == own => NetworkNamespace::Same,
                _ => NetworkNamespace::Own,
            },
            stopped: stat.stopped,
            delay_accounting: accounting.is_ok_and(|text| text.trim() == "1"),
            cpu: CpuTime::new(stat.user_ticks, stat.system_ticks, tick_ns),
            tasks: Tasks::default(),
            keeps_statuses: false,
            ran_ns: 0,
            last_slow: None,
        })
    }

    /// Whether it has another network namespace than this process.
    pub const fn has_own_network(&self) -> bool {
        matches!(self.network, NetworkNamespace::Own)
    }

    /// Whether it is known to have the network namespace of this process.
    pub const fn has_same_network(&self) -> bool {
        matches!(self.network, NetworkNamespace::Same)
    }

    /// Whether it was stopped by a signal when it was last sampled.
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether the kernel accounts for the time that processes wait for disks.
    pub const fn accounts_for_disks(&self) -> bool {
        self.delay_accounting
    }

    /// Whether it sleeps for a disk now.
    pub fn is_in_disk_sleep(&self) -> bool {
        let stat: Option<Stat> = read(&self.stat);
        stat.is_some_and(|stat| stat.started == self.started && stat.disk_sleep)
    }

    /// Number of files open for it.
    pub fn files(&self) -> usize {
        let opened = [&self.io, &self.statm, &self.folder].into_iter().flatten().count();
        2 + opened + self.tasks.files()
    }

    /// Files with context switches of its threads stay open from now on, or not, as at first. They are as many as there
    /// are threads, beside those that [`sample`](Self::sample) may open.
    pub fn keep_statuses(&mut self, keep: bool) {
        self.keeps_statuses = keep;
        if !keep {
            self.tasks.close_statuses();
        }
    }

    /// Its memory, told apart. `None` if it has ended.
    pub fn memory(&mut self) -> Option<Memory> {
        if self.statm.is_none() {
            self.statm = self.process.open_relative("statm").ok();
        }
        let statm: Statm = read(self.statm.as_ref()?)?;
        let bytes = |pages: u64| pages.saturating_mul(self.page_bytes);
        Some(Memory { resident: bytes(statm.resident_pages), shared: bytes(statm.shared_pages) })
    }

    /// Its values at `now`. Reads at most `most` threads. Unreadable values are left out, and so are expensive ones,
    /// except once a second.
    ///
    /// # Errors
    ///
    /// [`ProcessError`] if it has ended.
    pub fn sample(&mut self, now: Nanos, most: usize) -> Result<Values, ProcessError> {
        if self.last_slow.is_none_or(|last| now >= last.plus(SLOW_AT)) {
            return self.sample_all(now, most);
        }
        self.sample_with(most, false)
    }

    /// The same, with all values, also the expensive ones.
    ///
    /// # Errors
    ///
    /// [`ProcessError`] if it has ended.
    pub fn sample_all(&mut self, now: Nanos, most: usize) -> Result<Values, ProcessError> {
        let values = self.sample_with(most, true)?;
        self.last_slow = Some(now);
        Ok(values)
    }

    /// As [`Self::sample`], with expensive values only if `slow`.
    pub(super) fn sample_with(&mut self, most: usize, slow: bool) -> Result<Values, ProcessError> {
        let stat: Stat = read(&self.stat).ok_or(ProcessError::Ended(self.pid))?;
        if stat.started != self.started {
            return Err(ProcessError::Reused(self.pid));
        }
        self.stopped = stat.stopped;
        let mut values = Values::default();
        let statuses = match (slow, self.keeps_statuses) {
            (false, _) => StatusFiles::Unread,
            (true, false) => StatusFiles::Opened,
            (true, true) => StatusFiles::Kept,
        };
        let tasks = self.tasks.advance(&self.process, stat.threads as usize, most.min(MAX_TASKS), statuses);
        let total = tasks.map_or(self.ran_ns, |tasks| tasks.ran_ns);
        let ran = total.saturating_sub(self.ran_ns);
        self.ran_ns = total;
        self.cpu.advance(ran, stat.user_ticks, stat.system_ticks, self.tick_ns);
        self.add_stat(&stat, &mut values);
        self.add_io(&mut values);
        if let Some(tasks) = tasks {
            values.set(Measure::CpuWait, tasks.waited_ns);
        }
        if slow {
            if let Some(tasks) = tasks {
                values.set(Measure::SwitchesVoluntary, tasks.voluntary);
                values.set(Measure::SwitchesInvoluntary, tasks.involuntary);
            }
            self.read_slow(&mut values);
        }
        Ok(values)
    }

    fn add_stat(&self, stat: &Stat, values: &mut Values) {
        values.set(Measure::CpuUser, self.cpu.user_ns());
        values.set(Measure::CpuSystem, self.cpu.system_ns());
        values.set(Measure::Threads, stat.threads);
        values.set(Measure::MemoryUsage, stat.resident_pages.saturating_mul(self.page_bytes));
        values.set(Measure::MemoryVirtual, stat.virtual_bytes);
        values.set(Measure::FaultsMinor, stat.minor_faults);
        values.set(Measure::FaultsMajor, stat.major_faults);
        if let Some(ticks) = stat.disk_wait_ticks.filter(|_| self.delay_accounting) {
            values.set(Measure::DiskWait, ticks.saturating_mul(self.tick_ns));
        }
    }

    fn add_io(&self, values: &mut Values) {
        let Some(io) = self.io.as_ref().and_then(read::<Io>) else { return };
        values.set(Measure::DiskRead, io.disk_read);
        values.set(Measure::DiskWrite, io.disk_written);
        values.set(Measure::BytesRead, io.bytes_read);
        values.set(Measure::BytesWritten, io.bytes_written);
        values.set(Measure::Reads, io.reads);
        values.set(Measure::Writes, io.writes);
    }

    fn read_slow(&mut self, values: &mut Values) {
        if let Some(descriptors) = self.descriptors() {
            values.set(Measure::Descriptors, descriptors);
        }
        // Reading the list of devices costs as much as a whole sample.
        if !self.has_own_network() {
            return;
        }
        let Ok(devices) = self.process.dev_status() else { return };
        let (mut received, mut sent) = (0_u64, 0_u64);
        for device in devices.values().filter(|device| device.name != "lo") {
            received = received.saturating_add(device.recv_bytes);
            sent = sent.saturating_add(device.sent_bytes);
        }
        values.set(Measure::NetworkReceived, received);
        values.set(Measure::NetworkTransmitted, sent);
    }

    /// Number of its open files. Since Linux 6.2 the size of /proc/PID/fd is that number, which costs a thirtieth of
    /// listing it; its folder stays open, which makes it one system call.
    fn descriptors(&mut self) -> Option<u64> {
        if self.folder.is_none() {
            self.folder = self.process.open_relative("fd").ok();
        }
        let size = self.folder.as_ref()?.metadata().ok()?.len();
        if size > 0 { Some(size) } else { self.process.fd_count().ok().map(|count| count as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn this_process_is_measured() {
        let mut measured = MeasuredProcess::open(std::process::id(), clock::since_boot()).unwrap();
        let first = measured.sample(Nanos::ZERO, MAX_TASKS).unwrap();
        let mut sum = 0_u64;
        let user = |values: &Values| values.get(Measure::CpuUser).unwrap();
        while user(&measured.sample(Nanos(1), MAX_TASKS).unwrap()) < user(&first) + 30_000_000 {
            sum = (0..100_000_u64).fold(sum, |sum, x| sum.wrapping_mul(31).wrapping_add(x));
        }
        std::hint::black_box(sum);

        let second = measured.sample(SLOW, MAX_TASKS).unwrap();

        for measure in [Measure::CpuUser, Measure::Threads, Measure::MemoryUsage, Measure::Descriptors, Measure::Reads]
        {
            assert!(second.get(measure) > Some(0), "{measure:?}");
        }
        let switches =
            [Measure::SwitchesInvoluntary, Measure::SwitchesVoluntary].map(|measure| second.get(measure).unwrap());
        assert!(switches.iter().sum::<u64>() > 0);
        assert_eq!(measured.sample(SLOW.plus(Nanos(1)), 0).unwrap().get(Measure::Descriptors), None);
    }

    #[test]
    fn open_files_are_as_many_as_a_list_of_them_has() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut measured = MeasuredProcess::open(child.id(), Nanos::NEVER).unwrap();
        let files = measured.files();
        let listed = || std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count() as u64;

        // It may still be opening libraries.
        let agree = (0..10_000).any(|_| measured.descriptors() == Some(listed()));

        assert!(agree && listed() >= 3, "{:?}", measured.descriptors());
        assert_eq!(measured.files(), files + 1, "their folder stays open");

        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn waiting_for_disks_is_measured_where_the_kernel_accounts_for_it_and_left_out_where_not() {
        let mut measured = MeasuredProcess::open(std::process::id(), clock::since_boot()).unwrap();
        let accounts = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").is_ok_and(|text| text == "1\n");
        let ticks = |measured: &MeasuredProcess| measured.process.stat().unwrap().delayacct_blkio_ticks.unwrap();
        let waited =
            |measured: &mut MeasuredProcess| measured.sample(Nanos::ZERO, MAX_TASKS).unwrap().get(Measure::DiskWait);

        assert_eq!(waited(&mut measured).is_some(), accounts, "as this kernel is set");
        // Without accounting the field is 0, like a process that never waits.
        measured.delay_accounting = false;
        assert_eq!(waited(&mut measured), None);
        measured.delay_accounting = true;
        let before = ticks(&measured);
        let found = waited(&mut measured).unwrap();
        assert!((before..=ticks(&measured)).any(|ticks| ticks * measured.tick_ns == found), "{found} ns");
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_noticed() {
        let before_it_started = Nanos(1);

        assert!(matches!(MeasuredProcess::open(std::process::id(), before_it_started), Err(ProcessError::Reused(_))));
        assert!(matches!(MeasuredProcess::open(0, Nanos::NEVER), Err(ProcessError::Unreadable { .. })));
    }

    #[test]
    fn a_number_that_is_given_to_another_process_between_two_samples_is_noticed() {
        let pid = std::process::id();
        let mut measured = MeasuredProcess::open(pid, clock::since_boot()).unwrap();
        assert!(measured.sample(Nanos::ZERO, MAX_TASKS).is_ok());

        // As if the one that was opened had started before this one, which has its number now.
        measured.started -= 1;

        assert!(matches!(measured.sample(Nanos(1), MAX_TASKS), Err(ProcessError::Reused(found)) if found == pid));
        assert!(!measured.is_in_disk_sleep(), "what another one does is not its state");
    }

    #[test]
    fn a_process_that_ended_is_not_measured_any_more() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut measured = MeasuredProcess::open(child.id(), Nanos::NEVER).unwrap();
        assert!(measured.sample(Nanos::ZERO, MAX_TASKS).is_ok());

        child.kill().unwrap();
        child.wait().unwrap();

        assert!(measured.sample(Nanos(1), MAX_TASKS).is_err());
    }
}

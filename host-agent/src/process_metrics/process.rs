//! Reads one process's values from /proc.

use std::collections::BTreeMap;
use std::path::PathBuf;

use procfs::ProcError;
use procfs::process::{Process, Stat, Task};
use wire::time::Nanos;

use super::cpu_time::CpuTime;
use super::measures::{Measure, SLOW};

/// A process with more threads is read without them: to the clock tick only, and without waiting times.
const MAX_TASKS: usize = 64;

/// Why a process is not measured, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It is gone, or /proc does not show it to this user.
    #[error("process {pid} cannot be read")]
    Unreadable {
        /// Which process.
        pid: u32,
        /// Why.
        #[source]
        cause: ProcError,
    },
    /// Its number was given to another process.
    #[error("process {0} is another one than that which connected")]
    Reused(u32),
}

#[derive(Clone, Copy, Default)]
struct TaskCounts {
    ran_ns: u64,
    waited_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

/// A process that is measured. Holds a descriptor of its directory in /proc, which never becomes that of another process.
pub struct Measured {
    pid: u32,
    process: Process,
    started: u64,
    tick_ns: u64,
    page_bytes: u64,
    own_network: bool,
    delay_accounting: bool,
    cpu: CpuTime,
    waited_ns: u64,
    voluntary: u64,
    involuntary: u64,
    tasks: BTreeMap<i32, TaskCounts>,
    last_slow: Option<Nanos>,
}

fn network_of(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

impl Measured {
    /// The process `pid`, which connected at `connected` after boot.
    ///
    /// # Errors
    ///
    /// [`ProcessError`] if it is gone, hidden or another one by now.
    pub fn open(pid: u32, connected: Nanos) -> Result<Self, ProcessError> {
        let unreadable = |cause| ProcessError::Unreadable { pid, cause };
        let process = Process::new(i32::try_from(pid).unwrap_or(0)).map_err(unreadable)?;
        let stat = process.stat().map_err(unreadable)?;
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        if stat.starttime.saturating_mul(tick_ns) > connected.0 {
            return Err(ProcessError::Reused(pid));
        }
        let (own, its) = (network_of("self"), network_of(&pid.to_string()));
        let accounting = std::fs::read_to_string("/proc/sys/kernel/task_delayacct");
        Ok(Self {
            pid,
            process,
            started: stat.starttime,
            tick_ns,
            page_bytes: procfs::page_size(),
            own_network: its.is_some() && own != its,
            delay_accounting: accounting.is_ok_and(|text| text.trim() == "1"),
            cpu: CpuTime::new(stat.utime, stat.stime, tick_ns),
            waited_ns: 0,
            voluntary: 0,
            involuntary: 0,
            tasks: BTreeMap::new(),
            last_slow: None,
        })
    }

    /// Its values at `now`. What cannot be read is left out; so is, most of the time, what is expensive.
    ///
    /// # Errors
    ///
    /// [`ProcessError`] if it is gone.
    pub fn sample(&mut self, now: Nanos) -> Result<BTreeMap<Measure, u64>, ProcessError> {
        let stat = self.process.stat().map_err(|cause| ProcessError::Unreadable { pid: self.pid, cause })?;
        if stat.starttime != self.started {
            return Err(ProcessError::Reused(self.pid));
        }
        let slow = self.last_slow.is_none_or(|last| now >= last.plus(SLOW));
        let mut values = BTreeMap::new();
        let few = stat.num_threads as usize <= MAX_TASKS;
        let ran = if few { self.read_tasks(slow) } else { None };
        self.cpu.advance(ran.unwrap_or(0), stat.utime, stat.stime, self.tick_ns);
        if ran.is_some() {
            values.insert(Measure::CpuWait, self.waited_ns);
        }
        self.add_stat(&stat, &mut values);
        self.add_io(&mut values);
        if slow {
            self.last_slow = Some(now);
            if few {
                values.insert(Measure::SwitchesVoluntary, self.voluntary);
                values.insert(Measure::SwitchesInvoluntary, self.involuntary);
            }
            self.read_slow(&mut values);
        }
        Ok(values)
    }

    fn add_stat(&self, stat: &Stat, values: &mut BTreeMap<Measure, u64>) {
        values.insert(Measure::CpuUser, self.cpu.user_ns());
        values.insert(Measure::CpuSystem, self.cpu.system_ns());
        values.insert(Measure::Threads, stat.num_threads as u64);
        values.insert(Measure::MemoryUsage, stat.rss.saturating_mul(self.page_bytes));
        values.insert(Measure::MemoryVirtual, stat.vsize);
        values.insert(Measure::FaultsMinor, stat.minflt);
        values.insert(Measure::FaultsMajor, stat.majflt);
        if let Some(ticks) = stat.delayacct_blkio_ticks.filter(|_| self.delay_accounting) {
            values.insert(Measure::DiskWait, ticks.saturating_mul(self.tick_ns));
        }
    }

    fn add_io(&self, values: &mut BTreeMap<Measure, u64>) {
        // Of another user's process, this is for root only.
        let Ok(io) = self.process.io() else { return };
        values.insert(Measure::DiskRead, io.read_bytes);
        values.insert(Measure::DiskWrite, io.write_bytes);
        values.insert(Measure::BytesRead, io.rchar);
        values.insert(Measure::BytesWritten, io.wchar);
        values.insert(Measure::Reads, io.syscr);
        values.insert(Measure::Writes, io.syscw);
    }

    fn read_slow(&self, values: &mut BTreeMap<Measure, u64>) {
        if let Ok(descriptors) = self.process.fd_count() {
            values.insert(Measure::Descriptors, descriptors as u64);
        }
        if let (true, Ok(devices)) = (self.own_network, self.process.dev_status()) {
            let others = devices.values().filter(|device| device.name != "lo");
            let (mut received, mut sent) = (0_u64, 0_u64);
            for device in others {
                received = received.saturating_add(device.recv_bytes);
                sent = sent.saturating_add(device.sent_bytes);
            }
            values.insert(Measure::NetworkReceived, received);
            values.insert(Measure::NetworkTransmitted, sent);
        }
    }

    /// How long the threads ran since the last time; `None` if the kernel does not say. With `slow`, their context switches too.
    fn read_tasks(&mut self, slow: bool) -> Option<u64> {
        let first = self.tasks.is_empty();
        let mut ran = 0;
        let mut seen = BTreeMap::new();
        for task in self.process.tasks().ok()?.flatten().take(MAX_TASKS) {
            let before = self.tasks.get(&task.tid).copied().unwrap_or_default();
            // A thread that ends right now is no loss: the ticks have it.
            let Some(counts) = read_task(&task, before, slow) else { continue };
            ran += counts.ran_ns.saturating_sub(before.ran_ns);
            self.waited_ns += counts.waited_ns.saturating_sub(before.waited_ns);
            self.voluntary += counts.voluntary.saturating_sub(before.voluntary);
            self.involuntary += counts.involuntary.saturating_sub(before.involuntary);
            seen.insert(task.tid, counts);
        }
        self.tasks = seen;
        if self.tasks.is_empty() {
            return None;
        }
        // What the threads ran before the first look is in the ticks.
        Some(if first { 0 } else { ran })
    }
}

fn read_task(task: &Task, before: TaskCounts, slow: bool) -> Option<TaskCounts> {
    let schedstat = task.schedstat().ok()?;
    let mut counts = TaskCounts { ran_ns: schedstat.sum_exec_runtime, waited_ns: schedstat.run_delay, ..before };
    if slow {
        let status = task.status().ok()?;
        counts.voluntary = status.voluntary_ctxt_switches.unwrap_or(counts.voluntary);
        counts.involuntary = status.nonvoluntary_ctxt_switches.unwrap_or(counts.involuntary);
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn this_process_is_measured() {
        let mut measured = Measured::open(std::process::id(), clock::since_boot()).unwrap();
        let first = measured.sample(Nanos::ZERO).unwrap();
        let mut sum = 0_u64;
        while measured.sample(Nanos(1)).unwrap()[&Measure::CpuUser] < first[&Measure::CpuUser] + 30_000_000 {
            sum = (0..100_000_u64).fold(sum, |sum, x| sum.wrapping_mul(31).wrapping_add(x));
        }
        std::hint::black_box(sum);

        let second = measured.sample(SLOW).unwrap();

        for measure in [Measure::CpuUser, Measure::Threads, Measure::MemoryUsage, Measure::Descriptors, Measure::Reads]
        {
            assert!(second[&measure] > 0, "{measure:?}");
        }
        assert!(second[&Measure::SwitchesInvoluntary] + second[&Measure::SwitchesVoluntary] > 0);
        assert!(!measured.sample(SLOW.plus(Nanos(1))).unwrap().contains_key(&Measure::Descriptors));
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_noticed() {
        let before_it_started = Nanos(1);

        assert!(matches!(Measured::open(std::process::id(), before_it_started), Err(ProcessError::Reused(_))));
        assert!(matches!(Measured::open(0, Nanos::NEVER), Err(ProcessError::Unreadable { .. })));
    }

    #[test]
    fn a_process_that_ended_is_not_measured_any_more() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut measured = Measured::open(child.id(), Nanos::NEVER).unwrap();
        assert!(measured.sample(Nanos::ZERO).is_ok());

        child.kill().unwrap();
        child.wait().unwrap();

        assert!(measured.sample(Nanos(1)).is_err());
    }
}

//! Processor time. Time that passes is `support::clock`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of each thread of some processes, by `/proc/PID/task/*/schedstat`: in nanoseconds, where `stat` has
/// ticks of 10 ms. What threads used that have ended meanwhile is lost.
#[derive(Clone, Debug, Default)]
pub struct ThreadTimes(BTreeMap<i32, u64>);

impl ThreadTimes {
    /// Those of all threads of `processes` so far.
    ///
    /// # Errors
    ///
    /// One of them does not run, or the kernel does not account for threads.
    pub fn of(processes: &[u32]) -> Result<Self> {
        let mut times = BTreeMap::new();
        for &id in processes {
            let process = Process::new(id as i32).with_context(|| format!("process {id}"))?;
            // A thread may end between two reads.
            let threads = process.tasks()?.filter_map(Result::ok);
            let before = times.len();
            times.extend(threads.filter_map(|task| Some((task.tid, task.schedstat().ok()?.sum_exec_runtime))));
            ensure!(times.len() > before, "the threads of process {id} have no schedstat");
        }
        Ok(Self(times))
    }

    /// What was used since `before`, which is of the same processes.
    pub fn since(&self, before: &Self) -> Duration {
        let used = self.0.iter().map(|(thread, now)| now.saturating_sub(before.0.get(thread).copied().unwrap_or(0)));
        Duration::from_nanos(used.sum())
    }
}

/// Processor time that all threads of this process use during `work`.
pub fn processor_time(work: &mut dyn FnMut()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let start = now();
    work();
    now().saturating_sub(start)
}

/// Processor time that this thread has used so far.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_began_count_and_those_that_ended_take_nothing_away() {
        let of = |times: &[(i32, u64)]| ThreadTimes(times.iter().copied().collect());

        let used = of(&[(1, 700), (3, 40)]).since(&of(&[(1, 500), (2, 9_000)]));

        assert_eq!(used, Duration::from_nanos(240));
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(ThreadTimes::of(&[std::process::id()]).is_ok());
    }
}

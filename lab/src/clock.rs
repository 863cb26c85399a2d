//! Processor time. Time that passes is `support::clock`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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

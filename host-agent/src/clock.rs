//! The agent's clocks: those of both agents, and the one of process start times.

use wire::time::{Nanos, Timestamp};

pub use agent_runtime::clock::{Clock, process_cpu, timer_now, unix_now};

/// Time since boot (CLOCK_BOOTTIME), the clock of process start times in /proc.
#[must_use]
pub fn since_boot() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Nanos::from_secs(time.tv_sec as u64).plus(Nanos(time.tv_nsec as u64))
}

/// Both clocks: time since boot, which nobody sets and which goes on while the machine sleeps, and wall-clock time.
#[must_use]
pub fn steady_now() -> Timestamp {
    Timestamp { monotonic: since_boot(), wall: unix_now() }
}

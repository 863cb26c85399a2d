//! The state of the system's clock, as the kernel reports it. The daemon that synchronises the clock sets the error
//! bound: `chronyd` and `ntpd` set the largest error that they know of, `phc2sys` (with `ptp4l`) sets 0 with each
//! correction. The kernel lets the bound grow by 500 µs a second until the next correction, and reports the clock as
//! unsynchronised when the bound reaches 16 s. This is the only module of this crate with unsafe code.
#![expect(unsafe_code, reason = "a system call that rustix does not have")]

use one_way::ClockState;

/// Reads the state of the clock. Costs one system call without privileges.
pub(crate) fn clock_state() -> ClockState {
    // SAFETY: the struct consists of integers.
    let mut clock: libc::timex = unsafe { core::mem::zeroed() };
    // SAFETY: the struct lives for the call, and with modes of 0 nothing is set.
    let outcome = unsafe { libc::adjtimex(&raw mut clock) };
    if outcome < 0 { ClockState::Unknown } else { state(clock.status, clock.maxerror) }
}

/// The state for a status and an error bound in microseconds of the kernel.
fn state(status: libc::c_int, most_error_us: libc::c_long) -> ClockState {
    match u64::try_from(most_error_us) {
        _ if status & libc::STA_UNSYNC != 0 => ClockState::Unsynchronised,
        Ok(error_us) => ClockState::Synchronised(error_us.saturating_mul(1_000)),
        Err(_) => ClockState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_kept_is_within_its_largest_error_in_nanoseconds() {
        assert_eq!(state(libc::STA_PLL | libc::STA_NANO, 250), ClockState::Synchronised(250_000));
        assert_eq!(state(0, 0), ClockState::Synchronised(0));
        assert_eq!(state(libc::STA_UNSYNC | libc::STA_PLL, 250), ClockState::Unsynchronised);
        assert_eq!(state(0, -1), ClockState::Unknown);
    }

    #[test]
    fn the_kernel_says_something() {
        assert_ne!(clock_state(), ClockState::Unknown);
    }
}

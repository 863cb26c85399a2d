//! What the kernel says of the system's clock, as whoever keeps it told the kernel: `chronyd` and `ntpd` set the largest error that they know of, `phc2sys`
//! (beside `ptp4l`) sets it to 0 with each of its corrections. The kernel lets it grow by 500 µs a second until the next one, and calls a clock
//! unsynchronised when it has come to 16 s. The one module of this crate with unsafe code.
#![expect(unsafe_code, reason = "a system call that rustix does not have")]

use exchange::ClockState;

/// Costs one system call, which needs no privilege.
pub(crate) fn clock_state() -> ClockState {
    // SAFETY: it is made of integers.
    let mut clock: libc::timex = unsafe { core::mem::zeroed() };
    // SAFETY: the structure lives for the call, and with modes of 0 nothing is set.
    let outcome = unsafe { libc::adjtimex(&raw mut clock) };
    if outcome < 0 { ClockState::Unknown } else { state(clock.status, clock.maxerror) }
}

/// Of a status and a largest error in microseconds, as the kernel has them.
fn state(status: libc::c_int, most_error_us: libc::c_long) -> ClockState {
    match u64::try_from(most_error_us) {
        _ if status & libc::STA_UNSYNC != 0 => ClockState::Unsynchronised,
        Ok(error_us) => ClockState::Within(error_us.saturating_mul(1_000)),
        Err(_) => ClockState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_kept_is_within_its_largest_error_in_nanoseconds() {
        assert_eq!(state(libc::STA_PLL | libc::STA_NANO, 250), ClockState::Within(250_000));
        assert_eq!(state(0, 0), ClockState::Within(0));
        assert_eq!(state(libc::STA_UNSYNC | libc::STA_PLL, 250), ClockState::Unsynchronised);
        assert_eq!(state(0, -1), ClockState::Unknown);
    }

    #[test]
    fn the_kernel_says_something() {
        assert_ne!(clock_state(), ClockState::Unknown);
    }
}

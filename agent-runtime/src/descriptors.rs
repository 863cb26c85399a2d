//! File descriptors that are kept back for services: each needs a connection, and one for each of its regions.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::process::{Resource, getrlimit};

/// Least and most descriptors that are kept back.
const RESERVED: (u64, u64) = (16, 4096);

/// Descriptors of this process that only services may take: an eighth of its limit (RLIMIT_NOFILE), 16 to 4,096.
#[must_use]
pub fn reserved(limit: u64) -> u64 {
    let (least, most) = RESERVED;
    (limit / 8).clamp(least, most)
}

/// Whether a connection that was just accepted, and that is not of a service, leaves enough descriptors for services.
///
/// The kernel gives out the lowest number that is free: those below the new one are all taken. One system call.
pub fn leaves_enough(accepted: &impl AsFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return true };
    let taken = u64::try_from(accepted.as_fd().as_raw_fd()).unwrap_or(u64::MAX);
    taken < limit.saturating_sub(reserved(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_is_kept_back_within_bounds() {
        assert_eq!([64, 1024, 65_536, u64::MAX].map(reserved), [16, 128, 4096, 4096]);
    }
}

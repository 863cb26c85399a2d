//! File descriptors: as many as this process may have, and those that are kept back for services. A service needs a
//! connection, and one for each of its regions.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Least and most descriptors that are kept back.
const RESERVED: (u64, u64) = (16, 4096);

/// Raises the limit of this process (RLIMIT_NOFILE) to its hard limit. Returns the new limit; a warning says if it
/// could not be raised.
#[must_use]
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        tracing::warn!(?limit, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}

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

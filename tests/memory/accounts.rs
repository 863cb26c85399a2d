//! Living bytes by who is at work: each agent has an account, although both run in one thread here. What passes between
//! accounts is copied, so that everything is freed on the account that asked for it.

/// Who is at work in this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The test itself: services, regions, messages on their way.
    Test,
    /// The host agent's control plane.
    Host,
    /// The host agent's queues for hooks and watchers.
    Hooks,
    /// The NIC agent's worker, with its reader and jobs.
    Nic,
}

impl Account {
    /// Runs `work` on this account.
    pub fn charge<T>(self, work: impl FnOnce() -> T) -> T {
        allocations::charge(self as usize, work)
    }

    /// Bytes that live now. Negative if more were freed than were asked for: a mistake of the test.
    pub fn live(self) -> isize {
        allocations::live_of(self as usize)
    }

    /// Most bytes that have lived at a time since the last call.
    pub fn take_peak(self) -> isize {
        allocations::take_peak_of(self as usize)
    }
}

//! An allocator that counts living bytes by who is at work: each agent has an account, although both run in one
//! thread here. What passes between accounts is copied, so that everything is freed on the account that asked for it.

#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

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

const ACCOUNTS: usize = 4;

thread_local! {
    static CURRENT: Cell<Account> = const { Cell::new(Account::Test) };
    static LIVE: [Cell<isize>; ACCOUNTS] = const { [const { Cell::new(0) }; ACCOUNTS] };
    static PEAK: [Cell<isize>; ACCOUNTS] = const { [const { Cell::new(0) }; ACCOUNTS] };
}

impl Account {
    /// Runs `work` on this account.
    pub fn charge<T>(self, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self);
        let result = work();
        CURRENT.set(before);
        result
    }

    /// Bytes that live now. Negative if more were freed than were asked for: a mistake of the test.
    pub fn live(self) -> isize {
        LIVE.with(|live| live[self as usize].get())
    }

    /// Most bytes that have lived at a time since the last call.
    pub fn take_peak(self) -> isize {
        PEAK.with(|peak| peak[self as usize].replace(self.live()))
    }
}

fn count(change: isize) {
    // During the thread's destruction there is nothing left to count with.
    let _ = CURRENT.try_with(|current| {
        let at = current.get() as usize;
        let _ = LIVE.try_with(|live| {
            let now = live[at].get() + change;
            live[at].set(now);
            let _ = PEAK.try_with(|peak| peak[at].set(peak[at].get().max(now)));
        });
    });
}

struct CountingAllocator;

// SAFETY: every method hands on to the system's allocator, which keeps the contract; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

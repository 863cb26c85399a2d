//! A global allocator that counts, for tests of what is allocated. A test that uses this crate has it.
//!
//! Counts are of the calling thread, since a test harness has threads of its own; [`of_process`] is of all of them.
//! Bytes are counted on the account that is at work ([`charge`]), so that a test can tell apart what runs in one
//! thread.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Accounts that there are: 0, which is at work unless another one is charged, to 3.
pub const ACCOUNTS: usize = 4;

/// Calls of the allocator. One for another size is an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that asked for memory.
    pub allocations: u64,
    /// Calls that gave it back.
    pub frees: u64,
}

thread_local! {
    static CALLS: Cell<Calls> = const { Cell::new(Calls { allocations: 0, frees: 0 }) };
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static ACCOUNT: Cell<usize> = const { Cell::new(0) };
    static LIVE: [Cell<isize>; ACCOUNTS] = const { [const { Cell::new(0) }; ACCOUNTS] };
    static PEAK: [Cell<isize>; ACCOUNTS] = const { [const { Cell::new(0) }; ACCOUNTS] };
}

static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

/// What this thread has called since its start.
#[must_use]
pub fn calls() -> Calls {
    CALLS.get()
}

/// What this thread calls during `work`.
pub fn during(work: impl FnOnce()) -> Calls {
    let before = calls();
    work();
    let after = calls();
    Calls { allocations: after.allocations - before.allocations, frees: after.frees - before.frees }
}

/// Allocations of all threads since the start.
#[must_use]
pub fn of_process() -> u64 {
    OF_PROCESS.load(Relaxed)
}

/// Bytes that this thread has asked for since its start, whether they live or not.
#[must_use]
pub fn asked() -> usize {
    ASKED.get()
}

/// Runs `work` on another account, which is below [`ACCOUNTS`].
pub fn charge<T>(account: usize, work: impl FnOnce() -> T) -> T {
    let before = ACCOUNT.replace(account);
    let result = work();
    ACCOUNT.set(before);
    result
}

/// Bytes that live now, of the account that is at work. Below 0 if it has freed more than it has asked for.
#[must_use]
pub fn live() -> isize {
    live_of(ACCOUNT.get())
}

/// Most bytes that have lived at a time since the last call, of the account that is at work.
pub fn take_peak() -> isize {
    take_peak_of(ACCOUNT.get())
}

/// [`live`] of an account.
#[must_use]
pub fn live_of(account: usize) -> isize {
    LIVE.with(|live| live[account].get())
}

/// [`take_peak`] of an account.
pub fn take_peak_of(account: usize) -> isize {
    PEAK.with(|peak| peak[account].replace(live_of(account)))
}

/// Counts one call: the bytes that it asks for, and by how much it changes what lives.
fn count(asks: Option<usize>, change: isize) {
    if asks.is_some() {
        OF_PROCESS.fetch_add(1, Relaxed);
    }
    // During the thread's destruction there is nothing left to count with.
    let _ = ACCOUNT.try_with(|account| {
        let account = account.get();
        let _ = CALLS.try_with(|calls| {
            let Calls { allocations, frees } = calls.get();
            let asks = u64::from(asks.is_some());
            calls.set(Calls { allocations: allocations + asks, frees: frees + 1 - asks });
        });
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + asks.unwrap_or_default()));
        let _ = LIVE.try_with(|live| {
            let now = live[account].get() + change;
            live[account].set(now);
            let _ = PEAK.try_with(|peak| peak[account].set(peak[account].get().max(now)));
        });
    });
}

struct CountingAllocator;

// SAFETY: every method hands on to the system's allocator, which keeps the contract; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(Some(layout.size()), layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(Some(layout.size()), layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(None, -layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(Some(size), size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn calls_and_bytes_are_counted() {
        let (before, asked_before) = (live(), asked());
        take_peak();
        let mut kept = Vec::new();

        assert_eq!(during(|| drop(black_box(Box::new(1_u64)))), Calls { allocations: 1, frees: 1 });
        assert_eq!(during(|| kept = black_box(vec![0_u8; 100])), Calls { allocations: 1, frees: 0 });
        assert_eq!(during(|| kept.reserve_exact(400)), Calls { allocations: 1, frees: 0 });

        assert_eq!((live() - before, asked() - asked_before), (500, 8 + 100 + 500));
        drop(kept);
        assert_eq!((take_peak() - before, live() - before), (500, 0));
        assert_eq!(take_peak(), live());
        assert!(of_process() >= 3);
    }

    #[test]
    fn bytes_are_on_the_account_that_is_at_work() {
        let (own, other) = (live(), live_of(2));

        let kept = charge(2, || black_box(vec![0_u8; 1000]));

        assert_eq!((live() - own, live_of(2) - other), (0, 1000));
        charge(2, || drop(kept));
        assert_eq!((live_of(2) - other, take_peak_of(2) - other), (0, 1000));
    }
}

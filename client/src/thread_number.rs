//! A small number for each thread, by which threads choose different words.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// No thread has this number.
const NONE: usize = usize::MAX;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
}

/// The number of this thread: threads are numbered as they first ask.
#[inline]
pub(crate) fn get() -> usize {
    let number = NUMBER.get();
    if number == NONE { assign() } else { number }
}

#[cold]
fn assign() -> usize {
    // Wraps after 2^63: the sign bit keeps it from becoming NONE.
    let number = NEXT.fetch_add(1, Relaxed) & (NONE >> 1);
    NUMBER.set(number);
    number
}

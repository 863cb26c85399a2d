//! READs in flight, and the memory that they fill. The memory belongs to the device from `post` until the last READ has
//! completed or the queue pair has been reset; it cannot be read before.
#![expect(unsafe_code, reason = "chains of work requests, and memory that a device writes to")]

use core::ffi::c_uint;
use core::mem::ManuallyDrop;
use core::ptr::null_mut;
use std::io;

use super::memory::{Arena, Memory as _, Registration};
use super::queue_pair::QueuePair;
use super::sys::{self, Completion, Element, WorkRequest};

/// Completions taken at a time. After an error every READ has one.
const COMPLETIONS: usize = 16;

/// Progress of the READs that were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not completed: poll again.
    InFlight,
    /// All READs have completed.
    Done,
    /// One READ failed. Those before it have completed, those after it have not. Reset the queue pair.
    Failed {
        /// Its index in the order of [`Reads::push`], from 0.
        read: usize,
        /// A value of `enum ibv_wc_status`.
        status: c_uint,
    },
}

/// A queue pair that reads, with a chain of work requests and the memory for what it fetches.
#[derive(Debug)]
pub(super) struct Reads {
    queue_pair: QueuePair,
    arena: ManuallyDrop<Registration<Arena>>,
    requests: Box<[WorkRequest]>,
    elements: Box<[Element]>,
    completions: [Completion; COMPLETIONS],
    /// READs in the chain.
    chained: usize,
    /// Bytes of the arena that the chain needs.
    bytes: usize,
    /// Number of the chain, by which completions of an earlier chain are ignored.
    chain: u32,
    /// Whether the device may still write to the arena.
    in_flight: bool,
}

// SAFETY: the pointers in the work requests lead into the value's own boxes, and are set anew by each `post`.
unsafe impl Send for Reads {}

impl Reads {
    pub(super) fn new(queue_pair: QueuePair, arena: Registration<Arena>) -> Self {
        let request = WorkRequest {
            id: 0,
            next: null_mut(),
            elements: null_mut(),
            count: 1,
            operation: sys::READ,
            flags: 0,
            immediate: 0,
            remote_address: 0,
            rkey: 0,
            rest: [0; 9],
        };
        let depth = queue_pair.depth();
        Self {
            queue_pair,
            arena: ManuallyDrop::new(arena),
            requests: vec![request; depth].into(),
            elements: vec![Element::default(); depth].into(),
            completions: [Completion::default(); COMPLETIONS],
            chained: 0,
            bytes: 0,
            chain: 0,
            in_flight: false,
        }
    }

    /// The queue pair, to be connected.
    pub(super) fn queue_pair(&mut self) -> &mut QueuePair {
        &mut self.queue_pair
    }

    /// Most READs in one chain.
    pub(super) fn depth(&self) -> usize {
        self.requests.len()
    }

    /// READs in the chain.
    pub(super) fn chained(&self) -> usize {
        self.chained
    }

    /// Words that the READs of a chain can still fetch.
    pub(super) fn words_left(&self) -> usize {
        (self.arena.memory().bytes() - self.bytes) / size_of::<u64>()
    }

    /// Begins a chain. Fails if READs are in flight: see [`Reads::reset`].
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.in_flight {
            return Err(io::Error::other("READs are in flight"));
        }
        (self.chained, self.bytes) = (0, 0);
        self.chain = self.chain.wrapping_add(1);
        Ok(())
    }

    /// Adds a READ of `words` words to the chain. Returns false if there is no space for it.
    pub(super) fn push(&mut self, address: u64, rkey: u32, words: usize) -> bool {
        let fits = self.chained < self.requests.len() && words <= self.words_left();
        let length =
            u32::try_from(words * size_of::<u64>()).ok().filter(|&length| fits && length > 0 && !self.in_flight);
        let Some(length) = length else { return false };
        let start = self.arena.memory().address() + self.bytes as u64;
        self.elements[self.chained] = Element { address: start, length, lkey: self.arena.lkey() };
        let request = &mut self.requests[self.chained];
        (request.remote_address, request.rkey) = (address, rkey);
        request.id = u64::from(self.chain) << 32 | self.chained as u64;
        request.flags = 0;
        self.chained += 1;
        self.bytes += length as usize;
        true
    }

    /// Posts the chain, which has at least one READ. Only the last one is signalled; its completion means that all are
    /// done.
    ///
    /// If the device refuses a part, the READs before it are in flight without a completion to come: reset.
    pub(super) fn post(&mut self) -> io::Result<()> {
        let Some(last) = self.chained.checked_sub(1) else { return Ok(()) };
        self.requests[last].flags = sys::SIGNALED;
        let (requests, elements) = (self.requests.as_mut_ptr(), self.elements.as_mut_ptr());
        for n in 0..=last {
            let next = if n == last { null_mut() } else { requests.wrapping_add(n + 1) };
            // SAFETY: `n` is below the chain's length, which is at most the boxes'.
            let request = unsafe { &mut *requests.wrapping_add(n) };
            (request.next, request.elements) = (next, elements.wrapping_add(n));
        }
        self.in_flight = true;
        // SAFETY: the chain was just linked and is no longer than the queue pair takes; what its elements point at is
        // the arena, which nobody borrows (`&mut self`) and nobody gets before `in_flight` has ended.
        unsafe { self.queue_pair.post(requests) }
    }

    /// Polls for completions. Does not wait.
    pub(super) fn poll(&mut self) -> io::Result<Progress> {
        let found = self.queue_pair.poll(&mut self.completions)?;
        for completion in self.completions.iter().take(found) {
            if completion.id >> 32 != u64::from(self.chain) {
                continue;
            }
            let read = (completion.id & u64::from(u32::MAX)) as usize;
            if completion.status != 0 {
                return Ok(Progress::Failed { read, status: completion.status });
            }
            if read + 1 == self.chained {
                self.in_flight = false;
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::InFlight)
    }

    /// Resets the queue pair. The device does not use the memory afterwards, whatever was in flight.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        self.queue_pair.reset()?;
        self.in_flight = false;
        Ok(())
    }

    /// The words that all READs of the chain have fetched, in order; empty while any is in flight.
    pub(super) fn fetched(&self) -> &[u64] {
        if self.in_flight {
            return &[];
        }
        // SAFETY: nothing is in flight, and posting needs `&mut self`.
        unsafe { self.arena.memory().words() }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        // Memory that a device may still write to is never unmapped.
        if !self.in_flight || self.queue_pair.reset().is_ok() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.arena) };
        }
    }
}

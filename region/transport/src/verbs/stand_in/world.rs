//! The objects of the stand-in, and the execution of READs.

use core::ffi::c_int;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{EVENTS, FAULTS};
use crate::verbs::clock::Stopwatch;
use crate::verbs::status::Status;
use crate::verbs::sys::{self, Completion, WorkRequest, state};

/// All objects that were created. Protection domains and completion queues are identified by their address.
#[derive(Default)]
pub(super) struct World {
    numbers: u32,
    pub(super) regions: HashMap<u32, Region>,
    pub(super) pairs: HashMap<u32, Pair>,
    pub(super) queues: HashMap<usize, Queue>,
}

/// Completions, each with a stopwatch since it was queued and the delay after which it is delivered.
pub(super) type Queue = VecDeque<(Stopwatch, Duration, Completion)>;

#[derive(Clone, Copy)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) pd: usize,
    pub(super) access: c_int,
}

#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) state: u32,
    pub(super) peer: u32,
    /// The path to the peer.
    pub(super) path: sys::AddressVector,
    pub(super) pd: usize,
    pub(super) queue: usize,
    pub(super) access: u32,
    pub(super) depth: usize,
    /// Most READs in flight: as initiator, and as responder.
    pub(super) reads: (u8, u8),
}

impl Region {
    fn allows(&self, pd: usize, access: c_int, start: u64, bytes: u32) -> bool {
        let end = start.checked_add(u64::from(bytes)).is_some_and(|end| end <= self.start + self.bytes);
        self.pd == pd && self.access & access != 0 && start >= self.start && end
    }
}

pub(super) fn world() -> MutexGuard<'static, World> {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers + 16
    }

    /// Executes one READ. `before` others of its chain are in flight.
    pub(super) fn read(
        &mut self,
        number: u32,
        before: usize,
        request: &WorkRequest,
        element: &sys::Element,
    ) -> Result<(), Status> {
        let Some(own) = self.pairs.get(&number).copied() else { return Err(Status::FLUSHED) };
        if own.state == state::ERROR {
            return Err(Status::FLUSHED);
        }
        let local = self.regions.get(&element.lkey);
        if !local.is_some_and(|mr| mr.allows(own.pd, sys::ACCESS_LOCAL_WRITE, element.address, element.length)) {
            return Err(Status::LOCAL_PROTECTION);
        }
        let faults = FAULTS.get();
        let peer =
            self.pairs.get_mut(&own.peer).filter(|pair| pair.state == state::READY_TO_SEND && pair.peer == number);
        let is_answered = !faults.dead_peer && faults.reaches(&own.path);
        let Some(peer) = peer.filter(|_| is_answered) else { return Err(Status::RETRIES_EXCEEDED) };
        // The first READ beyond the responder's limit fails.
        if before.min(usize::from(own.reads.0.saturating_sub(1))) >= usize::from(peer.reads.1) {
            peer.state = state::ERROR;
            return Err(Status::REMOTE_INVALID);
        }
        if let Some((_, status)) = faults.failing.filter(|(rkey, _)| *rkey == request.rkey) {
            peer.state = state::ERROR;
            return Err(Status(status));
        }
        let right = sys::ACCESS_REMOTE_READ;
        let remote = self.regions.get(&request.rkey);
        let allowed = remote.is_some_and(|mr| mr.allows(peer.pd, right, request.remote_address, element.length));
        if !(allowed && peer.access & right.cast_unsigned() != 0) {
            peer.state = state::ERROR;
            EVENTS.set((EVENTS.get().0 + 1, EVENTS.get().1));
            return Err(Status::REMOTE_ACCESS);
        }
        copy(request.remote_address, element.address, element.length as usize / size_of::<u64>());
        Ok(())
    }
}

/// Copies words as a device does: each word in one access.
fn copy(from: u64, to: u64, words: usize) {
    let (from, to) = (from as *const AtomicU64, to as *mut u64);
    for n in 0..words {
        // SAFETY: inside a registered region, which is mapped, and words are aligned as its start is.
        let word = unsafe { &*from.wrapping_add(n) };
        // SAFETY: as above; nobody looks there before the completion.
        unsafe { to.wrapping_add(n).write(word.load(Relaxed)) };
    }
}

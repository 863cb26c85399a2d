//! The connections that the process has accepted or opened, by descriptor, and what is counted of them.

use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use turns::{Connection, Outcome, Ticks, Unseen};

use crate::counts::{Block, Count};
use crate::meters::Meters;
use crate::process::{self, Reason};

/// Descriptors that have a place. Connections with higher ones are counted as unseen.
const DESCRIPTORS: usize = 1 << 16;
/// Attempts to change the state of a connection, while other threads change it.
const ATTEMPTS: usize = 4;

/// Half a mebibyte that is never written but where there are connections.
static TABLE: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

fn place(descriptor: c_int) -> Option<&'static AtomicU64> {
    TABLE.get(usize::try_from(descriptor).ok()?)
}

/// Whether the descriptor is that of a connection: the only cost for any other.
#[inline]
pub(crate) fn is_tracked(descriptor: c_int) -> bool {
    place(descriptor).is_some_and(|place| !Connection::is_free(place.load(Relaxed)))
}

/// The time, if a turn of the connection waits for its answer.
#[inline]
pub(crate) fn before_sending(descriptor: c_int) -> Option<Ticks> {
    let word = place(descriptor)?.load(Relaxed);
    Connection::from_word(word).is_some_and(Connection::is_waiting).then(process::now)
}

/// What counting needs, unless nothing is counted.
#[inline]
fn counting() -> Option<(&'static Block, &'static Meters)> {
    if process::is_off() { None } else { Some((process::block()?, process::meters())) }
}

/// The process has accepted a connection.
pub(crate) fn accepted(descriptor: c_int) {
    // Also if nothing is counted: somebody has to say so.
    process::publish();
    let Some((block, meters)) = counting() else { return };
    meters.add(Count::Accepted, 1, block);
    let Some(place) = place(descriptor) else { return meters.add(Count::Table, 1, block) };
    let epoch = process::epoch();
    // Whoever had the descriptor before has closed it unseen.
    leave(place.swap(Connection::new(epoch).word(), Relaxed), epoch);
    process::change_levels(1, 0);
}

/// The process has opened a connection, or begun to: whether that succeeds, its bytes say.
pub(crate) fn opened(descriptor: c_int) {
    // A child that shares the memory (vfork) opens its own descriptors only.
    if process::is_borrowed() {
        return;
    }
    let Some((block, meters)) = counting() else { return };
    let Some(place) = place(descriptor) else { return meters.add(Count::Table, 1, block) };
    // Whoever had the descriptor before has closed it unseen.
    leave(place.swap(Connection::OPENED, Relaxed), process::epoch());
}

#[inline]
fn is_opened(descriptor: c_int) -> bool {
    place(descriptor).is_some_and(|place| place.load(Relaxed) == Connection::OPENED)
}

/// The descriptor is about to be closed, or to become another file.
#[inline]
pub(crate) fn closing(descriptor: c_int) {
    // A child that shares the memory (vfork) closes its own descriptors only, and so does a thread of this library.
    if is_tracked(descriptor)
        && !process::is_own_thread()
        && !process::is_borrowed()
        && let Some(place) = place(descriptor)
    {
        leave(place.swap(0, Relaxed), process::epoch());
    }
}

/// As [`closing`], of all descriptors from `first` to `last`.
pub(crate) fn closing_all(first: u32, last: u32) {
    for descriptor in first..=last.min(DESCRIPTORS as u32 - 1) {
        closing(descriptor as c_int);
    }
}

/// Takes a connection out of the levels of the process, if it is in them.
fn leave(word: u64, epoch: u8) {
    let Some(connection) = Connection::from_word(word).filter(|connection| connection.epoch() == epoch) else { return };
    process::change_levels(-1, -i64::from(connection.is_waiting()));
}

/// `bytes` were read, the first of which are `head`.
pub(crate) fn received(descriptor: c_int, bytes: u64, head: &[u8]) {
    let Some((block, meters)) = counting() else { return };
    if is_opened(descriptor) {
        return meters.add(Count::OpenedReceived, bytes, block);
    }
    meters.add(Count::Received, bytes, block);
    // Most reads of a long request stop here, without a look at the clock.
    let looked =
        |connection: &mut Connection| connection.awaits_inbound().then(|| connection.received(process::now(), head));
    let Some(Some(inbound)) = change(descriptor, looked) else { return };
    if let Some(unseen) = inbound.unseen {
        meters.add(unseen_count(unseen), 1, block);
    }
    if inbound.began {
        process::change_levels(0, 1);
    }
}

/// `bytes` were written, the first of which are `head`, by a call that began at `began`
/// ([`before_sending`]).
pub(crate) fn sent(descriptor: c_int, began: Option<Ticks>, bytes: u64, head: &[u8]) {
    let Some((block, meters)) = counting() else { return };
    if is_opened(descriptor) {
        return meters.add(Count::OpenedTransmitted, bytes, block);
    }
    meters.add(Count::Transmitted, bytes, block);
    let Some(Some(turn)) = change(descriptor, |connection| connection.sent(began?, head)) else { return };
    if let Some(unseen) = turn.unseen {
        meters.add(unseen_count(unseen), 1, block);
    }
    meters.add(outcome_count(turn.outcome), 1, block);
    meters.observe(turn.duration, block);
    process::change_levels(0, -1);
}

/// Changes the state of a connection by one atomic operation. `None` if there is none, or if other threads changed it
/// all the time.
#[inline]
fn change<T>(descriptor: c_int, mut by: impl FnMut(&mut Connection) -> T) -> Option<T> {
    let place = place(descriptor)?;
    let epoch = process::epoch();
    for _ in 0..ATTEMPTS {
        let word = place.load(Relaxed);
        let Some(old) = Connection::from_word(word) else {
            // Another thread may have opened or closed it meanwhile.
            if !Connection::is_free(word) && word != Connection::OPENED {
                process::turn_off(Reason::State);
            }
            return None;
        };
        let mut connection = old.adopted(epoch);
        let result = by(&mut connection);
        let new = connection.word();
        if new == word {
            return Some(result);
        }
        // Relaxed: nothing else is published by the word.
        if place.compare_exchange(word, new, Relaxed, Relaxed).is_ok() {
            if old.epoch() != epoch {
                join(old);
            }
            return Some(result);
        }
    }
    None
}

/// A forked child uses a connection of its parent for the first time.
#[cold]
fn join(connection: Connection) {
    process::change_levels(1, i64::from(connection.is_waiting()));
}

const fn unseen_count(unseen: Unseen) -> Count {
    match unseen {
        Unseen::Tls => Count::Tls,
        Unseen::Http2 => Count::Http2,
        Unseen::Upgraded => Count::Upgraded,
        Unseen::Pipelined => Count::Pipelined,
    }
}

const fn outcome_count(outcome: Outcome) -> Count {
    match outcome {
        Outcome::Success => Count::Success,
        Outcome::Redirection => Count::Redirection,
        Outcome::ClientError => Count::ClientError,
        Outcome::ServerError => Count::ServerError,
        Outcome::Reply => Count::Reply,
        Outcome::ErrorReply => Count::ErrorReply,
        Outcome::Other => Count::Other,
    }
}

//! The lock of each session, across a fork.
//!
//! A child has one thread, the one that forked. Had another thread held a lock just then, nobody would release it in
//! the child. So the thread that forks takes the locks before, and both processes release their own afterwards.
#![expect(unsafe_code, reason = "handlers of forks, and guards that outlive the call that took them")]

use std::cell::RefCell;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use crate::io_thread::Shared;
use crate::session::Session;

/// Attempts to take a lock that is held for microseconds; between the later ones the thread waits for [`PAUSE`].
const ATTEMPTS: u32 = 200;
/// Attempts to take the list, which is held for as long as the fork of a large process takes.
const ATTEMPTS_AT_LIST: u32 = 2_000;
const WITHOUT_PAUSE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// One more in a child than in its parent; 0 where there are no handlers, and nobody can tell.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The sessions of this process, some of which may be gone.
static SESSIONS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

thread_local! {
    /// What this thread holds while it forks. Another library's handler may fork as well: then there are several, of
    /// which the first one has what there is.
    static HELD: RefCell<Vec<Option<Guards>>> = const { RefCell::new(Vec::new()) };
}

struct Guards {
    _sessions: Vec<SessionGuard>,
    _list: MutexGuard<'static, Vec<Weak<Shared>>>,
}

/// Fields are dropped in their order: the guard first.
struct SessionGuard {
    _guard: MutexGuard<'static, Session>,
    _shared: Arc<Shared>,
}

/// From now on, a fork waits until nobody holds this session's lock. Without memory for the handlers, it does not.
pub(crate) fn watch(shared: &Arc<Shared>) {
    static ARE_SET: AtomicBool = AtomicBool::new(false);
    if !cfg!(miri) && !ARE_SET.swap(true, Ordering::Relaxed) {
        // SAFETY: all three may be called at any fork: they do not panic, and release in a child what its own thread
        // took in its parent.
        let status = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
        ARE_SET.store(status == 0, Ordering::Relaxed);
        GENERATION.fetch_add(u64::from(status == 0), Ordering::Relaxed);
    }
    if let Some(mut list) = patiently(ATTEMPTS_AT_LIST, try_list) {
        list.retain(|other| other.strong_count() > 0);
        list.push(Arc::downgrade(shared));
    }
}

fn try_list() -> Option<MutexGuard<'static, Vec<Weak<Shared>>>> {
    match SESSIONS.try_lock() {
        Ok(list) => Some(list),
        Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Not for ever: a signal handler that forks may have interrupted who holds the lock, and what holds it may wait for
/// this thread (an interpreter's lock). Then the child does without its parent's session, and says so.
fn patiently<T>(attempts: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    (0..attempts).find_map(|number| {
        let taken = attempt();
        match number {
            _ if taken.is_some() => {}
            0..WITHOUT_PAUSE => thread::yield_now(),
            _ => thread::sleep(PAUSE),
        }
        taken
    })
}

extern "C" fn before() {
    let is_within = HELD.try_with(|held| held.try_borrow().is_ok_and(|held| !held.is_empty()));
    let guards = if is_within == Ok(false) { hold_all() } else { None };
    // A thread that ends has nowhere to keep them: then they are released now.
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.push(guards);
        }
    });
}

fn hold_all() -> Option<Guards> {
    let list = patiently(ATTEMPTS, try_list)?;
    let sessions = list.iter().filter_map(Weak::upgrade).filter_map(hold).collect();
    Some(Guards { _sessions: sessions, _list: list })
}

fn hold(shared: Arc<Shared>) -> Option<SessionGuard> {
    let guard = patiently(ATTEMPTS, || shared.try_lock())?;
    // SAFETY: the lock lies in the heap, in `shared`, which the result owns and drops after the guard.
    let guard = unsafe { transmute::<MutexGuard<'_, Session>, MutexGuard<'static, Session>>(guard) };
    Some(SessionGuard { _guard: guard, _shared: shared })
}

/// A number that a child does not have in common with its parent, without a system call; 0 if that is not known.
#[cfg(feature = "tracing")]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    after();
}

/// In parent and child.
extern "C" fn after() {
    let held = HELD.try_with(|held| held.try_borrow_mut().ok().and_then(|mut held| held.pop()));
    drop(held);
}

#[cfg(test)]
#[cfg(not(miri))] // Needs memfd, which Miri does not have.
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::service::Limits;

    fn session() -> Arc<Shared> {
        Arc::new(Shared::new(Session::new(Registry::new("payment", Limits::default()), None, 1)))
    }

    #[test]
    fn who_forks_holds_the_lock_of_each_session_that_is_left_and_no_longer() {
        let (kept, gone) = (session(), session());
        watch(&kept);
        watch(&gone);
        drop(gone);

        let is_free = || thread::scope(|scope| scope.spawn(|| kept.try_lock().is_some()).join().unwrap());
        before();
        let during = is_free();
        // A handler forks as well.
        before();
        after();
        let still = is_free();
        after();

        assert_eq!((during, still), (false, false));
        assert!(kept.try_lock().is_some());
    }

    #[test]
    fn who_holds_a_lock_and_forks_does_not_wait_for_ever() {
        let mut attempts = 0;

        let taken: Option<()> = patiently(ATTEMPTS, || {
            attempts += 1;
            None
        });

        assert_eq!((taken, attempts), (None, ATTEMPTS));
    }
}

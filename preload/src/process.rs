//! What differs from process to process: start, fork, the thread that publishes, the clock.
#![expect(
    unsafe_code,
    reason = "code that runs before main and after fork, and calls of libc that have no safe wrapper"
)]

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use turns::Ticks;

use crate::counts::{Block, Process};
use crate::meters::Meters;
use crate::{environment, publisher};

/// Registrations in a line of forks, at most.
const GENERATIONS: usize = 8;
/// The process has no place for its levels yet, or there is none left.
const NO_PLACE: usize = usize::MAX;
const FULL: usize = usize::MAX - 1;

/// Why nothing is counted any more: one word each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// A function of libc was not found.
    Dlsym = 1,
    /// No shared memory.
    Memory,
    /// The thread that publishes did not start.
    Thread,
    /// A word of the table that no connection has.
    State,
    /// Too many registrations in a line of forks.
    Forks,
    /// The clock failed.
    Clock,
}

const WORDS: [&str; 7] = ["", "dlsym", "memory", "thread", "state", "forks", "clock"];

thread_local! {
    /// Without a destructor, so that it can be read in signal handlers and while a thread ends.
    static IS_OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Null before the start, and if nothing is to be counted.
static BLOCK: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut());
static OFF: AtomicU8 = AtomicU8::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
/// Grows by one with each fork.
static EPOCH: AtomicU8 = AtomicU8::new(0);
/// The process whose thread publishes for this one; 0 before there is one.
static PUBLISHER: AtomicU32 = AtomicU32::new(0);
static PLACE: AtomicUsize = AtomicUsize::new(NO_PLACE);
static METERS: [Meters; GENERATIONS] = [const { Meters::new() }; GENERATIONS];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Begins before `main`, in one thread. `complete`: all functions of libc were found.
pub(crate) fn start(complete: bool) {
    if environment::get().off {
        return;
    }
    PID.store(std::process::id(), Relaxed);
    // SAFETY: a new mapping, which overlaps nothing.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Block>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return turn_off(Reason::Memory);
    }
    // SAFETY: the function is safe to call in a child.
    let status = unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    if status != 0 {
        return turn_off(Reason::Memory);
    }
    if !complete {
        turn_off(Reason::Dlsym);
    }
    BLOCK.store(memory.cast(), Release);
}

/// In a child, before fork returns: atomic stores and one system call.
extern "C" fn after_fork() {
    PID.store(std::process::id(), Relaxed);
    EPOCH.fetch_add(1, Relaxed);
    PLACE.store(NO_PLACE, Relaxed);
}

/// The counts that are shared with forked children.
#[inline]
pub(crate) fn block() -> Option<&'static Block> {
    // SAFETY: null, or the mapping of `start`: as large as a block, zero at first, never unmapped, all atomics.
    unsafe { BLOCK.load(Acquire).as_ref() }
}

/// The metrics of this process, or of the parent that publishes for it.
#[inline]
pub(crate) fn meters() -> &'static Meters {
    &METERS[GENERATION.load(Relaxed) % GENERATIONS]
}

#[inline]
pub(crate) fn epoch() -> u8 {
    EPOCH.load(Relaxed)
}

#[inline]
pub(crate) fn is_off() -> bool {
    OFF.load(Relaxed) != 0
}

/// Counts nothing any more. The first reason stays.
#[cold]
pub(crate) fn turn_off(reason: Reason) {
    let _ = OFF.compare_exchange(0, reason as u8, Relaxed, Relaxed);
}

/// Why nothing is counted any more.
pub(crate) fn why_off() -> Option<&'static str> {
    WORDS.get(usize::from(OFF.load(Relaxed))).copied().filter(|word| !word.is_empty())
}

/// Whether this is a child that borrows its parent's memory, as vfork makes them. A system call.
pub(crate) fn is_borrowed() -> bool {
    std::process::id() != PID.load(Relaxed)
}

/// From here on the calling thread is the library's.
pub(crate) fn own_thread() {
    IS_OWN_THREAD.set(true);
}

/// Whether the calling thread is the library's, whose descriptors have numbers that the program's have, too
/// ([`separate_descriptors`]).
pub(crate) fn is_own_thread() -> bool {
    IS_OWN_THREAD.get()
}

/// Changes the levels of this process: its connections, and turns that wait for their answers.
#[inline]
pub(crate) fn change_levels(connections: i64, waiting: i64) {
    if let Some(process) = levels() {
        process.change(connections, waiting);
    }
}

/// The levels of this process, in a place that it takes when it first needs one.
fn levels() -> Option<&'static Process> {
    let block = block()?;
    let mut place = PLACE.load(Relaxed);
    if place == NO_PLACE {
        place = block.join(PID.load(Relaxed), PUBLISHER.load(Relaxed)).unwrap_or(FULL);
        PLACE.store(place, Relaxed);
    }
    block.process(place)
}

/// The time of a steady clock: no system call where the kernel gives programs a clock.
#[inline]
pub(crate) fn now() -> Ticks {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: a pointer to a timespec.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) } != 0 {
        turn_off(Reason::Clock);
        return Ticks::from_nanos(0);
    }
    // SAFETY: the call has succeeded and filled it.
    let time = unsafe { time.assume_init() };
    Ticks::from_nanos((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// Whether there is a process of this id.
pub(crate) fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 does nothing.
    let status = unsafe { libc::kill(pid as libc::pid_t, 0) };
    status == 0 || errno() != libc::ESRCH
}

/// Sees to it that somebody publishes for this process: its parent, or a thread of its own, which is started here.
/// Called at each accept, and nowhere else: then the process serves, and is not about to exec. One that only opens
/// connections, such as a script's client, registers nothing.
pub(crate) fn publish() {
    let (pid, publisher) = (PID.load(Relaxed), PUBLISHER.load(Relaxed));
    if publisher == pid || pid == 0 {
        return;
    }
    // SAFETY: always succeeds.
    let parent = unsafe { libc::getppid() };
    if publisher == 0 || parent as u32 != publisher {
        start_publisher(pid, publisher);
    }
}

#[cold]
fn start_publisher(pid: u32, before: u32) {
    if is_borrowed() || PUBLISHER.compare_exchange(before, pid, Relaxed, Relaxed).is_err() {
        return;
    }
    let mut generation = GENERATION.load(Relaxed);
    if before != 0 {
        generation += 1;
        if generation >= GENERATIONS {
            return turn_off(Reason::Forks);
        }
        GENERATION.store(generation, Relaxed);
    }
    if let Some(process) = levels() {
        process.publish_by(pid);
    }
    let started = without_signals(|| {
        let thread = std::thread::Builder::new().name("uview-preload".to_owned());
        thread.spawn(move || publisher::run(pid, &METERS[generation])).is_ok()
    });
    if !started {
        turn_off(Reason::Thread);
    }
}

/// Gives the calling thread, and the threads that it starts from now on, descriptors of their own: the program can
/// close none of them, and a child that it forks has none. Where the kernel refuses, the thread goes on with the
/// program's.
pub(crate) fn separate_descriptors() {
    // Not through libc, whose function this library wraps. In one step, so that no file of the program is held open: it
    // takes Linux 5.9. Locks of files belong to the table, so that closing the copies gives up none of the program's.
    // SAFETY: numbers only. No descriptor is in use in this thread.
    let status = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if status != 0 {
        return;
    }
    // Nothing of this thread gets the numbers to which programs print.
    for _ in 0..3 {
        // SAFETY: a path that ends with a zero.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    }
}

/// Runs `start` with all signals blocked, so that the program's signals never reach a thread that it starts.
fn without_signals(start: impl FnOnce() -> bool) -> bool {
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: a pointer to a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: two pointers to sets, the first of which is filled.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if status != 0 {
        return false;
    }
    let started = start();
    // SAFETY: the set was filled by the call above; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(value: i32) {
    // SAFETY: it takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own errno, as long as the thread lives.
    unsafe { *place = value };
}

/// The program's `errno`, which comes back when this is dropped.
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) fn keep() -> Self {
        Self(errno())
    }

    pub(crate) const fn value(&self) -> i32 {
        self.0
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// The next definition of a function after this library's.
pub(crate) fn next(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

//! A stand-in for libibverbs, for tests and benchmarks: one device with one port, whose READs are copies within this
//! process. It follows the rules of real devices: states, keys, protection domains, one completion per failure, and a
//! connection that ends with the first failure.
#![expect(unsafe_code, reason = "the functions of a C library, from the other side")]

mod faults;
mod world;

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use std::io;
use std::os::fd::{FromRawFd as _, IntoRawFd, OwnedFd};

use wire::layout::{PAGE_BYTES, SLOT_BYTES};

pub use self::faults::{ADDRESSES, Address, Faults, LID};
use self::world::{Pair, Queue, Region, world};
use super::clock::Stopwatch;
use super::device::{Device, DeviceChoice};
use super::library::{Functions, Library};
use super::memory::{Arena, ProtectionDomain, Registration};
use super::queue_pair::QueuePair;
use super::reads::{Progress, Reads};
use super::sys::{self, Completion, GidEntry, WorkRequest, mask, state};

const EIO: c_int = 5;
const ENOMEM: c_int = 12;
const EBUSY: c_int = 16;
const EINVAL: c_int = 22;
const ENODATA: c_int = 61;
/// The value of `IBV_PORT_DOWN`.
const PORT_DOWN: u32 = 1;

thread_local! {
    static FAULTS: Cell<Faults> = Cell::new(Faults::default());
    static SKIP_READS: Cell<bool> = const { Cell::new(false) };
    /// Events that queue pairs of this thread have caused, and those that were read.
    static EVENTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// Registrations that this thread has created and not deleted.
    static REGISTERED: Cell<usize> = const { Cell::new(0) };
    /// The last request of a chain whose READs are skipped.
    static LAST: Cell<Option<u64>> = const { Cell::new(None) };
    /// Polls for completions by this thread.
    static POLLS: Cell<u64> = const { Cell::new(0) };
}

/// Sets the faults for all later calls of this thread.
pub fn set_faults(faults: Faults) {
    FAULTS.set(faults);
}

/// From now on, READs that this thread posts are neither executed nor checked: the last one of a chain succeeds at
/// once. Benchmarks so measure only the work of this crate.
pub fn skip_reads() {
    SKIP_READS.set(true);
}

/// Events that this thread has caused, and how many of them it has read.
#[must_use]
pub fn events() -> (u32, u32) {
    EVENTS.get()
}

/// Registrations that this thread has created and not deleted.
#[must_use]
pub fn registered() -> usize {
    REGISTERED.get()
}

/// Polls for completions by this thread.
#[must_use]
pub fn polls() -> u64 {
    POLLS.get()
}

/// The state of the queue pair with this number, of [`sys::state`].
#[must_use]
pub fn state_of(number: u32) -> Option<u32> {
    world().pairs.get(&number).map(|pair| pair.state)
}

/// The stand-in library. All instances share one device.
#[must_use]
pub fn library() -> Library {
    Library::of(Functions {
        get_device_list,
        free_device_list,
        get_device_name,
        open_device,
        close_device,
        query_device,
        query_port,
        query_gid,
        get_event,
        ack_event,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        dereg_mr,
        create_cq,
        destroy_cq,
        create_qp,
        modify_qp,
        destroy_qp,
    })
}

/// A bare chain of READs, for benchmarks of building, posting and polling.
#[derive(Debug)]
pub struct Chain(Reads);

impl Chain {
    /// A chain with space for `depth` READs of a page.
    ///
    /// # Errors
    ///
    /// The system has no memory left.
    pub fn new(depth: u32) -> io::Result<Self> {
        let device = Device::open(&library(), &DeviceChoice::default()).map_err(io::Error::other)?;
        let pd = ProtectionDomain::new(device.context())?;
        let arena = Registration::new(&pd, Arena::new(depth as usize * PAGE_BYTES)?, sys::ACCESS_LOCAL_WRITE)?;
        Ok(Self(Reads::new(QueuePair::new(&pd, depth)?, arena)))
    }

    /// Builds a chain of `reads` READs, posts it, and polls until it is done.
    ///
    /// # Errors
    ///
    /// The chain does not complete: [`skip_reads`] was not called.
    pub fn run(&mut self, reads: u64) -> io::Result<()> {
        self.0.begin()?;
        let pushed = (0..reads).all(|n| self.0.push(n * PAGE_BYTES as u64, 7, PAGE_BYTES / SLOT_BYTES));
        self.0.post()?;
        match self.0.poll()? {
            Progress::Done if pushed => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut sys::Device {
    let devices = c_int::from(!FAULTS.get().unplugged);
    // SAFETY: the caller's place for a number.
    unsafe { count.write(devices) };
    let device = Box::into_raw(Box::new(0_u8)).cast();
    Box::into_raw(Box::new([device, null_mut::<sys::Device>()])).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut sys::Device) {
    // SAFETY: made by `get_device_list`, freed once.
    let list = unsafe { Box::from_raw(list.cast::<[*mut sys::Device; 2]>()) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(list[0].cast::<u8>()) });
}

unsafe extern "C" fn get_device_name(_: *mut sys::Device) -> *const c_char {
    c"standin0".as_ptr()
}

unsafe extern "C" fn open_device(device: *mut sys::Device) -> *mut sys::Context {
    let mut operations = [null_mut(); sys::OPERATIONS];
    operations[sys::POST_SEND] = (post_send as sys::PostSend) as *mut c_void;
    operations[sys::POLL_CQ] = (poll_cq as sys::PollCq) as *mut c_void;
    // Any descriptor will do: nothing is read from it.
    let event_fd = std::fs::File::open("/dev/null").map_or(-1, IntoRawFd::into_raw_fd);
    Box::into_raw(Box::new(sys::Context { device, operations, command_fd: -1, event_fd }))
}

unsafe extern "C" fn close_device(context: *mut sys::Context) -> c_int {
    // SAFETY: made by `open_device`, closed once.
    let context = unsafe { Box::from_raw(context) };
    if context.event_fd >= 0 {
        // SAFETY: opened by `open_device`, closed once.
        drop(unsafe { OwnedFd::from_raw_fd(context.event_fd) });
    }
    0
}

unsafe extern "C" fn query_device(_: *mut sys::Context, found: *mut sys::DeviceAttributes) -> c_int {
    // SAFETY: the caller's place; zeros are a value of a struct of numbers.
    let found = unsafe { &mut *found };
    (found.max_qp_wr, found.max_cqe, found.max_mr, found.ports) = (1 << 14, 1 << 15, 1 << 12, 1);
    let reads = FAULTS.get().few_reads.map_or(128, c_int::from);
    (found.max_qp_rd_atom, found.max_qp_init_rd_atom) = (reads, reads);
    0
}

unsafe extern "C" fn query_port(_: *mut sys::Context, port: u8, found: *mut sys::PortAttributes) -> c_int {
    let faults = FAULTS.get();
    if port != 1 || faults.unplugged {
        return if faults.unplugged { EIO } else { EINVAL };
    }
    let (link_layer, lid) = if faults.infiniband { (sys::LINK_INFINIBAND, LID) } else { (sys::LINK_ETHERNET, 0) };
    let port = sys::PortAttributes {
        state: if faults.port_down { PORT_DOWN } else { sys::PORT_ACTIVE },
        active_mtu: 3,
        gids: 8,
        max_message: 8 << 20,
        lid,
        link_layer,
        ..Default::default()
    };
    // SAFETY: the caller's place.
    unsafe { found.write(port) };
    0
}

unsafe extern "C" fn query_gid(
    _: *mut sys::Context,
    port: u32,
    index: u32,
    found: *mut GidEntry,
    _: u32,
    _: usize,
) -> c_int {
    let Some(&(address, kind)) = FAULTS.get().addresses().get(index as usize) else { return ENODATA };
    // SAFETY: the caller's place.
    unsafe { found.write(GidEntry { gid: sys::Gid(address.octets()), index, port, kind, interface: 2 }) };
    0
}

unsafe extern "C" fn get_event(_: *mut sys::Context, _: *mut sys::Event) -> c_int {
    let (caused, taken) = EVENTS.get();
    if caused == taken {
        return -1;
    }
    EVENTS.set((caused, taken + 1));
    0
}

unsafe extern "C" fn ack_event(_: *mut sys::Event) {}

unsafe extern "C" fn alloc_pd(context: *mut sys::Context) -> *mut sys::ProtectionDomain {
    if FAULTS.get().unplugged {
        return null_mut();
    }
    Box::into_raw(Box::new(sys::ProtectionDomain { context, handle: 0 }))
}

unsafe extern "C" fn dealloc_pd(pd: *mut sys::ProtectionDomain) -> c_int {
    if world().regions.values().any(|region| region.pd == pd.addr()) {
        return EBUSY;
    }
    // SAFETY: made by `alloc_pd`, freed once.
    drop(unsafe { Box::from_raw(pd) });
    0
}

unsafe extern "C" fn reg_mr(
    pd: *mut sys::ProtectionDomain,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut sys::MemoryRegion {
    if FAULTS.get().unplugged {
        return null_mut();
    }
    let mut world = world();
    let key = world.number();
    let region = Region { start: address.addr() as u64, bytes: length as u64, pd: pd.addr(), access };
    world.regions.insert(key, region);
    REGISTERED.set(REGISTERED.get() + 1);
    // SAFETY: made by `alloc_pd`, and alive.
    let context = unsafe { (*pd).context };
    Box::into_raw(Box::new(sys::MemoryRegion { context, pd, address, length, handle: 0, lkey: key, rkey: key }))
}

unsafe extern "C" fn dereg_mr(region: *mut sys::MemoryRegion) -> c_int {
    let faults = FAULTS.get();
    if faults.no_deregister || faults.unplugged {
        return if faults.unplugged { EIO } else { EBUSY };
    }
    // SAFETY: made by `reg_mr`, freed once.
    let region = unsafe { Box::from_raw(region) };
    world().regions.remove(&region.rkey);
    REGISTERED.set(REGISTERED.get().saturating_sub(1));
    0
}

unsafe extern "C" fn create_cq(
    context: *mut sys::Context,
    entries: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: c_int,
) -> *mut sys::CompletionQueue {
    let queue = Box::into_raw(Box::new(sys::CompletionQueue { context }));
    world().queues.insert(queue.addr(), Queue::with_capacity(entries.unsigned_abs() as usize));
    queue
}

unsafe extern "C" fn destroy_cq(queue: *mut sys::CompletionQueue) -> c_int {
    let mut world = world();
    if world.pairs.values().any(|pair| pair.queue == queue.addr()) {
        return EBUSY;
    }
    world.queues.remove(&queue.addr());
    // SAFETY: made by `create_cq`, freed once.
    drop(unsafe { Box::from_raw(queue) });
    0
}

unsafe extern "C" fn create_qp(pd: *mut sys::ProtectionDomain, init: *mut sys::QueuePairInit) -> *mut sys::QueuePair {
    if FAULTS.get().unplugged {
        return null_mut();
    }
    // SAFETY: the caller's attributes, which this may change as the real one does.
    let init = unsafe { &mut *init };
    let (send_cq, receive_cq) = (init.send_cq, init.receive_cq);
    let depth = init.capacity.max_send_wr as usize;
    // SAFETY: made by `alloc_pd`, and alive.
    let context = unsafe { (*pd).context };
    let mut world = world();
    let number = world.number();
    let pair = Pair {
        state: state::RESET,
        peer: 0,
        path: sys::AddressVector::default(),
        pd: pd.addr(),
        queue: send_cq.addr(),
        access: 0,
        depth,
        reads: (0, 0),
    };
    world.pairs.insert(number, pair);
    let (qp_context, srq) = (null_mut(), null_mut());
    Box::into_raw(Box::new(sys::QueuePair { context, qp_context, pd, send_cq, receive_cq, srq, handle: 0, number }))
}

unsafe extern "C" fn modify_qp(pair: *mut sys::QueuePair, new: *mut sys::QueuePairAttributes, fields: c_int) -> c_int {
    // SAFETY: made by `create_qp`, and alive.
    let number = unsafe { (*pair).number };
    // SAFETY: the caller's attributes.
    let new = unsafe { &*new };
    let mut world = world();
    let Some(pair) = world.pairs.get_mut(&number) else { return EINVAL };
    let in_order = matches!(
        (pair.state, new.state),
        (_, state::RESET)
            | (state::RESET, state::INIT)
            | (state::INIT, state::READY_TO_RECEIVE)
            | (state::READY_TO_RECEIVE, state::READY_TO_SEND)
    );
    if FAULTS.get().unplugged {
        return EIO;
    }
    if fields & mask::STATE == 0 || !in_order || FAULTS.get().no_reset && new.state == state::RESET {
        return EINVAL;
    }
    if fields & mask::ADDRESS != 0 {
        if !FAULTS.get().reaches(&new.address) {
            return EINVAL;
        }
        pair.path = new.address;
    }
    pair.state = new.state;
    if fields & mask::PEER_NUMBER != 0 {
        pair.peer = new.peer_number;
    }
    if fields & mask::ACCESS != 0 {
        pair.access = new.access;
    }
    if fields & mask::READS_ASKED != 0 {
        pair.reads.0 = new.reads_asked;
    }
    if fields & mask::READS_ANSWERED != 0 {
        pair.reads.1 = new.reads_answered;
    }
    0
}

unsafe extern "C" fn destroy_qp(pair: *mut sys::QueuePair) -> c_int {
    let faults = FAULTS.get();
    if faults.unplugged {
        // The queue pair is gone with the device, but the library still returns an error.
        // SAFETY: made by `create_qp`, and alive.
        world().pairs.remove(unsafe { &(*pair).number });
        return EIO;
    }
    if faults.no_destroy {
        return EBUSY;
    }
    // SAFETY: made by `create_qp`, freed once.
    let pair = unsafe { Box::from_raw(pair) };
    world().pairs.remove(&pair.number);
    0
}

unsafe extern "C" fn post_send(
    pair: *mut sys::QueuePair,
    first: *mut WorkRequest,
    refused: *mut *mut WorkRequest,
) -> c_int {
    let mut next = first;
    if SKIP_READS.get() {
        // SAFETY: the caller's chain.
        while let Some(request) = unsafe { next.as_ref() } {
            LAST.set(Some(request.id));
            next = request.next;
        }
        return 0;
    }
    // SAFETY: made by `create_qp`, and alive.
    let number = unsafe { (*pair).number };
    let (faults, mut world) = (FAULTS.get(), world());
    let Some(Pair { state: now, depth, queue, .. }) = world.pairs.get(&number).copied() else { return EINVAL };
    let capacity = faults.full_after.unwrap_or(depth);
    let mut taken = 0;
    // SAFETY: the caller's chain.
    while let Some(request) = unsafe { next.as_ref() } {
        let usable = now == state::READY_TO_SEND || now == state::ERROR;
        if !usable || taken == capacity {
            // SAFETY: the caller's place.
            unsafe { refused.write(next) };
            return if usable { ENOMEM } else { EINVAL };
        }
        // SAFETY: the caller's element, of which there is one.
        let element = unsafe { &*request.elements };
        let result = world.read(number, taken, request, element);
        if result.is_err()
            && let Some(own) = world.pairs.get_mut(&number)
        {
            own.state = state::ERROR;
        }
        if (result.is_err() || request.flags & sys::SIGNALED != 0)
            && !faults.silent
            && let Some(queue) = world.queues.get_mut(&queue)
        {
            let status = result.err().map_or(0, |status| status.0);
            let completion = Completion { id: request.id, status, operation: sys::READ, number, ..Default::default() };
            queue.push_back((Stopwatch::start(), faults.late, completion));
        }
        (taken, next) = (taken + 1, request.next);
    }
    0
}

unsafe extern "C" fn poll_cq(queue: *mut sys::CompletionQueue, capacity: c_int, place: *mut Completion) -> c_int {
    POLLS.set(POLLS.get() + 1);
    if let Some(id) = LAST.take() {
        // SAFETY: the caller's place for at least one.
        unsafe { place.write(Completion { id, ..Default::default() }) };
        return 1;
    }
    let mut world = world();
    let Some(queue) = world.queues.get_mut(&queue.addr()) else { return -1 };
    let mut found = 0;
    while found < capacity
        && let Some((_, _, completion)) =
            queue.pop_front_if(|(since, late, _)| late.is_zero() || since.elapsed() >= *late)
    {
        // SAFETY: the caller's place for `capacity` of them.
        unsafe { place.wrapping_add(found.unsigned_abs() as usize).write(completion) };
        found += 1;
    }
    found
}

//! An RDMA library in place of the real one, for tests and benchmarks: one device with one port, whose READs are copies within this
//! process. It keeps the rules that the real ones have: states, keys, protection domains, one completion per failure, a connection that is
//! over after the first one.
#![expect(unsafe_code, reason = "the functions of a C library, from the other side")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{FromRawFd as _, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use wire::layout::{PAGE_BYTES, SLOT_BYTES};

use super::device::{Device, DeviceChoice};
use super::library::{Functions, Library};
use super::memory::{Arena, ProtectionDomain, Registered};
use super::queue_pair::QueuePair;
use super::reads::{Progress, Reads};
use super::status::Status;
use super::sys::{self, Completion, GidEntry, WorkRequest, mask, state};

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;
const ENODATA: c_int = 61;

/// What goes wrong from now on, for calls of this thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Nothing is ever completed.
    pub silent: bool,
    /// The peer does not answer.
    pub dead_peer: bool,
    /// The queue is full after so many work requests of a chain.
    pub full_after: Option<usize>,
    /// A queue pair cannot be reset.
    pub no_reset: bool,
}

thread_local! {
    static FAULTS: Cell<Faults> =
        const { Cell::new(Faults { silent: false, dead_peer: false, full_after: None, no_reset: false }) };
    static HOLLOW: Cell<bool> = const { Cell::new(false) };
    /// Events that queue pairs of this thread have caused, and those that were taken.
    static EVENTS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// Registrations that this thread has made and not taken back.
    static REGISTERED: Cell<usize> = const { Cell::new(0) };
    /// The last request of a hollow chain.
    static LAST: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets what goes wrong from now on, for calls of this thread.
pub fn set_faults(faults: Faults) {
    FAULTS.set(faults);
}

/// From now on, READs that this thread posts are neither done nor checked: the last one of a chain succeeds at once. What is left is our own
/// work, to be measured.
pub fn be_hollow() {
    HOLLOW.set(true);
}

/// How many events this thread has caused, and how many of them it has taken.
#[must_use]
pub fn events() -> (u32, u32) {
    EVENTS.get()
}

/// How many registrations this thread has made and not taken back.
#[must_use]
pub fn registered() -> usize {
    REGISTERED.get()
}

/// The library. All of them are one and have the same device.
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

/// A chain of READs with nothing around it, for benchmarks: what building, posting and polling cost.
#[derive(Debug)]
pub struct Chain(Reads);

impl Chain {
    /// Room for `depth` READs of a page.
    ///
    /// # Errors
    ///
    /// The system has no memory left.
    pub fn new(depth: u32) -> io::Result<Self> {
        let device = Device::open(&library(), &DeviceChoice::default()).map_err(io::Error::other)?;
        let pd = ProtectionDomain::new(device.context())?;
        let arena = Registered::new(&pd, Arena::new(depth as usize * PAGE_BYTES)?, sys::ACCESS_LOCAL_WRITE)?;
        Ok(Self(Reads::new(QueuePair::new(&pd, depth)?, arena)))
    }

    /// Builds a chain of `reads` READs, posts it, and polls until it is done.
    ///
    /// # Errors
    ///
    /// It is never done: [`be_hollow`] was not called.
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

/// Everything that was made. What a pointer is for is known by its address.
#[derive(Default)]
struct World {
    numbers: u32,
    regions: HashMap<u32, Region>,
    pairs: HashMap<u32, Pair>,
    queues: HashMap<usize, VecDeque<Completion>>,
}

#[derive(Clone, Copy)]
struct Region {
    start: u64,
    bytes: u64,
    pd: usize,
    access: c_int,
}

#[derive(Clone, Copy)]
struct Pair {
    state: u32,
    peer: u32,
    pd: usize,
    queue: usize,
    access: u32,
    depth: usize,
}

impl Region {
    fn allows(&self, pd: usize, access: c_int, start: u64, bytes: u32) -> bool {
        let end = start.checked_add(u64::from(bytes)).is_some_and(|end| end <= self.start + self.bytes);
        self.pd == pd && self.access & access != 0 && start >= self.start && end
    }
}

fn world() -> MutexGuard<'static, World> {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers + 16
    }

    /// What becomes of one READ.
    fn read(&mut self, number: u32, request: &WorkRequest, element: &sys::Element) -> Result<(), Status> {
        let Some(own) = self.pairs.get(&number).copied() else { return Err(Status::FLUSHED) };
        if own.state == state::ERROR {
            return Err(Status::FLUSHED);
        }
        let local = self.regions.get(&element.lkey);
        if !local.is_some_and(|mr| mr.allows(own.pd, sys::ACCESS_LOCAL_WRITE, element.address, element.length)) {
            return Err(Status::LOCAL_PROTECTION);
        }
        let peer =
            self.pairs.get_mut(&own.peer).filter(|pair| pair.state == state::READY_TO_SEND && pair.peer == number);
        let Some(peer) = peer.filter(|_| !FAULTS.get().dead_peer) else { return Err(Status::RETRIES_EXCEEDED) };
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

/// Copies words as a device does: each at once.
fn copy(from: u64, to: u64, words: usize) {
    let (from, to) = (from as *const AtomicU64, to as *mut u64);
    for n in 0..words {
        // SAFETY: inside a registered region, which is mapped, and words are aligned as its start is.
        let word = unsafe { &*from.wrapping_add(n) };
        // SAFETY: as above; nobody looks there before the completion.
        unsafe { to.wrapping_add(n).write(word.load(Relaxed)) };
    }
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut sys::Device {
    // SAFETY: the caller's place for a number.
    unsafe { count.write(1) };
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
    (found.max_qp_rd_atom, found.max_qp_init_rd_atom) = (128, 128);
    0
}

unsafe extern "C" fn query_port(_: *mut sys::Context, port: u8, found: *mut sys::PortAttributes) -> c_int {
    if port != 1 {
        return EINVAL;
    }
    let port = sys::PortAttributes {
        state: sys::PORT_ACTIVE,
        active_mtu: 3,
        gids: 8,
        max_message: 8 << 20,
        link_layer: sys::LINK_ETHERNET,
        ..Default::default()
    };
    // SAFETY: the caller's place.
    unsafe { found.write(port) };
    0
}

/// A link-local address, a RoCE v1 and a v2 entry of the same IPv4 address, and nothing.
unsafe extern "C" fn query_gid(
    _: *mut sys::Context,
    port: u32,
    index: u32,
    found: *mut GidEntry,
    _: u32,
    _: usize,
) -> c_int {
    let (address, kind) = match index {
        0 => (std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), sys::GID_ROCE_V2),
        1 => (std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), 1),
        2 => (std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(), sys::GID_ROCE_V2),
        _ => return ENODATA,
    };
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
    Box::into_raw(Box::new(sys::ProtectionDomain { context, handle: 0 }))
}

unsafe extern "C" fn dealloc_pd(pd: *mut sys::ProtectionDomain) -> c_int {
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
    world().queues.insert(queue.addr(), VecDeque::with_capacity(entries.unsigned_abs() as usize));
    queue
}

unsafe extern "C" fn destroy_cq(queue: *mut sys::CompletionQueue) -> c_int {
    world().queues.remove(&queue.addr());
    // SAFETY: made by `create_cq`, freed once.
    drop(unsafe { Box::from_raw(queue) });
    0
}

unsafe extern "C" fn create_qp(pd: *mut sys::ProtectionDomain, init: *mut sys::QueuePairInit) -> *mut sys::QueuePair {
    // SAFETY: the caller's attributes, which this may change as the real one does.
    let init = unsafe { &mut *init };
    let (send_cq, receive_cq) = (init.send_cq, init.receive_cq);
    let depth = init.capacity.max_send_wr as usize;
    // SAFETY: made by `alloc_pd`, and alive.
    let context = unsafe { (*pd).context };
    let mut world = world();
    let number = world.number();
    let pair = Pair { state: state::RESET, peer: 0, pd: pd.addr(), queue: send_cq.addr(), access: 0, depth };
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
    if fields & mask::STATE == 0 || !in_order || FAULTS.get().no_reset && new.state == state::RESET {
        return EINVAL;
    }
    pair.state = new.state;
    if fields & mask::PEER_NUMBER != 0 {
        pair.peer = new.peer_number;
    }
    if fields & mask::ACCESS != 0 {
        pair.access = new.access;
    }
    0
}

unsafe extern "C" fn destroy_qp(pair: *mut sys::QueuePair) -> c_int {
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
    if HOLLOW.get() {
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
    let room = faults.full_after.unwrap_or(depth);
    let mut taken = 0;
    // SAFETY: the caller's chain.
    while let Some(request) = unsafe { next.as_ref() } {
        let usable = now == state::READY_TO_SEND || now == state::ERROR;
        if !usable || taken == room {
            // SAFETY: the caller's place.
            unsafe { refused.write(next) };
            return if usable { ENOMEM } else { EINVAL };
        }
        // SAFETY: the caller's element, of which there is one.
        let element = unsafe { &*request.elements };
        let result = world.read(number, request, element);
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
            queue.push_back(Completion { id: request.id, status, operation: sys::READ, number, ..Default::default() });
        }
        (taken, next) = (taken + 1, request.next);
    }
    0
}

unsafe extern "C" fn poll_cq(queue: *mut sys::CompletionQueue, room: c_int, place: *mut Completion) -> c_int {
    if let Some(id) = LAST.take() {
        // SAFETY: the caller's place for at least one.
        unsafe { place.write(Completion { id, ..Default::default() }) };
        return 1;
    }
    let mut world = world();
    let Some(queue) = world.queues.get_mut(&queue.addr()) else { return -1 };
    let mut found = 0;
    while found < room
        && let Some(completion) = queue.pop_front()
    {
        // SAFETY: the caller's place for `room` of them.
        unsafe { place.wrapping_add(found.unsigned_abs() as usize).write(completion) };
        found += 1;
    }
    found
}

//! A worker's end that posts any work request and returns every completion, without the checks of
//! [`VerbsReader`](super::super::VerbsReader).
#![expect(unsafe_code, reason = "chains of work requests that the safe end does not post")]

use core::ptr::null_mut;
use std::io;
use std::time::Duration;

use wire::rdma::Endpoint;

use super::super::clock::Stopwatch;
use super::super::connect::{self, Role};
use super::super::memory::{Arena, ProtectionDomain, Registration};
use super::super::queue_pair::QueuePair;
use super::super::sys::{Completion, Element, READ, SIGNALED, WorkRequest};
use super::super::{Device, RegisteredRegion, VerbsHost, sys};
use super::{device, psn};

/// Bytes of the buffer. READ number n goes to the page of that number.
const BUFFER: usize = 64 << 12;

/// Queries the state from the device, by a function of the library that only this test needs.
#[cfg(feature = "device-tests")]
fn state(queue_pair: &QueuePair) -> u32 {
    use core::ffi::c_int;
    use core::mem::MaybeUninit;

    use sys::{QueuePairAttributes, QueuePairInit};

    type Query =
        unsafe extern "C" fn(*mut sys::QueuePair, *mut QueuePairAttributes, c_int, *mut QueuePairInit) -> c_int;
    // SAFETY: it is loaded already.
    let library = unsafe { libloading::Library::new("libibverbs.so.1") }.expect("it is loaded already");
    // SAFETY: the function of that name has this type.
    let query = unsafe { library.get::<Query>("ibv_query_qp") }.expect("the library has it");
    let (mut found, mut init) = (QueuePairAttributes::default(), MaybeUninit::zeroed());
    // SAFETY: the queue pair exists, and both places are as long as the library's structs.
    let code = unsafe { query(queue_pair.as_ptr(), &raw mut found, sys::mask::STATE, init.as_mut_ptr()) };
    assert_eq!(code, 0, "the device says in which state its queue pair is");
    found.state
}

#[cfg(not(feature = "device-tests"))]
fn state(queue_pair: &QueuePair) -> u32 {
    crate::verbs::stand_in::state_of(queue_pair.number()).expect("it was not destroyed")
}

pub struct RawReader {
    // In this order: the queue pair is dropped before the buffer.
    pub queue_pair: QueuePair,
    pub buffer: Registration<Arena>,
    device: Device,
}

/// One READ: address, remote key and length, and an error in the local key.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    pub address: u64,
    pub rkey: u32,
    pub bytes: u32,
    /// Added to the buffer's own key.
    pub wrong_lkey: u32,
}

impl ReadRequest {
    pub fn page(registered: RegisteredRegion) -> Self {
        Self { address: registered.address, rkey: registered.rkey, bytes: 4096, wrong_lkey: 0 }
    }
}

impl RawReader {
    pub fn new(depth: u32) -> Self {
        let device = device();
        let pd = ProtectionDomain::new(device.context()).expect("the device has room");
        let buffer = Arena::new(BUFFER).expect("memory is left");
        let buffer = Registration::new(&pd, buffer, sys::ACCESS_LOCAL_WRITE).expect("memory may be pinned");
        let queue_pair = QueuePair::new(&pd, depth).expect("the device has room");
        Self { queue_pair, buffer, device }
    }

    /// Both ends, connected.
    pub fn pair() -> (Self, VerbsHost) {
        let mut raw = Self::new(256);
        let mut host = VerbsHost::new(&raw.device).expect("the device has room");
        raw.connect(|own| host.answer(psn(), own).expect("the worker can be reached"));
        (raw, host)
    }

    /// Resets, and connects to the endpoint that `exchange` returns.
    pub fn connect(&mut self, exchange: impl FnOnce(&Endpoint) -> Endpoint) {
        self.queue_pair.reset().expect("the device works");
        let own =
            connect::prepare(&mut self.queue_pair, &self.device, Role::Initiator, psn()).expect("the device works");
        let peer = exchange(&own);
        connect::connect(&mut self.queue_pair, &self.device, &own, &peer).expect("the host can be reached");
    }

    /// The first word of the page that READ number `n` went to. The queue pair has been reset.
    pub fn fetched(&mut self, n: usize) -> u64 {
        self.queue_pair.reset().expect("the device works");
        // SAFETY: nothing is in flight after a reset.
        let words = unsafe { self.buffer.memory().words() };
        words[n * 512]
    }

    /// Posts all of `reads` in one chain, the last one signalled.
    pub fn post(&mut self, reads: &[ReadRequest]) -> io::Result<()> {
        let mut elements: Vec<_> = (0_u64..)
            .zip(reads)
            .map(|(n, read)| Element {
                address: self.buffer.memory().address() + n % 64 * 4096,
                length: read.bytes,
                lkey: self.buffer.lkey().wrapping_add(read.wrong_lkey),
            })
            .collect();
        let elements = elements.as_mut_ptr();
        let mut requests: Vec<_> = (0..)
            .zip(reads)
            .map(|(n, read)| WorkRequest {
                id: n as u64,
                next: null_mut(),
                elements: elements.wrapping_add(n),
                count: 1,
                operation: READ,
                flags: if n + 1 == reads.len() { SIGNALED } else { 0 },
                immediate: 0,
                remote_address: read.address,
                rkey: read.rkey,
                rest: [0; 9],
            })
            .collect();
        let first = requests.as_mut_ptr();
        for n in 1..requests.len() {
            // SAFETY: inside the vector.
            unsafe { (*first.wrapping_add(n - 1)).next = first.wrapping_add(n) };
        }
        // SAFETY: a chain that ends with null; its elements lie in the registered buffer, which nobody looks at and
        // which is dropped after the queue pair.
        unsafe { self.queue_pair.post(first) }
    }

    /// The state of this end.
    #[cfg(feature = "device-tests")]
    pub fn state(&self) -> u32 {
        state(&self.queue_pair)
    }

    /// The states of both ends.
    pub fn states(&self, host: &VerbsHost) -> [u32; 2] {
        [&self.queue_pair, host.queue_pair().expect("it was not destroyed")].map(state)
    }

    /// Completions, as number and status, until there are `count` of them or `patience` is over.
    pub fn completions(&mut self, count: usize, patience: Duration) -> Vec<(u64, u32)> {
        let (start, mut found) = (Stopwatch::start(), Vec::new());
        while found.len() < count && start.elapsed() < patience {
            let mut some = [Completion::default(); 8];
            let new = self.queue_pair.poll(&mut some).expect("the queue can be read");
            found.extend(some.iter().take(new).map(|completion| (completion.id, completion.status)));
            std::thread::yield_now();
        }
        found
    }
}

//! Fetching by RDMA does not allocate, in one part or in several.
#![expect(unsafe_code, reason = "an allocator has no safe interface")]
#![cfg(not(miri))] // Memory of the system, which Miri does not have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::os::fd::AsFd as _;

use region::{AcceptedRegion, OwnedRegion};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsHost, VerbsReader, stand_in};
use transport::{Access, FetchStatus, RegionBuffer, RegionReader as _};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::rdma::PacketSequence;

struct CountingAllocator;

thread_local! {
    /// Per thread, because the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every method forwards to the system's allocator, which keeps the contract; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // During the thread's destruction there is nothing left to count with.
        let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn allocations_of_a_hundred_fetches(limits: ReaderLimits) -> Result<u64, Box<dyn Error>> {
    let device = Device::open(&stand_in::library(), &DeviceChoice::default())?;
    let (mut reader, mut host) = (VerbsReader::new(&device, limits)?, VerbsHost::new(&device)?);
    let start = PacketSequence::from_random(1);
    let worker = reader.reset(start)?;
    reader.connect(&host.answer(start, &worker)?)?;
    let size = RegionSize::new(8192)?;
    let mut batch = Vec::new();
    for id in (0..20).map(RegionId) {
        let region = OwnedRegion::create("test", size)?;
        let accepted = AcceptedRegion::accept(region.as_fd().try_clone_to_owned()?, size)?;
        let registered = host.register(id, &accepted)?;
        reader.attach(id, size, Access::Remote { address: registered.address, rkey: registered.rkey, bytes: 8192 })?;
        batch.push(RegionBuffer::new(id, size));
    }

    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        reader.fetch(&mut batch)?;
    }
    let allocations = ALLOCATIONS.get() - before;

    assert!(batch.iter().all(|buffer| buffer.status == FetchStatus::Fetched));
    Ok(allocations)
}

#[test]
fn a_fetch_allocates_nothing() {
    assert_eq!(allocations_of_a_hundred_fetches(ReaderLimits::default()).unwrap(), 0);
}

#[test]
fn a_fetch_in_several_parts_allocates_nothing() {
    let limits = ReaderLimits { reads: 3, buffer_bytes: 5 * 4096, ..ReaderLimits::default() };
    assert_eq!(allocations_of_a_hundred_fetches(limits).unwrap(), 0);
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}

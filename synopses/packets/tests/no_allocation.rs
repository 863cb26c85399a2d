//! No allocation per packet, from the file to the synopses.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;

use packets::file::{Capture, Writer};
use packets::generator::{Traffic, TrafficSettings};
use packets::{Delays, DelaysSettings, Filter, Link, Pair, Progress, Refusals, Source as _, View, identity, parse};
use synopses::digest::DigestKey;
use synopses::finecomb::{FineComb, Settings as CombSettings};
use synopses::fridge::{HistogramShape, Settings};

struct CountingAllocator;

thread_local! {
    /// Per thread, because the test harness has its own threads.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Fails during the thread's destruction, when the counter is gone.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every method calls the system's allocator, which keeps the contract. Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller has the same obligations.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller has the same obligations.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller has the same obligations.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller has the same obligations.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of allocations during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_allocator_is_counted() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1_u8; 100]))) > 0);
}

#[test]
fn a_packet_of_a_capture_touches_no_allocator_until_it_is_in_all_synopses() {
    let mut writer = Writer::new(Vec::new(), Link::Ethernet, 96).expect("memory takes all");
    for frame in Traffic::new(&TrafficSettings::default()).frames() {
        writer.write(&frame).expect("memory takes all");
    }
    let mut capture = Capture::new(Cursor::new(writer.finish().expect("memory takes all"))).expect("a capture");
    let filter: Filter = "not port 1 and not vlan 9 and net 0.0.0.0/0".parse().expect("a filter");
    let mut delays = Pair::ALL.map(|pair| {
        let (fridge, histogram) = (Settings { slots: 256, ..Settings::default() }, HistogramShape::default());
        let settings = DelaysSettings { pair, filter: filter.clone(), fridge, histogram, tuned: false, secret: 1 };
        Delays::new(settings).expect("possible")
    });
    let (key, mut refusals) = (DigestKey::new(2), Refusals::default());
    let mut finecomb = FineComb::new(&CombSettings::one_bank(100, 0.5, 0, 1)).expect("possible");
    // Reads the header, and describes the interface.
    assert!(matches!(capture.read(&mut |_| {}), Ok(Progress::Frames(_))));
    let before = capture.counts().frames;

    let count = allocations(|| {
        loop {
            let progress = capture.read(&mut |frame| match parse(frame, View::Inner) {
                Ok(packet) => {
                    for delays in &mut delays {
                        let _ = delays.insert(&packet);
                    }
                    finecomb.insert(identity::digest(&packet, &key), packet.time_ns);
                }
                Err(reason) => refusals.count(reason),
            });
            if progress.is_ok_and(|progress| progress == Progress::End) {
                break;
            }
        }
    });

    assert_eq!((count, refusals.sum()), (0, 0));
    assert_eq!(finecomb.packets(), capture.counts().frames - before);
    assert!(finecomb.packets() > 3_000 && delays.iter().all(|delays| delays.histogram().samples() > 10));
}

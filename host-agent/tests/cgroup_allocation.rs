//! Reading a cgroup allocates nothing: asserted by an allocator that counts, alone in its process.
#![expect(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use host_agent::cgroup_metrics::{FILE_BYTES, MeasuredCgroup};
use sources::cgroup::hierarchies::{Controller, Hierarchy};
use sources::cgroup::{Measure, Values};

/// The system's allocator, with a count of the calls on this thread.
struct CountingAllocator;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn calls(work: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

#[test]
fn reading_a_cgroup_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("shop");
    std::fs::create_dir(&folder).unwrap();
    for (name, text) in [
        ("cpu.stat", "user_usec 3\nsystem_usec 2\nnr_throttled 1\n"),
        ("memory.current", "4096\n"),
        ("memory.stat", "anon 4096\ninactive_file 0\npgfault 3\npgmajfault 1\n"),
        ("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n"),
        ("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let hierarchy = Hierarchy { controller: Controller::Unified, root: directory.path().to_owned() };
    let cgroup = MeasuredCgroup::open(&[hierarchy], "shop").unwrap();
    let (mut buffer, mut values) = (vec![0; FILE_BYTES], Values::default());

    assert!(calls(|| drop(black_box(Box::new(1)))) >= 2, "the allocator counts");
    let allocated = calls(|| {
        for _ in 0..100 {
            cgroup.read(&mut buffer, &mut values).unwrap();
        }
    });

    assert_eq!((allocated, values.get(Measure::MemoryUsage)), (0, Some(4096)));
}

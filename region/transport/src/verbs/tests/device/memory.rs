//! Effects of registering a region: on the region, on its service, and on the process that registers it.
#![expect(unsafe_code, reason = "mappings that the safe end never makes")]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use region::{AcceptedRegion, OwnedRegion};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};

use super::super::{accepted, access, batch, device, pair, region, store, value};
use super::child::{Process, open_of};
use crate::fetch::{Access, FetchStatus, RegionBuffer, RegionReader as _};
use crate::verbs::memory::{Memory, ProtectionDomain, Registration};
use crate::verbs::{VerbsHost, VerbsReader, sys};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// A line of /proc/self/status, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A region attached to a connected reader.
fn attached(region: &OwnedRegion) -> (VerbsReader, VerbsHost) {
    let (mut reader, mut host) = pair();
    reader.attach(RegionId(1), region.size(), access(&mut host, 1, region)).unwrap();
    (reader, host)
}

fn read(reader: &mut VerbsReader) -> Option<u64> {
    let mut batch = batch([1]);
    reader.fetch(&mut batch).unwrap();
    value(&batch[0])
}

#[test]
fn registering_pins_the_region_and_locks_nothing() {
    let (_reader, mut host) = pair();
    let size = RegionSize::new(1 << 20).unwrap();
    let region = OwnedRegion::create("test", size).unwrap();
    let (pinned, locked) = (status("VmPin"), status("VmLck"));

    host.register(RegionId(1), &accepted(&region)).unwrap();
    assert_eq!((status("VmPin"), status("VmLck")), (pinned + (1 << 20), locked));

    host.deregister(RegionId(1)).unwrap();
    assert_eq!(status("VmPin"), pinned);
}

#[test]
fn values_outlive_their_service_and_stand_still() {
    let (mut reader, mut host) = pair();
    let mut service = Process::start("service", 0);
    let descriptor = service.read_line();
    let accepted = AcceptedRegion::accept(open_of(service.id(), &descriptor), RegionSize::ONE_PAGE).unwrap();
    let registered = host.register(RegionId(1), &accepted).unwrap();
    drop(accepted);
    let access = Access::Remote { address: registered.address, rkey: registered.rkey, bytes: 4096 };
    reader.attach(RegionId(1), RegionSize::ONE_PAGE, access).unwrap();

    let first = read(&mut reader).unwrap();
    let mut moved = false;
    for _ in 0..1000 {
        moved |= read(&mut reader).unwrap() > first;
    }
    service.kill();

    assert!(moved, "it counts while it is read");
    let last = read(&mut reader);
    assert!(last.is_some());
    assert_eq!(read(&mut reader), last);
}

#[test]
fn a_registration_holds_the_pages_after_the_mapping_is_gone() {
    let service = region();
    store(&service, 1);
    let (mut reader, mut host) = attached(&service);
    let registered = host.register(RegionId(1), &accepted(&service)).unwrap();
    let mapping = registered.address as *mut c_void;

    // In place of the mapping something that nobody can read; a plain unmapping would leave the place to others.
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: replaces a mapping that nothing of this process reads or writes.
    unsafe { mmap_anonymous(mapping, 4096, ProtFlags::empty(), flags) }.unwrap();

    store(&service, 2);
    assert_eq!(read(&mut reader), Some(2));
}

#[test]
fn a_region_mapped_for_reading_only_cannot_be_registered_before_kernel_6_2() {
    struct ReadOnly(NonNull<c_void>);

    // SAFETY: mapped until it is dropped, and never read by this process.
    unsafe impl Memory for ReadOnly {
        fn base(&self) -> NonNull<c_void> {
            self.0
        }

        fn bytes(&self) -> usize {
            4096
        }
    }

    impl Drop for ReadOnly {
        fn drop(&mut self) {
            // SAFETY: mapped with this length.
            unsafe { munmap(self.0.as_ptr(), 4096) }.unwrap();
        }
    }

    let service = region();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    let pd = ProtectionDomain::new(device().context()).unwrap();
    // SAFETY: no address is asked for.
    let base = unsafe { mmap(null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &service, 0) }.unwrap();

    let result = Registration::new(&pd, ReadOnly(NonNull::new(base).unwrap()), sys::ACCESS_REMOTE_READ);

    let error = result.err().and_then(|error| error.raw_os_error());
    assert_eq!(error, if kernel < (6, 2) { Some(Errno::FAULT.raw_os_error()) } else { None }, "kernel {release}");
}

#[test]
fn a_hole_freezes_what_is_read_and_its_service_alone() {
    let (damaged, good) = (region(), region());
    let (mut reader, mut host) = attached(&damaged);
    reader.attach(RegionId(2), good.size(), access(&mut host, 2, &good)).unwrap();
    store(&damaged, 1);
    damaged.beat();
    let mut batch = batch([1, 2]);
    reader.fetch(&mut batch).unwrap();
    let before = batch[0].words.clone();

    fallocate(&damaged, PUNCH, 0, 4096).unwrap();
    for region in [&damaged, &good] {
        store(region, 2);
        region.beat();
    }
    reader.fetch(&mut batch).unwrap();

    // The device still has the old page: success, and a heartbeat that stands still.
    assert_eq!(batch[0].status, FetchStatus::Fetched);
    assert_eq!(batch[0].words, before);
    assert_eq!(value(&batch[1]), Some(2));

    // Registered again, it is read as it is.
    host.deregister(RegionId(1)).unwrap();
    reader.detach(RegionId(1));
    reader.attach(RegionId(1), damaged.size(), access(&mut host, 1, &damaged)).unwrap();
    reader.fetch(&mut batch).unwrap();
    assert_eq!(value(&batch[0]), Some(2));
}

#[test]
fn seals_against_writing_work_only_after_the_mapping_and_end_its_registering_for_good() {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fallocate(&memory, FallocateFlags::empty(), 0, 4096).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let (mut reader, mut host) = pair();
    let accepted = AcceptedRegion::accept(memory.try_clone().unwrap(), RegionSize::ONE_PAGE).unwrap();
    let registered = host.register(RegionId(1), &accepted).unwrap();
    let access = Access::Remote { address: registered.address, rkey: registered.rkey, bytes: 4096 };
    reader.attach(RegionId(1), RegionSize::ONE_PAGE, access).unwrap();

    let map = || {
        // SAFETY: no address is asked for.
        unsafe { mmap(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memory, 0) }
    };
    let service = map().unwrap();
    assert_eq!(fcntl_add_seals(&memory, SealFlags::WRITE), Err(Errno::BUSY));
    assert_eq!(ftruncate(&memory, 0), Err(Errno::PERM));
    fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE).unwrap();

    assert_eq!(fallocate(&memory, PUNCH, 0, 4096), Err(Errno::PERM));
    // SAFETY: mapped above; the pages would become zeros, which is what is in them.
    assert_eq!(unsafe { madvise(service, 4096, Advice::LinuxRemove) }, Err(Errno::PERM));
    assert_eq!(pwrite(&memory, &[1], 0), Err(Errno::PERM));
    assert_eq!(map().err(), Some(Errno::PERM), "nobody can map it for writing any more");
    // Who could before goes on, and is read.
    let word = service.cast::<u64>().wrapping_add(Slot(0).word());
    // SAFETY: a word of the mapping, which everybody reads and writes at once.
    unsafe { AtomicU64::from_ptr(word) }.store(5, Relaxed);
    assert_eq!(read(&mut reader), Some(5));
    // SAFETY: mapped above with this length.
    unsafe { munmap(service, 4096) }.unwrap();
    assert!(AcceptedRegion::accept(memory, RegionSize::ONE_PAGE).is_err());
}

#[test]
fn the_limit_of_locked_memory_is_named_with_what_is_needed() {
    fs::set_permissions("/dev/infiniband/uverbs0", fs::Permissions::from_mode(0o666)).unwrap();

    let mut agent = Process::start("limited", 1000);

    let error = agent.read_line();
    assert!(error.contains("RLIMIT_MEMLOCK is 65536 bytes and 98304 are needed"), "{error}");
    assert!(agent.passes());
}

#[test]
fn root_has_no_limit_of_locked_memory() {
    assert!(Process::start("privileged", 0).passes());
}

#[test]
fn a_device_without_a_right_to_it_is_named() {
    let device = "/dev/infiniband/uverbs0";
    let mode = fs::metadata(device).unwrap().permissions();
    fs::set_permissions(device, fs::Permissions::from_mode(0o600)).unwrap();

    let mut agent = Process::start("stranger", 1000);
    let error = agent.read_line();

    fs::set_permissions(device, mode).unwrap();
    assert!(error.contains("/dev/infiniband/uverbs*"), "{error}");
    assert!(agent.passes());
}

#[test]
fn a_region_of_the_largest_size_is_read_whole() {
    let region = OwnedRegion::create("test", RegionSize::new(16 << 20).unwrap()).unwrap();
    let last = Slot(region.size().slots() - 1);
    region.slot(last).unwrap().store(9, Relaxed);
    let (mut reader, _host) = attached(&region);
    let mut batch = [RegionBuffer::new(RegionId(1), region.size())];

    reader.fetch(&mut batch).unwrap();

    assert_eq!(batch[0].status, FetchStatus::Fetched);
    assert_eq!(batch[0].words[last.word()], 9);
}

//! Descriptors that a service may pass instead of a region, and what a reader sees if a service damages its region.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use region::{AcceptError, AcceptedRegion, BufferLengthError, MapError, OwnedRegion, ReadMapping};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create, open,
};
use wire::layout::{Header, HeaderError, MAGIC, PAGE_BYTES, RegionSize, SLOT_BYTES, Slot};

const SIZE: RegionSize = RegionSize::ONE_PAGE;
const NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("descriptors are left");
    ftruncate(&memory, bytes).expect("descriptors are left");
    if (1..=16384).contains(&bytes) {
        fallocate(&memory, FallocateFlags::empty(), 0, bytes).expect("memory is left");
    }
    fcntl_add_seals(&memory, seals).expect("descriptors are left");
    memory
}

fn passed(region: &OwnedRegion) -> OwnedFd {
    region.as_fd().try_clone_to_owned().expect("descriptors are left")
}

#[test]
fn what_a_region_hands_over_is_accepted() {
    let size = RegionSize::new(8192).unwrap();
    let region = OwnedRegion::create("test", size).unwrap();

    let accepted = AcceptedRegion::accept(passed(&region), size).unwrap();

    assert_eq!(accepted.size(), size);
}

#[test]
fn what_is_no_memfd_is_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let path = open("/proc/self/exe", OFlags::PATH, Mode::empty()).unwrap();

    for descriptor in [reader.into(), writer.into(), null, path] {
        assert!(matches!(AcceptedRegion::accept(descriptor, SIZE), Err(AcceptError::NotMemory(_))));
    }
}

#[test]
fn a_memfd_of_huge_pages_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(memory) = memfd_create("test", flags) else {
        return eprintln!("this kernel has no huge pages: nothing to refuse");
    };
    fcntl_add_seals(&memory, NEEDED).unwrap();

    assert!(matches!(ReadMapping::map(memory.as_fd(), SIZE), Err(MapError::Unsealed(Some(_)))));
    assert!(matches!(AcceptedRegion::accept(memory, SIZE), Err(AcceptError::NotMemory(_))));
}

#[test]
fn a_memfd_that_lacks_a_seal_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        let error = AcceptedRegion::accept(memory(4096, seals), SIZE).unwrap_err();
        assert!(matches!(error, AcceptError::Unsealed { found } if found == seals.bits()), "{error}");
    }
    let plain = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&plain, 4096).unwrap();
    assert!(matches!(AcceptedRegion::accept(plain, SIZE), Err(AcceptError::Unsealed { .. })));
}

#[test]
fn a_memfd_that_rdma_could_not_register_is_refused() {
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let error = AcceptedRegion::accept(memory(4096, NEEDED | seal), SIZE).unwrap_err();
        assert!(matches!(error, AcceptError::SealedAgainstWriting { .. }), "{error}");
    }
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let reader = AcceptedRegion::accept(passed(&region), SIZE).unwrap().reader_fd().unwrap();
    assert!(matches!(AcceptedRegion::accept(reader, SIZE), Err(AcceptError::Access)));
}

#[test]
fn a_memfd_of_another_size_than_announced_is_refused() {
    for bytes in [0, 4095, 8000, 8192, 1 << 30] {
        let error = AcceptedRegion::accept(memory(bytes, NEEDED), SIZE).unwrap_err();
        assert!(matches!(error, AcceptError::Size { found, .. } if found == bytes), "{error}");
    }
}

#[test]
fn a_memfd_that_is_not_allocated_as_a_whole_is_refused() {
    let size = RegionSize::new(16384).unwrap();
    for punched in [0..1, 3..4, 0..4] {
        let memory = memory(16384, NEEDED);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&memory, hole, punched.start * 4096, (punched.end - punched.start) * 4096).unwrap();

        let error = AcceptedRegion::accept(memory, size).unwrap_err();

        let left = 16384 - (punched.end - punched.start) * 4096;
        assert!(matches!(error, AcceptError::Sparse { allocated, .. } if allocated == left), "{error}");
    }
}

#[test]
fn what_a_service_frees_of_its_region_is_known_until_it_allocates_it_again() {
    let size = RegionSize::new(16384).unwrap();
    let owned = memory(16384, NEEDED);
    let accepted = AcceptedRegion::accept(owned.try_clone().unwrap(), size).unwrap();
    assert_eq!(accepted.freed(), None);

    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&owned, hole, 4096, 8192).unwrap();

    let freed = accepted.freed().unwrap();
    assert_eq!(freed.to_string(), "its service has freed 8192 of its 16384 bytes since it was announced");
    fallocate(&owned, FallocateFlags::empty(), 0, 16384).unwrap();
    assert_eq!(accepted.freed(), None);
}

#[test]
fn a_readers_descriptor_can_neither_write_nor_punch() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let reader = AcceptedRegion::accept(passed(&region), SIZE).unwrap().reader_fd().unwrap();

    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(fallocate(&reader, hole, 0, 4096).is_err());
    assert!(File::from(reader).write_all(b"x").is_err());
    assert_eq!(read(&region)[0], MAGIC);
}

#[test]
fn a_reader_sees_values_move_after_it_has_mapped_the_region() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let reader = AcceptedRegion::accept(passed(&region), SIZE).unwrap().reader_fd().unwrap();
    let mapping = ReadMapping::map(reader.as_fd(), SIZE).unwrap();
    drop(reader);
    let mut words = vec![0; SIZE.words()];

    for value in [1, 2, 3] {
        region.slot(Slot(503)).unwrap().store(value, Relaxed);
        region.beat();
        mapping.copy_into(&mut words).unwrap();

        assert_eq!(words[Slot(503).word()], value);
        assert_eq!(Header::decode(&words).unwrap().heartbeat, value);
    }
}

#[test]
fn a_reader_survives_its_owner() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    region.slot(Slot(0)).unwrap().store(5, Relaxed);
    let mapping = ReadMapping::map(region.as_fd(), SIZE).unwrap();
    drop(region);

    let mut words = vec![0; SIZE.words()];
    mapping.copy_into(&mut words).unwrap();

    assert_eq!(words[Slot(0).word()], 5);
}

#[test]
fn holes_read_as_zeros_and_the_header_tells() {
    let region = OwnedRegion::create("test", RegionSize::new(8192).unwrap()).unwrap();
    let mapping = ReadMapping::map(region.as_fd(), region.size()).unwrap();
    let mut words = vec![7; region.size().words()];
    let (first_page, second_page) = (Slot(1), Slot(600));
    for slot in [first_page, second_page] {
        region.slot(slot).unwrap().store(9, Relaxed);
    }

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&region, punch, 0, PAGE_BYTES as u64).unwrap();
    mapping.copy_into(&mut words).unwrap();

    assert!(words[..PAGE_BYTES / SLOT_BYTES].iter().all(|word| *word == 0));
    assert_eq!(words[second_page.word()], 9, "the other page is as it was");
    assert_eq!(Header::decode(&words), Err(HeaderError::Magic(0)));
}

#[test]
fn what_could_end_a_reader_is_not_mapped() {
    let unsealed = memory(4096, SealFlags::GROW);
    assert!(matches!(ReadMapping::map(unsealed.as_fd(), SIZE), Err(MapError::Unsealed(None))));

    let file = File::open("/proc/self/exe").unwrap();
    assert!(matches!(ReadMapping::map(file.as_fd(), SIZE), Err(MapError::Unsealed(_))));

    let short = memory(4096, NEEDED);
    let announced = RegionSize::new(8192).unwrap();
    assert!(matches!(ReadMapping::map(short.as_fd(), announced), Err(MapError::Size { found: 4096, .. })));
}

#[test]
fn a_buffer_that_is_empty_or_longer_than_the_region_is_refused_and_left_alone() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let mapping = ReadMapping::map(region.as_fd(), SIZE).unwrap();

    for buffer in [0, 513] {
        let mut words = vec![7; buffer];
        assert_eq!(mapping.copy_into(&mut words), Err(BufferLengthError { buffer, region: 512 }));
        assert!(words.iter().all(|word| *word == 7));
    }
}

proptest! {
    #[test]
    fn a_run_exists_exactly_where_its_slots_do(first in 0_u32..600, count in 0_u32..600) {
        let region = Arc::new(OwnedRegion::create("test", SIZE).unwrap());
        let run = region.run(Slot(first), count);

        let exists = count > 0 && first + count <= SIZE.slots();
        prop_assert_eq!(run.is_some(), exists);
        if let Some(run) = run {
            for (value, word) in (1..).zip(run.words()) {
                word.store(value, Relaxed);
            }
            let words = read(&region);
            let inside = Slot(first).word()..Slot(first).word() + count as usize;
            for (place, word) in words.iter().enumerate().skip(Slot(0).word()) {
                let expected = if inside.contains(&place) { (place - inside.start) as u64 + 1 } else { 0 };
                prop_assert_eq!(*word, expected, "word {}", place);
            }
            prop_assert!(Header::decode(&words).is_ok());
        }
    }

    #[test]
    fn only_a_memfd_of_the_announced_size_with_the_right_seals_is_accepted(bytes in 0_u64..5, seals in 0_u32..32) {
        let seals = SealFlags::from_bits_retain(seals);
        let memory = memory(bytes * 4096, seals);
        let forbidden = SealFlags::WRITE | SealFlags::FUTURE_WRITE;

        let accepted = AcceptedRegion::accept(memory, SIZE).is_ok();

        prop_assert_eq!(accepted, bytes == 1 && seals.contains(NEEDED) && !seals.intersects(forbidden));
    }
}

fn read(region: &OwnedRegion) -> Vec<u64> {
    let mut words = vec![0; region.size().words()];
    ReadMapping::map(region.as_fd(), region.size())
        .expect("a region is readable")
        .copy_into(&mut words)
        .expect("a region is readable");
    words
}

#[test]
fn a_mapping_for_a_device_is_shared_and_writable_and_needs_no_descriptor() {
    let region = OwnedRegion::create("test", SIZE).unwrap();
    let accepted = AcceptedRegion::accept(passed(&region), SIZE).unwrap();

    let mapping = accepted.map().unwrap();
    drop((accepted, region));

    let start = format!("{:x}-", mapping.base().addr());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("not mapped: {maps}"));
    assert!(line.contains(" rw-s "), "{line}");
    assert_eq!(mapping.size(), SIZE);
}

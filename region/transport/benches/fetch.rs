//! What fetching costs beyond the copy itself: `cargo bench -p transport`.

use divan::Bencher;
use divan::counter::BytesCount;
use region::OwnedRegion;
use std::os::fd::AsFd as _;
use transport::{Access, LocalReader, RegionBuffer, RegionReader, ShmReader, local};
use wire::id::RegionId;
use wire::layout::RegionSize;

const REGIONS: [u64; 3] = [1, 16, 64];

fn main() {
    divan::main();
}

fn fetch(bencher: Bencher<'_, '_>, mut reader: impl RegionReader, regions: u64, access: impl Fn() -> Access) {
    let mut batch = Vec::new();
    for region in (0..regions).map(RegionId) {
        reader.attach(region, RegionSize::ONE_PAGE, access()).expect("a good region is attached");
        batch.push(RegionBuffer::new(region, RegionSize::ONE_PAGE));
    }
    let bytes = RegionSize::ONE_PAGE.bytes() as u64 * regions;
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(move || reader.fetch(divan::black_box(&mut batch)).expect("the transport works"));
}

#[divan::bench(args = REGIONS)]
fn shm(bencher: Bencher<'_, '_>, regions: u64) {
    let region = || OwnedRegion::create("bench", RegionSize::ONE_PAGE).expect("memory is left");
    let access = || Access::Descriptor(region().as_fd().try_clone_to_owned().expect("descriptors are left"));
    fetch(bencher, ShmReader::new(), regions, access);
}

#[divan::bench(args = REGIONS)]
fn local_memory(bencher: Bencher<'_, '_>, regions: u64) {
    fetch(bencher, LocalReader::new(), regions, || Access::Memory(local::Region::new(RegionSize::ONE_PAGE)));
}

/// The peer: the same bytes by memcpy.
#[divan::bench(args = REGIONS)]
fn memcpy(bencher: Bencher<'_, '_>, regions: u64) {
    let from = vec![vec![1_u64; RegionSize::ONE_PAGE.words()]; regions as usize];
    let mut to = from.clone();
    let bytes = RegionSize::ONE_PAGE.bytes() as u64 * regions;
    bencher.counter(BytesCount::new(bytes)).bench_local(move || {
        for (to, from) in to.iter_mut().zip(divan::black_box(&from)) {
            to.copy_from_slice(from);
        }
        divan::black_box(&mut to);
    });
}

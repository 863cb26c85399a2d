//! What a fetch by RDMA costs this process, on a device that does nothing: `cargo bench -p transport --bench verbs`.

use divan::Bencher;
use divan::counter::ItemsCount;
use region::{AcceptedRegion, OwnedRegion};
use std::os::fd::AsFd as _;
use transport::verbs::stand_in::{self, Chain};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsHost, VerbsReader};
use transport::{Access, RegionBuffer, RegionReader as _};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::rdma::PacketSequence;

const REGIONS: [u64; 4] = [1, 16, 64, 256];

fn main() {
    divan::main();
}

/// Building the work requests, posting them in one chain, and polling its one completion.
#[divan::bench(args = REGIONS)]
fn build_post_and_poll(bencher: Bencher<'_, '_>, reads: u64) {
    stand_in::skip_reads();
    let mut chain = Chain::new(256).expect("memory is left");
    bencher
        .counter(ItemsCount::new(reads))
        .bench_local(move || chain.run(divan::black_box(reads)).expect("it is done"));
}

/// The same for regions of a page, with their lookup and the copy into the caller's buffers.
#[divan::bench(args = REGIONS)]
fn fetch(bencher: Bencher<'_, '_>, regions: u64) {
    let (mut reader, mut batch) = reader(regions);
    stand_in::skip_reads();
    let fetch = move || reader.fetch(divan::black_box(&mut batch)).expect("the transport works");
    bencher.counter(ItemsCount::new(regions)).bench_local(fetch);
}

/// The peer: the copy alone.
#[divan::bench(args = REGIONS)]
fn memcpy(bencher: Bencher<'_, '_>, regions: u64) {
    let from = vec![1_u64; RegionSize::ONE_PAGE.words() * regions as usize];
    let mut to = vec![vec![0_u64; RegionSize::ONE_PAGE.words()]; regions as usize];
    bencher.counter(ItemsCount::new(regions)).bench_local(move || {
        for (to, from) in to.iter_mut().zip(divan::black_box(&from).chunks(RegionSize::ONE_PAGE.words())) {
            to.copy_from_slice(from);
        }
        divan::black_box(&mut to);
    });
}

fn reader(regions: u64) -> (VerbsReader, Vec<RegionBuffer>) {
    let device = Device::open(&stand_in::library(), &DeviceChoice::default()).expect("there is a stand-in");
    let mut reader = VerbsReader::new(&device, ReaderLimits::default()).expect("memory is left");
    let mut host = VerbsHost::new(&device).expect("memory is left");
    let start = PacketSequence::from_random(1);
    let worker = reader.reset(start).expect("it works");
    reader.connect(&host.answer(start, &worker).expect("it works")).expect("it works");
    let mut batch = Vec::new();
    for id in (0..regions).map(RegionId) {
        let region = OwnedRegion::create("bench", RegionSize::ONE_PAGE).expect("memory is left");
        let memory = region.as_fd().try_clone_to_owned().expect("descriptors are left");
        let accepted = AcceptedRegion::accept(memory, RegionSize::ONE_PAGE).expect("it is a region");
        let registered = host.register(id, &accepted).expect("it works");
        let access = Access::Remote { address: registered.address, rkey: registered.rkey, bytes: 4096 };
        reader.attach(id, RegionSize::ONE_PAGE, access).expect("it is new");
        batch.push(RegionBuffer::new(id, RegionSize::ONE_PAGE));
    }
    (reader, batch)
}

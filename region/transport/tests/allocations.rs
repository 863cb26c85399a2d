//! Fetching by RDMA does not allocate, in one part or in several.
#![cfg(not(miri))] // Memory of the system, which Miri does not have.

use std::error::Error;
use std::os::fd::AsFd as _;

use region::{AcceptedRegion, OwnedRegion};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsHost, VerbsReader, stand_in};
use transport::{Access, FetchStatus, RegionBuffer, RegionReader as _};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::rdma::PacketSequence;

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

    let before = allocations::calls().allocations;
    for _ in 0..100 {
        reader.fetch(&mut batch)?;
    }
    let allocations = allocations::calls().allocations - before;

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

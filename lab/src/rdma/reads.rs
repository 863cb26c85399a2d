//! READs through uview's own stack, with both ends in one process.

use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use region::{AcceptedRegion, OwnedRegion};
use support::clock::timed;
use transport::verbs::{Device, DeviceChoice, Library, ReaderLimits, VerbsHost};
use transport::{Access, FetchStatus, RegionBuffer, RegionReader as _, VerbsReader};
use wire::id::RegionId;
use wire::layout::RegionSize;
use wire::rdma::PacketSequence;

/// Fetches `regions` regions of a page, `batches` times, and prints the median time.
///
/// # Errors
///
/// There is no device, or a region was not read.
pub fn run(regions: u64, batches: usize) -> Result<()> {
    let device = Device::open(&Library::load()?, &DeviceChoice::default())?;
    let limits = ReaderLimits { patience: Duration::from_secs(10), ..ReaderLimits::default() };
    let mut reader = VerbsReader::new(&device, limits)?;
    let mut host = VerbsHost::new(&device)?;
    let start = PacketSequence::from_random(0x00ab_cdef);
    let worker = reader.reset(start)?;
    reader.connect(&host.answer(start, &worker)?)?;
    let (mut batch, mut services) = (Vec::new(), Vec::new());
    for id in (0..regions).map(RegionId) {
        let service = OwnedRegion::create("reads", RegionSize::ONE_PAGE)?;
        let accepted = AcceptedRegion::accept(service.as_fd().try_clone_to_owned()?, RegionSize::ONE_PAGE)?;
        let exposed = host.register(id, &accepted)?;
        let bytes = RegionSize::ONE_PAGE.bytes() as u64;
        let access = Access::Remote { address: exposed.address, rkey: exposed.rkey, bytes };
        reader.attach(id, RegionSize::ONE_PAGE, access)?;
        batch.push(RegionBuffer::new(id, RegionSize::ONE_PAGE));
        services.push(service);
    }
    let mut times = Vec::with_capacity(batches);
    for _ in 0..batches {
        let (result, time) = timed(|| reader.fetch(&mut batch));
        result?;
        ensure!(batch.iter().all(|buffer| buffer.status == FetchStatus::Fetched), "a region was not read");
        times.push(time.as_nanos());
    }
    times.sort_unstable();
    println!("{}", times.get(batches / 2).context("no batch was asked for")?);
    Ok(())
}

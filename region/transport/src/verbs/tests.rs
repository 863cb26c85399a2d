//! Both ends of a connection in one process. On the stand-in by default; `cargo lab rdma` builds the same tests for a
//! real device, soft-RoCE in a virtual machine, and adds those of `device`.

#[cfg(not(feature = "device-tests"))]
mod addresses;
mod conformance;
#[cfg(feature = "device-tests")]
mod device;
mod failures;
#[cfg(not(feature = "device-tests"))]
mod on_stand_in;
mod raw_reader;
#[cfg(not(feature = "device-tests"))]
mod unfenced;

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use region::{AcceptedRegion, OwnedRegion};
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};
use wire::rdma::PacketSequence;

use super::{Device, DeviceChoice, Library, ReaderLimits, VerbsHost, VerbsReader};
use crate::fetch::{Access, FetchStatus, RegionBuffer, RegionReader as _};

#[cfg(feature = "device-tests")]
fn library() -> Library {
    Library::load().expect("libibverbs is installed")
}

#[cfg(not(feature = "device-tests"))]
fn library() -> Library {
    super::stand_in::library()
}

fn device() -> Device {
    Device::open(&library(), &DeviceChoice::default()).expect("there is a device")
}

/// A first packet sequence number that differs from the last one, so that late packets of an earlier connection are
/// recognised.
fn psn() -> PacketSequence {
    static NEXT: AtomicU64 = AtomicU64::new(0x00c0_ffee);
    PacketSequence::from_random(NEXT.fetch_add(77_777, Relaxed))
}

fn connect(reader: &mut VerbsReader, host: &mut VerbsHost) {
    let worker = reader.reset(psn()).expect("the device works");
    let answer = host.answer(psn(), &worker).expect("the worker can be reached");
    reader.connect(&answer).expect("the host can be reached");
}

/// Both ends, connected.
fn pair_with(limits: ReaderLimits) -> (VerbsReader, VerbsHost) {
    let device = device();
    let mut reader = VerbsReader::new(&device, limits).expect("the device has room");
    let mut host = VerbsHost::new(&device).expect("the device has room");
    connect(&mut reader, &mut host);
    (reader, host)
}

/// An emulated device on a busy machine takes its time, and only the device may say that a peer is dead.
fn limits() -> ReaderLimits {
    ReaderLimits { patience: Duration::from_secs(10), ..ReaderLimits::default() }
}

fn pair() -> (VerbsReader, VerbsHost) {
    pair_with(limits())
}

fn accepted(region: &OwnedRegion) -> AcceptedRegion {
    let memory = region.as_fd().try_clone_to_owned().expect("descriptors are left");
    AcceptedRegion::accept(memory, region.size()).expect("a region of ours is accepted")
}

fn access(host: &mut VerbsHost, id: u64, region: &OwnedRegion) -> Access {
    let registered = host.register(RegionId(id), &accepted(region)).expect("memory may be pinned");
    Access::Remote { address: registered.address, rkey: registered.rkey, bytes: region.size().bytes() as u64 }
}

fn region() -> OwnedRegion {
    OwnedRegion::create("test", RegionSize::ONE_PAGE).expect("memory is left")
}

/// Regions of one page, number 1 up to `count`, registered and attached. Each one's first slot holds its number.
fn regions(count: u64, reader: &mut VerbsReader, host: &mut VerbsHost) -> Vec<OwnedRegion> {
    let regions = (1..=count).map(|id| {
        let region = region();
        store(&region, id);
        reader.attach(RegionId(id), region.size(), access(host, id, &region)).expect("it is new");
        region
    });
    regions.collect()
}

fn store(region: &OwnedRegion, value: u64) {
    region.slot(Slot(0)).expect("there is a first slot").store(value, Relaxed);
}

fn batch(ids: impl IntoIterator<Item = u64>) -> Vec<RegionBuffer> {
    ids.into_iter().map(|id| RegionBuffer::new(RegionId(id), RegionSize::ONE_PAGE)).collect()
}

/// The value of the first slot, if it was fetched.
fn value(buffer: &RegionBuffer) -> Option<u64> {
    (buffer.status == FetchStatus::Fetched).then(|| buffer.words[Slot(0).word()])
}

fn values(batch: &[RegionBuffer]) -> Vec<Option<u64>> {
    batch.iter().map(value).collect()
}

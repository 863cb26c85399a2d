//! Failures that are too rare on a real device to wait for.

use std::time::Duration;

use wire::id::RegionId;
use wire::rdma::PathMtu;

use super::{access, batch, connect, device, library, pair, pair_with, psn, regions, store, values};
use crate::fetch::{Access, BatchError, FetchStatus, Loss, RegionError, RegionReader as _};
use crate::verbs::stand_in::{Faults, events, polls, registered, set_faults};
use crate::verbs::{
    ConnectError, Device, DeviceChoice, DeviceError, LinkLayer, ReaderLimits, Status, UnusableDevice, VerbsHost,
    VerbsReader,
};

/// Sets faults for its lifetime.
pub(super) struct FaultGuard;

impl FaultGuard {
    pub(super) fn new(faults: Faults) -> Self {
        set_faults(faults);
        Self
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        set_faults(Faults::default());
    }
}

pub(super) fn lost(result: Result<(), BatchError>) -> String {
    let Err(BatchError::Lost(Some(cause))) = result else { panic!("not lost: {result:?}") };
    cause.to_string()
}

#[test]
fn a_device_that_says_nothing_is_given_up_and_connected_again() {
    let (mut reader, mut host) =
        pair_with(ReaderLimits { patience: Duration::from_millis(20), ..ReaderLimits::default() });
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);

    let faults = FaultGuard::new(Faults { silent: true, ..Faults::default() });
    assert_eq!(lost(reader.fetch(&mut batch)), "no completion within 20 ms");
    drop(faults);

    connect(&mut reader, &mut host);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2)]);
}

#[test]
fn a_queue_that_is_full_too_early_costs_the_batch_and_not_the_next_one() {
    let (mut reader, mut host) = pair();
    let _services = regions(4, &mut reader, &mut host);
    let mut batch = batch(1..=4);

    let faults = FaultGuard::new(Faults { full_after: Some(2), ..Faults::default() });
    assert_eq!(lost(reader.fetch(&mut batch)), "the device refuses to take READs");
    drop(faults);

    // The two that were posted completed without a completion: the next batch sees nothing of them.
    connect(&mut reader, &mut host);
    batch.reverse();
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(4), Some(3), Some(2), Some(1)]);
}

#[test]
fn a_dead_peer_is_lost_with_a_reason() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);

    let _faults = FaultGuard::new(Faults { dead_peer: true, ..Faults::default() });

    let reason = lost(reader.fetch(&mut batch([1])));
    assert_eq!(reason, "the device gave up: no answer from the peer (status 12)");
}

#[test]
fn a_device_that_does_not_reset_keeps_the_memory_and_says_so() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let _faults = FaultGuard::new(Faults { no_reset: true, silent: true, ..Faults::default() });
    host.deregister(RegionId(1)).unwrap();
    assert!(reader.fetch(&mut batch([1])).is_err());

    let error = reader.reset(psn()).unwrap_err();

    assert_eq!(error.to_string(), "the device refuses to reset the queue pair");
    // A host whose queue pair cannot be reset destroys it, and creates another one for the next worker.
    host.fence().unwrap();
    // The device may still write to the reader's registered memory.
    let kept = registered();
    drop(reader);
    assert_eq!((kept, registered()), (1, 1));
    set_faults(Faults::default());
    let mut reader = crate::verbs::VerbsReader::new(&device(), ReaderLimits::default()).unwrap();
    connect(&mut reader, &mut host);
}

#[test]
fn events_of_failures_do_not_pile_up() {
    let (mut reader, mut host) = pair();
    let _services = regions(3, &mut reader, &mut host);
    for id in 1..=3 {
        host.deregister(RegionId(id)).unwrap();
        reader.fetch(&mut batch([id])).unwrap();
        connect(&mut reader, &mut host);
    }

    assert_eq!(events(), (3, 3));
}

#[test]
fn the_address_of_choice_is_an_ipv4_address_of_roce_v2() {
    let device = Device::open(&library(), &DeviceChoice::default()).unwrap();

    assert_eq!(device.to_string(), "standin0 port 1 at ::ffff:10.0.0.1 (GID index 2)");
    assert_eq!((device.name(), device.port(), device.gid_index()), ("standin0", 1, Some(2)));
    assert_eq!((device.link_layer(), device.mtu(), device.lid()), (LinkLayer::Ethernet, PathMtu::B1024, 0));
}

#[test]
fn device_port_and_address_can_be_chosen() {
    let choice = DeviceChoice { name: Some("standin0".to_owned()), port: Some(1), gid_index: Some(0) };
    assert_eq!(Device::open(&library(), &choice).unwrap().gid_index(), Some(0));
    assert_eq!(Device::list(&library()).unwrap(), ["standin0"]);
}

#[test]
fn what_was_chosen_and_is_not_there_is_named_in_the_error() {
    let open = |choice| Device::open(&library(), &choice).unwrap_err();
    let other = open(DeviceChoice { name: Some("mlx5_0".to_owned()), ..DeviceChoice::default() });
    let port = open(DeviceChoice { port: Some(2), ..DeviceChoice::default() });
    let address = open(DeviceChoice { gid_index: Some(7), ..DeviceChoice::default() });
    let first_version = open(DeviceChoice { gid_index: Some(1), ..DeviceChoice::default() });

    assert_eq!(other.to_string(), "there is no device mlx5_0, there is standin0");
    assert!(
        matches!(&port, DeviceError::Unusable(all) if matches!(all[..], [UnusableDevice::NoPort { port: Some(2), .. }]))
    );
    assert!(address.to_string().contains("no RoCE v2 address at index 7"), "{address}");
    assert!(first_version.to_string().contains("no RoCE v2 address at index 1"), "{first_version}");
}

#[test]
fn a_region_that_the_device_does_not_let_go_of_is_read_by_nobody_until_it_does() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    reader.fetch(&mut batch).unwrap();

    let faults = FaultGuard::new(Faults { no_deregister: true, ..Faults::default() });
    host.deregister(RegionId(1)).unwrap();
    // By now the service writes other things there.
    store(&services[0], 1000);
    assert_eq!(lost(reader.fetch(&mut batch)), "the device gave up: no answer from the peer (status 12)");
    for _ in 0..3 {
        let refused = host.answer(psn(), &reader.reset(psn()).unwrap()).unwrap_err();
        assert!(
            matches!(refused, ConnectError::StillRegistered { regions: 1, .. }) && refused.is_of_own_device(),
            "{refused}"
        );
    }
    assert_eq!((host.refused_deregistrations(), registered()), (1, 3), "two regions and the reader's memory");
    drop(faults);

    connect(&mut reader, &mut host);
    batch.reverse();
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(2), None], "the key is worth nothing any more");
    assert_eq!((host.refused_deregistrations(), registered()), (0, 2));
}

#[test]
fn what_a_broken_device_keeps_cannot_be_reached_through_the_exposure_that_takes_the_place_of_the_one_before() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let _faults = FaultGuard::new(Faults { no_deregister: true, ..Faults::default() });
    host.deregister(RegionId(1)).unwrap();
    drop(host);

    let mut host = VerbsHost::new(&device()).unwrap();
    connect(&mut reader, &mut host);
    reader.detach(RegionId(2));
    reader.attach(RegionId(2), services[1].size(), access(&mut host, 2, &services[1])).unwrap();
    let mut batch = batch([2, 1]);
    reader.fetch(&mut batch).unwrap();

    assert_eq!(values(&batch), [Some(2), None]);
    assert_eq!(batch[1].status, FetchStatus::Failed(RegionError::Revoked));
}

#[test]
fn a_device_that_was_unplugged_is_at_fault_and_a_peer_that_cannot_be_reached_is_not() {
    let (mut reader, mut host) = pair();
    let own = reader.reset(psn()).unwrap();

    let elsewhere = host.answer(psn(), &wire::rdma::Endpoint { gid: None, lid: 3, ..own }).unwrap_err();
    assert!(!elsewhere.is_of_own_device(), "{elsewhere}");
    let faults = FaultGuard::new(Faults { unplugged: true, ..Faults::default() });
    let unplugged = host.answer(psn(), &own).unwrap_err();
    assert!(unplugged.is_of_own_device(), "{unplugged}");
    assert!(Device::open(&library(), &DeviceChoice::default()).is_err());
    drop(faults);
    connect(&mut reader, &mut host);
}

#[test]
fn reads_in_flight_are_as_many_as_the_weaker_end_answers() {
    let faults = FaultGuard::new(Faults { few_reads: Some(1), ..Faults::default() });
    let weak = device();
    drop(faults);
    for (reader_device, host_device) in [(&device(), &weak), (&weak, &device()), (&weak, &weak)] {
        let mut reader = VerbsReader::new(reader_device, ReaderLimits::default()).unwrap();
        let mut host = VerbsHost::new(host_device).unwrap();
        let worker = reader.reset(psn()).unwrap();
        let answer = host.answer(psn(), &worker).unwrap();
        reader.connect(&answer).unwrap();
        let _services = regions(64, &mut reader, &mut host);
        let mut batch = batch(1..=64);

        reader.fetch(&mut batch).unwrap();

        assert_eq!(answer.reads.map(core::num::NonZero::get), Some(1));
        assert!((1..=64).map(Some).eq(values(&batch)));
    }
}

#[test]
fn a_peer_that_was_not_told_of_the_limit_takes_too_many_reads_for_invalid() {
    let faults = FaultGuard::new(Faults { few_reads: Some(2), ..Faults::default() });
    let weak = device();
    drop(faults);
    let mut reader = VerbsReader::new(&device(), ReaderLimits::default()).unwrap();
    let mut host = VerbsHost::new(&weak).unwrap();
    let worker = reader.reset(psn()).unwrap();
    // As an older release answers.
    let answer = host.answer(psn(), &worker).unwrap();
    reader.connect(&wire::rdma::Endpoint { reads: None, ..answer }).unwrap();
    let _services = regions(4, &mut reader, &mut host);

    let reason = lost(reader.fetch(&mut batch(1..=4)));

    assert_eq!(reason, "the device gave up: the peer takes the request for invalid (status 9)");
}

/// Fetches four regions over a connection of its own, of which number 2 ends with `status`.
fn fetch_failing(reader: &mut VerbsReader, host: &mut VerbsHost, rkey: u32, status: Status) -> Result<(), BatchError> {
    connect(reader, host);
    let _faults = FaultGuard::new(Faults { failing: Some((rkey, status.0)), ..Faults::default() });
    reader.fetch(&mut batch(1..=4))
}

#[test]
fn a_status_that_does_not_say_whose_fault_it_is_is_the_connections_first_and_the_regions_when_it_comes_again() {
    for status in [Status::REMOTE_INVALID, Status::REMOTE_OPERATION] {
        let (mut reader, mut host) = pair();
        let services = regions(4, &mut reader, &mut host);
        let Access::Remote { rkey, .. } = access(&mut host, 2, &services[1]) else { unreachable!() };

        let first = fetch_failing(&mut reader, &mut host, rkey, status);
        assert_eq!(lost(first), format!("the device gave up: {status}"));
        fetch_failing(&mut reader, &mut host, rkey, status).expect("the others are read");

        connect(&mut reader, &mut host);
        let mut batch = batch(1..=4);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(values(&batch), [Some(1), None, Some(3), Some(4)]);
        assert_eq!(batch[1].status, FetchStatus::Failed(RegionError::Revoked));
    }
}

#[test]
fn a_region_that_was_read_in_between_is_not_suspected_any_more() {
    let (mut reader, mut host) = pair();
    let services = regions(4, &mut reader, &mut host);
    let Access::Remote { rkey, .. } = access(&mut host, 2, &services[1]) else { unreachable!() };

    for _ in 0..3 {
        assert!(fetch_failing(&mut reader, &mut host, rkey, Status::REMOTE_OPERATION).is_err());
        connect(&mut reader, &mut host);
        let mut batch = batch(1..=4);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(values(&batch), [Some(1), Some(2), Some(3), Some(4)]);
    }
}

#[test]
fn an_error_of_the_connection_leaves_no_region_out_however_often_it_comes() {
    for status in [Status::LOCAL_OPERATION, Status::LOCAL_PROTECTION, Status::RETRIES_EXCEEDED, Status(13)] {
        let (mut reader, mut host) = pair();
        let services = regions(4, &mut reader, &mut host);
        let Access::Remote { rkey, .. } = access(&mut host, 2, &services[1]) else { unreachable!() };
        for _ in 0..3 {
            assert!(fetch_failing(&mut reader, &mut host, rkey, status).is_err());
        }

        connect(&mut reader, &mut host);
        let mut batch = batch(1..=4);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(values(&batch), [Some(1), Some(2), Some(3), Some(4)]);
    }
}

#[test]
fn completions_that_are_late_are_waited_for_as_long_as_a_dead_peer_would_take() {
    let device = device();
    let mut reader = VerbsReader::new(&device, ReaderLimits::default()).unwrap();
    let mut host = VerbsHost::new(&device).unwrap();
    connect(&mut reader, &mut host);
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);

    // The device itself may wait for a dead peer for longer.
    let _faults = FaultGuard::new(Faults { late: Duration::from_millis(800), ..Faults::default() });
    reader.fetch(&mut batch).unwrap();

    assert_eq!(values(&batch), [Some(1), Some(2)]);
}

#[test]
fn who_waits_for_long_gives_the_core_away() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let before = polls();

    let _faults = FaultGuard::new(Faults { late: Duration::from_millis(200), ..Faults::default() });
    reader.fetch(&mut batch([1])).unwrap();

    // 500 at first, then at most one every 50 µs: a loop that never sleeps polls some million times.
    let asked = polls() - before;
    assert!((10..=500 + 4000 + 1).contains(&asked), "{asked}");
}

#[test]
fn a_device_that_says_nothing_is_given_up_within_a_second() {
    let device = device();
    let mut reader = VerbsReader::new(&device, ReaderLimits::default()).unwrap();
    let mut host = VerbsHost::new(&device).unwrap();
    connect(&mut reader, &mut host);
    let _services = regions(1, &mut reader, &mut host);
    let patience = ReaderLimits::default().patience;

    let _faults = FaultGuard::new(Faults { silent: true, ..Faults::default() });
    let error = reader.fetch(&mut batch([1])).unwrap_err();

    assert_eq!(error.loss(), Loss::Silent);
    assert!(Duration::from_millis(500) < patience && patience < Duration::from_secs(1), "{patience:?}");
}

#[test]
fn a_lost_batch_is_counted_as_what_it_was() {
    let (mut reader, mut host) = pair();
    let services = regions(4, &mut reader, &mut host);
    let Access::Remote { rkey, .. } = access(&mut host, 2, &services[1]) else { unreachable!() };
    let loss = |result: Result<(), BatchError>| result.unwrap_err().loss();

    assert_eq!(loss(fetch_failing(&mut reader, &mut host, rkey, Status::RETRIES_EXCEEDED)), Loss::Unanswered);
    assert_eq!(loss(reader.fetch(&mut batch(1..=4))), Loss::Unconnected);
    assert_eq!(loss(fetch_failing(&mut reader, &mut host, rkey, Status::LOCAL_OPERATION)), Loss::Broken);
    connect(&mut reader, &mut host);
    let _faults = FaultGuard::new(Faults { full_after: Some(1), ..Faults::default() });
    assert_eq!(loss(reader.fetch(&mut batch(1..=4))), Loss::Device);
    assert_eq!(BatchError::Lost(None).loss(), Loss::Broken);
}

//! What a real device does too seldom to wait for.

use std::time::Duration;

use wire::id::RegionId;
use wire::rdma::PathMtu;

use super::{batch, connect, library, pair, pair_with, regions, values};
use crate::fetch::{BatchError, RegionReader as _};
use crate::verbs::stand_in::{Faults, events, registered, set_faults};
use crate::verbs::{Device, DeviceChoice, DeviceError, LinkLayer, ReaderLimits, Unusable};

/// Sets faults for as long as it lives.
struct During;

impl During {
    fn new(faults: Faults) -> Self {
        set_faults(faults);
        Self
    }
}

impl Drop for During {
    fn drop(&mut self) {
        set_faults(Faults::default());
    }
}

fn lost(result: Result<(), BatchError>) -> String {
    let Err(BatchError::Lost(Some(cause))) = result else { panic!("not lost: {result:?}") };
    cause.to_string()
}

#[test]
fn a_device_that_says_nothing_is_given_up_and_connected_again() {
    let (mut reader, mut host) =
        pair_with(ReaderLimits { patience: Duration::from_millis(20), ..ReaderLimits::default() });
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);

    let faults = During::new(Faults { silent: true, ..Faults::default() });
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

    let faults = During::new(Faults { full_after: Some(2), ..Faults::default() });
    assert_eq!(lost(reader.fetch(&mut batch)), "the device refuses to take READs");
    drop(faults);

    // The two that were taken were done without a word: nothing of them is seen by the next batch.
    connect(&mut reader, &mut host);
    batch.reverse();
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(4), Some(3), Some(2), Some(1)]);
}

#[test]
fn a_dead_peer_is_lost_with_a_reason() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);

    let _faults = During::new(Faults { dead_peer: true, ..Faults::default() });

    let reason = lost(reader.fetch(&mut batch([1])));
    assert_eq!(reason, "the device gave up: no answer from the peer (status 12)");
}

#[test]
fn a_device_that_does_not_reset_keeps_the_memory_and_says_so() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let _faults = During::new(Faults { no_reset: true, silent: true, ..Faults::default() });
    host.withdraw(RegionId(1));
    assert!(reader.fetch(&mut batch([1])).is_err());

    let error = reader.reset(super::psn()).unwrap_err();

    assert_eq!(error.to_string(), "the device refuses to reset the queue pair");
    // A host whose queue pair cannot be reset destroys it, and makes another one when it is asked again.
    host.fence();
    // The device may still write to what the reader had registered.
    let kept = registered();
    drop(reader);
    assert_eq!((kept, registered()), (1, 1));
    set_faults(Faults::default());
    let mut reader = crate::verbs::VerbsReader::new(&super::device(), ReaderLimits::default()).unwrap();
    connect(&mut reader, &mut host);
}

#[test]
fn events_of_failures_do_not_pile_up() {
    let (mut reader, mut host) = pair();
    let _services = regions(3, &mut reader, &mut host);
    for id in 1..=3 {
        host.withdraw(RegionId(id));
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
    assert!(matches!(&port, DeviceError::Unusable(all) if matches!(all[..], [Unusable::NoPort { port: Some(2), .. }])));
    assert!(address.to_string().contains("no RoCE v2 address at index 7"), "{address}");
    assert!(first_version.to_string().contains("no RoCE v2 address at index 1"), "{first_version}");
}

//! Paths between the two ends: by GID, by LID, and after an address has changed.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::on_stand_in::{FaultGuard, lost};
use super::{batch, connect, device, library, pair, psn, regions, values};
use crate::fetch::RegionReader as _;
use crate::verbs::stand_in::{Address, Faults, LID};
use crate::verbs::{ConnectError, Device, DeviceChoice, LinkLayer, UnusableDevice};

const V1: u32 = 1;
const V2: u32 = 2;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const IPV4: Ipv6Addr = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
const MOVED: Ipv6Addr = Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped();

fn with(addresses: &'static [Address]) -> FaultGuard {
    FaultGuard::new(Faults { addresses: Some(addresses), ..Faults::default() })
}

#[test]
fn with_infiniband_both_ends_are_reached_by_their_lids() {
    let _infiniband = FaultGuard::new(Faults { infiniband: true, ..Faults::default() });
    let device = device();
    assert_eq!(device.to_string(), "standin0 port 1 at LID 5");
    assert_eq!((device.link_layer(), device.lid()), (LinkLayer::InfiniBand, LID));
    assert_eq!((device.gid(), device.gid_index()), (None, None));

    let (mut reader, mut host) = pair();
    let own = reader.reset(psn()).unwrap();
    assert_eq!((own.gid, own.lid), (None, LID));
    connect(&mut reader, &mut host);
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2)]);
}

#[test]
fn an_ipv4_address_is_taken_before_a_global_one_and_that_before_a_link_local_one() {
    let chosen = |addresses| {
        let _port = with(addresses);
        device().gid().map(Ipv6Addr::from)
    };

    assert_eq!(chosen(&[(LINK_LOCAL, V2), (GLOBAL, V2), (IPV4, V2)]), Some(IPV4));
    assert_eq!(chosen(&[(LINK_LOCAL, V2), (GLOBAL, V2), (IPV4, V1)]), Some(GLOBAL));
    assert_eq!(chosen(&[(LINK_LOCAL, V1), (LINK_LOCAL, V2)]), Some(LINK_LOCAL));
    let _only_v1 = with(&[(IPV4, V1)]);
    let error = Device::open(&library(), &DeviceChoice::default()).unwrap_err();
    assert!(error.to_string().contains("no RoCE v2 address"), "{error}");
}

#[test]
fn an_address_that_has_changed_is_told_with_the_next_connection_by_both_ends() {
    let (mut reader, mut host) = pair();
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    reader.fetch(&mut batch).unwrap();

    let _moved = with(&[(LINK_LOCAL, V2), (MOVED, V2)]);
    assert!(lost(reader.fetch(&mut batch)).contains("no answer from the peer"));
    let worker = reader.reset(psn()).unwrap();
    let answer = host.answer(psn(), &worker).unwrap();
    assert_eq!([worker.gid, answer.gid], [Some(MOVED.octets()); 2]);
    reader.connect(&answer).unwrap();

    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2)]);
}

#[test]
fn a_port_that_is_down_or_without_an_address_is_no_fault_of_the_device_and_is_used_again_when_it_is_back() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let own = reader.reset(psn()).unwrap();

    let down = FaultGuard::new(Faults { port_down: true, ..Faults::default() });
    for refused in [reader.reset(psn()).unwrap_err(), host.answer(psn(), &own).unwrap_err()] {
        assert!(matches!(refused, ConnectError::Unusable(UnusableDevice::NoPort { .. })), "{refused}");
        assert!(!refused.is_of_own_device(), "{refused}");
    }
    drop(down);
    let nowhere = with(&[]);
    let refused = reader.reset(psn()).unwrap_err();
    assert!(matches!(refused, ConnectError::Unusable(UnusableDevice::NoAddress { .. })), "{refused}");
    drop(nowhere);

    connect(&mut reader, &mut host);
    let mut batch = batch([1]);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1)]);
}

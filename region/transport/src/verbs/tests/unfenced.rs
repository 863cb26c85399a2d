//! A device that neither resets nor destroys queue pairs.

use wire::id::RegionId;

use super::on_stand_in::{FaultGuard, lost};
use super::{batch, connect, pair, psn, regions, store, values};
use crate::fetch::RegionReader as _;
use crate::verbs::ConnectError;
use crate::verbs::stand_in::{Faults, registered};

fn stuck() -> Faults {
    Faults { no_reset: true, no_destroy: true, ..Faults::default() }
}

#[test]
fn a_worker_that_cannot_be_shut_out_reads_on_and_that_is_said_until_it_can() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    let own = reader.reset(psn()).unwrap();
    reader.connect(&host.answer(psn(), &own).unwrap()).unwrap();

    let faults = FaultGuard::new(stuck());
    for _ in 0..2 {
        let error = host.fence().unwrap_err();
        let said =
            "standin0 neither resets nor destroys a queue pair, and keeps 2 regions registered: they may still be read";
        assert_eq!((error.to_string().as_str(), error.regions), (said, 2));
    }
    store(&services[0], 1000);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1000), Some(2)], "the error is right");
    let refused = host.answer(psn(), &own).unwrap_err();
    assert!(matches!(refused, ConnectError::Unfenced(_)) && refused.is_of_own_device(), "{refused}");
    drop(faults);

    host.fence().unwrap();
    assert!(lost(reader.fetch(&mut batch)).contains("no answer from the peer"));
    connect(&mut reader, &mut host);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1000), Some(2)]);
}

#[test]
fn a_worker_that_cannot_be_shut_out_has_every_region_taken_away_in_the_end() {
    let (mut reader, mut host) = pair();
    let _services = regions(2, &mut reader, &mut host);
    let _stuck = FaultGuard::new(stuck());

    host.end().unwrap();

    let mut batch = batch(1..=2);
    // Its READs are answered, and refused.
    assert!(reader.fetch(&mut batch).is_err(), "this reader cannot be reset either");
    assert_eq!(values(&batch), [None, None]);
    assert_eq!((host.regions(), registered()), (0, 1), "the reader's own memory");
}

#[test]
fn a_device_that_lets_nothing_go_at_all_is_an_error_until_it_does() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    let faults = FaultGuard::new(Faults { no_deregister: true, ..stuck() });

    assert_eq!(host.deregister(RegionId(1)).unwrap_err().regions, 2);
    for _ in 0..2 {
        assert_eq!(host.end().unwrap_err().regions, 2);
    }
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2)], "the error is right");
    drop(faults);

    host.end().unwrap();
    assert!(lost(reader.fetch(&mut batch)).contains("no answer from the peer"));
    drop(host);
    assert_eq!(registered(), 1, "the reader's own memory");
    drop(services);
}

#[test]
fn a_device_that_was_unplugged_reads_nothing_whatever_it_says() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let unplugged = FaultGuard::new(Faults { unplugged: true, ..Faults::default() });

    host.fence().unwrap();
    host.end().unwrap();
    assert!(host.deregister(RegionId(1)).is_ok());
    drop(unplugged);

    assert!(lost(reader.fetch(&mut batch(1..=2))).contains("no answer from the peer"));
    drop(services);
}

#[test]
fn a_queue_pair_that_is_not_reset_is_destroyed_and_another_one_takes_its_place() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let mut batch = batch([1]);
    let no_reset = FaultGuard::new(Faults { no_reset: true, ..Faults::default() });

    host.fence().unwrap();
    assert!(reader.fetch(&mut batch).is_err());
    drop(no_reset);

    connect(&mut reader, &mut host);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1)]);
}

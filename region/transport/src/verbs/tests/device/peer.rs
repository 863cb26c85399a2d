//! The host's end in a process of its own, which is killed.

use std::time::Duration;

use wire::id::RegionId;
use wire::layout::RegionSize;

use super::super::raw_reader::{RawReader, ReadRequest};
use super::super::{batch, device, limits, psn, value};
use super::child::{Process, end, line, registered};
use crate::fetch::{Access, RegionReader as _};
use crate::verbs::clock::Stopwatch;
use crate::verbs::connect::{self, Role};
use crate::verbs::{RegisteredRegion, VerbsReader, sys};

/// A host, and where its region is.
fn host() -> (Process, RegisteredRegion) {
    let mut host = Process::start("host", 0);
    let place = registered(&host.read_line());
    (host, place)
}

fn connect(reader: &mut VerbsReader, host: &mut Process) {
    host.write_line(&line(&reader.reset(psn()).unwrap()));
    reader.connect(&end(&host.read_line())).unwrap();
}

fn attach(reader: &mut VerbsReader, place: RegisteredRegion) {
    let access = Access::Remote { address: place.address, rkey: place.rkey, bytes: 4096 };
    reader.attach(RegionId(1), RegionSize::ONE_PAGE, access).unwrap();
}

#[test]
fn a_killed_host_is_noticed_within_a_second_and_the_next_one_is_read() {
    let mut reader = VerbsReader::new(&device(), limits()).unwrap();
    let mut batch = batch([1]);
    for round in 0..3 {
        let (mut process, place) = host();
        connect(&mut reader, &mut process);
        attach(&mut reader, place);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(value(&batch[0]), Some(7));

        process.kill();
        let killed = Stopwatch::start();
        while reader.fetch(&mut batch).is_ok() {
            assert!(killed.elapsed() < Duration::from_secs(1), "the dead host is still read");
        }

        let noticed = killed.elapsed();
        println!("round {round}: noticed after {} ms", noticed.as_millis());
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        reader.detach(RegionId(1));
    }
}

#[test]
fn a_worker_connects_again_and_again_to_the_same_host() {
    let mut reader = VerbsReader::new(&device(), limits()).unwrap();
    let (mut process, place) = host();
    attach(&mut reader, place);
    for _ in 0..20 {
        connect(&mut reader, &mut process);
        let mut batch = batch([1]);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(value(&batch[0]), Some(7));
    }
}

/// With so many `retries` after so long a `timeout` (4.096 µs · 2^timeout), and a killed host: what completes within
/// `patience`, and the state that the worker's end is in then.
fn after_a_kill(timeout: u8, retries: u8, patience: Duration) -> (Vec<(u64, u32)>, u32) {
    let mut raw = RawReader::new(16);
    let (mut process, place) = host();
    let device = device();
    raw.queue_pair.reset().unwrap();
    let own = connect::prepare(&mut raw.queue_pair, &device, Role::Initiator, psn()).unwrap();
    process.write_line(&line(&own));
    let peer = end(&process.read_line());
    let address = connect::address(&device, &peer).unwrap();
    raw.queue_pair.modify(connect::ready_to_receive(&own, &peer, address, 16)).unwrap();
    let (mut attributes, fields) = connect::ready_to_send(&own, 16);
    (attributes.timeout, attributes.retries) = (timeout, retries);
    raw.queue_pair.modify((attributes, fields)).unwrap();
    raw.post(&[ReadRequest::page(place)]).unwrap();
    assert_eq!(raw.completions(1, Duration::from_secs(1)), [(0, 0)]);

    process.kill();
    raw.post(&[ReadRequest::page(place); 4]).unwrap();
    let posted = Stopwatch::start();
    let completions = raw.completions(4, patience);
    println!("timeout {timeout}, {retries} retries: {} completions in {:?}", completions.len(), posted.elapsed());
    (completions, raw.state())
}

#[test]
fn a_read_of_a_dead_host_fails_with_12_and_what_follows_is_flushed() {
    for (timeout, retries) in [(14, 6), (14, 1), (13, 6), (10, 6), (10, 1)] {
        let seen = after_a_kill(timeout, retries, Duration::from_secs(5));
        assert_eq!(seen, (vec![(0, 12), (1, 5), (2, 5), (3, 5)], sys::state::ERROR), "{timeout}, {retries}");
    }
}

#[test]
fn seven_retries_are_for_ever_so_that_nothing_here_uses_them() {
    // Six are over after a twentieth of a second.
    assert_eq!(after_a_kill(10, 7, Duration::from_secs(3)), (vec![], sys::state::READY_TO_SEND));
}

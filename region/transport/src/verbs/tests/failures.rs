//! Failures, as the worker sees them. Each row of the table of errors in docs/rdma.md is tested here, or in `device` if
//! it takes a second process.

use std::time::Duration;

use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};

use super::raw_reader::{RawReader, ReadRequest};
use super::{accepted, access, batch, connect, limits, pair, pair_with, psn, region, regions, store, value, values};
use crate::fetch::{Access, AttachError, BatchError, FetchStatus, RegionBuffer, RegionError, RegionReader as _};
use crate::verbs::clock::Stopwatch;
use crate::verbs::sys::state;
use crate::verbs::{ConnectError, LostReason, ReaderLimits, Status, VerbsReader};

const FLUSHED: u32 = Status::FLUSHED.0;
const SECOND: Duration = Duration::from_secs(1);

/// Why a batch was lost.
fn lost(result: Result<(), BatchError>) -> String {
    let Err(BatchError::Lost(Some(cause))) = result else { panic!("not lost: {result:?}") };
    assert!(cause.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<LostReason>), "{cause:?}");
    cause.to_string()
}

fn statuses(batch: &[RegionBuffer]) -> Vec<&FetchStatus> {
    batch.iter().map(|buffer| &buffer.status).collect()
}

/// Posts four READs of one region, after `change`; returns both ends and the completions.
fn four_reads(
    change: impl FnOnce(&mut [ReadRequest; 4], &mut crate::verbs::VerbsHost),
) -> (RawReader, crate::verbs::VerbsHost, Vec<(u64, u32)>) {
    let (mut raw, mut host) = RawReader::pair();
    let registered = host.register(RegionId(1), &accepted(&region())).unwrap();
    let mut reads = [ReadRequest::page(registered); 4];
    change(&mut reads, &mut host);
    raw.post(&reads).unwrap();
    let completions = raw.completions(4, SECOND);
    (raw, host, completions)
}

/// Waits until both ends, the worker's first, are in these states. The host's end changes a little later.
fn are_in(raw: &RawReader, host: &crate::verbs::VerbsHost, states: [u32; 2]) {
    let start = Stopwatch::start();
    while raw.states(host) != states {
        assert!(start.elapsed() < SECOND, "they are in {:?} and not in {states:?}", raw.states(host));
        std::thread::yield_now();
    }
}

/// After any failure both ends are connected again, and a READ succeeds.
fn recovers(mut raw: RawReader, mut host: crate::verbs::VerbsHost) {
    raw.connect(|own| host.answer(psn(), own).unwrap());
    let registered = host.register(RegionId(99), &accepted(&region())).unwrap();
    raw.post(&[ReadRequest::page(registered)]).unwrap();
    assert_eq!(raw.completions(1, SECOND), [(0, 0)]);
}

#[test]
fn a_wrong_key_fails_with_10_and_what_follows_is_flushed() {
    let (raw, host, completions) = four_reads(|reads, _| reads[0].rkey = reads[0].rkey.wrapping_add(0x0f0f));

    assert_eq!(completions, [(0, 10), (1, FLUSHED), (2, FLUSHED), (3, FLUSHED)]);
    are_in(&raw, &host, [state::ERROR, state::ERROR]);
    recovers(raw, host);
}

#[test]
fn what_was_read_before_a_failure_is_done_without_a_word() {
    let (raw, host, completions) = four_reads(|reads, _| reads[2].address += 8);

    assert_eq!(completions, [(2, 10), (3, FLUSHED)]);
    are_in(&raw, &host, [state::ERROR, state::ERROR]);
    recovers(raw, host);
}

#[test]
fn a_withdrawn_region_fails_with_10() {
    let (raw, host, completions) = four_reads(|_, host| host.deregister(RegionId(1)).unwrap());

    assert_eq!(completions, [(0, 10), (1, FLUSHED), (2, FLUSHED), (3, FLUSHED)]);
    are_in(&raw, &host, [state::ERROR, state::ERROR]);
    recovers(raw, host);
}

#[test]
fn a_buffer_that_is_not_registered_fails_with_4() {
    let (raw, host, completions) = four_reads(|reads, _| reads[0].wrong_lkey = 0x0f0f);

    assert_eq!(completions, [(0, 4), (1, FLUSHED), (2, FLUSHED), (3, FLUSHED)]);
    are_in(&raw, &host, [state::ERROR, state::READY_TO_SEND]);
    recovers(raw, host);
}

#[test]
fn what_is_posted_after_a_failure_is_taken_and_flushed() {
    let (mut raw, mut host, _) = four_reads(|reads, _| reads[0].rkey = reads[0].rkey.wrapping_add(0x0f0f));
    let registered = host.register(RegionId(2), &accepted(&region())).unwrap();

    assert!(raw.post(&[ReadRequest::page(registered); 2]).is_ok());

    assert_eq!(raw.completions(2, SECOND), [(0, FLUSHED), (1, FLUSHED)]);
    assert_eq!(raw.states(&host)[0], state::ERROR);
    recovers(raw, host);
}

#[test]
fn a_chain_longer_than_the_queue_is_refused_and_its_beginning_done_without_a_word() {
    let (mut raw, mut host) = RawReader::pair();
    let service = region();
    let registered = host.register(RegionId(1), &accepted(&service)).unwrap();

    // Devices round the queue's length up, so that the safe end keeps to what it asked for.
    let refused = raw.post(&vec![ReadRequest::page(registered); 4000]).unwrap_err();

    assert_eq!(refused.raw_os_error(), Some(12), "ENOMEM: {refused}");
    assert_eq!(raw.completions(1, Duration::from_millis(300)), []);
    assert_eq!(raw.fetched(0), wire::layout::MAGIC);
    recovers(raw, host);
}

#[test]
fn one_refused_region_harms_the_others_for_one_fetch_and_is_left_out_then() {
    let (mut reader, mut host) = pair();
    let services = regions(4, &mut reader, &mut host);
    let mut batch = batch(1..=4);
    host.deregister(RegionId(2)).unwrap();

    reader.fetch(&mut batch).unwrap();

    let interrupted = FetchStatus::Failed(RegionError::Interrupted);
    let revoked = FetchStatus::Failed(RegionError::Revoked);
    assert_eq!(statuses(&batch), [&FetchStatus::Fetched, &revoked, &interrupted, &interrupted]);
    assert_eq!(value(&batch[0]), Some(1));
    assert!(!reader.is_connected());
    assert!(lost(reader.fetch(&mut batch)).contains("not connected"));

    connect(&mut reader, &mut host);
    for _ in 0..3 {
        reader.fetch(&mut batch).unwrap();
        assert_eq!(values(&batch), [Some(1), None, Some(3), Some(4)]);
        assert_eq!(batch[1].status, revoked);
    }

    // Attached anew, with a key that is right, it is read again.
    reader.detach(RegionId(2));
    reader.attach(RegionId(2), RegionSize::ONE_PAGE, access(&mut host, 2, &services[1])).unwrap();
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn many_refused_regions_are_found_one_connection_each() {
    let (mut reader, mut host) = pair();
    let _services = regions(6, &mut reader, &mut host);
    let mut batch = batch(1..=6);
    for id in [1, 3, 6] {
        host.deregister(RegionId(id)).unwrap();
    }

    for _ in 0..3 {
        reader.fetch(&mut batch).unwrap();
        assert!(!reader.is_connected());
        connect(&mut reader, &mut host);
    }

    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [None, Some(2), None, Some(4), Some(5), None]);
    assert!(reader.is_connected());
}

#[test]
fn the_key_of_another_worker_is_worth_nothing() {
    let (mut reader, mut host) = pair();
    let (_other_reader, mut other_host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let foreign = region();
    let access = access(&mut other_host, 2, &foreign);
    reader.attach(RegionId(2), RegionSize::ONE_PAGE, access).unwrap();
    let mut batch = batch([1, 2]);

    reader.fetch(&mut batch).unwrap();

    assert_eq!(value(&batch[0]), Some(1));
    assert_eq!(batch[1].status, FetchStatus::Failed(RegionError::Revoked));
}

#[test]
fn a_region_that_is_announced_larger_than_it_is_registered_is_refused() {
    let (mut reader, mut host) = pair();
    let service = region();
    let Access::Remote { address, rkey, .. } = access(&mut host, 1, &service) else { unreachable!() };
    let size = RegionSize::new(1 << 20).unwrap();
    let lie = Access::Remote { address, rkey, bytes: size.bytes() as u64 };
    reader.attach(RegionId(1), size, lie).unwrap();
    let mut batch = [RegionBuffer::new(RegionId(1), size)];

    reader.fetch(&mut batch).unwrap();

    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::Revoked));
}

#[test]
fn an_address_at_the_end_of_all_addresses_is_refused_and_nothing_else() {
    let (mut reader, mut host) = pair();
    let _services = regions(1, &mut reader, &mut host);
    let access = Access::Remote { address: u64::MAX - 7, rkey: u32::MAX, bytes: 4096 };
    reader.attach(RegionId(2), RegionSize::ONE_PAGE, access).unwrap();
    let mut batch = batch([1, 2]);

    reader.fetch(&mut batch).unwrap();

    assert_eq!(value(&batch[0]), Some(1));
    assert_eq!(batch[1].status, FetchStatus::Failed(RegionError::Revoked));
}

#[test]
fn a_fenced_worker_reads_nothing_until_it_is_answered_again() {
    let (mut reader, mut host) = pair();
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    reader.fetch(&mut batch).unwrap();

    host.fence().unwrap();

    assert!(lost(reader.fetch(&mut batch)).contains("no answer from the peer"));
    assert!(lost(reader.fetch(&mut batch)).contains("not connected"));
    connect(&mut reader, &mut host);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(values(&batch), [Some(1), Some(2)]);
}

#[test]
fn a_restarted_worker_takes_the_place_of_the_one_before() {
    let (mut reader, mut host) = pair();
    let services = regions(1, &mut reader, &mut host);
    let mut batch = batch([1]);
    let mut second = VerbsReader::new(&super::device(), limits()).unwrap();
    second.attach(RegionId(1), RegionSize::ONE_PAGE, access(&mut host, 1, &services[0])).unwrap();

    connect(&mut second, &mut host);

    second.fetch(&mut batch).unwrap();
    assert_eq!(value(&batch[0]), Some(1));
    assert!(reader.fetch(&mut batch).is_err());
}

#[test]
fn a_restarted_host_is_found_by_its_new_end_and_keys() {
    let (mut reader, mut host) = pair();
    let services = regions(1, &mut reader, &mut host);
    let mut batch = batch([1]);
    drop(host);
    assert!(reader.fetch(&mut batch).is_err());

    let mut host = crate::verbs::VerbsHost::new(&super::device()).unwrap();
    connect(&mut reader, &mut host);
    reader.detach(RegionId(1));
    reader.attach(RegionId(1), RegionSize::ONE_PAGE, access(&mut host, 1, &services[0])).unwrap();

    reader.fetch(&mut batch).unwrap();
    assert_eq!(value(&batch[0]), Some(1));
}

#[test]
fn a_region_has_another_key_after_it_was_exposed_again_and_the_old_one_is_refused() {
    let (mut reader, mut host) = pair();
    let services = regions(1, &mut reader, &mut host);
    let old = access(&mut host, 1, &services[0]);
    host.deregister(RegionId(1)).unwrap();
    let new = access(&mut host, 1, &services[0]);

    let (Access::Remote { rkey: old, .. }, Access::Remote { rkey: new, .. }) = (old, new) else { unreachable!() };
    assert_ne!(old, new);
    let mut batch = batch([1]);
    reader.fetch(&mut batch).unwrap();
    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::Revoked));
}

#[test]
fn a_region_that_is_exposed_already_keeps_its_key() {
    let (_reader, mut host) = pair();
    let service = region();

    let first = host.register(RegionId(1), &accepted(&service)).unwrap();
    assert_eq!(host.register(RegionId(1), &accepted(&service)).unwrap(), first);
    assert_eq!(host.regions(), 1);
    host.deregister(RegionId(1)).unwrap();
    host.deregister(RegionId(1)).unwrap();
    assert_eq!(host.regions(), 0);
}

#[test]
fn batches_longer_than_the_queue_and_regions_larger_than_the_buffer_are_read_in_parts() {
    let limits = ReaderLimits { reads: 3, buffer_bytes: 3 * 4096, ..limits() };
    let (mut reader, mut host) = pair_with(limits);
    let _small = regions(20, &mut reader, &mut host);
    let large = region::OwnedRegion::create("test", RegionSize::new(10 * 4096).unwrap()).unwrap();
    for slot in 0..large.size().slots() {
        large.slot(Slot(slot)).unwrap().store(u64::from(slot) * 3 + 1, std::sync::atomic::Ordering::Relaxed);
    }
    reader.attach(RegionId(21), large.size(), access(&mut host, 21, &large)).unwrap();
    let mut batch = batch(1..=20);
    batch.insert(7, RegionBuffer::new(RegionId(21), large.size()));
    batch.insert(3, RegionBuffer::new(RegionId(400), RegionSize::ONE_PAGE));

    for _ in 0..3 {
        reader.fetch(&mut batch).unwrap();

        for buffer in &batch {
            match buffer.region.0 {
                400 => assert_eq!(buffer.status, FetchStatus::Failed(RegionError::NotAttached)),
                21 => {
                    let slots = &buffer.words[Slot(0).word()..];
                    assert!((0_u64..).zip(slots).all(|(slot, value)| *value == slot * 3 + 1));
                    assert_eq!(buffer.status, FetchStatus::Fetched);
                }
                id => assert_eq!(value(buffer), Some(id)),
            }
        }
    }
}

#[test]
fn a_refused_region_in_the_middle_of_several_parts_spoils_only_what_comes_after() {
    let limits = ReaderLimits { reads: 2, ..limits() };
    let (mut reader, mut host) = pair_with(limits);
    let _services = regions(7, &mut reader, &mut host);
    let mut batch = batch(1..=7);
    host.deregister(RegionId(4)).unwrap();

    reader.fetch(&mut batch).unwrap();

    assert_eq!(values(&batch), [Some(1), Some(2), Some(3), None, None, None, None]);
    assert_eq!(batch[3].status, FetchStatus::Failed(RegionError::Revoked));
    assert_eq!(batch[6].status, FetchStatus::Failed(RegionError::Interrupted));
}

#[test]
fn what_is_not_connected_is_lost_and_what_is_not_reset_cannot_be_connected() {
    let (mut reader, mut host) = pair();
    let peer = host.answer(psn(), &reader.reset(psn()).unwrap()).unwrap();

    assert!(lost(reader.fetch(&mut batch([1]))).contains("not connected"));
    reader.connect(&peer).unwrap();
    assert!(matches!(reader.connect(&peer), Err(ConnectError::NotReset)));
}

#[test]
fn a_peer_without_an_address_that_can_be_reached_is_refused() {
    let (mut reader, _host) = pair();
    let own = reader.reset(psn()).unwrap();
    let peer = wire::rdma::Endpoint { gid: None, lid: 3, ..own };

    let error = reader.connect(&peer).unwrap_err();

    assert!(matches!(error, ConnectError::Address { .. }), "{error}");
    assert!(!reader.is_connected());
}

#[test]
fn bytes_that_are_no_region_are_fetched_like_any_other() {
    let (mut reader, mut host) = pair();
    let services = regions(1, &mut reader, &mut host);
    let slots = services[0].size().slots();
    let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    for slot in 0..slots {
        services[0].slot(Slot(slot)).unwrap().store(noise(slot.into()), std::sync::atomic::Ordering::Relaxed);
    }
    let mut batch = batch([1]);

    reader.fetch(&mut batch).unwrap();

    assert!((0_u64..).zip(&batch[0].words[Slot(0).word()..]).all(|(n, word)| *word == noise(n)));
}

#[test]
fn a_value_is_as_it_is_after_a_hundred_reconnections() {
    let (mut reader, mut host) = pair();
    let services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);

    for round in 10..110 {
        store(&services[0], round);
        connect(&mut reader, &mut host);
        reader.fetch(&mut batch).unwrap();
        assert_eq!(values(&batch), [Some(round), Some(2)]);
    }
}

#[test]
fn a_size_that_differs_from_the_registration_is_refused_before_a_read_costs_the_connection() {
    let (mut reader, mut host) = pair();
    let service = region();
    let access = access(&mut host, 1, &service);

    let error = reader.attach(RegionId(1), RegionSize::new(8192).unwrap(), access);

    assert!(matches!(error, Err(AttachError::Size { found: 4096, .. })));
    assert!(reader.is_connected());
}

#[test]
fn a_connection_with_one_read_at_a_time_reads_all_the_same() {
    let (mut reader, mut host) = pair();
    let worker = reader.reset(psn()).unwrap();
    let one = std::num::NonZeroU8::new(1);

    let answer = host.answer(psn(), &wire::rdma::Endpoint { reads: one, ..worker }).unwrap();
    assert_eq!(answer.reads, one);
    reader.connect(&answer).unwrap();

    let _services = regions(64, &mut reader, &mut host);
    let mut batch = batch(1..=64);
    for _ in 0..10 {
        reader.fetch(&mut batch).unwrap();
        assert!((1..=64).map(Some).eq(values(&batch)));
    }
}

#[test]
fn a_peer_that_does_not_say_how_many_reads_it_answers_is_read_as_before() {
    let (mut reader, mut host) = pair();
    let worker = reader.reset(psn()).unwrap();

    let answer = host.answer(psn(), &wire::rdma::Endpoint { reads: None, ..worker }).unwrap();
    reader.connect(&wire::rdma::Endpoint { reads: None, ..answer }).unwrap();

    let _services = regions(64, &mut reader, &mut host);
    let mut batch = batch(1..=64);
    reader.fetch(&mut batch).unwrap();
    assert!((1..=64).map(Some).eq(values(&batch)));
}

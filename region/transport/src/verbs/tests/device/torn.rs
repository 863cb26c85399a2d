//! Words that are written while a device reads them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use region::OwnedRegion;
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};

use super::super::{access, pair};
use crate::fetch::{FetchStatus, RegionBuffer, RegionReader as _};
use crate::verbs::clock::Stopwatch;

/// Slots to be read.
const SLOTS: u64 = 10_000_000;
/// Enough for an emulated processor; less is a failure that says how far it came.
const PATIENCE: Duration = Duration::from_mins(2);
const REPEATED: u64 = 0x0101_0101_0101_0101;

/// What promises this is the copier, which has to move aligned words at once: the guest runs with `-erms`, without
/// which the emulator copies bytes (docs/rdma-spike.md, 10).
#[test]
fn of_ten_million_slots_that_are_written_without_pause_none_is_torn() {
    let (mut reader, mut host) = pair();
    let size = RegionSize::new(64 << 10).unwrap();
    let regions: Vec<_> = (0..8).map(|_| OwnedRegion::create("test", size).unwrap()).collect();
    for (id, region) in (1..).zip(&regions) {
        reader.attach(RegionId(id), size, access(&mut host, id, region)).unwrap();
    }
    let mut batch: Vec<_> = (1..=8).map(|id| RegionBuffer::new(RegionId(id), size)).collect();
    let (done, start) = (AtomicBool::new(false), Stopwatch::start());
    let (mut read, mut torn, mut moved) = (0, 0, 0_u64);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (0..256).cycle().take_while(|_| !done.load(Relaxed)) {
                for region in &regions {
                    (0..size.slots()).for_each(|slot| region.slot(Slot(slot)).unwrap().store(byte * REPEATED, Relaxed));
                }
            }
        });
        while read < SLOTS && start.elapsed() < PATIENCE {
            let before = batch[0].words[Slot(0).word()];
            reader.fetch(&mut batch).unwrap();
            for buffer in &batch {
                assert_eq!(buffer.status, FetchStatus::Fetched);
                let words = &buffer.words[Slot(0).word()..];
                torn += words.iter().filter(|word| **word != (*word & 0xff) * REPEATED).count();
                read += words.len() as u64;
            }
            moved += u64::from(before != batch[0].words[Slot(0).word()]);
        }
        done.store(true, Relaxed);
    });

    println!(
        "{read} slots in {:.1} s, {torn} torn; the first one had changed in {moved} READs",
        start.elapsed().as_secs_f64()
    );
    assert_eq!(torn, 0);
    assert!(moved > 0, "nothing was written while it was read");
    assert!(read >= SLOTS, "only {read} slots within {} s", PATIENCE.as_secs());
}

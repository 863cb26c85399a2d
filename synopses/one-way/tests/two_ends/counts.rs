//! Counts of what an end missed: of which interval they are.

use one_way::collector::{CollectorSettings, GENERATIONS, Packets};
use one_way::{Collector, End, EndCounters, Plan, Synopsis};
use synopses::digest::Digest;
use wire::time::{Nanos, UnixNanos};

use crate::world::{LENGTH, MS, START};

/// A collector whose first interval begins at [`START`], with a grace of five milliseconds.
fn collector(synopsis: Synopsis, end: End) -> Collector {
    let plan = Plan {
        begins: UnixNanos(START),
        length: Nanos(LENGTH),
        key: 1,
        seed: 2,
        synopsis,
        intervals_per_key: 0,
        fingerprint: None,
    };
    Collector::new(plan, CollectorSettings { end, packets: 100, grace: Nanos(5 * MS) }).expect("possible")
}

/// So many milliseconds after the begin of an interval.
fn after(interval: u64, milliseconds: u64) -> UnixNanos {
    UnixNanos(START + interval * LENGTH + milliseconds * MS)
}

fn insert(collector: &mut Collector, at: UnixNanos) {
    collector.insert(at, |key| key.digest(&at.0.to_le_bytes()), |_| Digest(0));
}

/// What is counted of a number of intervals with a packet each, if `event` happens before interval 2 is closed.
fn counted(synopsis: &Synopsis, end: End, intervals: u64, event: impl Fn(&mut Collector)) -> Vec<(EndCounters, u64)> {
    let mut collector = collector(synopsis.clone(), end);
    let close = |interval| {
        insert(&mut collector, after(interval, 100));
        if interval == 2 {
            event(&mut collector);
        }
        let closed = collector.poll(collector.due()).expect("it is over");
        if let Packets::Each(Some(cache)) = closed.packets {
            collector.give_back(cache);
        }
        (closed.counters, closed.interval)
    };
    (0..intervals).map(close).collect()
}

/// Each synopsis at each end.
fn all() -> impl Iterator<Item = (Synopsis, End)> {
    let synopses = [Synopsis::RDA, Synopsis::finecomb(16, 2), Synopsis::lda(16)];
    synopses.into_iter().flat_map(|synopsis| [End::Sender, End::Receiver].map(|end| (synopsis.clone(), end)))
}

#[test]
fn what_is_noticed_after_an_intervals_end_counts_for_it_and_for_all_until_then() {
    for (synopsis, end) in all() {
        for (noticed, expected) in [
            (after(2, 150), [0, 0, 3, 0, 0, 0]),
            (after(3, 2), [0, 0, 3, 3, 0, 0]),
            // Whoever reads the counts was held up.
            (after(4, 2), [0, 0, 3, 3, 3, 0]),
            // The clock was set back.
            (after(0, 2), [0, 0, 3, 0, 0, 0]),
        ] {
            let counters = counted(&synopsis, end, 6, |collector| collector.missed(3, noticed));
            let missed: Vec<u64> = counters.iter().map(|(counters, _)| counters.missed).collect();
            assert_eq!(missed, expected, "{synopsis:?}, {end:?}, {noticed}");
            assert!(counters.iter().all(|(counters, _)| counters.packets == 1), "{counters:?}");
        }
    }
}

#[test]
fn a_merged_packet_counts_for_its_own_interval_and_none_stays_for_ever() {
    for (synopsis, end) in all() {
        for (at, last) in [(after(2, 150), 2), (after(3, 2), 3), (UnixNanos(u64::MAX), 2 + GENERATIONS as u64)] {
            let counters = counted(&synopsis, end, 12, |collector| collector.oversized(at));
            let flagged = counters.iter().filter(|(counters, _)| counters.oversized > 0);
            let flagged: Vec<u64> = flagged.map(|(_, interval)| *interval).collect();
            assert_eq!(flagged, (2..=last).collect::<Vec<_>>(), "{synopsis:?}, {end:?}, {at}");
        }
    }
}

#[test]
fn an_interval_that_gave_way_to_a_later_one_is_counted_as_missed() {
    let mut collector = collector(Synopsis::RDA, End::Receiver);
    // One more than can be stored, and none is closed.
    for interval in 0..=GENERATIONS as u64 {
        insert(&mut collector, after(interval, 100));
    }

    let closed: Vec<_> = (0..=GENERATIONS).filter_map(|_| collector.poll(collector.due())).collect();

    let counted: Vec<_> = closed.iter().map(|closed| (closed.counters.packets, closed.counters.missed)).collect();
    let mut expected = vec![(1, 0); GENERATIONS + 1];
    expected[0] = (0, 1);
    assert_eq!(counted, expected);
}

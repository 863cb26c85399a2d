//! Behaviour of reordering by prefix, packet by packet, and its lemmas on streams of known law.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;
use synopses::reordering::{
    Boundary, Control, Counters, Decision, Definition, Exact, Prefix, PrefixTally, Reordering, Report, Reports,
    Segment, Settings, Split,
};

fn segment(prefix: u64, flow: u64, sequence: u32) -> Segment {
    Segment { prefix: Prefix(prefix), flow: Digest(flow), sequence, payload: 1, control: Control::None }
}

fn one_bucket(settings: Settings) -> Reordering {
    Reordering::new(Settings { buckets: 1, ..settings }).expect("possible")
}

/// Long enough for no record of these tests to become stale.
const LONG: Settings = Settings {
    buckets: 64,
    split: Split::SamplingOnly,
    definition: Definition::BelowPredecessor,
    timeout_ns: 1 << 40,
    most_packets: 16,
    least_events: 1,
    stages: 2,
    heavy_share: 0.01,
    admission: synopses::rap::Admission::InverseOfNext,
    reports: Reports::Suspicious,
    tick_shift: 10,
    seed: 3,
};

fn closed(reordering: &mut Reordering, boundary: Boundary) -> Vec<Report> {
    let mut reports = Vec::new();
    reordering.close(boundary, |report| reports.push(report));
    reports
}

#[test]
fn a_record_is_reported_with_its_own_prefix_when_another_flow_takes_it() {
    let mut array = one_bucket(LONG);
    for (sequence, now) in [10, 12, 11, 13].into_iter().zip(1..) {
        assert_eq!(array.insert(&segment(7, 1, sequence), now), None);
    }

    let report = array.insert(&segment(9, 2, 500), 5);

    assert_eq!(report, Some(Report { prefix: Prefix(7), packets: 3, out_of_order: 1 }));
    let Counters { segments, monitored, admitted, evicted, reports, .. } = array.counters();
    assert_eq!((segments, monitored, admitted, evicted, reports), (5, 5, 2, 1, 1));
}

#[test]
fn a_record_without_events_stays_until_more_than_c_packets_or_t_of_silence() {
    let mut array = one_bucket(LONG);
    for sequence in 0..17 {
        let _ = array.insert(&segment(7, 1, sequence), 0);
    }
    // 16 packets after the first one are not more than C.
    assert!(array.insert(&segment(9, 2, 1), 0).is_none() && array.counters().evicted == 0);
    let _ = array.insert(&segment(7, 1, 17), 0);
    let _ = array.insert(&segment(9, 2, 1), 0);
    assert_eq!(array.counters().evicted, 1);

    let mut array = one_bucket(Settings { timeout_ns: 8 << 10, ..LONG });
    let _ = array.insert(&segment(7, 1, 0), 0);
    let _ = array.insert(&segment(9, 2, 0), 8 << 10);
    assert_eq!(array.counters().evicted, 0);
    let _ = array.insert(&segment(9, 2, 0), 9 << 10);
    assert_eq!((array.counters().evicted, array.counters().reports), (1, 0));
}

#[test]
fn with_all_reports_each_checked_record_is_sent() {
    let mut array = one_bucket(Settings { reports: Reports::Always, timeout_ns: 0, ..LONG });
    let _ = array.insert(&segment(7, 1, 0), 0);
    // Nothing of it was checked.
    assert_eq!(array.insert(&segment(8, 2, 0), 5_000), None);
    let _ = array.insert(&segment(8, 2, 1), 5_001);
    let report = Report { prefix: Prefix(8), packets: 1, out_of_order: 0 };
    assert_eq!(array.insert(&segment(7, 1, 1), 9_000), Some(report));
}

#[test]
fn an_interval_ends_with_reports_and_flows_stay_unless_places_are_drawn_anew() {
    for split in [Split::SamplingOnly, Split::HeavyOnly, Split::Hybrid(0.5)] {
        let mut both = Reordering::new(Settings { split, ..LONG }).expect("possible");
        for sequence in [10, 12, 11] {
            assert_eq!(both.insert(&segment(7, 1, sequence), 0), None);
        }
        let expected = Report { prefix: Prefix(7), packets: 2, out_of_order: 1 };
        assert_eq!(closed(&mut both, Boundary::KeepFlows), [expected], "{split:?}");
        assert_eq!(closed(&mut both, Boundary::KeepFlows), []);
        // The event across the boundary is not lost.
        let _ = both.insert(&segment(7, 1, 9), 0);
        let expected = Report { prefix: Prefix(7), packets: 1, out_of_order: 1 };
        assert_eq!(closed(&mut both, Boundary::Reseed(77)), [expected]);
        let _ = both.insert(&segment(7, 1, 5), 0);
        assert_eq!(closed(&mut both, Boundary::KeepFlows), [], "{split:?}: the flow is new");
        assert_eq!(both.settings().seed, 77);
    }
}

#[test]
fn segments_that_are_not_watched_change_nothing_and_a_syn_starts_a_resident_flow_anew() {
    for split in [Split::SamplingOnly, Split::HeavyOnly] {
        let mut both = Reordering::new(Settings { split, ..LONG }).expect("possible");
        for sequence in 100..110 {
            let _ = both.insert(&segment(7, 1, sequence), 0);
        }
        for (control, payload) in [(Control::None, 0), (Control::Reset, 5), (Control::Fin, 0)] {
            let _ = both.insert(&Segment { control, payload, ..segment(7, 1, 3) }, 0);
        }
        // A SYN of a flow without a record takes none.
        let _ = both.insert(&Segment { control: Control::Syn, ..segment(8, 2, 3) }, 0);
        let _ = both.insert(&Segment { control: Control::Syn, payload: 0, ..segment(7, 1, 50) }, 0);
        let _ = both.insert(&segment(7, 1, 51), 0);

        assert_eq!(closed(&mut both, Boundary::KeepFlows), [], "{split:?}");
        assert_eq!((both.counters().ignored, both.counters().admitted), (5, 1));
        // Without a SYN the new connection is one event.
        let _ = both.insert(&segment(7, 1, 20), 0);
        assert_eq!(closed(&mut both, Boundary::KeepFlows).len(), 1);
    }
}

#[test]
fn a_clock_that_goes_back_is_counted_and_nothing_is_stale_for_it() {
    let mut array = one_bucket(Settings { timeout_ns: 0, ..LONG });
    let _ = array.insert(&segment(7, 1, 0), 1 << 30);
    let _ = array.insert(&segment(9, 2, 0), 1 << 20);

    assert_eq!((array.counters().evicted, array.counters().clock_anomalies), (0, 1));
    // Across the wrap of ticks.
    let mut array = one_bucket(LONG);
    let _ = array.insert(&segment(7, 1, 0), (1 << 42) - 1_024);
    let _ = array.insert(&segment(9, 2, 0), 1 << 42);
    assert_eq!((array.counters().evicted, array.counters().clock_anomalies), (0, 0));
}

#[test]
fn a_record_that_idles_for_half_of_the_clocks_range_looks_fresh_and_is_stale_before_and_after() {
    // T is eight ticks.
    let after = |ticks: u64| {
        let mut array = one_bucket(Settings { timeout_ns: 8 << 10, ..LONG });
        let _ = array.insert(&segment(7, 1, 0), 0);
        let _ = array.insert(&segment(9, 2, 0), ticks << 10);
        (array.counters().evicted, array.counters().clock_anomalies)
    };

    assert_eq!([8, 9, (1 << 31) - 1].map(after), [(0, 0), (1, 0), (1, 0)]);
    // It cannot be told from a clock that went back, which is counted.
    assert_eq!([1 << 31, (1 << 32) - 1].map(after), [(0, 1), (0, 1)]);
    assert_eq!([(1 << 32) + 8, (1 << 32) + 9].map(after), [(0, 0), (1, 0)]);
}

#[test]
fn of_a_burst_in_which_no_flow_follows_itself_something_is_learnt_only_if_flows_have_time() {
    // Two prefixes of one bucket take turns, a microsecond apart.
    let checked = |timeout_ns| {
        let mut array = one_bucket(Settings { timeout_ns, reports: Reports::Always, tick_shift: 0, ..LONG });
        let mut reports = Vec::new();
        for number in 0..1_000_u32 {
            let side = u64::from(number % 2);
            reports.extend(array.insert(&segment(side, 1 + side, number), u64::from(number) * 1_000));
        }
        reports.extend(closed(&mut array, Boundary::KeepFlows));
        reports.iter().map(|report| report.packets).sum::<u32>()
    };

    assert_eq!(checked(0), 0, "each packet takes the record of the one before");
    // 17 packets of a flow are checked while as many of the other one pass by.
    assert!(checked(1_500) > 400, "{}", checked(1_500));
}

#[test]
fn a_flow_whose_digest_is_0_has_a_record_like_any_other() {
    for split in [Split::SamplingOnly, Split::HeavyOnly] {
        let mut both = Reordering::new(Settings { split, ..LONG }).expect("possible");
        for sequence in [10, 12, 11] {
            assert_eq!(both.insert(&segment(7, 0, sequence), 0), None);
        }
        let expected = Report { prefix: Prefix(7), packets: 2, out_of_order: 1 };
        assert_eq!(closed(&mut both, Boundary::KeepFlows), [expected], "{split:?}");
        assert_eq!(both.counters().admitted, 1, "{split:?}");
    }
}

#[test]
fn a_syn_tells_definition_2_what_comes_next() {
    for split in [Split::SamplingOnly, Split::HeavyOnly] {
        let definition = Definition::AboveExpected;
        let mut both = Reordering::new(Settings { split, definition, ..LONG }).expect("possible");
        let _ = both.insert(&segment(7, 1, 100), 0);
        let _ = both.insert(&Segment { control: Control::Syn, payload: 0, ..segment(7, 1, 5_000) }, 0);
        let _ = both.insert(&segment(7, 1, 5_001), 0);
        assert_eq!(closed(&mut both, Boundary::KeepFlows), [], "{split:?}");

        let _ = both.insert(&segment(7, 1, 5_003), 0);
        let expected = Report { prefix: Prefix(7), packets: 1, out_of_order: 1 };
        assert_eq!(closed(&mut both, Boundary::KeepFlows), [expected], "{split:?}: a hole");
    }
}

#[test]
fn counts_of_a_record_saturate() {
    let mut array = one_bucket(LONG);
    for number in 0..140_000_u32 {
        let _ = array.insert(&segment(7, 1, number ^ 1), 0);
    }

    let [report] = closed(&mut array, Boundary::KeepFlows)[..] else { unreachable!("one record") };
    assert_eq!((report.packets, report.out_of_order), (65_535, 65_535));
}

#[test]
fn a_jump_beyond_the_window_is_counted_apart() {
    for split in [Split::SamplingOnly, Split::HeavyOnly] {
        let mut both = Reordering::new(Settings { split, ..LONG }).expect("possible");
        for sequence in [5, 3_000_000_000, 3_000_000_001] {
            let _ = both.insert(&segment(7, 1, sequence), 0);
        }
        assert_eq!((both.counters().jumps, closed(&mut both, Boundary::KeepFlows).len()), (1, 0));
    }
}

#[test]
fn a_prefix_has_at_most_one_sample_and_d_heavy_flows() {
    for (split, most) in [(Split::SamplingOnly, 1), (Split::HeavyOnly, 3)] {
        let settings = Settings { split, stages: 3, reports: Reports::Always, ..LONG };
        let mut both = Reordering::new(settings).expect("possible");
        for number in 0..3_000 {
            let _ = both.insert(&segment(7, number % 300, (number / 300) as u32), number << 10);
        }
        assert!(closed(&mut both, Boundary::KeepFlows).len() <= most, "{split:?}");
    }
}

#[test]
fn flows_of_the_heavy_part_are_not_sampled() {
    let mut hybrid =
        Reordering::new(Settings { split: Split::Hybrid(0.5), reports: Reports::Always, ..LONG }).expect("possible");
    for sequence in 0..100 {
        let _ = hybrid.insert(&segment(7, 1, sequence), 0);
    }

    let reports = closed(&mut hybrid, Boundary::KeepFlows);
    assert_eq!(reports, [Report { prefix: Prefix(7), packets: 99, out_of_order: 0 }]);
}

fn stream() -> impl Strategy<Value = Vec<(u8, u8, u8, u16)>> {
    prop::collection::vec((0_u8..5, 0_u8..4, any::<u8>(), 0_u16..2_000), 0..400)
}

proptest! {
    #[test]
    fn records_obey_their_invariants(stream in stream(), part in 0_usize..3, always: bool, definition in 0_usize..3, seed: u64) {
        let split = [Split::SamplingOnly, Split::HeavyOnly, Split::Hybrid(0.5)][part];
        let definition = [Definition::BelowPredecessor, Definition::AboveExpected, Definition::BelowMaximum][definition];
        let reports = if always { Reports::Always } else { Reports::Suspicious };
        let settings = Settings { buckets: 6, split, definition, reports, timeout_ns: 1 << 20, seed, ..LONG };
        let (mut both, mut again) = (Reordering::new(settings).expect("possible"), Reordering::new(settings).expect("possible"));
        let (mut now, mut sent, mut exact) = (0, Vec::new(), Exact::new(definition));
        for (prefix, flow, sequence, gap) in &stream {
            now += u64::from(*gap) << 10;
            let segment = segment((*prefix).into(), u64::from(*prefix) * 10 + u64::from(*flow), (*sequence).into());
            let report = both.insert(&segment, now);
            exact.insert(&segment);
            prop_assert_eq!(report, again.insert(&segment, now), "the same seed, the same reports");
            sent.extend(report);
        }
        both.close(Boundary::KeepFlows, |report| sent.push(report));
        let counters = both.counters();
        prop_assert_eq!(counters.reports, sent.len() as u64);
        prop_assert!(counters.reports <= counters.evicted + 6 && counters.evicted <= counters.admitted);
        prop_assert!(sent.iter().all(|report| report.out_of_order <= report.packets));
        // The first packet of each visit is not checked.
        let checked: u64 = sent.iter().map(|report| u64::from(report.packets)).sum();
        prop_assert!(checked + counters.admitted <= counters.monitored);
        for (prefix, packets, events) in exact.iter() {
            let of = |value: fn(&Report) -> u32| sent.iter().filter(|report| report.prefix == prefix).map(|report| u64::from(value(report))).sum::<u64>();
            prop_assert!(of(|report| report.packets) <= packets);
            prop_assert!(definition == Definition::BelowMaximum || of(|report| report.out_of_order) <= events);
        }
    }

    #[test]
    fn with_a_bucket_for_each_flow_counts_are_exact(stream in stream(), definition in 0_usize..2) {
        let definition = [Definition::BelowPredecessor, Definition::AboveExpected][definition];
        let settings = Settings { definition, buckets: 1 << 16, reports: Reports::Always, ..LONG };
        let (mut both, mut exact) = (Reordering::new(settings).expect("possible"), Exact::new(definition));
        // One flow in each prefix.
        for (number, (prefix, _, sequence, _)) in (0_u64..).zip(&stream) {
            let segment = segment((*prefix).into(), u64::from(*prefix) + 10, (*sequence).into());
            let _ = both.insert(&segment, number << 10);
            exact.insert(&segment);
        }
        let mut found: Vec<_> = closed(&mut both, Boundary::KeepFlows).iter().map(|report| (report.prefix, u64::from(report.packets) + 1, u64::from(report.out_of_order))).collect();
        found.sort_unstable();
        let apart = u64::from(definition == Definition::AboveExpected);
        let expected: Vec<_> = exact.iter().filter(|(_, packets, _)| *packets > 1).collect();
        // A keep-alive that is the second packet leaves nothing checked.
        prop_assert!(found == expected || apart == 1 && found.iter().all(|one| expected.contains(one)));
    }
}

/// Flows of equal probability in one bucket, and one that is as frequent as `heavy` of them: how many checks end, and
/// how many of them are of the others.
fn checks(flows: u64, packets: u64, heavy: u64, seed: u64) -> (u64, u64) {
    // The lemma's checks last for C + 1 = 17 packets of a flow, 16 of them after the first one.
    let (most_packets, least_events) = (15, u16::MAX);
    let settings = Settings { most_packets, least_events, reports: Reports::Always, seed, ..LONG };
    let mut array = one_bucket(settings);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut all, mut of_others) = (0, 0);
    for number in 0..packets {
        let drawn = random.random_range(0..flows + heavy);
        let flow = drawn.min(flows);
        if let Some(report) = array.insert(&segment(flow, flow + 1, number as u32), 0) {
            all += 1;
            of_others += u64::from(report.prefix != Prefix(flows));
        }
    }
    (all, of_others)
}

#[test]
fn lemma_3_2_flows_are_checked_as_often_as_their_number_allows() {
    let (flows, packets, runs) = (20, 100_000, 30);
    let expected = packets as f64 / (16.0 * flows as f64);
    let found: Vec<f64> = (0..runs).map(|seed| checks(flows, packets, 0, seed).0 as f64).collect();
    let mean = found.iter().sum::<f64>() / runs as f64;
    assert!((mean / expected - 1.0).abs() < 0.03, "{mean}, expected {expected}");

    // The bound that is safe for a stream that is shorter than expected by ε.
    for (epsilon, most) in [(0.3, 0.05), (0.5, 0.0)] {
        let least = ((1.0 - epsilon) * expected / (1.0 + epsilon / 2.0)).floor();
        let below = found.iter().filter(|checks| **checks < least).count() as f64 / runs as f64;
        assert!(below <= most, "{below} of the runs below {least}");
    }
}

#[test]
fn a_heavy_flow_in_the_bucket_takes_turns_with_the_others() {
    let (runs, packets) = (60, 80_000);
    for flows in [5_u64, 20] {
        // The heavy flow sends as much as all others together. A check ends with the next packet of another flow, which
        // begins the next check: so the heavy flow never follows itself, which the lemma neglects.
        let (light, heavy) = (0.5 / flows as f64, 0.5);
        let share_of_others = 1.0 / (1.0 + heavy / (1.0 - light));
        let length = |probability: f64| 16.0 / probability + 1.0 / (1.0 - probability);
        let mean_length = share_of_others * length(light) + (1.0 - share_of_others) * length(heavy);
        let expected = packets as f64 / mean_length * share_of_others;

        let found = (0..runs).map(|seed| checks(flows, packets, flows, seed).1).sum::<u64>() as f64 / runs as f64;

        assert!((found / expected - 1.0).abs() < 0.04, "{flows} flows: {found}, expected {expected}");
    }
}

#[test]
fn prefixes_out_of_order_are_flagged_and_others_are_not() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut both, mut tally) = (
        Reordering::new(Settings { timeout_ns: 30_518, ..LONG }).expect("possible"),
        PrefixTally::new(256, 1).expect("possible"),
    );
    let mut next = [0_u32; 1_000];
    for number in 0..200_000_u64 {
        let flow = random.random_range(0..1_000_u64);
        let (prefix, sequence) = (flow % 100, &mut next[flow as usize]);
        // Of ten prefixes in a hundred, one burst in twenty has two packets swapped.
        let order = if prefix < 10 && number % 20 == 0 { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        for (place, packet) in (0..).zip(order) {
            if let Some(report) = both.insert(&segment(prefix, flow, *sequence + packet), (number * 4 + place) * 4_000)
            {
                tally.insert(report);
            }
        }
        *sequence += 4;
    }
    both.close(Boundary::KeepFlows, |report| tally.insert(report));

    let flagged: Vec<_> = tally.flagged(&Decision::default()).iter().map(|estimate| estimate.prefix.0).collect();
    assert!(flagged.iter().all(|prefix| *prefix < 10), "{flagged:?}");
    assert!(flagged.len() >= 8, "{flagged:?}");
}

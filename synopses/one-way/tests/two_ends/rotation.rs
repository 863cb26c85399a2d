//! Key rotation within a run: no interval loses anything by it.

use one_way::collector::{CollectorSettings, Packets};
use one_way::plan::MIN_INTERVALS_PER_KEY;
use one_way::{
    Collector, End, Flags, Plan, Receiver, ReceiverSettings, Report, Response, ResponseBody, Sender, SenderSettings,
    Synopsis,
};
use synopses::digest::Digest;
use wire::time::{Nanos, UnixNanos};

use crate::world::{Fate, LENGTH, MS, Scenario, World};

fn world(scenario: Scenario) -> World {
    let settings = SenderSettings::new("shop".to_owned(), Nanos(LENGTH), scenario.synopsis.clone());
    let sender = Sender::new(SenderSettings { intervals_per_key: MIN_INTERVALS_PER_KEY, ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), scenario.synopsis.clone()));
    World::of(scenario, sender, receiver)
}

/// Intervals before and after rotations.
fn around_rotations(reports: &[Report]) -> impl Iterator<Item = &Report> {
    reports.iter().filter(|report| {
        [MIN_INTERVALS_PER_KEY - 1, 0].contains(&(report.interval % MIN_INTERVALS_PER_KEY)) && report.interval > 0
    })
}

#[test]
fn rda_stays_exact_where_keys_rotate() {
    // By cells, and where all packets are sent.
    for rate in [20, 5] {
        let mut world = world(Scenario { rate, ..Scenario::with_seed(51) });
        world.run(7_000);

        assert_eq!(world.runs, 1);
        for end in [0, 1] {
            let reports = &world.reports[end];
            assert!(reports.len() > 25 && world.check(end, true) == reports.len());
            // The first packets that arrive were sent before the first interval.
            let known = |report: &Report| report.flags == Flags::NONE && (report.odd == 0 || report.interval == 0);
            assert!(reports.iter().all(known), "{reports:?}");
            assert_eq!(
                around_rotations(reports).filter(|report| report.late > 0).count(),
                6,
                "found again by another id"
            );
        }
    }
}

#[test]
fn finecomb_recovers_displaced_packets_where_keys_rotate() {
    let synopsis = Synopsis::finecomb(2_000, 200);
    let mut world = world(Scenario { synopsis, loss: 0.0, ..Scenario::with_seed(52) });
    world.run(7_000);

    assert!(world.reports[1].len() > 25 && world.check(1, false) == world.reports[1].len());
    assert!(world.reports[1].iter().all(|report| report.flags == Flags::NONE));
    assert_eq!(around_rotations(&world.reports[1]).count(), 6);
    for report in &world.reports[1] {
        // Nothing was lost, and about eighty packets were in flight at the end: all are recognised.
        assert_eq!((report.loss, report.packets), (Some(0.0), report.sent.expect("it is known")), "{report:?}");
    }
}

#[test]
fn the_same_flows_are_sampled_before_and_after_a_rotation() {
    let mut world = world(Scenario { budget: [20_000, 2_500], loss: 0.0, ..Scenario::with_seed(53) });
    world.run(9_000);

    let sampled: Vec<_> = world.reports[0].iter().filter(|report| report.flags == Flags::SAMPLED).collect();
    assert!(sampled.len() > 20, "{:?}", world.reports[0]);
    assert!(sampled.iter().all(|report| report.loss == Some(0.0)), "{sampled:?}");
}

#[test]
fn a_receiver_of_an_earlier_release_has_one_key_for_a_run() {
    let mut world = world(Scenario::with_seed(54));
    world.on_response = Box::new(|response: &mut Response, _| {
        if let ResponseBody::Started(intervals_per_key) = &mut response.body {
            *intervals_per_key = 0;
        }
        Fate::Passes
    });
    world.run(7_000);

    assert_eq!(world.runs, 1);
    let reports = &world.reports[0];
    assert!(
        reports.len() > 15 && reports.iter().all(|report| report.flags == Flags::NONE && report.lost < 60),
        "{reports:?}"
    );
}

/// A sender's packets of one interval after the other, with a memory budget of `packets`.
fn intervals(packets: usize, copies: u64) -> Vec<one_way::IntervalPackets> {
    let (key, seed, synopsis) = (1, 2, Synopsis::RDA);
    let plan = Plan {
        begins: UnixNanos(1_000 * LENGTH),
        length: Nanos(LENGTH),
        key,
        seed,
        synopsis,
        intervals_per_key: MIN_INTERVALS_PER_KEY,
        fingerprint: None,
    };
    let settings = CollectorSettings { end: End::Sender, packets, grace: Nanos(MS) };
    let mut collector = Collector::new(plan.clone(), settings).expect("possible");
    (0..=MIN_INTERVALS_PER_KEY)
        .map(|interval| {
            for number in (0..100).flat_map(|number| (0..copies).map(move |_| number)) {
                let at = plan.begin_of(interval).plus(Nanos(2 * MS + number));
                collector.insert(at, |key| key.digest(&[number as u8]), |_| Digest(0));
            }
            let interval = collector.poll(plan.begin_of(interval + 1).plus(Nanos(MS))).expect("it is over");
            if let Packets::Each(Some(cache)) = interval.packets.clone() {
                collector.give_back(cache);
            }
            interval
        })
        .collect()
}

#[test]
fn packets_have_both_ids_in_the_last_interval_of_a_key_only() {
    let intervals = intervals(100, 1);
    for one in &intervals {
        assert_eq!(one.rekeyed.len(), if one.interval == MIN_INTERVALS_PER_KEY - 1 { 100 } else { 0 });
        assert_eq!(one.counters.missed, 0);
    }
    let [.., last, first] = &intervals[..] else { unreachable!("there are more") };
    let ids = |interval: &one_way::IntervalPackets| match &interval.packets {
        Packets::Each(Some(cache)) => cache.iter().map(|(id, _)| id).collect::<std::collections::BTreeSet<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(last.rekeyed.iter().map(|(old, _)| *old).collect::<std::collections::BTreeSet<_>>(), ids(last));
    assert_eq!(last.rekeyed.iter().map(|(_, new)| *new).collect::<std::collections::BTreeSet<_>>(), ids(first));
    assert!(ids(last).is_disjoint(&ids(first)));
}

#[test]
fn an_interval_over_the_memory_budget_for_both_ids_is_flagged() {
    let intervals = intervals(100, 2);
    for one in &intervals {
        assert_eq!(one.counters.missed > 0, one.interval == MIN_INTERVALS_PER_KEY - 1, "{:?}", one.counters);
    }
}

#[test]
fn a_plan_with_too_few_intervals_per_key_is_invalid() {
    let plan = |intervals_per_key| Plan {
        begins: UnixNanos(0),
        length: Nanos(LENGTH),
        key: 1,
        seed: 2,
        synopsis: Synopsis::RDA,
        intervals_per_key,
        fingerprint: None,
    };
    for (intervals_per_key, possible) in
        [(0, true), (1, false), (MIN_INTERVALS_PER_KEY - 1, false), (MIN_INTERVALS_PER_KEY, true)]
    {
        assert_eq!(plan(intervals_per_key).check().is_ok(), possible, "{intervals_per_key}");
    }
    let hour = |length_ns| SenderSettings::new(String::new(), Nanos(length_ns), Synopsis::RDA).intervals_per_key;
    assert_eq!([hour(1_000 * MS), hour(LENGTH), hour(3_600_000 * MS)], [3_600, 18_000, MIN_INTERVALS_PER_KEY]);
}

//! Keys turn within a run: of no interval anything is lost for it.

use exchange::gathering::{GatheringSettings, Packets};
use exchange::plan::LEAST_ROTATES;
use exchange::{
    Answer, End, Flags, Gathering, Plan, Receiver, ReceiverSettings, Report, Say, Sender, SenderSettings, Synopsis,
};
use synopses::digest::Digest;

use crate::world::{Fate, LENGTH, MS, Nature, World};

fn world(nature: Nature) -> World {
    let settings = SenderSettings::new("shop".to_owned(), LENGTH, nature.synopsis.clone());
    let sender = Sender::new(SenderSettings { rotates: LEAST_ROTATES, ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(LENGTH, nature.synopsis.clone()));
    World::of(nature, sender, receiver)
}

/// Intervals on both sides of turns.
fn around_turns(reports: &[Report]) -> impl Iterator<Item = &Report> {
    reports
        .iter()
        .filter(|report| [LEAST_ROTATES - 1, 0].contains(&(report.interval % LEAST_ROTATES)) && report.interval > 0)
}

#[test]
fn rda_is_as_exact_where_keys_turn() {
    // By cells, and where all packets are sent.
    for rate in [20, 5] {
        let mut world = world(Nature { rate, ..Nature::kind(51) });
        world.run(7_000);

        assert_eq!(world.runs, 1);
        for end in [0, 1] {
            let reports = &world.reports[end];
            assert!(reports.len() > 25 && world.check(end, true) == reports.len());
            // The first packets that arrive were sent before the first interval.
            let known = |report: &Report| report.flags == Flags::NONE && (report.odd == 0 || report.interval == 0);
            assert!(reports.iter().all(known), "{reports:?}");
            assert_eq!(
                around_turns(reports).filter(|report| report.late > 0).count(),
                6,
                "found again by another name"
            );
        }
    }
}

#[test]
fn finecomb_puts_right_what_changed_the_interval_where_keys_turned() {
    let synopsis = Synopsis::finecomb(2_000, 200);
    let mut world = world(Nature { synopsis, loss: 0.0, ..Nature::kind(52) });
    world.run(7_000);

    assert!(world.reports[1].len() > 25 && world.check(1, false) == world.reports[1].len());
    assert!(world.reports[1].iter().all(|report| report.flags == Flags::NONE));
    assert_eq!(around_turns(&world.reports[1]).count(), 6);
    for report in &world.reports[1] {
        // Nothing was lost, and some eighty packets were on their way at the end: all are known again.
        assert_eq!((report.loss, report.packets), (Some(0.0), report.sent.expect("it is known")), "{report:?}");
    }
}

#[test]
fn where_not_all_flows_are_looked_at_the_same_are_before_and_after() {
    let mut world = world(Nature { room: [20_000, 2_500], loss: 0.0, ..Nature::kind(53) });
    world.run(9_000);

    let sampled: Vec<_> = world.reports[0].iter().filter(|report| report.flags == Flags::SAMPLED).collect();
    assert!(sampled.len() > 20, "{:?}", world.reports[0]);
    assert!(sampled.iter().all(|report| report.loss == Some(0.0)), "{sampled:?}");
}

#[test]
fn a_receiver_of_an_earlier_release_has_one_key_for_a_run() {
    let mut world = world(Nature::kind(54));
    world.on_answer = Box::new(|answer: &mut Answer, _| {
        if let Say::Started(rotates) = &mut answer.say {
            *rotates = 0;
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

/// A sender's packets of one interval after the other, with room for so many.
fn gathered(packets: usize, copies: u64) -> Vec<exchange::Gathered> {
    let (key, seed, synopsis) = (1, 2, Synopsis::RDA);
    let plan = Plan { begins_ns: 1_000 * LENGTH, length_ns: LENGTH, key, seed, synopsis, rotates: LEAST_ROTATES };
    let settings = GatheringSettings { end: End::Sender, packets, grace_ns: MS };
    let mut gathering = Gathering::new(plan.clone(), settings).expect("possible");
    (0..=LEAST_ROTATES)
        .map(|interval| {
            for number in (0..100).flat_map(|number| (0..copies).map(move |_| number)) {
                let at = plan.begin_of(interval) + 2 * MS + number;
                gathering.insert(at, |key| key.digest(&[number as u8]), |_| Digest(0));
            }
            let gathered = gathering.poll(plan.begin_of(interval + 1) + MS).expect("it is over");
            if let Packets::Each(Some(cache)) = gathered.packets.clone() {
                gathering.give_back(cache);
            }
            gathered
        })
        .collect()
}

#[test]
fn packets_have_both_names_in_the_last_interval_of_a_key_only() {
    let gathered = gathered(100, 1);
    for one in &gathered {
        assert_eq!(one.renamed.len(), if one.interval == LEAST_ROTATES - 1 { 100 } else { 0 });
        assert_eq!(one.seen.missed, 0);
    }
    let [.., last, first] = &gathered[..] else { unreachable!("there are more") };
    let ids = |gathered: &exchange::Gathered| match &gathered.packets {
        Packets::Each(Some(cache)) => cache.iter().map(|(id, _)| id).collect::<std::collections::BTreeSet<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(last.renamed.iter().map(|(old, _)| *old).collect::<std::collections::BTreeSet<_>>(), ids(last));
    assert_eq!(last.renamed.iter().map(|(_, new)| *new).collect::<std::collections::BTreeSet<_>>(), ids(first));
    assert!(ids(last).is_disjoint(&ids(first)));
}

#[test]
fn where_there_is_no_room_for_both_names_the_interval_is_flagged() {
    let gathered = gathered(100, 2);
    for one in &gathered {
        assert_eq!(one.seen.missed > 0, one.interval == LEAST_ROTATES - 1, "{:?}", one.seen);
    }
}

#[test]
fn a_key_for_fewer_intervals_than_packets_are_waited_for_is_no_plan() {
    let plan = |rotates| Plan { begins_ns: 0, length_ns: LENGTH, key: 1, seed: 2, synopsis: Synopsis::RDA, rotates };
    for (rotates, possible) in [(0, true), (1, false), (LEAST_ROTATES - 1, false), (LEAST_ROTATES, true)] {
        assert_eq!(plan(rotates).check().is_ok(), possible, "{rotates}");
    }
    let hour = |length_ns| SenderSettings::new(String::new(), length_ns, Synopsis::RDA).rotates;
    assert_eq!([hour(1_000 * MS), hour(LENGTH), hour(3_600_000 * MS)], [3_600, 18_000, LEAST_ROTATES]);
}

//! Each failure by its name: what becomes of it, and that it has a flag.

use exchange::{
    Answer, Ask, ClockState, Flags, Question, Receiver, ReceiverSettings, Refusal, Report, Say, Sender, SenderSettings,
    Synopsis,
};
use synopses::rda::{Ids, Sizing};

use crate::world::{Fate, LENGTH, MS, Nature, World, kind_of};

const WARM: u64 = 3_000;

fn flagged(reports: &[Report], flag: Flags) -> usize {
    reports.iter().filter(|report| report.flags.any(flag)).count()
}

/// What both ends have of the intervals from `from` on.
fn both(world: &World, from: usize) -> impl Iterator<Item = &Report> {
    world.reports.iter().flat_map(move |reports| reports.iter().skip(from))
}

/// A world in which questions of a kind are lost from some time on.
fn without(kind: &'static str, from: u64) -> World {
    let mut world = World::new(Nature::kind(11));
    world.run(WARM);
    let lost_from = world.now + from * MS;
    world.on_question = Box::new(
        move |question, now| {
            if kind_of(question) == kind && now >= lost_from { Fate::Lost } else { Fate::Passes }
        },
    );
    world
}

#[test]
fn a_request_that_is_lost_is_asked_again_and_the_next_interval_is_not_affected() {
    let mut world = World::new(Nature::kind(10));
    let mut lost = 0;
    world.on_question = Box::new(move |question, _| {
        let first = matches!(question.ask, Ask::Request { .. }) && question.interval == 4 && lost < 2;
        lost += u32::from(first);
        if first { Fate::Lost } else { Fate::Passes }
    });
    world.run(6_000);

    assert!(world.check(0, true) >= 15);
    assert_eq!(flagged(&world.reports[0], Flags(u32::MAX)), 0, "asked again in time: {:?}", world.reports[0]);
    assert!(world.sender.counts().unanswered >= 2);
}

#[test]
fn a_receiver_that_disappears_before_it_sends_cells_is_no_peer_data_at_both_ends_and_comes_back() {
    let mut world = without("request", 0);
    world.run(2_000);
    assert!(flagged(&world.reports[0], Flags::NO_PEER_DATA) > 3);
    let unknown = |report: &&Report| report.flags.any(Flags::NO_PEER_DATA);
    assert!(both(&world, 0).filter(unknown).all(|report| report.mean_ns.is_none() && report.loss.is_none()));
    assert!(flagged(&world.reports[1], Flags::NO_PEER_DATA) > 0);

    world.on_question = Box::new(|_, _| Fate::Passes);
    let before = world.reports[0].len();
    world.run(3_000);
    assert!(world.reports[0].iter().skip(before + 5).all(|report| report.trusted_mean_ns().is_some()));
    world.check(0, true);
    world.check(1, true);
}

#[test]
fn a_reply_with_times_that_is_lost_leaves_the_interval_partial_and_its_other_packets_exact() {
    let mut world = without("missing", 0);
    let before = world.reports[0].len();
    world.run(3_000);

    let partial = &world.reports[0][before + 3..];
    assert!(partial.len() > 3 && partial.iter().all(|report| report.flags.any(Flags::PARTIAL)), "{partial:?}");
    assert!(partial.iter().all(|report| report.mean_ns.is_some() && report.trusted_loss().is_none()));
    world.check(0, true);
}

#[test]
fn a_receiver_that_does_not_hear_of_the_end_says_no_peer_data_and_gives_its_memory_back() {
    let mut world = without("finish", 0);
    world.run(6_000);

    assert!(world.check(0, true) >= 15, "the sender knows all");
    let after = world.reports[1].len() - flagged(&world.reports[1], Flags::NO_PEER_DATA);
    assert!(after < world.reports[0].len() - 10 && flagged(&world.reports[1], Flags::NO_PEER_DATA) > 5);
    // Of four intervals at the most, with room for 20,000 packets each.
    assert!(world.receiver.memory_bytes() <= 4 * 600_000, "{}", world.receiver.memory_bytes());
}

#[test]
fn a_receiver_that_begins_anew_is_followed_into_another_run() {
    let mut world = World::new(Nature::kind(12));
    world.run(WARM);
    assert_eq!(world.runs, 1);
    world.receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::RDA));
    world.run(WARM);

    assert_eq!(world.runs, 2);
    assert!(world.check(0, true) > 3 && world.check(1, true) > 3);
}

#[test]
fn a_sender_that_begins_anew_with_a_clock_that_was_set_back_finds_a_later_epoch() {
    let mut world = World::new(Nature::kind(13));
    world.run(WARM);
    world.sender = Sender::new(SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA));
    // Ten seconds behind what it was before, and the receiver's, too.
    world.nature.clocks = [-10_000 * MS as i64; 2];
    world.run(4_000);

    assert_eq!(world.runs, 2, "the epoch of the run before was greater, and is passed");
    assert!(world.check(0, true) > 3 && world.check(1, true) > 3);
}

#[test]
fn messages_of_other_intervals_and_unknown_epochs_are_counted_and_not_followed() {
    let mut world = World::new(Nature::kind(14));
    let mut number = 0_u64;
    world.on_answer = Box::new(move |answer, _| {
        number += 1;
        match number % 5 {
            0 => answer.interval += 1,
            1 => answer.epoch ^= 1,
            _ => {}
        }
        Fate::Passes
    });
    world.run(8_000);

    assert!(world.sender.counts().stale > 20);
    world.check(0, true);
    world.check(1, true);
}

#[test]
fn a_peer_of_another_length_or_synopsis_is_refused_before_anything_is_added_up() {
    for (settings, why) in [
        (ReceiverSettings::new(2 * LENGTH, Synopsis::RDA), "intervals of 200000000 ns, here they are of 400000000 ns"),
        (ReceiverSettings::new(LENGTH, Synopsis::lda(64)), "rda, here it is lda"),
    ] {
        let nature = Nature::kind(15);
        let sender = Sender::new(SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA));
        let mut world = World::of(nature, sender, Receiver::new(settings));
        world.run(30_000);

        assert_eq!(world.refusals[0], [why], "said once");
        assert!(world.runs == 0 && world.reports[0].is_empty() && !world.sender.runs());
        assert!(world.asked["start"] < 10, "with pauses that grow: {:?}", world.asked);
    }
}

#[test]
fn a_receiver_with_room_for_fewer_buckets_is_asked_for_as_many() {
    let nature = Nature { synopsis: Synopsis::finecomb(4_000, 200), ..Nature::kind(16) };
    let sender = Sender::new(SenderSettings::new("shop".to_owned(), LENGTH, nature.synopsis.clone()));
    let receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::finecomb(1_000, 200)));
    let mut world = World::of(nature, sender, receiver);
    world.run(6_000);

    assert!(world.reports[1].len() > 10 && world.refusals[0].is_empty());
    assert!(world.check(1, false) > 5);
}

#[test]
fn cells_of_another_seed_are_a_parameter_mismatch() {
    let mut world = World::new(Nature::kind(17));
    world.run(WARM);
    world.on_answer = Box::new(|answer, _| {
        if let Say::Cells(_, bytes) = &mut answer.say {
            let settings = synopses::rda::Settings { cells: 512, seed: 999, ..synopses::rda::Settings::default() };
            *bytes = synopses::rda::Rda::new(&settings).expect("possible").encode();
        }
        Fate::Passes
    });
    let before = world.reports[0].len();
    world.run(2_000);

    let after = &world.reports[0][before + 2..];
    assert!(!after.is_empty() && after.iter().all(|report| report.flags.any(Flags::PARAMETER_MISMATCH)), "{after:?}");
    assert!(after.iter().all(|report| report.mean_ns.is_none()));
}

#[test]
fn a_peer_that_lies_about_sizes_is_not_believed() {
    let lies: [fn(&mut Say); 4] = [
        |say| {
            if let Say::Cells(seen, _) = say {
                seen.packets += 1;
            }
        },
        |say| {
            if let Say::Cells(_, bytes) = say {
                bytes.truncate(bytes.len() / 2);
            }
        },
        |say| {
            if let Say::Times(times) = say {
                times.pop();
            }
        },
        |say| {
            if let Say::Times(times) = say {
                for (_, time) in times.iter_mut() {
                    *time = Some(time.unwrap_or(0) + 3 * LENGTH);
                }
            }
        },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut world = World::new(Nature::kind(18));
        world.on_answer = Box::new(move |answer, _| {
            lie(&mut answer.say);
            Fate::Passes
        });
        world.run(4_000);

        assert!(world.sender.counts().broken > 5, "lie {number}");
        let reports = &world.reports[0];
        let noticed = |report: &Report| report.flags.any(Flags::NO_PEER_DATA | Flags::PARTIAL);
        assert!(reports.len() > 5 && reports.iter().all(noticed), "lie {number}: {reports:?}");
        world.check(0, true);
    }
}

#[test]
fn a_sender_that_lies_or_asks_for_the_impossible_is_refused_with_bounded_memory() {
    // Intervals of which the receiver does not hear that they are done with are kept for some time.
    let mut world = without("finish", 0);
    world.run(1_000);
    let now = world.now;
    let (mut epoch, mut interval) = (0, 0);
    // Who asks of another run is told which one it is.
    let probe = |world: &mut World, epoch, interval, ask: Ask| {
        let question = Question { stream: "shop".to_owned(), epoch, interval, kept: ClockState::Unknown, ask };
        world.receiver.answer(&question, now).say
    };
    if let Say::Refused(Refusal::Epoch(known)) = probe(&mut world, 1, 5, Ask::Missing(vec![])) {
        epoch = known;
    }
    for candidate in (0..60).rev() {
        let said = probe(&mut world, epoch, candidate, Ask::Missing(vec![]));
        if matches!(said, Say::Times(_)) {
            interval = candidate;
            break;
        }
    }
    let seen = exchange::Seen::default();
    let request = |least_cells, counters| Ask::Request { seen, seed: 1, least_cells, counters };
    assert!(epoch > 0 && interval > 0);
    let broken = |say: &Say| matches!(say, Say::Refused(Refusal::Broken(_)));

    assert!(broken(&probe(&mut world, epoch, interval, Ask::Missing(vec![7; 1 << 20]))), "more ids than cells");
    assert!(broken(&probe(&mut world, epoch, interval, request(1, vec![1, 2, 3]))), "no counters");
    assert!(
        broken(&probe(&mut world, epoch, interval, Ask::Buckets { seen, comb: vec![], clock: None })),
        "no such stream"
    );
    let huge = probe(&mut world, epoch, interval, request(u64::MAX, synopses::rda::XorCounters::new(1).encode()));
    assert!(matches!(huge, Say::All(..)), "as many cells as that are more than all packets");
    let Say::Later(later_ns) = probe(&mut world, epoch, 1 << 39, Ask::Missing(vec![])) else { panic!("it is to come") };
    assert!(later_ns <= LENGTH);
    assert_eq!(probe(&mut world, epoch, 0, Ask::Missing(vec![])), Say::Gone, "flushed");
    // Reports of intervals that never were, or of other packets than arrived.
    let report = |interval, received| Report { received, mean_ns: Some(1.0), ..Report::unknown(interval, Flags::NONE) };
    let before = world.receiver.counts();
    let reports = vec![report(1 << 30, None), report(interval, Some(1 << 40))];
    assert_eq!(probe(&mut world, epoch, 1, Ask::Finish { reports, sampling: None }), Say::Finished);
    let counts = world.receiver.counts();
    assert_eq!((counts.stale + counts.broken) - (before.stale + before.broken), 2);
    assert_eq!(world.receiver.take_effects().filter(|effect| matches!(effect, exchange::Effect::Report(_))).count(), 0);
}

#[test]
fn ids_that_nobody_sent_are_found_out_as_phantoms() {
    // Says of packets that it does have that it does not know them: they are put back, and what is left is decoded again, three times at most.
    let mut world = World::new(Nature::kind(20));
    world.on_answer = Box::new(|answer, _| {
        if let Say::Times(times) = &mut answer.say {
            times.iter_mut().step_by(7).for_each(|(_, time)| *time = None);
        }
        Fate::Passes
    });
    world.run(5_000);

    let reports = &world.reports[0];
    assert!(reports.len() > 8 && reports.iter().all(|report| report.flags.any(Flags::INCOMPLETE | Flags::PARTIAL)));
    assert!(reports.iter().all(|report| report.trusted_loss().is_none()));
    world.check(0, true);
}

#[test]
fn differences_far_above_capacity_are_flagged_and_all_packets_are_sent_where_that_is_less() {
    // No two packets are the same at both ends: as behind an address translation.
    let mut world = World::new(Nature { loss: 0.9, ..Nature::kind(21) });
    world.run(4_000);
    assert!(world.check(0, true) > 5, "all packets are sent: exact");

    let nature = Nature { loss: 0.5, rate: 40, ..Nature::kind(21) };
    let sizing = Sizing { most: 300, least: 300, ..Sizing::default() };
    let receiver = Receiver::new(ReceiverSettings { sizing, ..ReceiverSettings::new(LENGTH, Synopsis::RDA) });
    let sender = Sender::new(SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA));
    let mut world = World::of(nature, sender, receiver);
    world.run(4_000);
    let reports = &world.reports[0];
    assert!(reports.len() > 5 && reports.iter().all(|report| report.flags.any(Flags::INCOMPLETE)), "{reports:?}");
    assert!(reports.iter().all(|report| report.trusted_loss().is_none() && report.trusted_mean_ns().is_none()));
}

#[test]
fn packets_at_one_end_only_are_a_loss_of_all_and_none_at_either_are_empty() {
    let mut world = World::new(Nature::kind(22));
    world.run(WARM);
    let before = world.reports[0].len();
    world.silent = [false, true];
    world.run(1_600);
    world.silent = [true, true];
    world.run(1_600);

    let after = &world.reports[0][before + 3..];
    let lost: Vec<_> = after.iter().filter(|report| report.sent > Some(3_900)).collect();
    assert!(
        lost.len() > 3 && lost.iter().all(|report| report.loss == Some(1.0) && report.mean_ns.is_none()),
        "{lost:?}"
    );
    let empty: Vec<_> = after.iter().filter(|report| report.sent == Some(0)).collect();
    assert!(empty.len() > 2, "{after:?}");
    assert!(
        empty.iter().all(|report| report.flags.any(Flags::EMPTY) && report.loss.is_none() && report.mean_ns.is_none())
    );
    world.check(0, true);
}

#[test]
fn a_network_without_any_difference_has_no_empty_cells() {
    let mut world = World::new(Nature { loss: 0.0, delay: (0, 0), ..Nature::kind(23) });
    world.run(3_000);

    assert!(world.reports[0].len() > 5);
    for report in &world.reports[0] {
        assert_eq!((report.trusted_mean_ns(), report.trusted_loss(), report.lost), (Some(0.0), Some(0.0), 0));
    }
}

#[test]
fn clocks_that_differ_by_seconds_are_suspect_at_both_ends_either_way() {
    for ahead in [5_000, -5_000, 400, -400, 20, -20] {
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(2_000, 100)] {
            let nature = Nature { clocks: [0, ahead * MS as i64], synopsis, ..Nature::kind(24) };
            let mut world = World::new(nature);
            world.run(12_000);

            assert!(world.reports[0].len() > 3, "{ahead} ms: {:?}", world.reports[0]);
            for report in both(&world, 0).filter(|report| !report.flags.any(Flags::NO_PEER_DATA)) {
                assert!(report.flags.any(Flags::SUSPECT_CLOCK), "{ahead} ms: {report:?}");
            }
            assert!(
                both(&world, 0).all(|report| report.trusted_mean_ns().is_none() && report.trusted_loss().is_none())
            );
        }
    }
}

#[test]
fn a_clock_that_is_set_during_a_run_is_noticed() {
    let mut world = World::new(Nature::kind(25));
    world.run(WARM);
    world.nature.clocks = [0, 50 * MS as i64];
    let before = world.reports[0].len();
    world.run(2_000);

    let after = &world.reports[0][before + 3..];
    assert!(after.len() > 3 && after.iter().all(|report| report.flags.any(Flags::SUSPECT_CLOCK)), "{after:?}");
}

#[test]
fn an_end_without_room_looks_at_fewer_flows_at_both_ends_and_more_again_later() {
    let mut world = World::new(Nature { room: [20_000, 2_500], ..Nature::kind(26) });
    world.run(8_000);

    let [first, .., last] = &world.reports[0][..] else { panic!("{:?}", world.reports[0]) };
    assert!(first.flags.any(Flags::PARTIAL) && first.trusted_loss().is_none(), "{first:?}");
    assert!(!last.flags.any(Flags::PARTIAL | Flags::PARAMETER_MISMATCH) && last.flags.any(Flags::SAMPLED), "{last:?}");
    assert!(last.sent < Some(2_500) && last.trusted_mean_ns().is_some() && last.loss < Some(0.03));
    world.check(0, true);
    world.nature.room = [20_000; 2];
}

#[test]
fn packets_that_an_end_did_not_get_to_see_are_no_loss_of_the_network() {
    let mut world = World::new(Nature::kind(27));
    world.dropped = [0, 10];
    world.run(4_000);

    let reports = &world.reports[0];
    assert!(reports.len() > 8 && reports.iter().all(|report| report.flags.any(Flags::MISSED)));
    assert!(reports.iter().all(|report| report.trusted_loss().is_none() && report.trusted_mean_ns().is_some()));
}

#[test]
fn packets_that_were_put_together_are_flagged_and_nothing_is_said_of_them() {
    let mut world = World::new(Nature::kind(28));
    world.oversized = true;
    world.run(4_000);

    let flagged = |report: &Report| report.flags.any(Flags::OVERSIZED) && report.trusted_mean_ns().is_none();
    assert!(
        world.reports[0].len() > 8 && both(&world, 0).all(|report| flagged(report) && report.trusted_loss().is_none())
    );
}

#[test]
fn duplicated_questions_have_the_same_answer() {
    let mut world = World::new(Nature { doubled: 1.0, replayed: 0.5, ..Nature::kind(29) });
    world.run(5_000);

    assert_eq!(flagged(&world.reports[0], Flags(u32::MAX)), 0, "{:?}", world.reports[0]);
    assert!(world.check(0, true) > 10 && world.check(1, true) > 10);
    assert!(world.sender.counts().stale > 20, "answers to no question");
}

#[test]
fn plain_ids_and_two_banks_as_published_work_too() {
    let synopsis = Synopsis::Rda { banks: 2, ids: Ids::Plain };
    let mut world = World::new(Nature { synopsis, ..Nature::kind(30) });
    world.run(6_000);

    // In one of seven intervals two packets share both their cells, at two cells for each; with four and more it is seldom.
    assert!(world.check(0, true) > 10);
}

#[test]
fn a_start_in_a_far_future_or_of_a_replayed_epoch_is_refused() {
    let mut world = World::new(Nature::kind(31));
    let mut starts = Vec::new();
    world.on_question = Box::new(move |question, _| {
        if let Ask::Start(_) = question.ask {
            starts.push(question.clone());
        }
        Fate::Passes
    });
    world.run(WARM);
    let now = world.now;
    let plan = exchange::Plan {
        begins_ns: now + 10_000_000 * MS,
        length_ns: LENGTH,
        key: 1,
        seed: 2,
        synopsis: Synopsis::RDA,
        rotates: 0,
    };
    let ask = |world: &mut World, epoch, plan: &exchange::Plan| -> Answer {
        let question = Question {
            stream: "shop".to_owned(),
            epoch,
            interval: 0,
            kept: ClockState::Unknown,
            ask: Ask::Start(plan.clone()),
        };
        world.receiver.answer(&question, now)
    };

    assert!(matches!(ask(&mut world, u64::MAX, &plan).say, Say::Refused(Refusal::Parameters { .. })));
    let soon = exchange::Plan { begins_ns: now + LENGTH, ..plan.clone() };
    assert!(matches!(ask(&mut world, 1, &soon).say, Say::Refused(Refusal::Epoch(known)) if known > 1), "replayed");
    let late = exchange::Plan { begins_ns: now, ..plan };
    assert_eq!(ask(&mut world, u64::MAX, &late).say, Say::Refused(Refusal::TooLate));
    assert_eq!(world.runs, 1);
}

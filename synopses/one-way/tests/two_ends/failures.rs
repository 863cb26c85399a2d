//! Failures of receiver and messages: what follows from each, and its flag.

use one_way::{
    ClockState, Flags, Receiver, ReceiverSettings, Refusal, Report, Request, RequestBody, Response, ResponseBody,
    Sender, SenderSettings, Synopsis,
};
use synopses::rda::{Ids, Sizing};
use wire::time::{Nanos, UnixNanos};

use crate::world::{Fate, LENGTH, MS, Scenario, World, kind_of};

const WARM: u64 = 3_000;

fn flagged(reports: &[Report], flag: Flags) -> usize {
    reports.iter().filter(|report| report.flags.any(flag)).count()
}

/// Both ends' reports of the intervals from `from` on.
fn both(world: &World, from: usize) -> impl Iterator<Item = &Report> {
    world.reports.iter().flat_map(move |reports| reports.iter().skip(from))
}

/// A world in which requests of a kind are lost from some time on.
fn without(kind: &'static str, from: u64) -> World {
    let mut world = World::new(Scenario::with_seed(11));
    world.run(WARM);
    let lost_from = world.now + from * MS;
    world.on_request = Box::new(
        move |request, now| {
            if kind_of(request) == kind && now >= lost_from { Fate::Lost } else { Fate::Passes }
        },
    );
    world
}

#[test]
fn a_lost_request_is_retried_and_the_next_interval_is_not_affected() {
    let mut world = World::new(Scenario::with_seed(10));
    let mut lost = 0;
    world.on_request = Box::new(move |request, _| {
        let first = matches!(request.body, RequestBody::Cells { .. }) && request.interval == 4 && lost < 2;
        lost += u32::from(first);
        if first { Fate::Lost } else { Fate::Passes }
    });
    world.run(6_000);

    assert!(world.check(0, true) >= 15);
    assert_eq!(flagged(&world.reports[0], Flags(u32::MAX)), 0, "retried in time: {:?}", world.reports[0]);
    assert!(world.sender.counts().timeouts >= 2);
}

#[test]
fn a_receiver_that_disappears_before_it_sends_cells_is_no_peer_data_at_both_ends_and_comes_back() {
    let mut world = without("cells", 0);
    world.run(2_000);
    assert!(flagged(&world.reports[0], Flags::NO_PEER_DATA) > 3);
    let unknown = |report: &&Report| report.flags.any(Flags::NO_PEER_DATA);
    assert!(both(&world, 0).filter(unknown).all(|report| report.mean_ns.is_none() && report.loss.is_none()));
    assert!(flagged(&world.reports[1], Flags::NO_PEER_DATA) > 0);

    world.on_request = Box::new(|_, _| Fate::Passes);
    let before = world.reports[0].len();
    world.run(3_000);
    assert!(world.reports[0].iter().skip(before + 5).all(|report| report.trusted_mean_ns().is_some()));
    world.check(0, true);
    world.check(1, true);
}

#[test]
fn a_reply_with_times_that_is_lost_leaves_the_interval_partial_and_its_other_packets_exact() {
    let mut world = without("times", 0);
    let before = world.reports[0].len();
    world.run(3_000);

    let partial = &world.reports[0][before + 3..];
    assert!(partial.len() > 3 && partial.iter().all(|report| report.flags.any(Flags::PARTIAL)), "{partial:?}");
    assert!(partial.iter().all(|report| report.mean_ns.is_some() && report.trusted_loss().is_none()));
    world.check(0, true);
}

#[test]
fn a_receiver_without_finish_requests_reports_no_peer_data_and_frees_its_memory() {
    let mut world = without("finish", 0);
    world.run(6_000);

    assert!(world.check(0, true) >= 15, "the sender has all reports");
    let after = world.reports[1].len() - flagged(&world.reports[1], Flags::NO_PEER_DATA);
    assert!(after < world.reports[0].len() - 10 && flagged(&world.reports[1], Flags::NO_PEER_DATA) > 5);
    // At most four intervals of at most 20,000 packets each.
    assert!(world.receiver.memory_bytes() <= 4 * 600_000, "{}", world.receiver.memory_bytes());
}

#[test]
fn a_restarted_receiver_gets_another_run() {
    let mut world = World::new(Scenario::with_seed(12));
    world.run(WARM);
    assert_eq!(world.runs, 1);
    world.receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA));
    world.run(WARM);

    assert_eq!(world.runs, 2);
    assert!(world.check(0, true) > 3 && world.check(1, true) > 3);
}

#[test]
fn messages_of_other_intervals_and_unknown_epochs_are_counted_and_not_followed() {
    let mut world = World::new(Scenario::with_seed(14));
    let mut number = 0_u64;
    world.on_response = Box::new(move |response, _| {
        number += 1;
        match number % 5 {
            0 => response.interval += 1,
            1 => response.epoch ^= 1,
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
        (
            ReceiverSettings::new(Nanos(2 * LENGTH), Synopsis::RDA),
            "intervals of 200000000 ns, the receiver has 400000000 ns",
        ),
        (ReceiverSettings::new(Nanos(LENGTH), Synopsis::lda(64)), "synopsis rda, the receiver has lda"),
    ] {
        let scenario = Scenario::with_seed(15);
        let sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA));
        let mut world = World::of(scenario, sender, Receiver::new(settings));
        world.run(30_000);

        assert_eq!(world.refusals[0], [why], "reported once");
        assert!(world.runs == 0 && world.reports[0].is_empty() && !world.sender.runs());
        assert!(world.requests["start"] < 10, "with exponential back-off: {:?}", world.requests);
    }
}

#[test]
fn the_sender_reduces_its_buckets_to_the_receivers_maximum() {
    let scenario = Scenario { synopsis: Synopsis::finecomb(4_000, 200), ..Scenario::with_seed(16) };
    let sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(LENGTH), scenario.synopsis.clone()));
    let receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::finecomb(1_000, 200)));
    let mut world = World::of(scenario, sender, receiver);
    world.run(6_000);

    assert!(world.reports[1].len() > 10 && world.refusals[0].is_empty());
    assert!(world.check(1, false) > 5);
}

#[test]
fn cells_of_another_seed_are_a_parameter_mismatch() {
    let mut world = World::new(Scenario::with_seed(17));
    world.run(WARM);
    world.on_response = Box::new(|response, _| {
        if let ResponseBody::Cells(_, bytes) = &mut response.body {
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
fn a_peer_with_false_sizes_is_not_trusted() {
    let lies: [fn(&mut ResponseBody); 4] = [
        |body| {
            if let ResponseBody::Cells(counters, _) = body {
                counters.packets += 1;
            }
        },
        |body| {
            if let ResponseBody::Cells(_, bytes) = body {
                bytes.truncate(bytes.len() / 2);
            }
        },
        |body| {
            if let ResponseBody::Times(times) = body {
                times.pop();
            }
        },
        |body| {
            if let ResponseBody::Times(times) = body {
                for (_, time) in times.iter_mut() {
                    *time = Some(time.unwrap_or(0) + 3 * LENGTH);
                }
            }
        },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut world = World::new(Scenario::with_seed(18));
        world.on_response = Box::new(move |response, _| {
            lie(&mut response.body);
            Fate::Passes
        });
        world.run(4_000);

        assert!(world.sender.counts().invalid > 5, "lie {number}");
        let reports = &world.reports[0];
        let noticed = |report: &Report| report.flags.any(Flags::NO_PEER_DATA | Flags::PARTIAL);
        assert!(reports.len() > 5 && reports.iter().all(noticed), "lie {number}: {reports:?}");
        world.check(0, true);
    }
}

#[test]
fn a_sender_with_false_or_impossible_requests_is_refused_with_bounded_memory() {
    // Without finish requests the receiver stores intervals for some time.
    let mut world = without("finish", 0);
    world.run(1_000);
    let now = world.now;
    let (mut epoch, mut interval) = (0, 0);
    // A request of another run is refused with the current epoch.
    let probe = |world: &mut World, epoch, interval, body: RequestBody| {
        let request = Request { stream: "shop".to_owned(), epoch, interval, clock_state: ClockState::Unknown, body };
        world.receiver.respond(&request, UnixNanos(now)).body
    };
    if let ResponseBody::Refused(Refusal::Epoch(known)) = probe(&mut world, 1, 5, RequestBody::Times(vec![])) {
        epoch = known;
    }
    for candidate in (0..60).rev() {
        let body = probe(&mut world, epoch, candidate, RequestBody::Times(vec![]));
        if matches!(body, ResponseBody::Times(_)) {
            interval = candidate;
            break;
        }
    }
    let counters = one_way::EndCounters::default();
    let request = |least_cells, xor_counters| RequestBody::Cells { counters, seed: 1, least_cells, xor_counters };
    assert!(epoch > 0 && interval > 0);
    let invalid = |body: &ResponseBody| matches!(body, ResponseBody::Refused(Refusal::Invalid(_)));

    assert!(invalid(&probe(&mut world, epoch, interval, RequestBody::Times(vec![7; 1 << 20]))), "more ids than cells");
    assert!(invalid(&probe(&mut world, epoch, interval, request(1, vec![1, 2, 3]))), "no XOR counters");
    assert!(
        invalid(&probe(&mut world, epoch, interval, RequestBody::Buckets { counters, finecomb: vec![], clock: None })),
        "the stream has no buckets"
    );
    let huge = probe(&mut world, epoch, interval, request(u64::MAX, synopses::rda::XorCounters::new(1).encode()));
    assert!(matches!(huge, ResponseBody::Packets(..)), "as many cells as that are more than all packets");
    let ResponseBody::RetryAfter(retry_after) = probe(&mut world, epoch, 1 << 39, RequestBody::Times(vec![])) else {
        panic!("it has not ended")
    };
    assert!(retry_after <= Nanos(LENGTH));
    assert_eq!(probe(&mut world, epoch, 0, RequestBody::Times(vec![])), ResponseBody::Expired, "already dropped");
    // Reports of intervals that never were, or of other packets than arrived.
    let report = |interval, received| Report { received, mean_ns: Some(1.0), ..Report::unknown(interval, Flags::NONE) };
    let before = world.receiver.counts();
    let reports = vec![report(1 << 30, None), report(interval, Some(1 << 40))];
    assert_eq!(probe(&mut world, epoch, 1, RequestBody::Finish { reports, sampling: None }), ResponseBody::Finished);
    let counts = world.receiver.counts();
    assert_eq!((counts.stale + counts.invalid) - (before.stale + before.invalid), 2);
    assert_eq!(world.receiver.take_effects().filter(|effect| matches!(effect, one_way::Effect::Report(_))).count(), 0);
}

#[test]
fn ids_that_were_never_sent_are_detected_as_phantoms() {
    // The receiver denies packets that it has: they are put back, and the rest is decoded again, three times at most.
    let mut world = World::new(Scenario::with_seed(20));
    world.on_response = Box::new(|response, _| {
        if let ResponseBody::Times(times) = &mut response.body {
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
    let mut world = World::new(Scenario { loss: 0.9, ..Scenario::with_seed(21) });
    world.run(4_000);
    assert!(world.check(0, true) > 5, "all packets are sent: exact");

    let scenario = Scenario { loss: 0.5, rate: 40, ..Scenario::with_seed(21) };
    let sizing = Sizing { most: 300, least: 300, ..Sizing::default() };
    let receiver = Receiver::new(ReceiverSettings { sizing, ..ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA) });
    let sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA));
    let mut world = World::of(scenario, sender, receiver);
    world.run(4_000);
    let reports = &world.reports[0];
    assert!(reports.len() > 5 && reports.iter().all(|report| report.flags.any(Flags::INCOMPLETE)), "{reports:?}");
    assert!(reports.iter().all(|report| report.trusted_loss().is_none() && report.trusted_mean_ns().is_none()));
}

#[test]
fn packets_at_one_end_only_are_a_loss_of_all_and_none_at_either_are_empty() {
    let mut world = World::new(Scenario::with_seed(22));
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
    let mut world = World::new(Scenario { loss: 0.0, delay: (0, 0), ..Scenario::with_seed(23) });
    world.run(3_000);

    assert!(world.reports[0].len() > 5);
    for report in &world.reports[0] {
        assert_eq!((report.trusted_mean_ns(), report.trusted_loss(), report.lost), (Some(0.0), Some(0.0), 0));
    }
}

#[test]
fn an_end_over_its_memory_budget_makes_both_ends_sample_fewer_flows() {
    let mut world = World::new(Scenario { budget: [20_000, 2_500], ..Scenario::with_seed(26) });
    world.run(8_000);

    let [first, .., last] = &world.reports[0][..] else { panic!("{:?}", world.reports[0]) };
    assert!(first.flags.any(Flags::PARTIAL) && first.trusted_loss().is_none(), "{first:?}");
    assert!(!last.flags.any(Flags::PARTIAL | Flags::PARAMETER_MISMATCH) && last.flags.any(Flags::SAMPLED), "{last:?}");
    assert!(last.sent < Some(2_500) && last.trusted_mean_ns().is_some() && last.loss < Some(0.03));
    world.check(0, true);
    world.scenario.budget = [20_000; 2];
}

#[test]
fn packets_that_an_end_missed_are_no_loss_of_the_network() {
    let mut world = World::new(Scenario::with_seed(27));
    world.dropped = [0, 10];
    world.run(4_000);

    let reports = &world.reports[0];
    assert!(reports.len() > 8 && reports.iter().all(|report| report.flags.any(Flags::MISSED)));
    assert!(reports.iter().all(|report| report.trusted_loss().is_none() && report.trusted_mean_ns().is_some()));
}

#[test]
fn merged_packets_are_flagged_and_no_figure_is_trusted() {
    let mut world = World::new(Scenario::with_seed(28));
    world.oversized = true;
    world.run(4_000);

    let flagged = |report: &Report| report.flags.any(Flags::OVERSIZED) && report.trusted_mean_ns().is_none();
    assert!(
        world.reports[0].len() > 8 && both(&world, 0).all(|report| flagged(report) && report.trusted_loss().is_none())
    );
}

#[test]
fn duplicated_requests_get_the_same_response() {
    let mut world = World::new(Scenario { doubled: 1.0, replayed: 0.5, ..Scenario::with_seed(29) });
    world.run(5_000);

    assert_eq!(flagged(&world.reports[0], Flags(u32::MAX)), 0, "{:?}", world.reports[0]);
    assert!(world.check(0, true) > 10 && world.check(1, true) > 10);
    assert!(world.sender.counts().stale > 20, "responses to no request");
}

#[test]
fn plain_ids_and_two_banks_as_published_work_too() {
    let synopsis = Synopsis::Rda { banks: 2, ids: Ids::Plain };
    let mut world = World::new(Scenario { synopsis, ..Scenario::with_seed(30) });
    world.run(6_000);

    // In one of seven intervals two packets share both their cells, at two cells for each; with four and more it is
    // seldom.
    assert!(world.check(0, true) > 10);
}

#[test]
fn a_start_in_a_far_future_or_of_a_replayed_epoch_is_refused() {
    let mut world = World::new(Scenario::with_seed(31));
    let mut starts = Vec::new();
    world.on_request = Box::new(move |request, _| {
        if let RequestBody::Start(_) = request.body {
            starts.push(request.clone());
        }
        Fate::Passes
    });
    world.run(WARM);
    let now = world.now;
    let plan = one_way::Plan {
        begins: UnixNanos(now + 10_000_000 * MS),
        length: Nanos(LENGTH),
        key: 1,
        seed: 2,
        synopsis: Synopsis::RDA,
        intervals_per_key: 0,
        fingerprint: None,
    };
    let ask = |world: &mut World, epoch, plan: &one_way::Plan| -> Response {
        let request = Request {
            stream: "shop".to_owned(),
            epoch,
            interval: 0,
            clock_state: ClockState::Unknown,
            body: RequestBody::Start(plan.clone()),
        };
        world.receiver.respond(&request, UnixNanos(now))
    };

    assert!(matches!(ask(&mut world, u64::MAX, &plan).body, ResponseBody::Refused(Refusal::Parameters { .. })));
    let soon = one_way::Plan { begins: UnixNanos(now + LENGTH), ..plan.clone() };
    assert!(
        matches!(ask(&mut world, 1, &soon).body, ResponseBody::Refused(Refusal::Epoch(known)) if known > 1),
        "replayed"
    );
    let late = one_way::Plan { begins: UnixNanos(now), ..plan };
    assert_eq!(ask(&mut world, u64::MAX, &late).body, ResponseBody::Refused(Refusal::TooLate));
    assert_eq!(world.runs, 1);
}

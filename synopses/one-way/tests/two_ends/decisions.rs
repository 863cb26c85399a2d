//! Back-off, memory bounds, and what carries over into the next run.

use std::cell::Cell;
use std::rc::Rc;

use one_way::{
    Action, Flags, Receiver, ReceiverSettings, Refusal, RequestBody, ResponseBody, Sender, SenderSettings, Synopsis,
};
use wire::time::{Nanos, UnixNanos};

use crate::world::{Fate, LENGTH, MS, START, Scenario, World};

#[test]
fn runs_begin_at_multiples_of_their_intervals_later_than_the_margin() {
    for now in [START, START + 1, START + 77 * MS + 3] {
        let settings = SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA);
        let start_margin_ns = settings.start_margin.0;
        let Action::Send { request, .. } = Sender::new(settings).poll(UnixNanos(now), &mut || 7) else {
            panic!("it begins")
        };
        let RequestBody::Start(plan) = request.body else { panic!("with a start") };
        assert_eq!(plan.begins.0 % LENGTH, 0);
        assert!((now + start_margin_ns..now + start_margin_ns + LENGTH).contains(&plan.begins.0));
    }
}

#[test]
fn without_failures_every_request_is_sent_once_and_nothing_is_stale() {
    let mut world = World::new(Scenario::with_seed(61));
    world.run(5_000);

    assert_eq!((world.sender.counts(), world.receiver.counts()), Default::default());
}

#[test]
fn every_response_to_another_request_is_counted() {
    for spoil in [
        |response: &mut one_way::Response| response.epoch ^= 1,
        |response: &mut one_way::Response| response.interval += 1,
    ] {
        let mut world = World::new(Scenario::with_seed(62));
        let spoilt = Rc::new(Cell::new(0));
        let count = Rc::clone(&spoilt);
        let mut number = 0;
        world.on_response = Box::new(move |response, _| {
            number += 1;
            if number % 5 == 0 {
                count.set(count.get() + 1);
                spoil(response);
            }
            Fate::Passes
        });
        world.run(5_000);

        assert!(
            spoilt.get() > 10 && world.sender.counts().stale >= spoilt.get() - 1,
            "{spoilt:?} {:?}",
            world.sender.counts()
        );
        world.check(0, true);
    }
}

#[test]
fn a_receiver_that_cannot_respond_gets_retries_with_back_off() {
    let responses: [fn(&mut ResponseBody); 3] = [
        // No response to that request.
        |body| *body = ResponseBody::Finished,
        // Retry at once, and never.
        |body| *body = ResponseBody::RetryAfter(Nanos::ZERO),
        |body| *body = ResponseBody::RetryAfter(Nanos::NEVER),
    ];
    for (number, spoil) in responses.into_iter().enumerate() {
        let mut world = World::new(Scenario { rate: 5, message_delay: (MS / 100, MS / 50), ..Scenario::with_seed(63) });
        world.on_response = Box::new(move |response, _| {
            if matches!(response.body, ResponseBody::Cells(..) | ResponseBody::Packets(..)) && response.interval == 5 {
                spoil(&mut response.body);
            }
            Fate::Passes
        });
        world.run(4_000);

        // One request for each of twelve other intervals. For this one, three intervals of retries with at least a 64th
        // of an interval between them, or the time that the receiver asked for.
        let sent = world.requests["cells"];
        let range = [16..40, 100..650, 14..22][number].clone();
        assert!(range.contains(&sent), "spoilt by {number}: {sent}");
    }
}

/// Its start margin, two intervals, is longer than the longest pause. That was a panic once.
#[test]
fn long_intervals_are_started_again_after_their_margin() {
    let second = 1000 * MS;
    let mut sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(60 * second), Synopsis::RDA));
    let mut now = START;

    for _ in 0..5 {
        let Action::Send { call, .. } = sender.poll(UnixNanos(now), &mut || 7) else { panic!("a start is due") };
        sender.complete(call, None, UnixNanos(now), &mut || 7);
        let Action::Wait(UnixNanos(until)) = sender.poll(UnixNanos(now), &mut || 7) else { panic!("it pauses") };
        assert_eq!(until - now, 120 * second);
        now = until;
    }
}

#[test]
fn a_request_that_the_receiver_finds_invalid_is_a_parameter_mismatch() {
    let mut world = World::new(Scenario::with_seed(64));
    world.on_response = Box::new(|response, _| {
        if matches!(response.body, ResponseBody::Cells(..)) && response.interval == 5 {
            response.body = ResponseBody::Refused(Refusal::Invalid("no reason".to_owned()));
        }
        Fate::Passes
    });
    world.run(4_000);

    assert!(
        world.reports[0][5].flags.any(Flags::PARAMETER_MISMATCH) && !world.reports[0][5].flags.any(Flags::NO_PEER_DATA)
    );
    assert!(world.reports[0][6].trusted_mean_ns().is_some());
}

#[test]
fn intervals_in_progress_are_bounded_for_any_deadline() {
    let scenario = Scenario::with_seed(65);
    let settings = SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA);
    let sender = Sender::new(SenderSettings { deadline: Nanos(100 * LENGTH), ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA));
    let mut world = World::of(scenario, sender, receiver);
    world.on_request =
        Box::new(
            |request, _| if matches!(request.body, RequestBody::Cells { .. }) { Fate::Lost } else { Fate::Passes },
        );
    world.run(4_000);

    assert!(world.reports[0].len() > 6, "the oldest is dropped: {:?}", world.reports[0].len());
    assert!(world.reports[0].iter().all(|report| report.flags.any(Flags::NO_PEER_DATA)));
    assert!(world.sender.memory_bytes() <= 4 * 700_000, "{}", world.sender.memory_bytes());
}

#[test]
fn a_run_that_ends_leaves_a_report_of_each_collected_interval() {
    let mut world = World::new(Scenario::with_seed(66));
    world.run(3_000);
    world.receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA));
    world.run(3_000);

    assert_eq!(world.runs, 2);
    let before: Vec<u64> = world.before[0].iter().map(|report| report.interval).collect();
    assert!(before.len() >= 9 && before.iter().copied().eq(0..before.len() as u64), "{before:?}");
    let last = world.before[0].last().expect("there are some");
    assert!(last.flags.any(Flags::NO_PEER_DATA | Flags::UNSETTLED), "{last:?}");
}

#[test]
fn flow_sampling_adapts_in_the_next_run_and_rises_after_sixty_intervals() {
    let mut world = World::new(Scenario { rate: 5, budget: [5_000, 600], ..Scenario::with_seed(67) });
    let fits = |world: &World| {
        let last = world.reports[0].last().expect("there are reports");
        last.flags == Flags::SAMPLED && last.sent < Some(600)
    };
    world.run(4_000);
    assert!(fits(&world), "{:?}", world.reports[0]);

    world.receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA));
    world.run(4_000);
    assert!(world.runs == 2 && fits(&world), "{:?}", world.reports[0]);

    world.run(13_000);
    let tried =
        world.reports[0].iter().rposition(|report| report.flags.any(Flags::PARTIAL)).expect("the budget was exceeded");
    assert!(world.reports[0][tried].interval > 60 && fits(&world), "{tried}");
}

#[test]
fn a_run_that_ends_leaves_a_report_of_the_interval_that_waited_for_the_next() {
    let mut world = World::new(Scenario::with_seed(68));
    world.on_response = Box::new(|response, _| {
        if response.body == ResponseBody::Finished && response.interval == 9 {
            response.body = ResponseBody::Refused(Refusal::Epoch(response.epoch));
        }
        Fate::Passes
    });
    world.run(5_000);

    let last = world.before[0].last().expect("a run ended");
    assert!(last.interval == 9 && last.flags == Flags::UNSETTLED && last.mean_ns.is_some(), "{last:?}");
}

#[test]
fn reports_come_in_order_though_a_later_interval_is_compared_first() {
    let settings = SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA);
    let sender = Sender::new(SenderSettings { deadline: Nanos(4 * LENGTH), ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(Nanos(LENGTH), Synopsis::RDA));
    let mut world = World::of(Scenario::with_seed(69), sender, receiver);
    let mut first = None;
    world.on_request = Box::new(move |request, now| {
        if !matches!(request.body, RequestBody::Cells { .. }) || request.interval != 5 {
            return Fate::Passes;
        }
        if now < *first.get_or_insert(now) + 580 * MS { Fate::Lost } else { Fate::Passes }
    });
    world.run(5_000);

    // The world checks their order as they come.
    let intervals = world.reports[0].iter().map(|report| report.interval);
    assert!(intervals.eq(0..world.reports[0].len() as u64) && world.reports[0].len() > 12);
    assert_eq!(world.check(0, true), world.reports[0].len(), "{:?}", world.reports[0]);
}

#[test]
fn after_clocks_that_jump_over_many_intervals_those_between_are_left_out() {
    let mut world = World::new(Scenario::with_seed(70));
    world.run(3_000);
    world.scenario.clocks = [5_000 * MS as i64; 2];
    world.run(4_000);

    let intervals: Vec<u64> = world.reports[0].iter().map(|report| report.interval).collect();
    assert!(
        intervals.iter().any(|interval| *interval < 10)
            && intervals.iter().filter(|interval| **interval > 35).count() > 10,
        "{intervals:?}"
    );
    assert!(
        world.reports[0].last().is_some_and(|report| report.trusted_loss().is_some()),
        "{:?}",
        world.reports[0].last()
    );
}

#[test]
fn loss_is_incomplete_if_the_next_interval_is_incomplete() {
    let mut world = World::new(Scenario::with_seed(71));
    world.on_response = Box::new(|response, _| {
        if let (ResponseBody::Times(times), 6) = (&mut response.body, response.interval) {
            times.iter_mut().step_by(7).for_each(|(_, time)| *time = None);
        }
        Fate::Passes
    });
    world.run(4_000);

    let incomplete = world.reports[0].iter().filter(|report| report.flags.any(Flags::INCOMPLETE));
    assert!(incomplete.map(|report| report.interval).eq([5, 6]), "{:?}", world.reports[0]);
    world.check(0, true);
}

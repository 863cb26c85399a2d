//! Decisions that no failure shows by itself: how often is asked, how much is kept, what is passed on into the next run.

use std::cell::Cell;
use std::rc::Rc;

use exchange::{Ask, Flags, Receiver, ReceiverSettings, Refusal, Say, Sender, SenderSettings, Synopsis, Todo};

use crate::world::{DAWN, Fate, LENGTH, MS, Nature, World};

#[test]
fn runs_begin_at_multiples_of_their_intervals_later_than_the_margin() {
    for now in [DAWN, DAWN + 1, DAWN + 77 * MS + 3] {
        let settings = SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA);
        let margin_ns = settings.margin_ns;
        let Todo::Ask { question, .. } = Sender::new(settings).poll(now, &mut || 7) else { panic!("it begins") };
        let Ask::Start(plan) = question.ask else { panic!("with a start") };
        assert_eq!(plan.begins_ns % LENGTH, 0);
        assert!((now + margin_ns..now + margin_ns + LENGTH).contains(&plan.begins_ns));
    }
}

#[test]
fn where_nothing_happens_every_question_is_asked_once_and_nothing_is_stale() {
    let mut world = World::new(Nature::kind(61));
    world.run(5_000);

    assert_eq!((world.sender.counts(), world.receiver.counts()), Default::default());
}

#[test]
fn every_answer_that_is_of_another_question_is_counted() {
    for spoil in
        [|answer: &mut exchange::Answer| answer.epoch ^= 1, |answer: &mut exchange::Answer| answer.interval += 1]
    {
        let mut world = World::new(Nature::kind(62));
        let spoilt = Rc::new(Cell::new(0));
        let count = Rc::clone(&spoilt);
        let mut number = 0;
        world.on_answer = Box::new(move |answer, _| {
            number += 1;
            if number % 5 == 0 {
                count.set(count.get() + 1);
                spoil(answer);
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
fn who_cannot_answer_is_asked_with_pauses() {
    let answers: [fn(&mut Say); 3] = [
        // No answer to that question.
        |say| *say = Say::Finished,
        // At once, and never.
        |say| *say = Say::Later(0),
        |say| *say = Say::Later(u64::MAX),
    ];
    for (number, spoil) in answers.into_iter().enumerate() {
        let mut world = World::new(Nature { rate: 5, message_delay: (MS / 100, MS / 50), ..Nature::kind(63) });
        world.on_answer = Box::new(move |answer, _| {
            if matches!(answer.say, Say::Cells(..) | Say::All(..)) && answer.interval == 5 {
                spoil(&mut answer.say);
            }
            Fate::Passes
        });
        world.run(4_000);

        // Of twelve others, each once; of this one for three intervals, at a pause of a 64th of one at the least, or what the other end asked for.
        let asked = world.asked["request"];
        let range = [16..40, 100..650, 14..22][number].clone();
        assert!(range.contains(&asked), "spoilt by {number}: {asked}");
    }
}

#[test]
fn a_receiver_that_finds_a_question_broken_leaves_a_parameter_mismatch() {
    let mut world = World::new(Nature::kind(64));
    world.on_answer = Box::new(|answer, _| {
        if matches!(answer.say, Say::Cells(..)) && answer.interval == 5 {
            answer.say = Say::Refused(Refusal::Broken("no reason".to_owned()));
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
fn no_more_intervals_are_under_way_than_there_is_memory_for_however_late_the_deadline() {
    let nature = Nature::kind(65);
    let settings = SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA);
    let sender = Sender::new(SenderSettings { deadline_ns: 100 * LENGTH, ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::RDA));
    let mut world = World::of(nature, sender, receiver);
    world.on_question =
        Box::new(|question, _| if matches!(question.ask, Ask::Request { .. }) { Fate::Lost } else { Fate::Passes });
    world.run(4_000);

    assert!(world.reports[0].len() > 6, "the oldest is given up: {:?}", world.reports[0].len());
    assert!(world.reports[0].iter().all(|report| report.flags.any(Flags::NO_PEER_DATA)));
    assert!(world.sender.memory_bytes() <= 4 * 700_000, "{}", world.sender.memory_bytes());
}

#[test]
fn a_run_that_ends_leaves_a_report_of_each_interval_that_was_gathered() {
    let mut world = World::new(Nature::kind(66));
    world.run(3_000);
    world.receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::RDA));
    world.run(3_000);

    assert_eq!(world.runs, 2);
    let before: Vec<u64> = world.before[0].iter().map(|report| report.interval).collect();
    assert!(before.len() >= 9 && before.iter().copied().eq(0..before.len() as u64), "{before:?}");
    let last = world.before[0].last().expect("there are some");
    assert!(last.flags.any(Flags::NO_PEER_DATA | Flags::UNSETTLED), "{last:?}");
}

#[test]
fn fewer_flows_are_looked_at_in_another_run_too_and_more_are_tried_after_a_minute_of_intervals() {
    let mut world = World::new(Nature { rate: 5, room: [5_000, 600], ..Nature::kind(67) });
    let fits = |world: &World| {
        let last = world.reports[0].last().expect("there are reports");
        last.flags == Flags::SAMPLED && last.sent < Some(600)
    };
    world.run(4_000);
    assert!(fits(&world), "{:?}", world.reports[0]);

    world.receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::RDA));
    world.run(4_000);
    assert!(world.runs == 2 && fits(&world), "{:?}", world.reports[0]);

    world.run(13_000);
    let tried =
        world.reports[0].iter().rposition(|report| report.flags.any(Flags::PARTIAL)).expect("there was no room");
    assert!(world.reports[0][tried].interval > 60 && fits(&world), "{tried}");
}

#[test]
fn a_run_that_ends_leaves_a_report_of_the_interval_that_waited_for_the_next() {
    let mut world = World::new(Nature::kind(68));
    world.on_answer = Box::new(|answer, _| {
        if answer.say == Say::Finished && answer.interval == 9 {
            answer.say = Say::Refused(Refusal::Epoch(answer.epoch));
        }
        Fate::Passes
    });
    world.run(5_000);

    let last = world.before[0].last().expect("a run ended");
    assert!(last.interval == 9 && last.flags == Flags::UNSETTLED && last.mean_ns.is_some(), "{last:?}");
}

#[test]
fn reports_come_in_order_though_a_later_interval_is_compared_first() {
    let settings = SenderSettings::new("shop".to_owned(), LENGTH, Synopsis::RDA);
    let sender = Sender::new(SenderSettings { deadline_ns: 4 * LENGTH, ..settings });
    let receiver = Receiver::new(ReceiverSettings::new(LENGTH, Synopsis::RDA));
    let mut world = World::of(Nature::kind(69), sender, receiver);
    let mut first = None;
    world.on_question = Box::new(move |question, now| {
        if !matches!(question.ask, Ask::Request { .. }) || question.interval != 5 {
            return Fate::Passes;
        }
        if now < *first.get_or_insert(now) + 580 * MS { Fate::Lost } else { Fate::Passes }
    });
    world.run(5_000);

    // Their order is looked at as they come.
    let intervals = world.reports[0].iter().map(|report| report.interval);
    assert!(intervals.eq(0..world.reports[0].len() as u64) && world.reports[0].len() > 12);
    assert_eq!(world.check(0, true), world.reports[0].len(), "{:?}", world.reports[0]);
}

#[test]
fn after_clocks_that_jump_over_many_intervals_those_between_are_left_out() {
    let mut world = World::new(Nature::kind(70));
    world.run(3_000);
    world.nature.clocks = [5_000 * MS as i64; 2];
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
fn what_looks_lost_is_not_told_as_lost_where_not_all_is_known_of_the_next_interval() {
    let mut world = World::new(Nature::kind(71));
    world.on_answer = Box::new(|answer, _| {
        if let (Say::Times(times), 6) = (&mut answer.say, answer.interval) {
            times.iter_mut().step_by(7).for_each(|(_, time)| *time = None);
        }
        Fate::Passes
    });
    world.run(4_000);

    let incomplete = world.reports[0].iter().filter(|report| report.flags.any(Flags::INCOMPLETE));
    assert!(incomplete.map(|report| report.interval).eq([5, 6]), "{:?}", world.reports[0]);
    world.check(0, true);
}

//! Flags: the error of clocks, and which interval a flag belongs to.

use one_way::{ClockState, Flags, Report, RequestBody, Synopsis};

use crate::world::{Fate, MS, Scenario, World};

/// Intervals with a flag, of the reports of an end.
fn flagged(reports: &[Report], flag: Flags) -> Vec<u64> {
    reports.iter().filter(|report| report.flags.any(flag)).map(|report| report.interval).collect()
}

#[test]
fn both_clocks_states_are_in_every_report_of_both_ends() {
    let cases = [
        ([ClockState::Synchronised(20_000), ClockState::Synchronised(30_000)], Some(50_000), false),
        ([ClockState::Synchronised(20_000), ClockState::Unsynchronised], None, true),
        ([ClockState::Unsynchronised, ClockState::Synchronised(1)], None, true),
        ([ClockState::Synchronised(20_000), ClockState::Unknown], None, false),
    ];
    for synopsis in [Synopsis::RDA, Synopsis::finecomb(2_000, 200)] {
        for (states, error_ns, unsynchronised) in cases {
            let mut world = World::new(Scenario { synopsis: synopsis.clone(), ..Scenario::with_seed(41) });
            world.clock_states = states;
            world.run(4_000);

            for reports in &world.reports {
                assert!(reports.len() > 10);
                for report in reports {
                    assert_eq!(
                        (report.clock_error_ns, report.flags.any(Flags::UNSYNCHRONISED)),
                        (error_ns, unsynchronised)
                    );
                    // Figures are trusted all the same.
                    assert!(report.trusted_mean_ns().is_some() && report.trusted_loss().is_some(), "{report:?}");
                }
            }
        }
    }
}

#[test]
fn a_packet_delivered_after_the_grace_period_flags_its_own_interval_only() {
    for end in [0, 1] {
        let mut world = World::new(Scenario::with_seed(42));
        world.delayed_handover = Some((end, 7));
        world.run(5_000);

        for reports in &world.reports {
            assert_eq!(flagged(reports, Flags::MISSED), [7], "delayed at end {end}");
            assert!(reports.len() > 12 && reports[7].trusted_loss().is_none());
        }
        world.check(0, true);
        world.check(1, true);
    }
}

#[test]
fn with_finecomb_such_a_packet_flags_the_interval_in_which_it_is_delivered() {
    let mut world = World::new(Scenario { synopsis: Synopsis::finecomb(2_000, 200), ..Scenario::with_seed(43) });
    world.delayed_handover = Some((0, 7));
    world.run(5_000);

    let flagged = flagged(&world.reports[1], Flags::MISSED);
    assert!(flagged.iter().all(|interval| [8, 9].contains(interval)) && !flagged.is_empty(), "{flagged:?}");
}

#[test]
fn packets_that_the_sender_misses_within_the_grace_flag_the_interval_that_ended_and_their_own() {
    for synopsis in [Synopsis::RDA, Synopsis::finecomb(2_000, 200), Synopsis::lda(2_000)] {
        let exact = synopsis == Synopsis::RDA;
        let mut world = World::new(Scenario { synopsis, ..Scenario::with_seed(45) });
        world.dropped_at = Some((0, 7, 0..3));
        world.run(5_000);

        assert_eq!(flagged(&world.reports[1], Flags::MISSED), [6, 7]);
        assert!(world.reports[1].len() > 12);
        world.check(0, exact);
        world.check(1, exact);
    }
}

#[test]
fn packets_that_the_receiver_misses_flag_the_interval_before_in_which_they_may_have_been_sent() {
    // Within the grace, and after it.
    for (seed, milliseconds, expected) in [(46, 0..3, &[5, 6, 7][..]), (47, 6..9, &[6, 7])] {
        let mut world = World::new(Scenario { delay: (MS, 20 * MS), ..Scenario::with_seed(seed) });
        world.dropped_at = Some((1, 7, milliseconds));
        world.run(5_000);

        for reports in &world.reports {
            assert_eq!(flagged(reports, Flags::MISSED), expected);
            assert!(reports.len() > 12);
        }
        world.check(0, true);
        world.check(1, true);
    }
}

#[test]
fn a_report_that_becomes_final_during_a_finish_request_is_in_the_next_one() {
    let mut world = World::new(Scenario { message_delay: (20 * MS, 32 * MS), ..Scenario::with_seed(44) });
    // The sender never gets the cells of every third interval, and gives it up at its deadline, whatever request is in
    // flight then.
    world.on_request = Box::new(|request, _| {
        let lost = request.interval % 3 == 2 && matches!(request.body, RequestBody::Cells { .. });
        if lost { Fate::Lost } else { Fate::Passes }
    });
    world.run(20_000);

    let last = world.reports[1].last().expect("there are reports").interval;
    assert!(last > 80, "{last}");
    for ours in world.reports[0].iter().filter(|report| report.interval < last) {
        let theirs = world.reports[1].iter().find(|report| report.interval == ours.interval);
        assert_eq!(theirs.map(|report| (report.flags, report.lost)), Some((ours.flags, ours.lost)), "{ours:?}");
    }
}

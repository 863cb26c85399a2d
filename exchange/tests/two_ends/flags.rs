//! What stands beside figures: how far off clocks may be, and of which interval a flag is.

use exchange::{Ask, ClockState, Flags, Report, Synopsis};

use crate::world::{Fate, MS, Nature, World};

#[test]
fn what_both_kernels_say_of_their_clocks_stands_beside_every_figure_of_both_ends() {
    let cases = [
        ([ClockState::Within(20_000), ClockState::Within(30_000)], Some(50_000), false),
        ([ClockState::Within(20_000), ClockState::Unsynchronised], None, true),
        ([ClockState::Unsynchronised, ClockState::Within(1)], None, true),
        ([ClockState::Within(20_000), ClockState::Unknown], None, false),
    ];
    for synopsis in [Synopsis::RDA, Synopsis::finecomb(2_000, 200)] {
        for (kept, error_ns, unsynchronised) in cases {
            let mut world = World::new(Nature { synopsis: synopsis.clone(), ..Nature::kind(41) });
            world.kept = kept;
            world.run(4_000);

            for reports in &world.reports {
                assert!(reports.len() > 10);
                for report in reports {
                    assert_eq!(
                        (report.clock_error_ns, report.flags.any(Flags::UNSYNCHRONISED)),
                        (error_ns, unsynchronised)
                    );
                    // It is told, and nothing is missing for it.
                    assert!(report.trusted_mean_ns().is_some() && report.trusted_loss().is_some(), "{report:?}");
                }
            }
        }
    }
}

#[test]
fn a_packet_that_is_handed_over_after_the_grace_flags_its_own_interval_and_no_other() {
    for end in [0, 1] {
        let mut world = World::new(Nature::kind(42));
        world.dawdles = Some((end, 7));
        world.run(5_000);

        for reports in &world.reports {
            let missed = |report: &&Report| report.flags.any(Flags::MISSED);
            let flagged: Vec<u64> = reports.iter().filter(missed).map(|report| report.interval).collect();
            assert_eq!(flagged, [7], "held back at end {end}");
            assert!(reports.len() > 12 && reports[7].trusted_loss().is_none());
        }
        world.check(0, true);
        world.check(1, true);
    }
}

#[test]
fn of_finecomb_such_a_packet_flags_the_interval_in_which_it_is_handed_over() {
    let mut world = World::new(Nature { synopsis: Synopsis::finecomb(2_000, 200), ..Nature::kind(43) });
    world.dawdles = Some((0, 7));
    world.run(5_000);

    let missed = |report: &&Report| report.flags.any(Flags::MISSED);
    let flagged: Vec<u64> = world.reports[1].iter().filter(missed).map(|report| report.interval).collect();
    assert!(flagged.iter().all(|interval| [8, 9].contains(interval)) && !flagged.is_empty(), "{flagged:?}");
}

#[test]
fn a_report_that_becomes_final_while_others_are_being_told_is_told_next() {
    let mut world = World::new(Nature { message_delay: (20 * MS, 32 * MS), ..Nature::kind(44) });
    // Of every third interval nothing is ever known at the sender: it is given up at its deadline, whatever is being asked just then.
    world.on_question = Box::new(|question, _| {
        let lost = question.interval % 3 == 2 && matches!(question.ask, Ask::Request { .. });
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

//! Clocks that differ, and clocks that are set: what follows, and its flag.

use one_way::{Flags, Sender, SenderSettings, Synopsis};
use wire::time::Nanos;

use crate::world::{LENGTH, MS, Scenario, World};

const WARM: u64 = 3_000;

#[test]
fn a_restarted_sender_whose_clock_was_set_back_finds_a_later_epoch() {
    let mut world = World::new(Scenario::with_seed(13));
    world.run(WARM);
    world.sender = Sender::new(SenderSettings::new("shop".to_owned(), Nanos(LENGTH), Synopsis::RDA));
    // Both clocks are set back by ten seconds.
    world.scenario.clocks = [-10_000 * MS as i64; 2];
    world.run(4_000);

    assert_eq!(world.runs, 2, "the epoch is above that of the previous run");
    assert!(world.check(0, true) > 3 && world.check(1, true) > 3);
}

#[test]
fn after_both_clocks_were_set_back_by_an_hour_another_run_begins_whichever_was_set_first() {
    let back = -3_600_000 * MS as i64;
    for (first, refusals) in [
        ([back; 2], &[][..]),
        // No start time that the sender could wait for is in the future of both clocks.
        ([back, 0], &["its clock is more than 60 s ahead"][..]),
        ([0, back], &[][..]),
    ] {
        let mut world = World::new(Scenario::with_seed(32));
        world.run(WARM);
        assert_eq!(world.runs, 1);
        world.scenario.clocks = first;
        world.run(2_000);
        world.scenario.clocks = [back; 2];
        world.run(8_000);

        assert_eq!(world.runs, 2, "{first:?}");
        assert_eq!(world.refusals[0], refusals, "{first:?}");
        assert!(world.check(0, true) > 10 && world.check(1, true) > 10, "{first:?}: {:?}", world.reports[0]);
    }
}

#[test]
fn clocks_that_differ_by_seconds_are_suspect_at_both_ends_either_way() {
    for ahead in [5_000, -5_000, 400, -400, 20, -20] {
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(2_000, 100)] {
            let scenario = Scenario { clocks: [0, ahead * MS as i64], synopsis, ..Scenario::with_seed(24) };
            let mut world = World::new(scenario);
            world.run(12_000);

            assert!(world.reports[0].len() > 3, "{ahead} ms: {:?}", world.reports[0]);
            let all = || world.reports.iter().flatten();
            for report in all().filter(|report| !report.flags.any(Flags::NO_PEER_DATA)) {
                assert!(report.flags.any(Flags::SUSPECT_CLOCK), "{ahead} ms: {report:?}");
            }
            assert!(all().all(|report| report.trusted_mean_ns().is_none() && report.trusted_loss().is_none()));
        }
    }
}

#[test]
fn a_clock_that_is_set_during_a_run_is_noticed() {
    let mut world = World::new(Scenario::with_seed(25));
    world.run(WARM);
    world.scenario.clocks = [0, 50 * MS as i64];
    let before = world.reports[0].len();
    world.run(2_000);

    let after = &world.reports[0][before + 3..];
    assert!(after.len() > 3 && after.iter().all(|report| report.flags.any(Flags::SUSPECT_CLOCK)), "{after:?}");
}

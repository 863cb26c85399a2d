//! Operators drain workers of a node under load, in virtual time: no service misses more than a row, and no detector
//! learns anew.

use super::quiet::{INTERVAL, WITHIN};
use super::*;

const SEEDS: u64 = 60;

impl World {
    /// Drains a worker, and runs until it is empty.
    fn drain(&mut self, worker: u32) {
        let lmaps = self.host.control.drain_worker(self.now, WorkerId(worker), false, "a test");
        assert!(lmaps.as_ref().is_ok_and(|lmaps| *lmaps > 0), "it has nothing to do, or is the last: {lmaps:?}");
        let limit = self.now.plus(WITHIN);
        self.until("nothing is left", limit, |world| !world.placed().contains(&worker));
    }
}

#[test]
fn a_worker_that_is_drained_under_load_costs_no_service_more_than_a_row_and_all_stay_armed() {
    for seed in 0..SEEDS {
        // No model is handed over again before the moves ask for it.
        let mut world = World::quiet_with(seed, SERVICES as usize, Nanos::from_secs(300));
        // A second replica of each service registers first.
        let second = SERVICES as usize..2 * SERVICES as usize;
        second.for_each(|at| world.start_service(at));
        world.for_a_while(Nanos::from_secs(1));
        let begin = world.now;

        world.drain(0);
        world.for_a_while(Nanos::from_secs(2));
        world.host.control.undrain_worker(world.now, WorkerId(0)).expect("it exists");
        let limit = world.now.plus(WITHIN);
        world.until("it takes its share", limit, |world| world.placed().contains(&0));
        world.for_a_while(Nanos::from_secs(4));
        world.drain(1);
        // Its next run gets nothing either.
        world.restart_worker(1);
        world.for_a_while(Nanos::from_secs(2));

        assert_eq!(world.placed(), [0; SERVICES as usize], "seed {seed}");
        let gaps: Vec<Nanos> = (0..SERVICES as usize).map(|at| world.row_gap(at, begin)).collect();
        let moved = world.host.control.counters().moved_lmaps;
        assert!(moved >= SERVICES, "seed {seed}: {moved} moves");
        let limit = Nanos(2 * INTERVAL.0).plus(STEP);
        assert!(gaps.iter().all(|gap| *gap <= limit), "seed {seed}: a service missed more than a row: {gaps:?}");
        world.run(Nanos::ZERO);
    }
}

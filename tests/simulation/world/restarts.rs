//! A host agent that starts anew, without stored models, and workers that die soon after: what was learnt goes on.

use super::quiet::INTERVAL;
use super::*;

/// How often models are handed over: much later than everything here.
const MODELS_EVERY: Nanos = Nanos::from_secs(300);
/// Time from a restart of the host agent until it has all models: everything connects again within 50 ms here.
const HANDED_OVER: Nanos = Nanos::from_millis(400);
/// `UVIEW_SEED` runs a single one, as of the other simulation.
const SEEDS: u64 = 6;

#[test]
fn what_was_learnt_survives_a_host_agent_that_restarts_and_workers_that_die_soon_after() {
    let seeds = crate::from_environment("UVIEW_SEED").map_or(0..SEEDS, |seed| seed..seed + 1);
    for seed in seeds {
        let mut world = World::quiet_with(seed, SERVICES as usize, MODELS_EVERY);
        world.is_stored = false;
        world.for_a_while(Nanos::from_secs(2));
        let begin = world.now;

        world.restart_host();
        world.for_a_while(HANDED_OVER);
        for worker in 0..WORKERS as usize {
            world.restart_worker(worker);
        }
        world.for_a_while(Nanos::from_secs(4));

        let gaps: Vec<Nanos> = (0..SERVICES as usize).map(|at| world.gap(at, begin)).collect();
        // A detector that learns anew takes 20 rows.
        assert!(gaps.iter().all(|gap| *gap < Nanos(15 * INTERVAL.0)), "seed {seed}: some learnt anew: {gaps:?}");
        world.run(Nanos::ZERO);
    }
}

//! Workers that their device does not shut out.

use super::*;

fn unfenced(exposures: &Exposures) -> Vec<(WorkerId, String)> {
    exposures.unfenced().map(|(worker, why)| (worker, why.to_owned())).collect()
}

#[test]
fn a_worker_that_cannot_be_shut_out_is_named_tried_again_and_given_nothing_else_until_it_is() {
    for for_good in [true, false] {
        let (mut exposures, world) = exposures(10);
        assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
        world.lock().unwrap().is_deaf = true;

        exposures.stop(Nanos::ZERO, WORKER, for_good);
        assert_eq!(unfenced(&exposures), [(WORKER, "deaf".to_owned())]);
        let mut now = Nanos::ZERO;
        while now < LATER {
            let failed = exposures.fill(now, WORKER, &mut lmap(1, 1..=2), &memories(2));
            assert!(failed.len() == 2 && failed[0].1 == "deaf", "no other part of it is opened: {failed:?}");
            assert!(exposures.answer(now, WORKER, psn(), &end()).is_err());
            let next = exposures.next();
            assert!(now < next && next <= now.plus(Nanos::from_secs(30)));
            now = next;
            assert_eq!(exposures.poll(now), []);
            assert_eq!(unfenced(&exposures).len(), 1);
        }
        assert_eq!(log(&world), ["open"], "it is kept as it was");
        world.lock().unwrap().is_deaf = false;

        let mut renewed = Vec::new();
        while renewed.is_empty() {
            now = exposures.next();
            assert!(now < Nanos::NEVER, "it is tried again for ever");
            renewed = exposures.poll(now);
        }
        assert_eq!(renewed, [Renewal { worker: WORKER, lmaps: Lmaps::All }]);
        assert_eq!(unfenced(&exposures), []);
        assert_eq!(log(&world), ["open", "end", "gone", "open anew"]);
    }
}

#[test]
fn giving_up_its_device_does_not_shut_a_worker_out_that_the_device_does_not() {
    let (mut exposures, world) = exposures(10);
    assert_eq!(exposures.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
    world.lock().unwrap().is_deaf = true;

    assert!(exposures.answer(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!((unfenced(&exposures).len(), exposures.counts()), (1, (1, 0)));
    assert_eq!(log(&world), ["open"]);
}

#[test]
fn a_region_that_a_device_keeps_for_a_worker_that_it_does_not_shut_out_is_told_as_both() {
    let (mut exposures, world) = exposures(10);
    for worker in [0, 1] {
        assert_eq!(exposures.fill(Nanos::ZERO, WorkerId(worker), &mut lmap(1, [1]), &memories(1)), []);
    }
    world.lock().unwrap().is_deaf = true;
    world.lock().unwrap().is_stuck = true;

    assert_eq!(exposures.withdraw(Nanos::ZERO, RegionId(1)), 2);

    assert_eq!(unfenced(&exposures).len(), 2);
    assert_eq!(exposures.counts(), (2, 0));
}

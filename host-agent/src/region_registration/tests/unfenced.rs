//! Workers that their device does not fence.

use super::*;

fn unfenced(registrations: &Registrations) -> Vec<(WorkerId, String)> {
    registrations.unfenced().map(|(worker, why)| (worker, why.to_owned())).collect()
}

#[test]
fn a_worker_that_cannot_be_fenced_is_reported_retried_and_gets_nothing_else_until_it_is() {
    for for_good in [true, false] {
        let (mut registrations, world) = registrations(10);
        assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
        world.lock().unwrap().cannot_fence = true;

        registrations.stop(Nanos::ZERO, WORKER, for_good);
        assert_eq!(unfenced(&registrations), [(WORKER, chain(&cannot_fence()))]);
        let mut now = Nanos::ZERO;
        while now < LATER {
            let failed = registrations.fill(now, WORKER, &mut lmap(1, 1..=2), &memories(2));
            assert!(
                failed.len() == 2 && failed[0].1 == chain(&cannot_fence()),
                "no other part of it is opened: {failed:?}"
            );
            assert!(registrations.connect(now, WORKER, psn(), &end()).is_err());
            let next = registrations.next_deadline();
            assert!(now < next && next <= now.plus(Nanos::from_secs(30)));
            now = next;
            assert_eq!(registrations.poll(now), []);
            assert_eq!(unfenced(&registrations).len(), 1);
        }
        assert_eq!(log(&world), ["open"], "it is kept as it was");
        world.lock().unwrap().cannot_fence = false;

        let mut renewed = Vec::new();
        while renewed.is_empty() {
            now = registrations.next_deadline();
            assert!(now < Nanos::NEVER, "it is tried again for ever");
            renewed = registrations.poll(now);
        }
        assert_eq!(renewed, [Renewal { worker: WORKER, lmaps: AffectedLmaps::All }]);
        assert_eq!(unfenced(&registrations), []);
        assert_eq!(log(&world), ["open", "end", "gone", "open anew"]);
    }
}

#[test]
fn giving_up_a_device_does_not_fence_a_worker_that_the_device_does_not_fence() {
    let (mut registrations, world) = registrations(10);
    assert_eq!(registrations.fill(Nanos::ZERO, WORKER, &mut lmap(1, 1..=2), &memories(2)), []);
    world.lock().unwrap().cannot_fence = true;

    assert!(registrations.connect(Nanos::ZERO, WORKER, psn(), &end()).is_err());

    assert_eq!((unfenced(&registrations).len(), registrations.counts()), (1, (1, 0)));
    assert_eq!(log(&world), ["open"]);
}

#[test]
fn a_refused_deregistration_without_a_fence_is_reported_as_both() {
    let (mut registrations, world) = registrations(10);
    for worker in [0, 1] {
        assert_eq!(registrations.fill(Nanos::ZERO, WorkerId(worker), &mut lmap(1, [1]), &memories(1)), []);
    }
    world.lock().unwrap().cannot_fence = true;
    world.lock().unwrap().cannot_deregister = true;

    assert_eq!(registrations.deregister(Nanos::ZERO, RegionId(1)), 2);

    assert_eq!(unfenced(&registrations).len(), 2);
    assert_eq!(registrations.counts(), (2, 0));
}

//! Workers that operators drain.

use wire::id::WorkerId;

use super::super::testing::counter;
use super::moves::{Sent, set, two_lmaps};
use super::*;

impl Node {
    fn drain(&mut self, worker: u32, forced: bool) -> Result<usize, OperatorError> {
        let drained = self.plane.drain_worker(self.now, WorkerId(worker), forced, "user 7");
        self.step();
        drained
    }

    fn undrain(&mut self, worker: u32) {
        self.plane.undrain_worker(self.now, WorkerId(worker)).unwrap();
        self.step();
    }

    /// Who drains a worker, and how many LMAPs it runs.
    fn drained(&self, worker: usize) -> (Option<String>, u32) {
        let status = self.plane.status().workers.swap_remove(worker);
        (status.drained_by, status.lmaps)
    }
}

/// [`two_lmaps`] on worker 0, and worker 1, which has not got its share because both are busy moving: it has just come.
fn two_workers() -> Node {
    let mut node = two_lmaps();
    node.worker(51, 1, 2);
    node.step();
    node.obeyed(50);
    node.obeyed(51);
    node
}

#[test]
fn all_lmaps_of_a_drained_worker_move_with_what_was_learnt_and_it_gets_no_others() {
    let mut node = two_workers();

    assert_eq!(node.drain(0, false), Ok(2));
    assert_eq!(node.obeyed(50), [Sent::GiveModel(1), Sent::GiveModel(2)]);
    for (lmap, model) in [(1, b"one"), (2, b"two")] {
        node.learnt(50, lmap, model);
        assert_eq!(node.obeyed(51), [set(lmap, model)]);
        assert_eq!(node.worker_of(lmap), Some(0), "it is the one that counts until the next one reads");
        node.has_rows(51, lmap);
        assert_eq!((node.worker_of(lmap), node.obeyed(50)), (Some(1), vec![Sent::Remove(lmap)]));
    }
    assert_eq!((node.drained(0), node.drained(1)), ((Some("user 7".into()), 0), (None, 2)));

    node.replica(3, "new", &[counter("a")]);
    node.pass(Nanos::from_secs(4));
    assert_eq!((node.worker_of(3), node.obeyed(50)), (Some(1), vec![]), "though it has nothing to do");

    node.armed(51, &[1, 2, 3]);
    node.undrain(0);
    assert_eq!(node.drained(0), (None, 0));
    assert!(matches!(node.obeyed(51)[..], [Sent::Set { .. }, Sent::GiveModel(_), ..]), "it takes its share again");
}

#[test]
fn a_drain_holds_for_the_next_run_of_the_worker_and_what_that_ran_goes_elsewhere() {
    let mut node = two_workers();
    node.learnt(50, 1, b"one");
    node.drain(0, false).unwrap();

    // Killed, and started again.
    node.worker_gone(50);
    node.worker(52, 0, 3);
    node.pass(Nanos::from_secs(1));

    assert_eq!(node.obeyed(51), [set(1, b"one"), set(2, &[])]);
    assert_eq!((node.obeyed(52), node.drained(0)), (vec![], (Some("user 7".into()), 0)));
}

#[test]
fn the_last_worker_is_drained_by_force_only_and_its_lmaps_wait_with_what_was_learnt() {
    let mut node = two_lmaps();
    let refused = node.drain(0, false).unwrap_err();
    assert_eq!(refused, OperatorError::LastWorker(WorkerId(0)));
    assert!(refused.to_string().contains("nothing would be watched"), "{refused}");
    assert_eq!((node.drained(0), node.obeyed(50)), ((None, 2), vec![]));
    assert_eq!(node.drain(5, true), Err(OperatorError::NoWorker(WorkerId(5))));

    node.drain(0, true).unwrap();
    assert_eq!(node.obeyed(50), [Sent::GiveModel(1), Sent::GiveModel(2)]);
    node.learnt(50, 1, b"one");
    // It has none of the other LMAP: that is what force means.
    node.learnt(50, 2, b"");

    assert_eq!(node.obeyed(50), [Sent::Remove(1), Sent::Remove(2)]);
    assert_eq!((node.worker_of(1), node.drained(0)), (None, (Some("user 7".into()), 0)));
    let problems = node.plane.status().problems;
    assert!(
        problems[0].contains("every connected worker is drained") && problems[0].contains("undrain 0"),
        "{problems:?}"
    );
    node.worker(51, 1, 2);
    node.settle();
    assert_eq!(node.obeyed(51), [set(1, b"one"), set(2, &[])]);
    assert_eq!(node.plane.status().problems, [""; 0]);
}

#[test]
fn what_is_taken_off_the_last_worker_goes_to_one_that_joins_meanwhile() {
    let mut node = two_lmaps();
    node.drain(0, true).unwrap();
    node.worker(51, 1, 2);
    node.settle();
    assert_eq!(node.obeyed(51), []);

    node.learnt(50, 1, b"one");
    node.step();

    assert_eq!(node.obeyed(51), [set(1, b"one")]);
}

#[test]
fn what_learns_or_is_in_alarm_stays_until_it_can_move_or_is_forced_to() {
    let in_alarm = || {
        let mut node = two_workers();
        let epoch = node.plane.lmaps[&LmapId(1)].sent.as_ref().unwrap().epoch.0;
        node.verdict(50, LmapId(1), epoch);
        node.drain(0, false).unwrap();
        assert_eq!(node.obeyed(50), [Sent::GiveModel(2)]);
        node.learnt(50, 2, b"two");
        node.obeyed(51);
        node.has_rows(51, 2);
        assert_eq!((node.obeyed(50), node.drained(0).1), (vec![Sent::Remove(2)], 1));
        node
    };
    let mut node = in_alarm();
    node.plane.lmaps.get_mut(&LmapId(1)).unwrap().health.alarm = false;
    for _ in 0..4 {
        node.pass(Nanos::from_secs(3));
        node.armed(50, &[1]);
        node.armed(51, &[2]);
    }
    assert_eq!(node.obeyed(50), [Sent::GiveModel(1)], "it was tried again");

    let mut node = in_alarm();
    node.drain(0, true).unwrap();
    assert_eq!(node.obeyed(50), [Sent::GiveModel(1)]);
}

#[test]
fn a_worker_without_a_model_keeps_an_armed_lmap_unless_it_is_forced() {
    // It is computing one, or does not answer.
    for answers in [true, false] {
        let mut node = two_workers();
        node.learnt(50, 2, b"two");
        node.drain(0, false).unwrap();
        if answers {
            node.learnt(50, 1, b"");
            node.learnt(50, 2, b"");
        } else {
            node.pass(Nanos::from_millis(2_100));
        }
        assert_eq!(node.obeyed(51), [set(2, b"two")], "of the other one there is a model");
        node.obeyed(50);
        node.armed(50, &[1, 2]);
        for _ in 0..4 {
            node.pass(Nanos::from_secs(3));
            node.armed(50, &[1, 2]);
            node.armed(51, &[]);
        }
        assert!(node.obeyed(50).contains(&Sent::GiveModel(1)), "it was tried again");
        assert_eq!(node.worker_of(1), Some(0));
    }
}

#[test]
fn a_worker_of_an_older_release_keeps_its_armed_lmaps_unless_it_is_forced() {
    let mut node = two_workers();
    node.plane.workers.get_mut(&WorkerId(0)).unwrap().session.as_mut().unwrap().hands_over_models = false;

    node.drain(0, false).unwrap();
    assert_eq!((node.obeyed(50), node.obeyed(51)), (vec![], vec![]), "they would learn anew");
    node.drain(0, true).unwrap();
    assert_eq!(node.obeyed(51), [set(1, &[]), set(2, &[])]);
}

#[test]
fn few_lmaps_move_at_a_time_and_the_others_follow() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    let all: Vec<u32> = (1..=150).collect();
    for lmap in &all {
        node.replica(u64::from(*lmap), &format!("s{lmap}"), &[counter("a")]);
    }
    node.settle();
    node.obeyed(50);
    node.armed(50, &all);
    node.worker(51, 1, 2);
    node.step();
    node.drain(0, false).unwrap();

    let mut moved = 0;
    while node.drained(0).1 > 0 {
        let sent = node.obeyed(50);
        let asked: Vec<u32> =
            sent.iter().filter_map(|sent| if let Sent::GiveModel(lmap) = sent { Some(*lmap) } else { None }).collect();
        assert!((1..=64).contains(&asked.len()), "{sent:?}");
        for lmap in asked {
            node.learnt(50, lmap, b"model");
            node.obeyed(51);
            node.has_rows(51, lmap);
            moved += 1;
        }
        assert!(moved <= 150);
    }
    assert_eq!((moved, node.plane.counters().moved_lmaps), (150, 150));
}

#[test]
fn a_drained_worker_makes_nobody_ready() {
    let mut node = two_workers();
    let numbers = |node: &Node| {
        let WorkerReadiness { connected, taking, configured } = node.plane.worker_readiness();
        [connected, taking, configured]
    };
    assert_eq!(numbers(&node), [2, 2, 2]);

    node.drain(0, false).unwrap();
    assert_eq!(numbers(&node), [2, 1, 1]);
    node.drain(1, true).unwrap();
    assert_eq!(numbers(&node), [2, 0, 0]);

    node.undrain(1);
    assert_eq!(numbers(&node), [2, 1, 1]);
}

use wire::proto::operators::{LmapInfo, ReplicaInfo, StatusReply, WorkerStatus};

use super::*;

/// Every service is judged, by this worker; both workers are connected.
fn snapshot(worker: u32) -> Snapshot {
    let status = |service: &ShopService| LmapStatus {
        service: service.name.to_owned(),
        state: "armed".to_owned(),
        ..LmapStatus::default()
    };
    let info = |service: &ShopService| LmapInfo {
        service: service.name.to_owned(),
        worker,
        replicas: vec![ReplicaInfo { pid: 7, regions: 2, bytes: 8192, ..ReplicaInfo::default() }],
        ..LmapInfo::default()
    };
    let connected = |worker| WorkerStatus { worker, connected: true, ..WorkerStatus::default() };
    let status = StatusReply {
        incarnation: 1,
        workers: vec![connected(0), connected(1)],
        lmaps: SERVICES.iter().map(status).collect(),
        ..StatusReply::default()
    };
    Snapshot { status, lmaps: SERVICES.iter().map(info).collect() }
}

#[test]
fn everything_is_as_before_only_if_each_service_has_its_regions_and_is_judged_where_the_step_says() {
    let before = snapshot(0);
    let both = || vec![0, 1];
    let lacks = |now: &Snapshot, action| lacking(&before, now, (action, both()));

    assert_eq!(lacks(&snapshot(0), Action::HostAgent(Release::New)), None);
    assert_eq!(lacks(&snapshot(1), Action::Drain(0)), None);
    assert_eq!(lacks(&snapshot(0), Action::Drain(0)), Some("LMAPs are on workers {0}".to_owned()));
    assert_eq!(lacks(&snapshot(0), Action::Join(Release::New)), Some("LMAPs are on workers {0}".to_owned()));

    let mut gone = snapshot(0);
    gone.status.workers[1].connected = false;
    assert_eq!(lacks(&gone, Action::Wait), Some("worker 1 is not connected".to_owned()));
    let mut learning = snapshot(0);
    learning.status.lmaps[3].state = "learning".to_owned();
    assert_eq!(lacks(&learning, Action::Wait), Some("cart is learning".to_owned()));
    let mut other = snapshot(0);
    other.lmaps[0].replicas[0].regions = 3;
    assert!(lacks(&other, Action::Wait).is_some_and(|text| text.starts_with("store had process, regions and bytes")));
    let mut unplaced = snapshot(u32::MAX);
    unplaced.status.lmaps[0].state = "waiting".to_owned();
    assert_eq!(lacks(&unplaced, Action::Wait), Some("store is waiting".to_owned()));
}

#[test]
fn a_detector_that_settles_with_a_model_does_not_learn_anew() {
    let mut now = snapshot(0);
    for (number, needed) in [(0, 20), (1, 120)] {
        now.status.lmaps[number].state = "learning".to_owned();
        now.status.lmaps[number].rows_needed = needed;
    }

    assert_eq!(learning_anew(&now), ["payment"]);
}

#[test]
fn refusals_are_those_of_this_step_with_their_texts() {
    let with = |incarnation, workers| {
        let mut snapshot = snapshot(0);
        snapshot.status.incarnation = incarnation;
        let counters = [("refused_workers", workers), ("refused_hellos", 0), ("verdicts", 9)];
        snapshot.status.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        snapshot.status.problems = vec!["worker 0: protocols 2 to 2".to_owned()];
        snapshot
    };

    assert_eq!(refusals(&with(1, 3), &with(1, 3)), [""; 0]);
    assert_eq!(refusals(&with(1, 3), &with(1, 4)), ["refused_workers 4", "worker 0: protocols 2 to 2"]);
    assert_eq!(refusals(&with(1, 3), &with(2, 3))[0], "refused_workers 3", "another run counts from zero");
}

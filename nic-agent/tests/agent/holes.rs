//! Services that free memory which the agent reads.

use std::os::fd::AsFd as _;

use rustix::fs::{FallocateFlags, fallocate, fstat};
use wire::layout::{PAGE_BYTES, RegionSize, Slot};

use super::*;

/// Pages of the region into which holes are punched.
const PAGES: u32 = 1024;

/// An LMAP of region 2, with a counter in each page but the first.
fn sparse() -> proto::Lmap {
    let metric = |page| proto::Metric {
        metric: page,
        name: format!("m{page}"),
        kind: proto::Kind::Counter.into(),
        aggregation: "sum".to_owned(),
        ..proto::Metric::default()
    };
    let bytes = u64::from(PAGES) * PAGE_BYTES as u64;
    let region = proto::Region { region: 2, bytes, heartbeat: true, ..proto::Region::default() };
    let place = |page| proto::MetricPlace { metric: page, region: 2, first_slot: page * 512 };
    proto::Lmap {
        lmap: 2,
        service: "sparse".to_owned(),
        metrics: (1..PAGES).map(metric).collect(),
        replicas: vec![proto::Replica {
            replica: 2,
            instance: "sparse-1".to_owned(),
            regions: vec![region],
            places: (1..PAGES).map(place).collect(),
            uid: Some(65_534),
            ..proto::Replica::default()
        }],
        ..lmap(&[])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_punches_holes_is_not_read_any_more_and_another_one_is() {
    let size = RegionSize::new(u64::from(PAGES) * PAGE_BYTES as u64).unwrap();
    let regions = Regions::serve_sized([(1, RegionSize::ONE_PAGE), (2, size)]);
    let _alive = service(&regions, RegionId(1));
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));
    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(lmap(&[1]))).await;
    link.send(2, FromHost::SetLmap(sparse())).await;
    let samples = |message: &ToHost, lmap: u32| match message {
        ToHost::Summary(summary) => summary.lmaps.iter().find(|of| of.lmap == lmap).map_or(0, |of| of.samples),
        _ => 0,
    };
    link.wait(|message| samples(message, 2) > 0).await;

    let punched = regions.owned(RegionId(2));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let free =
        move || fallocate(punched.as_fd(), punch, PAGE_BYTES as u64, (size.bytes() - PAGE_BYTES) as u64).unwrap();
    let going = Arc::new(AtomicBool::new(true));
    let (still, touched) = (Arc::clone(&going), regions.owned(RegionId(2)));
    let puncher = std::thread::spawn(move || {
        while still.load(Relaxed) {
            free();
            for page in 1..PAGES {
                touched.slot(Slot(page * 512)).unwrap().fetch_add(1, Relaxed);
            }
        }
        free();
    });

    let problem = link.wait(|message| matches!(message, ToHost::RegionProblem(_))).await;
    let ToHost::RegionProblem(problem) = problem else { panic!("{problem:?}") };
    assert!(problem.region == 2 && problem.problem.contains("freed after they had been read"), "{problem:?}");
    // A summary of before may come after what is said of the region, another one does not.
    let earlier = link.wait(|message| samples(message, 1) > 0).await;
    let first = link.wait(|message| samples(message, 1) > samples(&earlier, 1)).await;
    let last = link.wait(|message| samples(message, 1) > samples(&first, 1) + 100).await;
    let [first, last] = [first, last].map(|message| match message {
        ToHost::Summary(summary) => summary.counters.unwrap(),
        other => panic!("{other:?}"),
    });
    let (ticks, fetched) = (last.ticks - first.ticks, last.fetched_regions - first.fetched_regions);
    assert!(ticks.abs_diff(fetched) <= 1, "holes are punched all the while: {fetched} regions in {ticks} ticks");
    assert_eq!(last.failed_regions, first.failed_regions, "it is left alone");
    going.store(false, Relaxed);
    puncher.join().unwrap();
    link.wait(|message| matches!(message, ToHost::Summary(summary) if summary.lmaps[1].silent_replicas == [2])).await;
    let blocks = fstat(regions.owned(RegionId(2)).as_fd()).unwrap().st_blocks;
    assert_eq!(blocks / 8, 1, "nothing of it was read since");
    agent.stop().await;
}

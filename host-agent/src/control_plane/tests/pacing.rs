//! Services that are fetched faster while something seems wrong, and what samples them.

use super::super::testing::counter;
use super::*;

fn interval(millis: u64) -> Interval {
    Interval::new(Nanos::from_millis(millis)).unwrap()
}

/// Rows every second, fetches every 100 ms.
fn adaptive() -> Settings {
    Settings { adaptive: Some(interval(100)), ..Settings::new(Incarnation(9), interval(1_000)) }
}

/// What was told last, since the last call, of services and the time between two fetches in ms.
fn told(node: &mut Node) -> Option<Vec<(String, u64)>> {
    let mut last = None;
    node.actions.retain(|action| match action {
        Action::Paces(paces) => {
            let of = |(service, pace): (&ServiceName, &Interval)| (service.to_string(), pace.length().as_millis());
            last = Some(paces.iter().map(of).collect());
            false
        }
        _ => true,
    });
    last
}

/// `services`, each with a fetch every 100 ms.
fn all(services: &[&str]) -> Vec<(String, u64)> {
    services.iter().map(|service| ((*service).to_owned(), 100)).collect()
}

/// A verdict about a row above γ, as worker 50 sends it.
fn row_above(node: &mut Node, lmap: LmapId, episode: proto::Episode) {
    let epoch = node.plane.lmaps[&lmap].sent.as_ref().unwrap().epoch.0;
    let row = Some(proto::RowScore { score: 20.0, ..proto::RowScore::default() });
    let (state, episode) = (proto::State::Armed.into(), episode.into());
    let verdict =
        proto::Verdict { lmap: lmap.0, epoch, score: 20.0, gamma: 4.0, state, episode, row, ..Default::default() };
    node.receive(50, FromWorker::Verdicts(proto::Verdicts { at_unix_ns: 1, verdicts: vec![verdict] }));
}

fn summary(node: &mut Node, lmap: LmapId, fetch_ms: u64) {
    let epoch = node.plane.lmaps[&lmap].sent.as_ref().unwrap().epoch.0;
    let (state, fetch_us) = (proto::State::Armed.into(), 1_000 * fetch_ms);
    let of = proto::LmapSummary { lmap: lmap.0, epoch, state, interval_us: 1_000_000, fetch_us, ..Default::default() };
    node.receive(50, FromWorker::Summary(proto::Summary { lmaps: vec![of], ..Default::default() }));
}

#[test]
fn a_row_above_gamma_makes_a_service_faster_at_once_and_summaries_say_how_fast_it_is_and_when_no_longer() {
    let mut node = Node::new(adaptive());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    summary(&mut node, id, 1_000);
    assert_eq!(told(&mut node), None, "nothing is wrong");

    row_above(&mut node, id, proto::Episode::Quiet);
    assert_eq!(told(&mut node), Some(all(&["cart"])));
    assert_eq!(node.plane.status().lmaps[0].fetch_us, 100_000);
    summary(&mut node, id, 100);
    row_above(&mut node, id, proto::Episode::Began);
    assert_eq!(told(&mut node), None, "that is known");

    // A long alarm is fetched for its rows, which are above γ.
    summary(&mut node, id, 1_000);
    assert_eq!(told(&mut node), Some(all(&[])));
    row_above(&mut node, id, proto::Episode::On);
    assert_eq!(told(&mut node), None);
}

#[test]
fn a_service_whose_worker_is_fenced_is_fetched_by_nobody() {
    let mut node = Node::new(adaptive());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    row_above(&mut node, id, proto::Episode::Began);
    assert_eq!(told(&mut node), Some(all(&["cart"])));

    node.pass(Nanos::from_secs(60));

    assert_eq!(told(&mut node), Some(all(&[])));
}

/// A worker of an earlier release joins, which takes the times of samples for counts.
fn earlier_worker(node: &mut Node, connection: u64, worker: u32) {
    let (transports, incarnation) = (vec!["shm".to_owned()], connection);
    let protocol = wire::control::PROTOCOL;
    let hello = proto::WorkerHello { protocol, worker, incarnation, transports, ..Default::default() };
    node.plane.worker_connected(node.now, ConnectionId(connection), &OWNER, &hello);
}

#[test]
fn samplers_keep_their_pace_for_a_worker_that_takes_their_times_for_counts() {
    let mut node = Node::new(adaptive());
    earlier_worker(&mut node, 50, 0);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();

    row_above(&mut node, id, proto::Episode::Began);
    summary(&mut node, id, 100);

    assert_eq!(told(&mut node), None);
    assert_eq!(node.plane.status().lmaps[0].fetch_us, 100_000, "it looks more often, at what is written");
}

#[test]
fn a_service_keeps_its_pace_as_long_as_such_a_worker_reads_it_in_another_lmap() {
    let mut node = Node::new(Settings { lease: Nanos::from_secs(60), ..adaptive() });
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    earlier_worker(&mut node, 51, 1);
    let members = vec![MemberChoices { service: service("cart"), choices: Vec::new() }];
    let options = LmapOptions { members, ..LmapOptions::default() };
    let shop = node.plane.new_lmap(node.now, &service("shop"), options).unwrap();
    node.settle();
    let workers = [id, shop].map(|lmap| node.plane.lmaps[&lmap].worker);
    assert_eq!(workers, [Some(WorkerId(0)), Some(WorkerId(1))]);

    row_above(&mut node, id, proto::Episode::Began);
    assert_eq!(told(&mut node), None);

    node.plane.delete_lmap(node.now, shop).unwrap();
    node.step();
    assert_eq!(told(&mut node), Some(all(&["cart"])));
}

/// Adds a replica of `cart` that this agent samples, as often as every `fastest` milliseconds.
fn sampled(node: &mut Node, connection: u64, fastest: Option<u64>) {
    let (id, name) = (ConnectionId(connection), format!("sampled-{connection}"));
    node.plane.agent_replica(id, service("cart"), InstanceName::new(&name).unwrap());
    if let Some(fastest) = fastest {
        node.plane.agent_fastest(id, interval(fastest));
    }
    let series = vec![placed(counter("a"), 0, 0)];
    node.plane.agent_region(node.now, id, RegionId(70 + connection), RegionSize::ONE_PAGE, series);
    node.settle();
}

#[test]
fn what_is_only_sampled_is_fetched_as_often_as_one_of_its_samplers_can_and_never_faster_if_none_can() {
    let mut node = Node::new(adaptive());
    node.worker(50, 0, 1);
    let fastest = |node: &mut Node| {
        let configured = node.set(50).pop().unwrap().1.fastest_us;
        assert_eq!(node.plane.status().lmaps[0].fastest_us, configured);
        configured
    };

    sampled(&mut node, 1, None);
    assert_eq!(fastest(&mut node), 0);
    sampled(&mut node, 2, Some(400));
    assert_eq!(fastest(&mut node), 400_000);
    sampled(&mut node, 3, Some(20));
    assert_eq!(fastest(&mut node), 100_000, "no faster than the configuration says");

    node.replica(4, "cart", &[counter("b")]);
    node.gone(3);
    node.settle();
    assert_eq!(fastest(&mut node), 100_000, "one writes its values itself");
}

#[test]
fn regions_that_samplers_write_say_when_and_those_of_services_do_not_unless_they_sample() {
    let mut node = Node::new(adaptive());
    node.worker(50, 0, 1);
    let times = |node: &mut Node| {
        let lmap = node.set(50).pop().unwrap().1;
        let regions = lmap.replicas.into_iter().flat_map(|replica| replica.regions);
        regions.map(|region| (region.heartbeat, region.sample_times)).collect::<Vec<_>>()
    };

    node.replica(1, "cart", &[counter("a")]);
    let own = vec![placed(counter("process.cpu.time"), 0, 0)];
    node.plane.agent_region(node.now, ConnectionId(1), RegionId(77), RegionSize::ONE_PAGE, own);
    node.settle();
    assert_eq!(times(&mut node), [(true, false), (false, true)]);

    for (connection, fastest) in [(2, None), (3, Some(interval(100)))] {
        node.connect(connection);
        let (name, instance) = (service("redis"), InstanceName::new(&format!("redis-{connection}")).unwrap());
        let hello =
            Hello { fastest, changes_every: Some(interval(1_000)), ..Hello::new(name, instance, Labels::default()) };
        node.service_sends(connection, ServiceMessage::Hello(hello));
        let _ = node.region(connection, 0);
        node.series(connection, counter("a"), 0);
    }
    node.settle();
    assert_eq!(times(&mut node), [(false, false), (false, true)]);
}

#[test]
fn what_this_agent_samples_at_other_times_has_a_region_and_times_of_its_own() {
    let mut node = Node::new(adaptive());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    for (region, metric) in [(77, "process.cpu.time"), (78, "process.context_switches"), (79, "process.more")] {
        let series = vec![placed(counter(metric), 0, 0)];
        node.plane.agent_region(node.now, ConnectionId(1), RegionId(region), RegionSize::ONE_PAGE, series);
    }
    node.settle();

    let regions = node.set(50).pop().unwrap().1.replicas.remove(0).regions;
    let told: Vec<_> = regions.iter().map(|of| (of.region, of.heartbeat, of.sample_times)).collect();
    assert_eq!(told[1..], [(78, false, true), (77, false, true)], "and series in each of them");
    assert!(told[0].1 && !told[0].2, "its own one");
    assert!(node.did(&Action::DropRegion(RegionId(79))));
}

//! Services, workers and hooks that behave.

use region::ReadMapping;
use tokio::sync::oneshot;
use transport::attach::Attacher;
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{Features, HostMessage, Row, Rows, Verdict, Verdicts, worker_message};
use wire::proto::operators::{DeleteLmapRequest, HookEvent, NewLmapRequest, RegisterHookRequest, WatchRowsRequest};

use crate::agent::{Agent, Operators, WAIT, addresses, config};
use crate::service::Service;
use crate::worker::Worker;

fn read(agent: &Agent, region: u64) -> Vec<u64> {
    let mut attacher = Attacher::connect(&agent.at.regions).unwrap();
    let memory = attacher.request(agent.incarnation(), RegionId(region), RegionSize::ONE_PAGE).unwrap();
    let mapping = ReadMapping::map(std::os::fd::AsFd::as_fd(&memory), RegionSize::ONE_PAGE).unwrap();
    let mut words = vec![0; RegionSize::ONE_PAGE.words()];
    mapping.copy_into(&mut words).unwrap();
    words
}

#[test]
fn a_services_value_is_at_the_place_in_the_workers_configuration() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a", "b"]);

    let (_, lmap) = worker.set_where(|lmap| lmap.metrics.len() == 2);

    let replica = &lmap.replicas[0];
    let b = lmap.metrics.iter().find(|metric| metric.name == "b").unwrap();
    let place = replica.places.iter().find(|place| place.metric == b.metric).unwrap();
    let words = read(&agent, place.region);
    assert_eq!(words[Slot(place.first_slot).word()], 101);
}

#[test]
fn a_retired_slot_comes_back_when_the_worker_has_forgotten_it() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (mut service, _region) = Service::register(&agent, "cart", &["a", "b"]);
    worker.set_where(|lmap| lmap.metrics.len() == 2);

    service.retire(1);
    service.wait_accepted(4);
    worker.set_where(|lmap| lmap.metrics.len() == 1);

    assert_eq!(service.wait_released().len(), 1);
}

#[test]
fn a_verdict_reaches_the_hook_by_name() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = worker.set();
    let mut operators = agent.operators();
    let request =
        RegisterHookRequest { lmaps: vec![lmap.lmap], min_share: 1.0, queue: 0, ..RegisterHookRequest::default() };
    let mut events = operators.runtime.block_on(operators.client.register_hook(request)).unwrap().into_inner();

    worker.verdict(&lmap, epoch, 1.0);
    worker.verdict(&lmap, epoch, 20.0);

    let event = operators.runtime.block_on(events.message()).unwrap().unwrap();
    assert_eq!((event.service.as_str(), event.score, event.gamma), ("cart", 20.0, 4.0));
    assert_eq!((event.state.as_str(), event.episode.as_str(), event.sequence, event.lost), ("armed", "quiet", 1, 0));
    drop((events, operators));
    // The live page and the book of incidents have one each.
    WAIT.until("the hook's end", || agent.get("/metrics").1.contains("uview_host_hooks 2\n").then_some(()));
}

#[test]
fn rows_are_subscribed_to_while_someone_watches() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = worker.set();
    let mut operators = agent.operators();
    let request = WatchRowsRequest { lmap: lmap.lmap, every: 3, ..WatchRowsRequest::default() };
    let mut rows = operators.runtime.block_on(operators.client.watch_rows(request)).unwrap().into_inner();
    let subscribed = worker.receive().unwrap().message;
    assert!(format!("{subscribed:?}").contains("every: 3"), "{subscribed:?}");

    let row = Row { at_unix_ns: 9, score: 1.5, values: vec![2.5] };
    worker.send(worker_message::Message::Rows(Rows { lmap: lmap.lmap, epoch, rows: vec![row] }));

    let event = operators.runtime.block_on(rows.message()).unwrap().unwrap();
    assert_eq!((event.columns, event.values, event.score), (vec!["a".to_owned()], vec![2.5], 1.5));
    drop((rows, operators));
    let ended = worker.receive().unwrap().message;
    assert!(format!("{ended:?}").contains("every: 0"), "{ended:?}");
}

#[test]
fn a_hook_that_asks_gets_the_row_and_its_residuals_by_name_and_workers_send_them_only_then() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a", "b"]);
    let (epoch, lmap) = worker.set_where(|lmap| lmap.metrics.len() == 2);
    let mut operators = agent.operators();
    let request = RegisterHookRequest { lmaps: vec![lmap.lmap], features: true, ..RegisterHookRequest::default() };
    let mut events = operators.runtime.block_on(operators.client.register_hook(request)).unwrap().into_inner();
    let subscribed = worker.receive().unwrap().message;
    assert!(matches!(&subscribed, Some(Message::SubscribeRows(of)) if of.features), "{subscribed:?}");

    for values in [vec![3.0, 4.0], vec![5.0, 6.0], vec![7.0]] {
        let residuals = vec![0.5; values.len()];
        let features = Some(Features { values, residuals });
        let of = (lmap.lmap, epoch, 20.0, 4.0, 2);
        let verdict =
            Verdict { lmap: of.0, epoch: of.1, score: of.2, gamma: of.3, state: of.4, features, ..Verdict::default() };
        worker.send(worker_message::Message::Verdicts(Verdicts { at_unix_ns: 1, verdicts: vec![verdict] }));
    }

    let mut next = || operators.runtime.block_on(events.message()).unwrap().unwrap();
    let (first, second, wrong) = (next(), next(), next());
    let values = |event: &HookEvent| event.features.as_ref().map(|features| features.values.clone());
    assert_eq!((&first.columns, &second.columns), (&vec!["a".to_owned(), "b".to_owned()], &vec![]));
    assert_eq!(first.features.unwrap().residuals, [0.5, 0.5]);
    assert_eq!((values(&second), values(&wrong)), (Some(vec![5.0, 6.0]), None), "a row of other columns has no names");
    drop((events, operators));
    let ended = loop {
        if let Some(Message::SubscribeRows(of)) = worker.receive().unwrap().message {
            break of;
        }
    };
    assert!(!ended.features, "{ended:?}");
}

/// What comes next in `stream`, within 20 s.
fn next<T>(runtime: &tokio::runtime::Runtime, stream: &mut tonic::Streaming<T>) -> Option<T> {
    let message = async { tokio::time::timeout(std::time::Duration::from_secs(20), stream.message()).await };
    runtime.block_on(message).expect("something comes within 20 s").unwrap()
}

#[test]
fn streams_of_a_deleted_lmap_end_with_that_word_and_go_on_with_its_successor_if_they_follow() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (_, lmap) = worker.set();
    let Operators { runtime, client } = &mut agent.operators();
    let lmap = lmap.lmap;
    let hook = |follow| RegisterHookRequest { lmaps: vec![lmap], follow, ..RegisterHookRequest::default() };
    let rows = |follow| WatchRowsRequest { lmap, every: 1, follow };
    let mut ends = runtime.block_on(client.register_hook(hook(false))).unwrap().into_inner();
    let mut follows = runtime.block_on(client.register_hook(hook(true))).unwrap().into_inner();
    let mut rows_end = runtime.block_on(client.watch_rows(rows(false))).unwrap().into_inner();
    let mut rows_follow = runtime.block_on(client.watch_rows(rows(true))).unwrap().into_inner();

    runtime.block_on(client.delete_lmap(DeleteLmapRequest { lmap })).unwrap();
    let request = NewLmapRequest { service: "cart".to_owned(), ..NewLmapRequest::default() };
    let successor = runtime.block_on(client.new_lmap(request)).unwrap().into_inner().lmap;

    let last = next(runtime, &mut ends).unwrap();
    let change = last.change.unwrap();
    assert_eq!((last.state.as_str(), change.deleted, change.last), ("deleted", lmap, true));
    assert_eq!(change.reason, "an operator deleted it");
    assert!(next(runtime, &mut ends).is_none(), "the stream ends in order");
    assert!(next(runtime, &mut rows_end).unwrap().change.unwrap().last);
    assert!(next(runtime, &mut rows_end).is_none());
    let told = [0, 1].map(|_| next(runtime, &mut follows).unwrap().change.unwrap());
    assert_eq!(
        told.map(|change| (change.deleted, change.successor, change.last)),
        [(lmap, 0, false), (lmap, successor, false)]
    );
    let told = [0, 1].map(|_| next(runtime, &mut rows_follow).unwrap().change.unwrap().successor);
    assert_eq!(told, [0, successor]);
    let (epoch, of_successor) = worker.set_where(|set| set.lmap == successor);
    worker.verdict(&of_successor, epoch, 20.0);
    let event = next(runtime, &mut follows).unwrap();
    assert_eq!((event.lmap, event.score), (successor, 20.0));
}

#[test]
fn a_registered_process_is_measured_beside_its_own_metrics() {
    let agent = Agent::with("lmap: {interval_ms: 100}\n");
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);

    let (_, lmap) = worker.set_where(|lmap| lmap.metrics.len() > 15 && lmap.metrics.iter().any(|m| m.name == "a"));

    let metric = |name: &str| lmap.metrics.iter().find(|metric| metric.name == name).unwrap();
    let usage = metric("process.memory.usage");
    let place = lmap.replicas[0].places.iter().find(|place| place.metric == usage.metric).unwrap();
    assert!(read(&agent, place.region)[Slot(place.first_slot).word()] > 100_000);
    let region = lmap.replicas[0].regions.iter().find(|region| region.region == place.region).unwrap();
    assert!(!region.heartbeat);
    assert_eq!(metric("process.cpu.time").every, 1);
    assert_eq!(metric("process.open_file_descriptor.count").every, 10);
    let accounts = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").is_ok_and(|text| text == "1\n");
    let waits = lmap.metrics.iter().any(|metric| metric.name == "process.disk.wait_time");
    assert_eq!(waits, accounts, "a column for waiting is there where the kernel accounts for it, and only there");
}

#[test]
fn the_agent_exports_metrics_and_health_over_http() {
    let agent = Agent::start();
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);

    let (head, metrics) = agent.get("/metrics");

    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
    assert!(metrics.contains("uview_host_accepted_series_total 1\n"), "{metrics}");
    assert!(metrics.contains("uview_host_unplaced_lmaps 1\n"), "{metrics}");
    assert!(metrics.contains("uview_host_build_info{version="), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
    assert_eq!(agent.get("/healthz").1, "ok\n");
    assert!(agent.get("/nothing").0.starts_with("HTTP/1.1 404"));
}

#[test]
fn the_agent_is_ready_with_a_configured_worker_once_no_service_comes_back() {
    let agent = Agent::start();
    let (head, body) = agent.get("/readyz");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(body, "not ready: no worker is connected\n");
    assert_eq!(agent.get("/healthz").1, "ok\n", "it lives");
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);

    let mut worker = Worker::connect(&agent, 0);
    let sent = worker.receive().unwrap();
    assert_eq!(agent.get("/readyz").1, "not ready: no worker has acknowledged its configuration\n");
    worker.acknowledge(sent.epoch);

    WAIT.until("readiness", || (agent.get("/readyz").1 == "ready\n").then_some(()));
    drop(worker);
    WAIT.until("the worker's end", || (agent.get("/readyz").1 == "not ready: no worker is connected\n").then_some(()));
}

#[test]
fn on_shutdown_all_connections_are_closed_and_no_file_is_left() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (mut service, _region) = Service::register(&agent, "cart", &["a"]);
    worker.set();
    let mut operators = agent.operators();
    let request = RegisterHookRequest::default();
    let mut events = operators.runtime.block_on(operators.client.register_hook(request)).unwrap().into_inner();
    // A hook for all verdicts was registered: from now on the worker sends all above the configured share.
    let share = |message: HostMessage| match message.message {
        Some(Message::SetLowestShare(set)) => set.share,
        other => panic!("{other:?}"),
    };
    assert_eq!(worker.receive().map(share), Some(0.5));

    let folder = agent.stop();

    assert!(service.wait_closed().is_empty());
    // The hook's end may still be reported.
    while let Some(message) = worker.receive() {
        assert_eq!(share(message), 1.0);
    }
    assert!(matches!(operators.runtime.block_on(events.message()), Ok(None)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_runtime_directory_that_the_agent_made_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("made/run");
    let config = config(&run, "process_metrics: {enabled: false}\n");
    let (stop, stopped) = oneshot::channel::<()>();
    let agent = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(host_agent::run(config, async move { _ = stopped.await }))
    });
    WAIT.until("host-agent.json", || addresses(&run).map(drop));

    drop(stop);

    agent.join().unwrap().unwrap();
    assert!(!run.exists(), "{:?}", std::fs::read_dir(&run).map(Iterator::count));
}

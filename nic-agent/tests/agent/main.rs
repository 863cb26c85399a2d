//! The NIC agent as it runs: real threads and sockets, shared memory, and a host agent that is controlled by the test.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod broken;
mod ending;
mod holes;
mod host;
mod memory;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use host::{End, Host, worker_config};
use memory::Regions;
use nic_agent::Aggregations;
use nic_agent::config::{ClientTls, Config};
use support::http::exchange;
use support::wait::Wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wire::id::RegionId;
use wire::name::MetricName;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as ToHost;

/// Timeout for expected events; generous, for a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
/// How tests wait for a condition.
const WAIT: Wait = Wait::up_to(LIMIT);

/// A NIC agent in this process.
struct Agent {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), nic_agent::RunError>>,
}

impl Agent {
    fn start(config: Config) -> Self {
        Self::start_with(config, Aggregations::default())
    }

    fn start_with(config: Config, aggregations: Aggregations) -> Self {
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(nic_agent::run_with(config, aggregations, async {
            let _ = stopped.await;
        }));
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(LIMIT, self.ended).await.expect("it ends").unwrap().unwrap();
    }
}

/// Runs a service, which raises its heartbeat and counts until the returned flag is false.
fn service(regions: &Arc<Regions>, region: RegionId) -> Arc<AtomicBool> {
    let (regions, alive) = (Arc::clone(regions), Arc::new(AtomicBool::new(true)));
    let still = Arc::clone(&alive);
    std::thread::spawn(move || {
        let region = regions.owned(region);
        let mut noise = 1_u64;
        // Ends with the test, or when the flag is false.
        while still.load(Relaxed) && Arc::strong_count(&still) > 1 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let small = noise >> 60;
            region.beat();
            region.slot(wire::layout::Slot(0)).unwrap().fetch_add(100 + small, Relaxed);
            let gauge = 50.0 + small as f64;
            region.slot(wire::layout::Slot(1)).unwrap().store(gauge.to_bits(), Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    alive
}

fn lmap(regions: &[u64]) -> proto::Lmap {
    let metric = |metric, name: &str, kind: proto::Kind, aggregation: &str| proto::Metric {
        metric,
        name: name.to_owned(),
        kind: kind.into(),
        aggregation: aggregation.to_owned(),
        ..proto::Metric::default()
    };
    let replica = |region: &u64| proto::Replica {
        replica: *region as u32,
        instance: format!("cart-{region}"),
        regions: vec![proto::Region { region: *region, bytes: 4096, heartbeat: true, ..proto::Region::default() }],
        places: (1..=2).map(|metric| proto::MetricPlace { metric, region: *region, first_slot: metric - 1 }).collect(),
        uid: Some(1000),
        ..proto::Replica::default()
    };
    proto::Lmap {
        lmap: 1,
        service: "cart".to_owned(),
        interval_us: 5_000,
        heartbeat_ms: 300,
        metrics: vec![
            metric(1, "requests", proto::Kind::Counter, "sum"),
            metric(2, "load", proto::Kind::Gauge, "mean"),
        ],
        replicas: regions.iter().map(replica).collect(),
        model: Vec::new(),
        ..proto::Lmap::default()
    }
}

fn state_of(message: &ToHost) -> Option<proto::State> {
    match message {
        ToHost::Verdicts(verdicts) => verdicts.verdicts.last().map(proto::Verdict::state),
        ToHost::Summary(summary) => summary.lmaps.first().map(proto::LmapSummary::state),
        _ => None,
    }
}

/// The silent replicas of the first LMAP, if the message has them. On a busy machine, a replica that is alive may be
/// among them for a while.
fn silent_in(message: &ToHost) -> Option<&[u32]> {
    match message {
        ToHost::Verdicts(verdicts) => verdicts.verdicts.last().map(|verdict| &*verdict.silent_replicas),
        ToHost::Summary(summary) => summary.lmaps.first().map(|lmap| &*lmap.silent_replicas),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_arms_itself_on_shared_memory_and_notices_silence() {
    let regions = Regions::serve([1, 2]);
    let _first = service(&regions, RegionId(1));
    let second = service(&regions, RegionId(2));
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(lmap(&[1, 2]))).await;
    link.wait(|message| matches!(message, ToHost::Acknowledgement(acknowledge) if acknowledge.epoch == 1)).await;
    link.wait(|message| state_of(message) == Some(proto::State::Armed)).await;
    second.store(false, Relaxed);
    link.wait(|message| state_of(message) == Some(proto::State::Silent) && silent_in(message) == Some(&[2])).await;

    let summary = link.wait(|message| matches!(message, ToHost::Summary(_))).await;
    let ToHost::Summary(summary) = summary else { panic!("{summary:?}") };
    let counters = summary.counters.unwrap();
    assert!(counters.fetched_regions > 200 && counters.cpu_ns > 0, "{counters:?}");
    assert_eq!((counters.failed_regions, counters.unexpected_messages), (0, 0));

    agent.stop().await;
    assert_eq!(link.end().await, End::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_comes_back_as_the_same_run_after_a_lost_connection_and_as_another_after_a_refusal() {
    let regions = Regions::serve([1]);
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    let first = link.hello.incarnation;
    drop(link);
    let mut link = host.accept().await;
    assert_eq!(link.hello.incarnation, first);
    link.send(0, FromHost::Refusal(proto::Refusal { reason: "fenced".into() })).await;
    let link = host.accept().await;

    assert_ne!(link.hello.incarnation, first);
    assert_eq!((link.hello.worker, link.hello.transports.clone()), (3, vec!["shm".to_owned()]));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_agent_that_talks_nonsense_hurts_nobody() {
    let regions = Regions::serve([1]);
    let _alive = service(&regions, RegionId(1));
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.send(5, FromHost::RemoveLmap(proto::RemoveLmap { lmap: 9 })).await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(lmap(&[1]))).await;
    link.send(2, FromHost::SetLmap(proto::Lmap { lmap: 2, interval_us: 1, ..lmap(&[1]) })).await;
    let mut wrong = lmap(&[1]);
    wrong.replicas[0].places[0].first_slot = u32::MAX;
    link.send(3, FromHost::SetLmap(proto::Lmap { lmap: 3, ..wrong })).await;
    link.wait(|message| matches!(message, ToHost::Acknowledgement(acknowledge) if acknowledge.epoch == 3)).await;
    link.wait(|message| state_of(message) == Some(proto::State::Armed)).await;

    let counted = link.wait(|message| matches!(message, ToHost::Summary(_))).await;
    let ToHost::Summary(summary) = counted else { panic!("{counted:?}") };
    assert_eq!(summary.counters.unwrap().unexpected_messages, 3);

    // An epoch is missing: only a new connection repairs that.
    link.send(9, FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).await;
    let again = host.accept().await;
    assert_eq!(again.hello.incarnation, link.hello.incarnation);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_cannot_be_had_are_reported_one_by_one_and_the_others_are_read() {
    let regions = Regions::serve([1]);
    let _alive = service(&regions, RegionId(1));
    regions.give_garbage(RegionId(7));
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(lmap(&[1, 5, 7]))).await;
    let mut problems = std::collections::BTreeMap::new();
    while problems.len() < 2 {
        let message = link.wait(|message| matches!(message, ToHost::RegionProblem(_))).await;
        if let ToHost::RegionProblem(problem) = message {
            problems.insert(problem.region, problem.problem);
        }
    }

    assert!(problems[&5].contains("no such region"), "{problems:?}");
    assert!(problems.contains_key(&7), "{problems:?}");
    link.wait(|message| state_of(message) == Some(proto::State::Silent)).await;
    link.wait(|message| {
        matches!(message, ToHost::Summary(summary) if summary.lmaps[0].samples > 50)
            && silent_in(message) == Some(&[5, 7])
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregation_of_ones_own_makes_the_values_and_without_it_the_host_agent_is_told() {
    let regions = Regions::serve([1, 2]);
    let (_first, _second) = (service(&regions, RegionId(1)), service(&regions, RegionId(2)));
    let mut wanted = lmap(&[1, 2]);
    wanted.metrics[1].aggregation = "shifted".to_owned();
    let rows = FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 1, features: false, columns: false });
    let mut host = Host::start(None).await;
    let mut aggregations = Aggregations::default();
    let shifted = |values: &[f64]| 1000.0 + values.iter().copied().fold(f64::MIN, f64::max);
    aggregations.add(MetricName::new("shifted").unwrap(), shifted);

    let agent = Agent::start_with(worker_config(&host, &regions), aggregations);
    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(wanted.clone())).await;
    link.send(0, rows).await;
    let has_load =
        |rows: &proto::Rows| rows.rows.iter().any(|row| row.values.get(1).is_some_and(|load| *load > 1049.0));
    link.wait(|message| matches!(message, ToHost::Rows(rows) if has_load(rows))).await;
    agent.stop().await;

    let stranger = Agent::start(worker_config(&host, &regions));
    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(wanted)).await;
    let message = link.wait(|message| matches!(message, ToHost::LmapProblem(_))).await;
    let ToHost::LmapProblem(problem) = message else { panic!("{message:?}") };
    assert!(problem.lmap == 1 && problem.problem.contains("no aggregation is named shifted"), "{problem:?}");
    stranger.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_none_is_said_with_its_cause_and_the_lmap_arms_itself() {
    let regions = Regions::serve([1]);
    let _alive = service(&regions, RegionId(1));
    let mut host = Host::start(None).await;
    let agent = Agent::start(worker_config(&host, &regions));

    let mut link = host.accept().await;
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(proto::Lmap { model: vec![7], ..lmap(&[1]) })).await;
    let message = link.wait(|message| matches!(message, ToHost::LmapProblem(_))).await;

    let ToHost::LmapProblem(problem) = message else { panic!("{message:?}") };
    assert!(problem.problem.contains("learns by itself: not a model file"), "{problem:?}");
    link.wait(|message| state_of(message) == Some(proto::State::Armed)).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_client_certificates_works_and_without_one_nobody_is_let_in() {
    let file = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name);
    let regions = Regions::serve([1]);
    let mut host = Host::start(Some(&file(""))).await;
    let own = (Some(file("worker.pem")), Some(file("worker.key")));
    let tls = |(certificate, key)| {
        let domain = Some("host-agent.test".to_owned());
        Some(ClientTls { ca: file("ca.pem"), domain, certificate, key })
    };

    let mut config = worker_config(&host, &regions);
    config.control.tls = tls((None, None));
    let stranger = Agent::start(config.clone());
    config.control.tls = tls(own);
    config.worker = 4;
    let agent = Agent::start(config);
    let mut link = host.accept().await;
    link.welcome(1).await;
    link.wait(|message| matches!(message, ToHost::Summary(_))).await;

    assert_eq!(link.hello.worker, 4);
    assert!(host.has_no_other(), "the one without a certificate was let in");
    agent.stop().await;
    stranger.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_health_are_served_without_any_host_agent() {
    let (held, address) = free_port();
    let mut config = Config::default();
    config.control.address = "127.0.0.1:1".to_owned();
    config.control.insecure = true;
    config.metrics.listen = address;
    drop(held);
    let agent = Agent::start(config);

    let metrics = page(address, "/metrics").await;
    let health = page(address, "/healthz").await;

    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
    assert!(metrics.contains("uview_nic_host_connected 0") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    agent.stop().await;
}

/// A field of `/proc/…/status`.
fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Cores on which the threads of workers in this process may run, as the kernel writes them.
fn cores_of_workers() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let of_workers = statuses.filter(|status| field(status, "Name") == Some("worker"));
    of_workers.filter_map(|status| field(&status, "Cpus_allowed_list").map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_thread_of_a_worker_runs_on_the_core_that_it_is_given_and_the_others_anywhere() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let all = field(&status, "Cpus_allowed_list").unwrap();
    let core: String = all.chars().take_while(char::is_ascii_digit).collect();
    let (held, address) = free_port();
    let mut config = Config { core: Some(core.parse().unwrap()), ..Config::default() };
    config.control.address = "127.0.0.1:1".to_owned();
    config.control.insecure = true;
    config.metrics.listen = address;
    drop(held);
    let agent = Agent::start(config);

    let pinned = async || {
        let cores = cores_of_workers();
        if cores.contains(&core) { Ok(()) } else { Err(cores) }
    };
    WAIT.until_async(&format!("a worker runs on core {core} of {all}"), pinned).await;

    assert_eq!(field(&std::fs::read_to_string("/proc/self/status").unwrap(), "Cpus_allowed_list"), Some(all));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_ready_when_it_is_welcome_and_each_region_is_attached_or_reported() {
    let regions = Regions::serve([1]);
    let _alive = service(&regions, RegionId(1));
    let mut host = Host::start(None).await;
    let (held, address) = free_port();
    let mut config = worker_config(&host, &regions);
    config.metrics.listen = address;
    drop(held);
    let agent = Agent::start(config);

    let mut link = host.accept().await;
    let before = page(address, "/readyz").await;
    assert!(before.starts_with("HTTP/1.1 503") && before.ends_with("not ready: no session with the host agent\n"));
    assert!(page(address, "/healthz").await.starts_with("HTTP/1.1 200"), "it lives");
    link.welcome(1).await;
    link.send(1, FromHost::SetLmap(lmap(&[1, 5]))).await;
    link.wait(|message| matches!(message, ToHost::RegionProblem(problem) if problem.region == 5)).await;
    WAIT.until_async("it is ready", async || is_ready(address).await).await;

    drop(link);
    WAIT.until_async("it is not ready", async || !is_ready(address).await).await;
    agent.stop().await;
}

async fn is_ready(address: std::net::SocketAddr) -> bool {
    page(address, "/readyz").await.starts_with("HTTP/1.1 200")
}

/// The answer on a Unix socket, as the user of the calling thread.
fn answer(socket: &std::path::Path, path: &str) -> String {
    let stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let response = exchange(stream, &format!("GET {path}"), "", &[]).unwrap();
    response.head.clone() + "\r\n\r\n" + &response.text().unwrap()
}

/// [`answer`] to another user.
fn answer_to(user: u32, socket: &std::path::Path, path: &str) -> String {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            answer(socket, path)
        });
        asking.join().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_for_viewers_on_a_socket_and_for_nobody_on_the_port() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("models.sock");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (held, address) = free_port();
    let mut config = Config::default();
    config.control.address = "127.0.0.1:1".to_owned();
    config.control.insecure = true;
    config.metrics.listen = address;
    config.models.socket = Some(socket.clone());
    config.access = Config::parse("access: {viewers: {users: [54321]}}\n").unwrap().access;
    drop(held);
    let agent = Agent::start(config);

    assert!(page(address, "/models/cart").await.starts_with("HTTP/1.1 404"));
    let own = answer(&socket, "/models/cart");
    assert!(own.starts_with("HTTP/1.1 404") && own.contains("no model of cart"), "{own}");
    if rustix::process::geteuid().is_root() {
        let viewer = answer_to(54_321, &socket, "/models/cart");
        assert!(viewer.contains("no model of cart"), "{viewer}");
        let other = answer_to(54_322, &socket, "/models/cart");
        assert!(other.starts_with("HTTP/1.1 403") && other.contains("may not read models"), "{other}");
        assert!(page(address, "/metrics").await.contains("uview_nic_denied_calls_total 1\n"));
    } else {
        support::harness::not_run("other users need root");
    }
    agent.stop().await;
    assert!(!socket.exists(), "removed at the end");
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_with_the_address() {
    let (_held, address) = free_port();
    let mut config = Config::default();
    config.metrics.listen = address;

    let error = nic_agent::run(config, async {}).await.unwrap_err();

    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// A free port, and the listener that reserves it until it is dropped. No other test uses its address.
fn free_port() -> (std::net::TcpListener, std::net::SocketAddr) {
    let held = std::net::TcpListener::bind("127.0.0.8:0").unwrap();
    let address = held.local_addr().unwrap();
    (held, address)
}

/// Requests a page until the agent listens.
async fn page(address: std::net::SocketAddr, path: &str) -> String {
    let ask = async {
        loop {
            let Ok(mut stream) = TcpStream::connect(address).await else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            return answer;
        }
    };
    tokio::time::timeout(LIMIT, ask).await.unwrap()
}

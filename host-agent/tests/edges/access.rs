//! Who may do what: another user of this machine against the sockets of a running agent. Needs root, to be another
//! user.

use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use axum::http::Request;
use region::OwnedRegion;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower_service::Service as _;
use wire::layout::RegionSize;

use crate::agent::Agent;
use crate::service::Service;
use crate::worker::{Worker, hello};

/// A user of no rights, as `nobody` is on most systems.
pub const NOBODY: u32 = 65_534;

/// An agent whose directory others may enter, as /run/uview; `None` without root, which is said.
fn agent(access: &str) -> Option<Agent> {
    if !rustix::process::geteuid().is_root() {
        support::harness::not_run("access of other users needs root");
        return None;
    }
    let agent = Agent::with(&format!("process_metrics: {{enabled: false}}\n{access}\n"));
    std::fs::set_permissions(agent.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(agent)
}

/// Runs `call` on a thread that is user and group `id`, and in `groups`.
pub fn as_user<T: Send>(id: u32, groups: &[u32], call: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            call()
        });
        thread.join().unwrap()
    })
}

const DENIED: Code = Code::PermissionDenied;

/// How each call of the operators' API ends whose request is empty: for a stranger, a viewer and an operator. What
/// comes after the role was looked at says so by another code.
static OUTCOMES: [(&str, [Code; 3]); 22] = [
    ("NewLmap", [DENIED, DENIED, Code::InvalidArgument]),
    ("ConfigLmap", [DENIED, DENIED, Code::NotFound]),
    ("DeleteLmap", [DENIED, DENIED, Code::NotFound]),
    ("AddMetric", [DENIED, DENIED, Code::InvalidArgument]),
    ("DeleteMetric", [DENIED, DENIED, Code::NotFound]),
    ("RegisterHook", [DENIED, DENIED, Code::Ok]),
    ("ResumeHook", [DENIED, DENIED, Code::NotFound]),
    ("FitAgain", [DENIED, DENIED, Code::NotFound]),
    ("SetInterval", [DENIED, DENIED, Code::InvalidArgument]),
    ("SetModel", [DENIED, DENIED, Code::NotFound]),
    ("DrainWorker", [DENIED, DENIED, Code::NotFound]),
    ("UndrainWorker", [DENIED, DENIED, Code::NotFound]),
    ("Trigger", [DENIED, DENIED, Code::InvalidArgument]),
    ("WatchRows", [DENIED, Code::NotFound, Code::NotFound]),
    ("List", [DENIED, Code::Ok, Code::Ok]),
    ("Status", [DENIED, Code::Ok, Code::Ok]),
    ("Receipt", [DENIED, Code::Ok, Code::Ok]),
    ("Paths", [DENIED, Code::FailedPrecondition, Code::FailedPrecondition]),
    ("Sources", [DENIED, Code::Ok, Code::Ok]),
    ("Incidents", [DENIED, Code::Ok, Code::Ok]),
    ("Incident", [DENIED, Code::NotFound, Code::NotFound]),
    ("OpenPage", [DENIED, Code::Ok, Code::Ok]),
];

/// The rows of [`OUTCOMES`] with `reads`: those of calls that viewers may make, or those of all others.
pub fn calls(reads: bool) -> impl Iterator<Item = (&'static str, Code)> {
    let rows = OUTCOMES.iter().filter(move |(_, [_, viewer, _])| (*viewer != DENIED) == reads);
    rows.map(|(name, [.., operator])| (*name, *operator))
}

/// The outcome of `call` with these bytes as its request, on a channel of its own.
pub fn outcome(agent: &Agent, call: &str, body: tonic::body::Body) -> Result<(), Status> {
    let request = Request::post(format!("/uview.operators.v1.Operators/{call}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = Endpoint::from_shared(agent.at.operators.clone()).unwrap();
    let response = runtime.block_on(async {
        let mut channel = endpoint.connect().await.unwrap();
        core::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        channel.call(request).await.unwrap()
    });
    // One that succeeds says so behind its reply.
    Status::from_header_map(response.headers()).map_or(Ok(()), Err)
}

/// An empty message.
pub fn nothing() -> tonic::body::Body {
    tonic::body::Body::new(axum::body::Body::from(vec![0; 5]))
}

/// The outcome of each call with an empty request, in the order of [`OUTCOMES`].
fn outcomes(agent: &Agent) -> Vec<Result<(), Status>> {
    OUTCOMES.iter().map(|(name, _)| outcome(agent, name, nothing())).collect()
}

/// Compares outcomes with a column of [`OUTCOMES`].
#[track_caller]
fn assert_outcomes(found: &[Result<(), Status>], column: usize) {
    for ((name, expected), found) in OUTCOMES.iter().zip(found) {
        let code = found.as_ref().map_or_else(Status::code, |()| Code::Ok);
        assert_eq!(code, expected[column], "{name}: {found:?}");
    }
}

#[test]
fn the_table_of_outcomes_has_each_call_of_the_api() {
    const API: &str = include_str!("../../../wire/proto/operators.proto");
    let rpcs = API.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());

    let (mut of_api, mut rows): (Vec<_>, Vec<_>) = (rpcs.collect(), OUTCOMES.iter().map(|(name, _)| *name).collect());

    of_api.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, of_api, "left: the table; right: the API");
}

#[test]
fn any_other_user_is_neither_operator_nor_viewer() {
    let Some(agent) = agent("") else { return };

    let found = as_user(NOBODY, &[], || outcomes(&agent));

    assert_outcomes(&found, 0);
    for refused in &found {
        let text = refused.as_ref().unwrap_err().message();
        assert!(text.contains(" may not ") && text.contains("it needs the role") && text.contains("To grant it: "));
    }
    let at = OUTCOMES.iter().position(|(name, _)| *name == "Status").unwrap();
    let text = found[at].as_ref().unwrap_err().message();
    assert!(text.contains("may not read the status") && text.contains("usermod -aG uview"), "{text}");
    assert_eq!(agent.counter("denied_calls"), 22);
    // The same user is anybody's equal where services register.
    assert!(agent.status().lmaps.is_empty());
}

#[test]
fn a_viewer_reads_and_changes_nothing_and_an_operator_does_both() {
    let Some(agent) = agent("access: {operators: {users: [7001]}, viewers: {groups: [7002]}}") else { return };

    assert_outcomes(&as_user(NOBODY, &[7002], || outcomes(&agent)), 1);
    assert_outcomes(&as_user(7001, &[], || outcomes(&agent)), 2);
}

/// The outcome of a `ConfigLmap` whose message is said to have `length` bytes, and of which `bytes` come. The rest
/// never does.
fn config_lmap(agent: &Agent, length: u32, bytes: Vec<u8>) -> Status {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    let head = [[0].as_slice(), &length.to_be_bytes()].concat();
    for chunk in [head, bytes] {
        sender.try_send(Ok::<_, std::io::Error>(chunk)).unwrap();
    }
    let body = axum::body::Body::from_stream(ReceiverStream::new(receiver));
    let refused = outcome(agent, "ConfigLmap", tonic::body::Body::new(body)).unwrap_err();
    drop(sender);
    refused
}

#[test]
fn of_strangers_nothing_is_read_and_of_operators_no_more_is_decoded_than_an_lmap_can_have() {
    let Some(agent) = agent("") else { return };

    let stranger = as_user(NOBODY, &[], || config_lmap(&agent, 15 << 20, vec![0x12, 0]));
    // Metrics without a name: two bytes each on the wire, a hundred in memory.
    let empty = [0x12, 0].repeat(1 << 20);
    let operator = config_lmap(&agent, empty.len() as u32, empty);
    let long = config_lmap(&agent, 15 << 20, vec![0; 5 << 20]);

    assert_eq!(stranger.code(), Code::PermissionDenied, "{stranger:?}");
    assert_eq!(operator.code(), Code::InvalidArgument, "{operator:?}");
    assert!(operator.message().starts_with("1048576 elements of field 2 in one message"), "{operator:?}");
    assert_eq!(long.code(), Code::OutOfRange, "{long:?}");
}

#[test]
fn another_user_is_no_worker_and_the_real_one_is_not_disturbed() {
    let Some(agent) = agent("") else { return };
    let _worker = Worker::connect(&agent, 0);

    let refused = as_user(NOBODY, &[], || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(agent.at.control.clone()).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Worker::over(runtime, channel, hello(0, 99)).err().map(|status| status.message().to_owned())
    });

    let refused = refused.expect("refused");
    assert!(refused.contains("may not be a worker") && refused.contains("access: {workers: {users: ["), "{refused}");
    let status = agent.status();
    assert!(status.workers.len() == 1 && status.workers[0].connected);
    assert_eq!(status.counters["worker_sessions"], 1);
}

#[test]
fn a_user_with_all_connections_that_it_may_have_leaves_some_to_others() {
    let Some(agent) = agent("services: {limits: {connections: 8}}") else { return };

    let (taken, refused) = as_user(NOBODY, &[], || {
        let taken: Vec<_> = (0..6).map(|_| Service::register(&agent, "greedy", &["a"])).collect();
        (taken, [(); 2].map(|()| format!("{:?}", Service::connect(&agent).wait_closed())))
    });

    let (service, _region) = Service::register(&agent, "payment", &["requests"]);
    assert!(
        refused.iter().all(|text| text.contains("user 65534 would have 7 of 8 service connections with 1 free")),
        "{refused:?}"
    );
    drop(taken);
    drop(service);
}

#[test]
fn a_user_that_fills_the_node_with_regions_leaves_room_to_another_one_and_is_named_in_the_status() {
    let Some(agent) = agent("services: {limits: {region_bytes: 65536, regions: 8}}") else { return };

    let (taken, refused) = as_user(NOBODY, &[], || {
        let taken: Vec<_> = (0..6).map(|at| Service::register(&agent, &format!("greedy-{at}"), &["a"])).collect();
        let mut more = Service::connect(&agent);
        more.hello("greedy-6");
        let region = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        more.add_region(Some(region.as_fd()), RegionSize::ONE_PAGE);
        (taken, format!("{:?}", more.wait_accepted(2)))
    });

    let (service, _region) = Service::register(&agent, "payment", &["requests"]);
    assert!(refused.contains("user 65534 would have 7 of 8 regions with 1 free"), "{refused}");
    let problems = agent.status().problems;
    let named = "refused over a share of regions, 1 times since the start: user 65534 would have 7 of 8 regions";
    assert!(problems.iter().any(|line| line.starts_with(named)), "{problems:?}");
    let metrics = agent.get("/metrics").1;
    assert!(metrics.contains("uview_host_refused_over_share_total{bound=\"regions\"} 1"), "{metrics}");
    drop((taken, service));
}

#[test]
fn what_viewers_may_read_is_not_on_the_port_of_metrics() {
    let agent = Agent::with("process_metrics: {enabled: false}\n");

    for path in ["/paths", "/models", "/models/payment", "/status", "/incidents"] {
        assert!(agent.get(path).0.starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(agent.get("/healthz").0.starts_with("HTTP/1.1 200"));
}

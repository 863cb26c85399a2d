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
use wire::proto::operators::{
    DeleteLmapRequest, DrainWorkerRequest, FitAgainRequest, ListRequest, NewLmapRequest, PathsRequest, ReceiptRequest,
    RegisterHookRequest, StatusRequest, UndrainWorkerRequest, WatchRowsRequest,
};

use crate::agent::{Agent, Operators};
use crate::service::Service;
use crate::worker::{Worker, hello};

/// A user of no rights, as `nobody` is on most systems.
const NOBODY: u32 = 65_534;

/// An agent whose directory others may enter, as /run/uview; `None` without root, which is said.
fn agent(access: &str) -> Option<Agent> {
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: access of other users needs root");
        return None;
    }
    let agent = Agent::with(&format!("process_metrics: {{enabled: false}}\n{access}\n"));
    std::fs::set_permissions(agent.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(agent)
}

/// Runs `call` on a thread that is user and group `id`, and in `groups`.
fn as_user<T: Send>(id: u32, groups: &[u32], call: impl FnOnce() -> T + Send) -> T {
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

type Outcomes = Vec<Result<(), Status>>;

/// The outcome of each call of the operators' API: reading ones, then changing ones.
fn calls(agent: &Agent) -> (Outcomes, Outcomes) {
    let Operators { runtime, mut client } = Operators::connect(&agent.at.operators);
    runtime.block_on(async {
        let reading = vec![
            client.status(StatusRequest {}).await.map(drop),
            client.list(ListRequest {}).await.map(drop),
            client.receipt(ReceiptRequest {}).await.map(drop),
            client.paths(PathsRequest {}).await.map(drop),
            client.watch_rows(WatchRowsRequest { lmap: 1, every: 1, ..WatchRowsRequest::default() }).await.map(drop),
        ];
        let model = NewLmapRequest { service: "payment".to_owned(), ..NewLmapRequest::default() };
        let changing = vec![
            client.new_lmap(model).await.map(drop),
            client.fit_again(FitAgainRequest { lmap: 1 }).await.map(drop),
            client.delete_lmap(DeleteLmapRequest { lmap: 1 }).await.map(drop),
            client.register_hook(RegisterHookRequest::default()).await.map(drop),
            client.drain_worker(DrainWorkerRequest { worker: 0, force: true }).await.map(drop),
            client.undrain_worker(UndrainWorkerRequest { worker: 0 }).await.map(drop),
        ];
        (reading, changing)
    })
}

fn denied(calls: &[Result<(), Status>]) -> Vec<bool> {
    calls.iter().map(|call| call.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied)).collect()
}

#[test]
fn any_other_user_is_neither_operator_nor_viewer() {
    let Some(agent) = agent("") else { return };

    let (reading, changing) = as_user(NOBODY, &[], || calls(&agent));

    assert_eq!((denied(&reading), denied(&changing)), (vec![true; 5], vec![true; 6]));
    let text = reading[0].as_ref().unwrap_err().message();
    assert!(text.contains("may not read the status") && text.contains("usermod -aG uview"), "{text}");
    assert_eq!(agent.counter("denied_calls"), 11);
    // The same user is anybody's equal where services register.
    assert!(agent.status().lmaps.is_empty());
}

#[test]
fn a_viewer_reads_and_changes_nothing_and_an_operator_does_both() {
    let Some(agent) = agent("access: {operators: {users: [7001]}, viewers: {groups: [7002]}}") else { return };

    let (reading, changing) = as_user(NOBODY, &[7002], || calls(&agent));
    assert_eq!((denied(&reading), denied(&changing)), (vec![false; 5], vec![true; 6]));
    let (reading, changing) = as_user(7001, &[], || calls(&agent));
    assert_eq!((denied(&reading), denied(&changing)), (vec![false; 5], vec![false; 6]));
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
    let request = Request::post("/uview.operators.v1.Operators/ConfigLmap")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = Endpoint::from_shared(agent.at.operators.clone()).unwrap();
    let response = runtime.block_on(async {
        let mut channel = endpoint.connect().await.unwrap();
        core::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        channel.call(request).await.unwrap()
    });
    drop(sender);
    Status::from_header_map(response.headers()).unwrap()
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

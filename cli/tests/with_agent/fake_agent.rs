//! A fake host agent with a fixed status, a fixed receipt, and the rows of at most one LMAP.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Empty, Iter};
use tonic::{Request, Response, Status};
use wire::proto::operators::operators_server::{Operators, OperatorsServer};
use wire::proto::operators::{
    AddMetricReply, AddMetricRequest, ConfigLmapReply, ConfigLmapRequest, DeleteLmapReply, DeleteLmapRequest,
    DeleteMetricReply, DeleteMetricRequest, DrainWorkerReply, DrainWorkerRequest, FitAgainReply, FitAgainRequest,
    HookEvent, Incident, IncidentReply, IncidentRequest, IncidentsReply, IncidentsRequest, ListReply, ListRequest,
    LmapInfo, LmapStatus, NewLmapReply, NewLmapRequest, OpenPageReply, OpenPageRequest, PathsReply, PathsRequest,
    Reason, ReceiptDay, ReceiptLine, ReceiptReply, ReceiptRequest, ReceiptRun, RegisterHookRequest, ResumeHookRequest,
    RowEvent, SetIntervalReply, SetIntervalRequest, SetModelReply, SetModelRequest, SourcesReply, SourcesRequest,
    StatusReply, StatusRequest, TriggerReply, TriggerRequest, UndrainWorkerReply, UndrainWorkerRequest,
    WatchRowsRequest, WorkerStatus,
};

/// A fake agent that runs until it is stopped or dropped.
pub struct FakeAgent {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeAgent {
    /// Listens on `address`, whose port may be 0, and replies with this status.
    pub fn start(address: SocketAddr, reply: StatusReply) -> Self {
        Self::serve(address, Replies { status: reply, ..Replies::default() })
    }

    /// Listens on `address`, whose port may be 0, lists one LMAP, and sends its rows.
    pub fn with_rows(address: SocketAddr, lmap: LmapInfo, rows: Vec<RowEvent>) -> Self {
        let LmapInfo { lmap: id, service, interval_us, .. } = lmap.clone();
        let of_lmap = LmapStatus { lmap: id, service, interval_us, ..LmapStatus::default() };
        let status = StatusReply { lmaps: vec![of_lmap], ..StatusReply::default() };
        Self::serve(address, Replies { status, list: ListReply { lmaps: vec![lmap] }, rows, ..Replies::default() })
    }

    /// Listens on `address`, whose port may be 0, and has this incident.
    pub fn with_incident(address: SocketAddr, incident: Incident, incidents: IncidentsReply) -> Self {
        Self::serve(address, Replies { incident: Some(incident), incidents, ..Replies::default() })
    }

    fn serve(address: SocketAddr, replies: Replies) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let server = tonic::transport::Server::builder().add_service(OperatorsServer::new(replies));
            runtime.block_on(async {
                tokio::select! {
                    ended = server.serve_with_incoming(TcpListenerStream::new(listener)) => ended.unwrap(),
                    _ = stopped => {} // at once, like a process that is killed
                }
            });
            runtime.shutdown_background();
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Stops listening and frees the port.
    pub fn stop(mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A service in alarm, a healthy one, and a worker.
pub fn status() -> StatusReply {
    let lmap = |lmap, service: &str| LmapStatus {
        lmap,
        service: service.to_owned(),
        state: "armed".to_owned(),
        gamma: 10.0,
        scores: vec![2.0, 3.0],
        replicas: 1,
        at_unix_ns: 1,
        ..LmapStatus::default()
    };
    let reason = Reason {
        column: "http.server.errors".to_owned(),
        unit: "{request}".to_owned(),
        share: 0.8,
        seen: 37.0,
        expected: 0.5,
        ..Reason::default()
    };
    let payment = LmapStatus { alarm: true, scores: vec![99.5], reasons: vec![reason], ..lmap(2, "payment") };
    let worker = WorkerStatus { connected: true, transport: "shm".to_owned(), ..WorkerStatus::default() };
    StatusReply {
        version: "0.1.0".to_owned(),
        workers: vec![worker],
        lmaps: vec![lmap(1, "cart"), payment],
        ..StatusReply::default()
    }
}

/// Two days of a shop.
pub fn receipt() -> ReceiptReply {
    let line = |service: &str, seen: u64, kept: u64| ReceiptLine {
        service: service.to_owned(),
        seen_spans: seen,
        seen_bytes: seen * 200,
        kept_spans: kept,
        kept_bytes: kept * 200,
        kept_bytes_by_policy: [("lmap".to_owned(), kept * 200)].into(),
        requests: seen / 2,
        failed_requests: 40,
        kept_requests: kept / 2,
        kept_failed_requests: 38,
        alarms: 2,
        alarm_ms: 61_000,
        head_share: kept as f64 / seen as f64,
        dropped_spans: [("aged".to_owned(), seen - kept - 5)].into(),
        lost_spans: [("evicted".to_owned(), 2), ("killed".to_owned(), 3)].into(),
        logs: None,
    };
    let grown =
        [("cpu_ms".to_owned(), 4_200), ("lost_spans.evicted".to_owned(), 7), ("sent_bytes.traces".to_owned(), 9_000)];
    let day = |day, services| ReceiptDay { day, services, grown: grown.clone().into() };
    let days = vec![day(20_000, vec![line("cart", 1_000, 10)]), day(20_001, vec![line("<pay>", 10_000, 500)])];
    let at = |second: u64| 1_728_000_000_000_000_000 + second * 1_000_000_000;
    let run = |began, written, ended_in_order| ReceiptRun {
        began_unix_ns: at(began),
        written_unix_ns: at(written),
        ended_in_order,
    };
    ReceiptReply {
        days,
        since_unix_ns: at(0),
        node: "node-1".to_owned(),
        runs: vec![run(0, 3_600, true), run(3_605, 7_200, false), run(7_300, 7_400, false)],
        waiting_spans: [("cart".to_owned(), 12)].into(),
        in_memory: false,
        waiting_logs: [].into(),
    }
}

/// The fixed replies.
#[derive(Clone, Default)]
struct Replies {
    status: StatusReply,
    list: ListReply,
    rows: Vec<RowEvent>,
    incidents: IncidentsReply,
    incident: Option<Incident>,
}

type ReplyResult<T> = Result<Response<T>, Status>;

fn refused<T>() -> ReplyResult<T> {
    Err(Status::unimplemented("the fake agent does not implement this"))
}

#[tonic::async_trait]
impl Operators for Replies {
    type RegisterHookStream = Empty<Result<HookEvent, Status>>;
    type ResumeHookStream = Empty<Result<HookEvent, Status>>;
    type WatchRowsStream = Iter<std::vec::IntoIter<Result<RowEvent, Status>>>;

    async fn status(&self, _: Request<StatusRequest>) -> ReplyResult<StatusReply> {
        Ok(Response::new(self.status.clone()))
    }

    async fn receipt(&self, _: Request<ReceiptRequest>) -> ReplyResult<ReceiptReply> {
        Ok(Response::new(receipt()))
    }

    async fn new_lmap(&self, _: Request<NewLmapRequest>) -> ReplyResult<NewLmapReply> {
        refused()
    }

    async fn config_lmap(&self, _: Request<ConfigLmapRequest>) -> ReplyResult<ConfigLmapReply> {
        refused()
    }

    async fn delete_lmap(&self, _: Request<DeleteLmapRequest>) -> ReplyResult<DeleteLmapReply> {
        refused()
    }

    async fn add_metric(&self, _: Request<AddMetricRequest>) -> ReplyResult<AddMetricReply> {
        refused()
    }

    async fn delete_metric(&self, _: Request<DeleteMetricRequest>) -> ReplyResult<DeleteMetricReply> {
        refused()
    }

    async fn register_hook(&self, _: Request<RegisterHookRequest>) -> ReplyResult<Self::RegisterHookStream> {
        refused()
    }

    async fn resume_hook(&self, _: Request<ResumeHookRequest>) -> ReplyResult<Self::ResumeHookStream> {
        refused()
    }

    async fn watch_rows(&self, _: Request<WatchRowsRequest>) -> ReplyResult<Self::WatchRowsStream> {
        Ok(Response::new(tokio_stream::iter(self.rows.clone().into_iter().map(Ok).collect::<Vec<_>>())))
    }

    async fn fit_again(&self, _: Request<FitAgainRequest>) -> ReplyResult<FitAgainReply> {
        refused()
    }

    async fn drain_worker(&self, _: Request<DrainWorkerRequest>) -> ReplyResult<DrainWorkerReply> {
        refused()
    }

    async fn undrain_worker(&self, _: Request<UndrainWorkerRequest>) -> ReplyResult<UndrainWorkerReply> {
        refused()
    }

    async fn set_interval(&self, _: Request<SetIntervalRequest>) -> ReplyResult<SetIntervalReply> {
        refused()
    }

    async fn set_model(&self, request: Request<SetModelRequest>) -> ReplyResult<SetModelReply> {
        let SetModelRequest { lmap, model } = request.into_inner();
        if lmap != 2 {
            return Err(Status::failed_precondition("the model does not know 4 of the 5 columns of cart"));
        }
        // How many columns it knows of these shows that the file came as it is.
        let known = lmap::Model::decode(&model).map_or(0, |model| model.fingerprints().count());
        let examples = vec!["queue\n".to_owned()];
        Ok(Response::new(SetModelReply { columns: 9, unknown: 9 - known as u32, examples, running: true }))
    }

    async fn paths(&self, _: Request<PathsRequest>) -> ReplyResult<PathsReply> {
        refused()
    }

    async fn sources(&self, _: Request<SourcesRequest>) -> ReplyResult<SourcesReply> {
        Ok(Response::new(SourcesReply::default()))
    }

    async fn incidents(&self, _: Request<IncidentsRequest>) -> ReplyResult<IncidentsReply> {
        Ok(Response::new(self.incidents.clone()))
    }

    async fn incident(&self, request: Request<IncidentRequest>) -> ReplyResult<IncidentReply> {
        let asked = request.into_inner().id;
        let found = self.incident.clone().filter(|incident| incident.id.starts_with(&asked));
        let none = || Status::not_found(format!("no incident {asked}: 1 are kept"));
        found.map(|incident| Response::new(IncidentReply { incident: Some(incident) })).ok_or_else(none)
    }

    async fn open_page(&self, _: Request<OpenPageRequest>) -> ReplyResult<OpenPageReply> {
        let url = "http://127.0.0.1:9705/open?token=00ff".to_owned();
        Ok(Response::new(OpenPageReply { url, lifetime_ms: 300_000 }))
    }

    async fn trigger(&self, request: Request<TriggerRequest>) -> ReplyResult<TriggerReply> {
        let TriggerRequest { service, operation, for_ms, reason } = request.into_inner();
        if service != "checkout" {
            return Err(Status::not_found(format!("no span of {service} has come")));
        }
        if for_ms > 600_000 {
            return Err(Status::out_of_range("1s to 600s are possible"));
        }
        if (operation.as_str(), reason.as_str()) == ("full", "") {
            return Err(Status::resource_exhausted("8 requests for traces go on"));
        }
        // What it was asked for shows in what it says.
        let look_back_ms = 1_000 * (operation.len() + reason.len()) as u64;
        Ok(Response::new(TriggerReply { for_ms, look_back_ms, unforwarded: false }))
    }

    async fn list(&self, _: Request<ListRequest>) -> ReplyResult<ListReply> {
        Ok(Response::new(self.list.clone()))
    }
}

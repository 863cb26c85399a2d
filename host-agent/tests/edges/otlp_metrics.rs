//! Samples as OTLP metrics, over both protocols, to receivers that first fail, then accept a part, then everything.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::clock::unix_now;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message as _;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{LmapSummary, Row, Rows, Summary};

use crate::agent::{Agent, WAIT};
use crate::otlp::{send, span, upstream};
use crate::service::Service;
use crate::worker::Worker;
use support::otlp::spans_of;

/// A receiver: the requests that it accepted, and the number of requests sent to it.
#[derive(Clone, Default)]
struct Monitor(Arc<Mutex<(Vec<ExportMetricsServiceRequest>, u64)>>);

/// Its reply to a request.
enum MonitorReply {
    Fail,
    Accept(ExportMetricsServiceResponse),
}

impl Monitor {
    /// Fails the first request and rejects one data point of the second.
    fn receive(&self, request: ExportMetricsServiceRequest) -> MonitorReply {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        if state.1 == 1 {
            return MonitorReply::Fail;
        }
        state.0.push(request);
        let rejected = ExportMetricsPartialSuccess { rejected_data_points: 1, error_message: "one".into() };
        MonitorReply::Accept(ExportMetricsServiceResponse { partial_success: (state.1 == 2).then_some(rejected) })
    }

    fn requests(&self) -> Vec<ExportMetricsServiceRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Service, metric, resolution and kind of everything received.
    fn series(&self) -> BTreeSet<(String, String, String, &'static str)> {
        let mut all = BTreeSet::new();
        for resource in self.requests().iter().flat_map(|request| &request.resource_metrics) {
            let service = text(&resource.resource.as_ref().unwrap().attributes, "service.name");
            for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
                let (kind, points): (_, Vec<_>) = match metric.data.as_ref().unwrap() {
                    Data::Gauge(gauge) => ("gauge", gauge.data_points.iter().map(|point| &point.attributes).collect()),
                    Data::Sum(sum) => ("sum", sum.data_points.iter().map(|point| &point.attributes).collect()),
                    Data::Histogram(h) => ("histogram", h.data_points.iter().map(|point| &point.attributes).collect()),
                    other => panic!("{other:?}"),
                };
                let series =
                    |attributes| (service.clone(), metric.name.clone(), text(attributes, "uview.resolution"), kind);
                all.extend(points.into_iter().map(|attributes| series(attributes)));
            }
        }
        all
    }
}

fn text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    support::otlp::text_of(attributes, key).unwrap().to_owned()
}

#[tonic::async_trait]
impl MetricsService for Monitor {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        assert_eq!(request.metadata().get("x-tenant").unwrap(), "shop");
        match self.receive(request.into_inner()) {
            MonitorReply::Fail => Err(Status::unavailable("not yet")),
            MonitorReply::Accept(answer) => Ok(Response::new(answer)),
        }
    }
}

fn over_http(monitor: &Monitor, headers: &HeaderMap, body: Bytes) -> (StatusCode, HeaderMap, Vec<u8>) {
    assert_eq!(headers["x-tenant"], "shop");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    match monitor.receive(ExportMetricsServiceRequest::decode(body).unwrap()) {
        MonitorReply::Fail => {
            let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), "0".parse().unwrap())]);
            (StatusCode::SERVICE_UNAVAILABLE, headers, Vec::new())
        }
        MonitorReply::Accept(answer) => (StatusCode::OK, HeaderMap::new(), answer.encode_to_vec()),
    }
}

/// Starts a receiver. The runtime has to be kept.
fn monitor(protocol: &str) -> (tokio::runtime::Runtime, SocketAddr, Monitor) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let (address, monitor) = (listener.local_addr().unwrap(), Monitor::default());
    let state = monitor.clone();
    if protocol == "grpc" {
        let server = tonic::transport::Server::builder().add_service(MetricsServiceServer::new(state));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    } else {
        let take = async move |headers: HeaderMap, body: Bytes| over_http(&state, &headers, body);
        let router = Router::new().route("/v1/metrics", post(take));
        runtime.spawn(async { axum::serve(listener, router).await });
    }
    (runtime, address, monitor)
}

/// Sum of a metric's values on `/metrics`, of those with `label`.
fn metric(page: &str, name: &str, label: &str) -> u64 {
    let of = |line: &str| {
        let rest = line.strip_prefix("uview_host_otlp_metrics_")?.strip_prefix(name)?;
        let it = rest.starts_with([' ', '{']) && rest.contains(label);
        it.then(|| rest.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    page.lines().filter_map(of).sum()
}

fn samples_arrive_by(protocol: &str) {
    let (_runtime, address, monitor) = monitor(protocol);
    let (spans, _came) = upstream();
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    std::fs::write(&tenant, "shop\n").unwrap();
    // Its value may be in a file.
    let headers = match protocol {
        "grpc" => "headers: {x-tenant: shop}".to_owned(),
        _ => format!("header_files: {{x-tenant: {}}}", tenant.display()),
    };
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{spans}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         derived: {{delay_ms: 0}}\n\
         otlp_metrics:\n  upstream: {{endpoint: 'http://{address}', protocol: {protocol}, {headers}, compression: none}}\n  \
         instance: node-1\n  baseline_ms: 100\n  dense: {{policy: every, budget: null}}\n"
    ));
    let mut worker = Worker::connect(&agent, 0);
    let (service, _region) = Service::register(&agent, "cart", &["requests"]);
    let (epoch, lmap) = worker.set_where(|lmap| lmap.service == "cart");
    let lmap = lmap.lmap;
    let summary = LmapSummary { lmap, epoch, gamma: 10.0, ..LmapSummary::default() };
    worker.send(FromWorker::Summary(Summary { at_unix_ns: unix_now().0, lmaps: vec![summary], ..Summary::default() }));
    let resource_spans = vec![spans_of("payment", vec![span(1, 1, &[], "POST /pay")])];
    let spans = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    assert_eq!(send(agent.at.otlp[1], &spans), "HTTP/1.1 200 OK");

    let wanted = [
        ("cart", "requests", "baseline", "sum"),
        ("cart", "requests", "dense", "sum"),
        ("cart", "up", "baseline", "gauge"),
        ("payment", "traces.span.metrics.duration", "baseline", "histogram"),
    ];
    WAIT.until("all series", || {
        let row = Row { at_unix_ns: unix_now().0, score: 1.0, values: vec![3.0] };
        worker.send(FromWorker::Rows(Rows { lmap, epoch, rows: vec![row] }));
        let all = monitor.series();
        let there = |(service, name, resolution, kind): &(&str, &str, &str, &'static str)| {
            all.contains(&((*service).to_owned(), (*name).to_owned(), (*resolution).to_owned(), *kind))
        };
        wanted.iter().all(there).then_some(())
    });
    drop(service);

    WAIT.until("the end of the service", || {
        let all = monitor.requests();
        let metrics =
            all.iter().flat_map(|request| &request.resource_metrics).flat_map(|resource| &resource.scope_metrics);
        let mut up = metrics.flat_map(|scope| &scope.metrics).filter(|metric| metric.name == "up");
        up.any(
            |up| matches!(&up.data, Some(Data::Gauge(gauge)) if gauge.data_points.iter().any(|point| point.flags == 1)),
        )
        .then_some(())
    });
    let page = agent.get("/metrics").1;
    assert_eq!((metric(&page, "failed_requests_total", ""), metric(&page, "refused_requests_total", "")), (1, 1));
    assert_eq!(metric(&page, "lost_samples_total", "refused"), 1, "{page}");
    let places =
        ["sent_samples_total", "suppressed_samples_total", "lost_samples_total", "buffered_samples", "queued_samples"];
    let sum: u64 = places.iter().map(|name| metric(&page, name, "")).sum();
    assert_eq!(metric(&page, "seen_samples_total", ""), sum, "{page}");
    assert!(metric(&page, "sent_samples_total", "baseline") > 3 && metric(&page, "sent_samples_total", "dense") > 0);
}

#[test]
fn samples_arrive_by_grpc_and_what_was_not_taken_is_sent_again_or_counted() {
    samples_arrive_by("grpc");
}

#[test]
fn samples_arrive_by_http_and_what_was_not_taken_is_sent_again_or_counted() {
    samples_arrive_by("http");
}

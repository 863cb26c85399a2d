//! Handles one request: waits for a worker, does the work, calls the dependencies, responds, and records metrics.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use client::{Client, Gauge};
use opentelemetry::Context;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use wire::time::Nanos;

use super::faults::Faults;
use super::logic::{self, Order, Page, ServiceLogic};
use super::meters::{Class, Incoming, Outcome, Outgoing, Queue};
use super::spans::{ActiveSpan, Spans};
use crate::clock::Clock;
use crate::graph::{Errand, Service};
use crate::http::{CallOutcome, HttpClient};
use crate::noise::{Noise, SharedNoise};

/// Timeout of a call to a dependency.
const PATIENCE: Duration = Duration::from_secs(1);
/// Requests processed at the same time. Calls to dependencies and injected delays do not occupy a worker.
const WORKERS: usize = 1;
/// Median wait per request: stands for disk, locks and network.
const WAIT: Nanos = Nanos::from_micros(1500);
const WAIT_DEVIATION: f64 = 0.4;

/// Query parameters of a request.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct RequestQuery {
    key: u64,
}

/// One dependency with the metrics of its calls.
#[derive(Debug)]
struct Dependency {
    service: Service,
    address: SocketAddr,
    meters: Outgoing,
}

/// The request handler of one service.
#[derive(Debug)]
pub(crate) struct Handler {
    service: Service,
    logic: Box<dyn ServiceLogic>,
    dependencies: Vec<Arc<Dependency>>,
    http: HttpClient,
    workers: Semaphore,
    noise: SharedNoise,
    wait: Nanos,
    incoming: Incoming,
    queue: Queue,
    tasks: Gauge,
    served: AtomicU64,
    pub(crate) spans: Spans,
    pub(crate) faults: Arc<Faults>,
}

impl Handler {
    /// The handler of `service`, which calls its dependencies at `addresses`.
    pub(crate) fn new(service: Service, addresses: &[(Service, SocketAddr)], uview: &Client, seed: u64) -> Self {
        let dependency = |(service, address): &(Service, SocketAddr)| {
            let meters = Outgoing::new(uview, *service);
            Arc::new(Dependency { service: *service, address: *address, meters })
        };
        Self {
            service,
            logic: logic::of(service, uview, seed),
            dependencies: addresses.iter().map(dependency).collect(),
            http: HttpClient::new(PATIENCE),
            workers: Semaphore::new(WORKERS),
            noise: SharedNoise::new(seed, service.name()),
            wait: WAIT,
            incoming: Incoming::new(uview, service),
            queue: Queue::new(uview),
            tasks: uview.gauge(super::names::TASKS).unit("{task}").register(),
            served: AtomicU64::new(0),
            spans: Spans::none(),
            faults: Arc::default(),
        }
    }

    /// The same handler with a median wait of `wait` per request.
    pub(crate) fn wait(self, wait: Nanos) -> Self {
        Self { wait, ..self }
    }

    /// The same handler, which records its requests by `spans`.
    pub(crate) fn recorded(self, spans: Spans) -> Self {
        Self { spans, ..self }
    }

    /// Total time for which the worker was busy, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.queue.busy.get()
    }

    /// Handles one request. Its body has arrived completely, and is ignored.
    pub(crate) async fn serve(
        State(handler): State<Arc<Self>>,
        errand: Errand,
        Query(query): Query<RequestQuery>,
        headers: HeaderMap,
        _body: Bytes,
    ) -> Response {
        let mut visit = Visit::begin(&handler, errand, &headers);
        let page = handler.answer(Order { errand, key: query.key }, visit.span.context()).await;
        visit.page = page;
        let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let trace_header: HeaderMap = visit.span.response_header().into_iter().collect();
        (status, trace_header, Body::from(vec![b'.'; page.bytes])).into_response()
    }

    async fn answer(&self, order: Order, request: &Context) -> Page {
        if self.faults.fails(self.noise.draw(Noise::uniform)) {
            return Page { status: 500, bytes: 30 };
        }
        let page = self.work(order).await;
        if page.status >= 400 || self.call_all(order, request).await {
            return page;
        }
        Page { status: 502, bytes: 30 }
    }

    async fn work(&self, order: Order) -> Page {
        let clock = Clock::start();
        self.queue.depth.add(1);
        let worker = self.workers.acquire().await;
        self.queue.depth.add(-1);
        let began = clock.now();
        self.queue.wait.observe(began.0 / 1000);
        let page = self.logic.handle(order);
        tokio::time::sleep(self.noise.draw(|noise| noise.lognormal(self.wait, WAIT_DEVIATION)).into()).await;
        drop(worker);
        self.queue.busy.add(clock.now().0 - began.0);
        if let Some(delay) = self.faults.delay() {
            tokio::time::sleep(delay).await;
        }
        self.queue.work.observe((clock.now().0 - began.0) / 1000);
        self.tasks.set(tokio::runtime::Handle::current().metrics().num_alive_tasks() as f64);
        page
    }

    /// Calls all dependencies at the same time. True if all succeeded.
    async fn call_all(&self, order: Order, request: &Context) -> bool {
        let mut calls = JoinSet::new();
        for dependency in &self.dependencies {
            let (span, headers) = self.spans.called(request, dependency.service, order.errand);
            calls.spawn(dependency.clone().call(self.http.clone(), order, span, headers));
        }
        let mut fine = true;
        while let Some(call) = calls.join_next().await {
            fine &= call.is_ok_and(|outcome| outcome.is_fine());
        }
        fine
    }

    /// The service that this handler serves.
    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// Requests that completed, or whose client closed the connection.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed) // a statistic; nothing depends on it
    }
}

impl Dependency {
    async fn call(
        self: Arc<Self>,
        http: HttpClient,
        order: Order,
        span: ActiveSpan,
        headers: HeaderMap,
    ) -> CallOutcome {
        let mut call = Call { meters: &self.meters, clock: Clock::start(), outcome: Outcome::TimedOut, bytes: 0 };
        self.meters.began();
        let target = format!("{}?key={}", self.service.path(order.errand), order.key);
        let given = vec![b'.'; self.service.request_bytes()];
        let answer = http.request_with(Method::GET, self.address, &target, headers, given).await.0;
        match &answer {
            CallOutcome::Response(status, _) => span.answered(status.as_u16()),
            CallOutcome::Broken => span.failed("the connection broke"),
            CallOutcome::TimedOut => span.failed("no response in time"),
        }
        (call.outcome, call.bytes) = match &answer {
            CallOutcome::Response(status, bytes) if !status.is_server_error() => (Outcome::Fine, bytes.len()),
            CallOutcome::Response(_, bytes) => (Outcome::Failed, bytes.len()),
            CallOutcome::Broken => (Outcome::Failed, 0),
            CallOutcome::TimedOut => (Outcome::TimedOut, 0),
        };
        answer
    }
}

/// A request in flight. It is counted when dropped, which also happens when its client closes the connection.
struct Visit<'a> {
    handler: &'a Handler,
    errand: Errand,
    clock: Clock,
    span: ActiveSpan,
    page: Page,
}

impl<'a> Visit<'a> {
    fn begin(handler: &'a Handler, errand: Errand, headers: &HeaderMap) -> Self {
        handler.incoming.began();
        let client_closed = Page { status: 499, bytes: 0 };
        let span = handler.spans.entered(handler.service, errand, headers);
        Self { handler, errand, clock: Clock::start(), span, page: client_closed }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let took = Duration::from(self.clock.now());
        self.span.answered(self.page.status);
        self.span.end();
        self.handler.served.fetch_add(1, Ordering::Relaxed);
        self.handler.incoming.ended(self.errand, Class::of(self.page.status), took, self.page.bytes);
    }
}

/// A call in flight. It is counted when dropped.
struct Call<'a> {
    meters: &'a Outgoing,
    clock: Clock,
    outcome: Outcome,
    bytes: usize,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.meters.ended(self.outcome, Duration::from(self.clock.now()), self.bytes);
    }
}

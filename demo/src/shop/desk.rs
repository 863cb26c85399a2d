//! Serving one request: wait for a hand, do the work, ask the dependencies, answer; and saying all of it in metrics.

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
use super::meters::{Class, Incoming, Outcome, Outgoing, Queue};
use super::spans::{Spanned, Spans};
use super::trade::{self, Order, Page, Trade};
use crate::clock::Clock;
use crate::graph::{Errand, Service};
use crate::http::{Answer, Caller};
use crate::noise::{Noise, SharedNoise};

/// How long a dependency may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many requests are worked at at one time; neither calls to dependencies nor an injected delay count.
const HANDS: usize = 1;
/// What a visitor's disk, lock and network cost, half of the time less.
const WAIT: Nanos = Nanos::from_micros(1500);
const WAIT_DEVIATION: f64 = 0.4;

/// What a request says.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Ask {
    key: u64,
}

/// One dependency, and how calls to it go.
#[derive(Debug)]
struct Dependency {
    service: Service,
    address: SocketAddr,
    meters: Outgoing,
}

/// Everything that serving a request needs.
#[derive(Debug)]
pub(crate) struct Desk {
    service: Service,
    trade: Box<dyn Trade>,
    dependencies: Vec<Arc<Dependency>>,
    caller: Caller,
    hands: Semaphore,
    noise: SharedNoise,
    wait: Nanos,
    incoming: Incoming,
    queue: Queue,
    tasks: Gauge,
    served: AtomicU64,
    pub(crate) spans: Spans,
    pub(crate) faults: Arc<Faults>,
}

impl Desk {
    /// A desk of `service` that asks its dependencies at `addresses`.
    pub(crate) fn new(service: Service, addresses: &[(Service, SocketAddr)], uview: &Client, seed: u64) -> Self {
        let dependency = |(service, address): &(Service, SocketAddr)| {
            let meters = Outgoing::new(uview, *service);
            Arc::new(Dependency { service: *service, address: *address, meters })
        };
        Self {
            service,
            trade: trade::of(service, uview, seed),
            dependencies: addresses.iter().map(dependency).collect(),
            caller: Caller::new(PATIENCE),
            hands: Semaphore::new(HANDS),
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

    /// The same desk, where a request takes about `wait`.
    pub(crate) fn wait(self, wait: Nanos) -> Self {
        Self { wait, ..self }
    }

    /// The same desk, whose requests are recorded by `spans`.
    pub(crate) fn recorded(self, spans: Spans) -> Self {
        Self { spans, ..self }
    }

    /// How long the hand was busy so far.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.queue.busy.get()
    }

    /// Answers one request, which has come whole.
    pub(crate) async fn serve(
        State(desk): State<Arc<Self>>,
        errand: Errand,
        Query(ask): Query<Ask>,
        headers: HeaderMap,
        _given: Bytes,
    ) -> Response {
        let mut visit = Visit::begin(&desk, errand, &headers);
        let page = desk.answer(Order { errand, key: ask.key }, visit.span.context()).await;
        visit.page = page;
        let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let told: HeaderMap = visit.span.told().into_iter().collect();
        (status, told, Body::from(vec![b'.'; page.bytes])).into_response()
    }

    async fn answer(&self, order: Order, request: &Context) -> Page {
        if self.faults.fails(self.noise.draw(Noise::uniform)) {
            return Page { status: 500, bytes: 30 };
        }
        let page = self.work(order).await;
        if page.status >= 400 || self.ask_all(order, request).await {
            return page;
        }
        Page { status: 502, bytes: 30 }
    }

    async fn work(&self, order: Order) -> Page {
        let clock = Clock::start();
        self.queue.depth.add(1);
        let hand = self.hands.acquire().await;
        self.queue.depth.add(-1);
        let began = clock.now();
        self.queue.wait.observe(began.0 / 1000);
        let page = self.trade.carry_out(order);
        tokio::time::sleep(self.noise.draw(|noise| noise.lognormal(self.wait, WAIT_DEVIATION)).into()).await;
        drop(hand);
        self.queue.busy.add(clock.now().0 - began.0);
        if let Some(delay) = self.faults.delay() {
            tokio::time::sleep(delay).await;
        }
        self.queue.work.observe((clock.now().0 - began.0) / 1000);
        self.tasks.set(tokio::runtime::Handle::current().metrics().num_alive_tasks() as f64);
        page
    }

    /// Asks every dependency at the same time; whether all gave something that can be used.
    async fn ask_all(&self, order: Order, request: &Context) -> bool {
        let mut calls = JoinSet::new();
        for dependency in &self.dependencies {
            let (span, headers) = self.spans.called(request, dependency.service, order.errand);
            calls.spawn(dependency.clone().ask(self.caller.clone(), order, span, headers));
        }
        let mut fine = true;
        while let Some(call) = calls.join_next().await {
            fine &= call.is_ok_and(|answer| answer.is_fine());
        }
        fine
    }

    /// Which service this is.
    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// Requests that were answered, or whose visitor went away.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed) // a number to be shown; nothing depends on it
    }
}

impl Dependency {
    async fn ask(self: Arc<Self>, caller: Caller, order: Order, span: Spanned, headers: HeaderMap) -> Answer {
        let mut call = Call { meters: &self.meters, clock: Clock::start(), outcome: Outcome::TimedOut, bytes: 0 };
        self.meters.began();
        let target = format!("{}?key={}", self.service.path(order.errand), order.key);
        let given = vec![b'.'; self.service.given()];
        let answer = caller.ask_with(Method::GET, self.address, &target, headers, given).await.0;
        match &answer {
            Answer::Answered(status, _) => span.answered(status.as_u16()),
            Answer::Broken => span.failed("the connection broke"),
            Answer::TimedOut => span.failed("no answer in time"),
        }
        (call.outcome, call.bytes) = match &answer {
            Answer::Answered(status, bytes) if !status.is_server_error() => (Outcome::Fine, bytes.len()),
            Answer::Answered(_, bytes) => (Outcome::Failed, bytes.len()),
            Answer::Broken => (Outcome::Failed, 0),
            Answer::TimedOut => (Outcome::TimedOut, 0),
        };
        answer
    }
}

/// A request that is being served. Counted when it is dropped, which also happens when its visitor goes away.
struct Visit<'a> {
    desk: &'a Desk,
    errand: Errand,
    clock: Clock,
    span: Spanned,
    page: Page,
}

impl<'a> Visit<'a> {
    fn begin(desk: &'a Desk, errand: Errand, headers: &HeaderMap) -> Self {
        desk.incoming.began();
        let nobody_waited = Page { status: 499, bytes: 0 };
        let span = desk.spans.entered(desk.service, errand, headers);
        Self { desk, errand, clock: Clock::start(), span, page: nobody_waited }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let took = Duration::from(self.clock.now());
        self.span.answered(self.page.status);
        self.span.end();
        self.desk.served.fetch_add(1, Ordering::Relaxed);
        self.desk.incoming.ended(self.errand, Class::of(self.page.status), took, self.page.bytes);
    }
}

/// A call that is under way. Counted when it is dropped.
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

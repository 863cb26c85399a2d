//! The load generator: sends requests on schedule, independently of responses (open loop), so that a slow shop gets no
//! less load.

mod schedule;
mod visitors;

use core::net::SocketAddr;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep_until;

use crate::clock::{Clock, runtime_now};
use crate::graph::{Errand, Service};
use crate::http::HttpClient;
use crate::shop::spans::TRACE_RESPONSE;
use crate::state_file;
use crate::traces::TraceId;
use schedule::{Schedule, ScheduledRequest};
use visitors::Visitors;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(3);

/// Requests per second on average, without bursts.
pub(crate) const PER_SECOND: f64 = 140.0;

/// Arguments of `uview load`, the load generator.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Address of the frontend
    #[arg(long, value_name = "HOST:PORT")]
    pub target: SocketAddr,
    /// Requests per second on average, without bursts
    #[arg(long, value_name = "RATE", default_value_t = PER_SECOND)]
    pub per_second: f64,
    /// Seed of wave, bursts and drift
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End after this time instead of at SIGTERM
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Maximal requests in flight; further ones are dropped and counted
    #[arg(long, value_name = "REQUESTS", default_value_t = 1024)]
    pub at_once: usize,
    /// Addresses from which the requests come, 127.0.0.11 and on; 0: the one that the system selects
    #[arg(long, value_name = "ADDRESSES", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=200))]
    pub visitors: u8,
    /// File for the log, written at the end
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Summary of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Number of requests sent.
    pub sent: u64,
    /// Of them, those with status 5xx or without a response.
    pub failed: u64,
    /// Requests not sent because too many were in flight.
    pub dropped: u64,
    /// Median duration in microseconds.
    pub median_us: u64,
    /// 99th percentile of durations in microseconds.
    pub p99_us: u64,
}

/// Log entry of one request, for the evaluation of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestRecord {
    /// From the response's header; `None` without a response.
    pub(crate) trace: Option<TraceId>,
    pub(crate) errand: Errand,
    /// Wall-clock time when it was sent.
    pub(crate) at_unix_ns: u64,
    pub(crate) took_us: u32,
    /// Status 5xx, or no response.
    pub(crate) failed: bool,
}

/// The log that the load writes at its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadLog {
    #[serde(flatten)]
    pub(crate) report: LoadReport,
    /// Each completed request, about 150 bytes of the file each.
    pub(crate) requests: Vec<RequestRecord>,
}

/// Why the load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The runtime or the signal handler cannot be created.
    #[error("cannot send requests")]
    System(#[source] io::Error),
    /// The log cannot be written.
    #[error("cannot write {}", .path.display())]
    Report {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        cause: io::Error,
    },
}

#[derive(Debug, Default)]
struct Tally {
    report: LoadReport,
    requests: Vec<RequestRecord>,
}

impl Tally {
    fn count(&mut self, request: RequestRecord) {
        self.report.failed += u64::from(request.failed);
        self.requests.push(request);
    }

    fn finish(self) -> LoadLog {
        let mut took_us: Vec<_> = self.requests.iter().map(|request| request.took_us).collect();
        took_us.sort_unstable();
        let quantile = |of_100: usize| took_us.get(took_us.len() * of_100 / 100).map_or(0, |us| u64::from(*us));
        let report = LoadReport { median_us: quantile(50), p99_us: quantile(99), ..self.report };
        LoadLog { report, requests: self.requests }
    }
}

/// Sends requests until SIGTERM or for the given time, then writes the log.
///
/// # Errors
///
/// [`LoadError`] if the runtime cannot be created or the log cannot be written. Failed requests are no error.
pub fn run(args: &LoadArgs) -> Result<(), LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LoadError::System)?;
    let report = runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).map_err(LoadError::System)?;
        let stop = async move { term.recv().await.unwrap_or_default() };
        Ok(visit(args, stop).await)
    })?;
    match &args.report {
        Some(path) => state_file::write(path, &report).map_err(|cause| LoadError::Report { path: path.clone(), cause }),
        None => Ok(()),
    }
}

/// Sends requests until `stop` completes, or for the given time.
pub(crate) async fn visit(args: &LoadArgs, stop: impl Future<Output = ()>) -> LoadLog {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let tasks = LocalSet::new();
    let sending = tasks.run_until(send(args, tally.clone()));
    match args.seconds {
        None => tokio::select! { () = stop => {}, () = sending => {} },
        Some(seconds) => {
            let enough = tokio::time::sleep(Duration::from_secs(seconds));
            tokio::select! { () = stop => {}, () = enough => {}, () = sending => {} }
        }
    }
    tally.take().finish()
}

async fn send(args: &LoadArgs, tally: Rc<RefCell<Tally>>) {
    let visitors = Rc::new(RefCell::new(Visitors::new(args.visitors, PATIENCE)));
    let start = runtime_now();
    let mut in_flight = JoinSet::new();
    for due in Schedule::new(args.seed, args.per_second) {
        sleep_until(start + due.at.into()).await;
        while in_flight.try_join_next().is_some() {}
        if in_flight.len() >= args.at_once {
            tally.borrow_mut().report.dropped += 1;
            continue;
        }
        tally.borrow_mut().report.sent += 1;
        let (place, http) = visitors.borrow_mut().take();
        let (visitors, sent) = (visitors.clone(), send_request(http, args.target, due, tally.clone()));
        in_flight.spawn_local(async move {
            sent.await;
            visitors.borrow_mut().free(place);
        });
    }
}

async fn send_request(http: HttpClient, target: SocketAddr, due: ScheduledRequest, tally: Rc<RefCell<Tally>>) {
    let clock = Clock::start();
    let path = format!("{}?key={}", Service::Frontend.path(due.errand), due.key);
    let (answer, headers) = http.request_with(Method::GET, target, &path, HeaderMap::new(), Vec::new()).await;
    let took_us = u32::try_from(clock.now().0 / 1000).unwrap_or(u32::MAX);
    let stop = headers.get(TRACE_RESPONSE).and_then(|header| TraceId::from_header(header.to_str().ok()?));
    let (trace, errand, failed) = (stop, due.errand, !answer.is_fine());
    tally.borrow_mut().count(RequestRecord { trace, errand, at_unix_ns: clock.started().0, took_us, failed });
}

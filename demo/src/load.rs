//! The load: sends requests when they are due, whatever became of those before (open loop), so that a slow shop is not spared.

mod schedule;

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
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::graph::{Errand, Service};
use crate::http::Caller;
use crate::ready;
use crate::shop::spans::TRACE_RESPONSE;
use crate::traces::TraceId;
use schedule::{Due, Schedule};

/// A visitor goes away after so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Requests a second, on average and without bursts.
pub(crate) const PER_SECOND: f64 = 140.0;

/// The visitors of the shop.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Where the frontend is
    #[arg(long, value_name = "HOST:PORT")]
    pub target: SocketAddr,
    /// Requests a second, on average and without bursts
    #[arg(long, value_name = "RATE", default_value_t = PER_SECOND)]
    pub per_second: f64,
    /// Makes wave, bursts and drift
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End after so long instead of at SIGTERM
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Requests that may be under way at one time; what is due beyond them is dropped and counted
    #[arg(long, value_name = "REQUESTS", default_value_t = 1024)]
    pub at_once: usize,
    /// Written at the end: what was sent, what failed, how long it took
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What became of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests sent.
    pub sent: u64,
    /// Of them, answered with an error of the server, or not at all.
    pub failed: u64,
    /// Requests that were due and not sent, because too many were under way.
    pub dropped: u64,
    /// Half of the answers came within so many microseconds.
    pub median_us: u64,
    /// 99 of 100 answers came within so many microseconds.
    pub p99_us: u64,
}

/// One request, as it is noted for whoever asks which traces are worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noted {
    /// As the answer told it; `None` without an answer.
    pub(crate) trace: Option<TraceId>,
    pub(crate) errand: Errand,
    /// When it was sent.
    pub(crate) at_unix_ns: u64,
    pub(crate) took_us: u32,
    /// Answered with an error of the server, or not at all.
    pub(crate) failed: bool,
}

/// What the load leaves behind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    #[serde(flatten)]
    pub(crate) report: LoadReport,
    /// Each request that has ended, about 150 bytes of the file each.
    pub(crate) requests: Vec<Noted>,
}

/// Why the load did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The system gives no event queue, or no signals.
    #[error("cannot send requests")]
    System(#[source] io::Error),
    /// The report is lost.
    #[error("cannot write {}", .path.display())]
    Report {
        /// What was to be written.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

#[derive(Debug, Default)]
struct Tally {
    report: LoadReport,
    requests: Vec<Noted>,
}

impl Tally {
    fn count(&mut self, noted: Noted) {
        self.report.failed += u64::from(noted.failed);
        self.requests.push(noted);
    }

    fn finish(self) -> Account {
        let mut took_us: Vec<_> = self.requests.iter().map(|noted| noted.took_us).collect();
        took_us.sort_unstable();
        let quantile = |of_100: usize| took_us.get(took_us.len() * of_100 / 100).map_or(0, |us| u64::from(*us));
        let report = LoadReport { median_us: quantile(50), p99_us: quantile(99), ..self.report };
        Account { report, requests: self.requests }
    }
}

/// Sends requests until SIGTERM, or for as long as was asked for, and writes the report.
///
/// # Errors
///
/// [`LoadError`] if the system gives no resources or the report cannot be written. A shop that fails is none.
pub fn run(args: &LoadArgs) -> Result<(), LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LoadError::System)?;
    let report = runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).map_err(LoadError::System)?;
        let told = async move { term.recv().await.unwrap_or_default() };
        Ok(visit(args, told).await)
    })?;
    match &args.report {
        Some(path) => ready::write(path, &report).map_err(|cause| LoadError::Report { path: path.clone(), cause }),
        None => Ok(()),
    }
}

/// Sends requests until `told` to stop, or for as long as the arguments say.
pub(crate) async fn visit(args: &LoadArgs, told: impl Future<Output = ()>) -> Account {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let tasks = LocalSet::new();
    let sending = tasks.run_until(send(args, tally.clone()));
    match args.seconds {
        None => tokio::select! { () = told => {}, () = sending => {} },
        Some(seconds) => {
            let enough = tokio::time::sleep(Duration::from_secs(seconds));
            tokio::select! { () = told => {}, () = enough => {}, () = sending => {} }
        }
    }
    tally.take().finish()
}

async fn send(args: &LoadArgs, tally: Rc<RefCell<Tally>>) {
    let caller = Caller::new(PATIENCE);
    let start = Instant::now();
    let mut under_way = JoinSet::new();
    for due in Schedule::new(args.seed, args.per_second) {
        sleep_until(start + due.at.into()).await;
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= args.at_once {
            tally.borrow_mut().report.dropped += 1;
            continue;
        }
        tally.borrow_mut().report.sent += 1;
        under_way.spawn_local(one(caller.clone(), args.target, due, tally.clone()));
    }
}

async fn one(caller: Caller, target: SocketAddr, due: Due, tally: Rc<RefCell<Tally>>) {
    let clock = Clock::start();
    let path = format!("{}?key={}", Service::Frontend.path(due.errand), due.key);
    let (answer, headers) = caller.ask_with(Method::GET, target, &path, HeaderMap::new(), Vec::new()).await;
    let took_us = u32::try_from(clock.now().0 / 1000).unwrap_or(u32::MAX);
    let told = headers.get(TRACE_RESPONSE).and_then(|header| TraceId::told(header.to_str().ok()?));
    let (trace, errand, failed) = (told, due.errand, !answer.is_fine());
    tally.borrow_mut().count(Noted { trace, errand, at_unix_ns: clock.start_unix_ns(), took_us, failed });
}

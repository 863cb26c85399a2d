//! Sends samples of all services to a remote monitor, by remote write or as OTLP metrics. Rows come from the workers as
//! for any watcher. [`remote_write::shipper`] decides what is sent and when; this module does the waiting and sending.

mod metrics;
mod output;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::ticks::ticks;
use hooks::sampling::Row;
use otlp::Edge;
use remote_write::encoding::Version;
use remote_write::feed::Column;
use remote_write::reading::Reading;
use remote_write::reply::Reply;
use remote_write::series::ServiceNumber;
use remote_write::shipper::{ClockBehind, Delivery, Shipper, Step, Timestamp};
use tokio::sync::Notify;
use wire::control::MetricSpec;
use wire::id::{HookId, LmapId};
use wire::time::{Nanos, UnixNanos};

pub use metrics::MonitorMetrics;
pub use output::Output;

use crate::clock::{self, Clock};
use crate::node::{Node, WatchError};
use crate::{span_columns, span_metrics};

/// How often rows are collected. Workers batch rows for up to 100 ms.
const COLLECT_INTERVAL: Duration = Duration::from_millis(200);
/// Rows of one LMAP queued between two collections: one second's at 1 ms, and what a worker held back.
const ROWS: usize = 2048;
/// How long queued samples are still sent on shutdown.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// What a look at the queue has led to.
enum Exchange {
    /// A request was sent.
    Sent(Delivery),
    /// There was none: to be looked for again at this time.
    Nothing(Nanos),
}

/// An LMAP whose rows are collected.
#[derive(Debug)]
struct LmapFeed {
    service: ServiceNumber,
    hook: HookId,
    gamma: Option<f64>,
    /// Whether an LMAP over several services is in an alarm that concerns the service: its rows are worth sending then,
    /// whatever its own score.
    is_concerned: bool,
    titles: Option<Arc<[String]>>,
}

/// A remote monitor. One for each configured output.
#[derive(Debug)]
pub struct RemoteMonitor {
    shipper: Mutex<Shipper>,
    more: Notify,
    clock: Clock,
    is_otlp: bool,
}

fn columns(metrics: &[MetricSpec]) -> Vec<Column> {
    let of = |metric: &MetricSpec| {
        let series = &metric.series;
        let statistics = series.kind.statistics();
        let column = |&statistic| {
            let (series, statistic) = span_columns::for_monitors(series, statistic);
            Column { series, statistic }
        };
        statistics.iter().map(column).collect::<Vec<_>>()
    };
    metrics.iter().flat_map(of).collect()
}

impl RemoteMonitor {
    /// Idle until [`Self::take_rows`] and [`Self::send`] run.
    #[must_use]
    pub fn new(shipper: Shipper, clock: Clock) -> Self {
        let is_otlp = shipper.version() == Version::Otlp;
        Self { shipper: Mutex::new(shipper), more: Notify::new(), clock, is_otlp }
    }

    /// Whether it sends OTLP metrics.
    #[must_use]
    pub const fn is_otlp(&self) -> bool {
        self.is_otlp
    }

    /// What is wrong now, in words: samples that are lost because the clock was set back.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let ClockBehind { remaining, lost } = self.lock().clock_behind(self.at().wall)?;
        let section = if self.is_otlp { "otlp_metrics" } else { "remote_write" };
        let seconds = remaining.0 / 1_000_000_000;
        Some(format!(
            "{section}: the clock was set back: the receiver may refuse samples for {seconds} s, until it is where it \
             was; {lost} samples are lost so far"
        ))
    }

    /// Bytes of samples that are queued.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.lock().queued_bytes()
    }

    /// Lets a test feed the shipper.
    #[cfg(test)]
    pub(crate) fn with_shipper(&self, act: impl FnOnce(&mut Shipper)) {
        act(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Shipper> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.shipper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self) -> Timestamp {
        Timestamp { monotonic: self.clock.now(), wall: clock::unix_now() }
    }

    /// Collects the rows of all LMAPs of `node` until it drains. Once per baseline interval, also the span metrics of
    /// `edge`, and `up`.
    pub async fn take_rows(&self, node: &Node, edge: Option<&Edge>) {
        let mut taken = BTreeMap::new();
        let mut ticks = ticks(COLLECT_INTERVAL);
        let mut draining = node.draining();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = draining.changed() => return,
            }
            self.follow(node, &mut taken);
            for (lmap, taken) in &mut taken {
                self.take_over(node, *lmap, taken);
            }
            self.read(node, edge, &taken);
            self.more.notify_one();
        }
    }

    /// Watches new LMAPs, drops removed ones, and updates γ and alarms of the others.
    fn follow(&self, node: &Node, taken: &mut BTreeMap<LmapId, LmapFeed>) {
        let at = self.at();
        let mut shipper = self.lock();
        let mut new = Vec::new();
        let mut gone: Vec<LmapId> = taken.keys().copied().collect();
        node.inspect(|plane, _| {
            // What an LMAP over several services watches, is sent of the services themselves.
            for (lmap, watched) in plane.lmap_views().filter(|(_, watched)| !watched.is_over_several) {
                gone.retain(|known| *known != lmap);
                match taken.get_mut(&lmap) {
                    Some(taken) => {
                        (taken.gamma, taken.is_concerned) = (watched.gamma, watched.is_concerned);
                        shipper.set_alarm(taken.service, watched.alarm || watched.is_concerned);
                    }
                    None => new.push((lmap, watched.service.clone(), watched.interval, watched.gamma)),
                }
            }
        });
        for taken in gone.iter().filter_map(|lmap| taken.remove(lmap)) {
            shipper.end(taken.service, at);
            node.unregister(taken.hook);
        }
        for (lmap, name, interval, gamma) in new {
            match node.watch_rows(lmap, 1, false, ROWS) {
                // It was removed meanwhile.
                Err(WatchError::NoLmap(_)) => {}
                Ok((hook, _)) => {
                    let service = shipper.service(name.as_str(), interval);
                    taken.insert(lmap, LmapFeed { service, hook, gamma, is_concerned: false, titles: None });
                }
                Err(error) => {
                    node.counts.unwatched_lmaps.one_more();
                    tracing::debug!(%lmap, %error, "cannot watch rows for the remote monitor");
                }
            }
        }
    }

    /// Reads what does not come in rows, when due.
    fn read(&self, node: &Node, edge: Option<&Edge>, taken: &BTreeMap<LmapId, LmapFeed>) {
        if !self.lock().is_reading_due(self.at().wall) {
            return;
        }
        // Before taking the lock: spans and scrapes would wait for it.
        let mut counted = edge.map(span_metrics::read).unwrap_or_default();
        let mut readings: BTreeMap<ServiceNumber, Reading> = BTreeMap::new();
        node.inspect(|plane, _| {
            for (lmap, watched) in plane.lmap_views() {
                let Some(taken) = taken.get(&lmap) else { continue };
                // A service counts as up if one of its LMAPs sees it.
                let reading = readings.entry(taken.service).or_default();
                reading.up = reading.up.max(watched.up);
                reading.histograms.extend(counted.remove(watched.service.as_str()).unwrap_or_default());
            }
        });
        let at = self.at();
        let mut shipper = self.lock();
        for (service, reading) in &readings {
            shipper.read(*service, reading, at);
        }
    }

    /// Collects the rows of one LMAP.
    fn take_over(&self, node: &Node, lmap: LmapId, taken: &mut LmapFeed) {
        while let Some(next) = node.next_row(taken.hook) {
            let row = next.item;
            let same = taken.titles.as_ref().is_some_and(|titles| Arc::ptr_eq(titles, &row.columns));
            if !same && !self.change(node, lmap, taken, &row.columns) {
                // The configuration changed again: the columns of this row are unknown.
                node.counts.unnamed_rows.one_more();
                continue;
            }
            let at = self.at();
            let least = if taken.is_concerned { 1.0 } else { 0.0 };
            let score = taken.gamma.map(|gamma| (row.row.score / gamma).max(least));
            let row = Row { at: UnixNanos(row.row.at_unix_ns), values: &row.row.values, score };
            self.lock().row(taken.service, &row, at);
        }
    }

    /// Rows have new columns from now on. False if these are not the columns of the current configuration.
    fn change(&self, node: &Node, lmap: LmapId, taken: &mut LmapFeed, titles: &Arc<[String]>) -> bool {
        let present = node.inspect(|plane, _| {
            let watched = plane.lmap_view(lmap)?;
            let (present, metrics) = watched.sent?;
            Arc::ptr_eq(present, titles).then(|| (columns(metrics), watched.interval))
        });
        let Some((columns, interval)) = present else { return false };
        self.lock().set_columns(taken.service, &columns, interval, self.at());
        taken.titles = Some(Arc::clone(titles));
        true
    }

    /// Sends what is due until `node` drains, then what is queued, for up to `FLUSH_WITHIN`.
    pub async fn send(&self, node: &Node, mut client: Output) {
        tokio::select! {
            () = self.send_on(&mut client) => {}
            () = node.drained() => {}
        }
        self.lock().stop_lingering();
        if tokio::time::timeout(FLUSH_WITHIN, self.send_rest(&mut client)).await.is_err() {
            tracing::debug!("the remote monitor did not accept the last samples in time");
        }
    }

    async fn send_on(&self, client: &mut Output) {
        loop {
            if let Exchange::Nothing(until) = self.exchange(client).await {
                let wait = until.since(self.clock.now()).unwrap_or(Nanos::ZERO).min(Nanos::from_secs(3600));
                tokio::select! {
                    () = tokio::time::sleep(wait.into()) => {}
                    () = self.more.notified() => {}
                }
            }
        }
    }

    /// Sends what is queued until nothing is left or a request fails.
    async fn send_rest(&self, client: &mut Output) {
        // Whether the request in flight at shutdown arrived is unknown.
        self.lock().complete(&Reply::None, self.at(), 0.0);
        loop {
            match self.exchange(client).await {
                Exchange::Sent(Delivery::Retry(_)) | Exchange::Nothing(Nanos::NEVER) => return,
                Exchange::Sent(_) => {}
                Exchange::Nothing(until) => {
                    tokio::time::sleep(until.since(self.clock.now()).unwrap_or(Nanos::ZERO).into()).await;
                }
            }
        }
    }

    /// Sends one request, if there is one, and handles its reply.
    async fn exchange(&self, client: &mut Output) -> Exchange {
        let (version, body, failures) = match self.lock().poll(self.clock.now()) {
            Step::Wait(until) => return Exchange::Nothing(until),
            Step::Send(request) => (request.version, request.copy(), request.failures),
        };
        let report = client.send(version, body, failures).await;
        let outcome = self.lock().complete(&report.reply, self.at(), rand::random());
        match outcome {
            Delivery::Retry(pause) if failures == 0 => {
                tracing::warn!(why = report.text, pause = %pause, "the remote monitor does not accept samples; retrying");
            }
            Delivery::Retry(pause) => tracing::debug!(why = report.text, pause = %pause, failures, "again"),
            Delivery::Refused { written, refused } => {
                tracing::warn!(why = report.text, written, refused, "the remote monitor refused samples");
            }
            Delivery::OtherVersion(version) => tracing::info!(?version, "switching the version of remote write"),
            Delivery::Accepted(_) if failures > 0 => {
                tracing::info!(failures, "the remote monitor accepts samples again");
            }
            Delivery::Accepted(_) | Delivery::Unexpected => {}
        }
        Exchange::Sent(outcome)
    }
}

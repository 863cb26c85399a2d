//! Sends samples of all services to a remote monitor, by remote write or as OTLP metrics: rows come from the workers like any watcher's, what is sent and when is decided by
//! [`remote_write::shipper`]; here is what waits, wakes and sends.

mod exported;
mod output;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hooks::sampling::Row;
use hooks::time::UnixNanos;
use otlp::Edge;
use remote_write::answer::Answer;
use remote_write::encoding::Version;
use remote_write::feed::Column;
use remote_write::series::ServiceNumber;
use remote_write::shipper::{At, Heard, Shipper, Step};
use remote_write::steady::Reading;
use tokio::sync::Notify;
use wire::control::MetricSpec;
use wire::id::{HookId, LmapId};
use wire::time::Nanos;

pub use exported::Exported;
pub use output::Output;

use crate::clock::{self, Clock};
use crate::node::Node;
use crate::span_metrics;

/// How often rows are taken over. Workers let rows wait for up to 100 ms for each other.
const LOOK: Duration = Duration::from_millis(200);
/// Rows of one LMAP that wait for the next look: a second's at 1 ms, and what a worker kept from before.
const ROWS: usize = 2048;
/// How long what waits is still sent when the agent ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// One LMAP whose rows are taken.
#[derive(Debug)]
struct Taken {
    service: ServiceNumber,
    hook: HookId,
    gamma: Option<f64>,
    titles: Option<Arc<[String]>>,
}

/// What sends. One for each output that is configured.
#[derive(Debug)]
pub struct RemoteWriting {
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
            let (series, statistic) = span_metrics::for_monitors(series, statistic);
            Column { series, statistic }
        };
        statistics.iter().map(column).collect::<Vec<_>>()
    };
    metrics.iter().flat_map(of).collect()
}

impl RemoteWriting {
    /// Nothing is sent before [`Self::take_rows`] and [`Self::send`] run.
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

    fn lock(&self) -> MutexGuard<'_, Shipper> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.shipper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self) -> At {
        At { own: self.clock.now(), unix: UnixNanos(clock::unix_now().0) }
    }

    /// Takes over the rows of all LMAPs of `node` until it drains, and once in each interval of the baseline what `edge` counted, and who is up.
    pub async fn take_rows(&self, node: &Node, edge: Option<&Edge>) {
        let mut taken = BTreeMap::new();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut draining = node.draining();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
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

    /// Begins with new LMAPs, ends with those that are gone, and hears how the others are.
    fn follow(&self, node: &Node, taken: &mut BTreeMap<LmapId, Taken>) {
        let at = self.at();
        let mut shipper = self.lock();
        let mut new = Vec::new();
        let mut gone: Vec<LmapId> = taken.keys().copied().collect();
        node.look(|plane, _| {
            for (lmap, watched) in plane.watched() {
                gone.retain(|known| *known != lmap);
                match taken.get_mut(&lmap) {
                    Some(taken) => {
                        taken.gamma = watched.gamma;
                        shipper.set_alarm(taken.service, watched.alarm);
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
            // One that was freed meanwhile is not there any more.
            let Ok(watching) = node.watch_rows(lmap, 1, ROWS) else { continue };
            match watching {
                Ok((hook, _)) => {
                    let service = shipper.service(name.as_str(), interval);
                    taken.insert(lmap, Taken { service, hook, gamma, titles: None });
                }
                Err(error) => {
                    node.counts.unwatched_lmaps.one_more();
                    tracing::debug!(%lmap, %error, "its rows are not sent to the remote monitor");
                }
            }
        }
    }

    /// Reads what is made of no rows, when that is due.
    fn read(&self, node: &Node, edge: Option<&Edge>, taken: &BTreeMap<LmapId, Taken>) {
        if !self.lock().is_reading_due(self.at().unix) {
            return;
        }
        // Before anything is locked: spans wait for it, and so would whoever asks for metrics.
        let mut counted = edge.map(span_metrics::read).unwrap_or_default();
        let mut readings: BTreeMap<ServiceNumber, Reading> = BTreeMap::new();
        node.look(|plane, _| {
            for (lmap, watched) in plane.watched() {
                let Some(taken) = taken.get(&lmap) else { continue };
                // Of several LMAPs of a service one is enough to see it.
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

    /// Takes over the rows of one LMAP.
    fn take_over(&self, node: &Node, lmap: LmapId, taken: &mut Taken) {
        while let Some(next) = node.next_row(taken.hook) {
            let row = next.item;
            let same = taken.titles.as_ref().is_some_and(|titles| Arc::ptr_eq(titles, &row.columns));
            if !same && !self.change(node, lmap, taken, &row.columns) {
                // The configuration has changed again since: nobody knows what these values are.
                node.counts.unnamed_rows.one_more();
                continue;
            }
            let at = self.at();
            let score = taken.gamma.map(|gamma| row.row.score / gamma);
            let row = Row { at: UnixNanos(row.row.at_unix_ns), values: &row.row.values, score };
            self.lock().row(taken.service, &row, at);
        }
    }

    /// Rows have other columns from now on. False if these are not those of the present configuration.
    fn change(&self, node: &Node, lmap: LmapId, taken: &mut Taken, titles: &Arc<[String]>) -> bool {
        let told = node.look(|plane, _| {
            let watched = plane.watched_by(lmap)?;
            let (present, metrics) = watched.told?;
            Arc::ptr_eq(present, titles).then(|| (columns(metrics), watched.interval))
        });
        let Some((columns, interval)) = told else { return false };
        self.lock().set_columns(taken.service, &columns, interval, self.at());
        taken.titles = Some(Arc::clone(titles));
        true
    }

    /// Sends what is due until `node` drains, and then for a moment what still waits.
    pub async fn send(&self, node: &Node, mut client: Output) {
        tokio::select! {
            () = self.send_on(&mut client) => {}
            () = node.drained() => {}
        }
        self.lock().hurry();
        if tokio::time::timeout(LAST_WORDS, self.send_rest(&mut client)).await.is_err() {
            tracing::debug!("the remote monitor did not take the last samples in time");
        }
    }

    async fn send_on(&self, client: &mut Output) {
        loop {
            if let Err(until) = self.exchange(client).await {
                let wait = until.since(self.clock.now()).unwrap_or(Nanos::ZERO).min(Nanos::from_secs(3600));
                tokio::select! {
                    () = tokio::time::sleep(wait.into()) => {}
                    () = self.more.notified() => {}
                }
            }
        }
    }

    /// Sends what waits, until nothing does, or something fails.
    async fn send_rest(&self, client: &mut Output) {
        // What was under way when the agent was told to end is not known to have arrived.
        self.lock().answered(&Answer::None, self.at(), 0.0);
        loop {
            match self.exchange(client).await {
                Ok(Heard::Again(_)) | Err(Nanos::NEVER) => return,
                Ok(_) => {}
                Err(until) => {
                    tokio::time::sleep(until.since(self.clock.now()).unwrap_or(Nanos::ZERO).into()).await;
                }
            }
        }
    }

    /// Sends one request, and hears what comes back; the time to wait until if there is none.
    async fn exchange(&self, client: &mut Output) -> Result<Heard, Nanos> {
        let request = match self.lock().poll(self.clock.now()) {
            Step::Wait(until) => Err(until),
            Step::Send(request) => Ok((request.version, request.copy(), request.failures)),
        };
        let (version, body, failures) = request?;
        let said = client.send(version, body, failures).await;
        let heard = self.lock().answered(&said.answer, self.at(), rand::random());
        match heard {
            Heard::Again(pause) if failures == 0 => {
                tracing::warn!(why = said.text, pause = %pause, "the remote monitor takes no samples; they wait");
            }
            Heard::Again(pause) => tracing::debug!(why = said.text, pause = %pause, failures, "again"),
            Heard::Refused { written, refused } => {
                tracing::warn!(why = said.text, written, refused, "the remote monitor refuses samples");
            }
            Heard::OtherVersion(version) => tracing::info!(?version, "the remote monitor speaks another version"),
            Heard::Taken(_) if failures > 0 => tracing::info!(failures, "the remote monitor takes samples again"),
            Heard::Taken(_) | Heard::Unasked => {}
        }
        Ok(heard)
    }
}

//! OTLP metrics as a source: what services export passes on to the upstream unchanged, and the series that are worth a
//! column fill a region of the agent in their service. So the NIC agent and the LMAP know no difference. What is
//! watched decides [`exposition`].
//!
//! Each exporter is a replica: `service.instance.id`, or the sender's address. The replicas of a service watch the same
//! series: those that the first of them has chosen. Of replicas and of series one sender may have three times what is
//! free.

mod export_times;
mod exporter;
mod metrics;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::Count;
use agent_runtime::shares::Shares;
use agent_runtime::ticks::ticks;
use exposition::choice::ChoiceSettings;
use exposition::{Discard, Discards, TargetSettings};
use otlp::{Edge, ForwardedMetrics, Holder, MetricExport};
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

use crate::node::Node;
use exporter::Exporter;

pub(crate) use metrics::ExportMetrics;

/// How often exports are looked at that may have ended, while there are any.
const TICK: Duration = Duration::from_millis(50);
/// How often replicas are looked for that are gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it is a problem that an exporter, or series of one, had no room.
const REFUSED_FOR: Nanos = Nanos::from_secs(600);

/// What is watched, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportSettings {
    pub(crate) choice: ChoiceSettings,
    /// Exports that are learnt before series are chosen.
    pub(crate) window: u32,
    /// Replicas of all services, shared by their senders.
    pub(crate) exporters: usize,
    /// Series of one replica, and of all, shared by their senders.
    pub(crate) series: usize,
    pub(crate) all_series: usize,
    /// Points of one request that are looked at.
    pub(crate) points: usize,
    /// A replica that exports nothing for this long, and for five of its intervals, is gone.
    pub(crate) expire: Nanos,
    /// Bytes of requests that wait to be looked at.
    pub(crate) queue_bytes: usize,
}

impl ExportSettings {
    /// Exports for which an absent gauge has its last value: a reader of an SDK may be slower than another one.
    const HOLD: u32 = 2;

    fn target(&self) -> TargetSettings {
        TargetSettings {
            choice: self.choice.clone(),
            labels: Vec::new(),
            window: self.window,
            samples: self.series,
            hold: Self::HOLD,
        }
    }
}

/// Why a resource is not watched: its sender has too many exporters, or its service or instance has a name that none
/// may have.
const REFUSALS: [&str; 2] = ["too_many", "name"];

/// Counters since the agent's start.
#[derive(Debug, Default)]
struct ExportCounts {
    points: Count,
    exports: Count,
    /// In the order of [`Discard::ALL`].
    discarded: [Count; Discard::ALL.len()],
    /// Resources of which nothing is watched, in the order of [`REFUSALS`].
    refused: [Count; REFUSALS.len()],
}

type Services = BTreeMap<ServiceName, BTreeMap<InstanceName, Exporter>>;

#[derive(Debug, Default)]
struct State {
    services: Services,
    /// When an exporter was refused last, and who has most of them.
    refused: Option<(Nanos, String)>,
    /// When series were left out last for lack of room, and who has most of them.
    left_out: Option<(Nanos, String)>,
}

/// All exporters of metrics.
#[derive(Debug)]
pub(crate) struct Exports {
    settings: ExportSettings,
    state: Mutex<State>,
    counts: ExportCounts,
}

/// Starts to watch the metrics that `edge` takes, until `node` drains. Needs a tokio runtime.
pub(crate) fn start(settings: ExportSettings, edge: &Arc<Edge>, node: &Arc<Node>) -> Arc<Exports> {
    let exports = Arc::new(Exports { settings, state: Mutex::default(), counts: ExportCounts::default() });
    let (edge, node, running) = (Arc::clone(edge), Arc::clone(node), Arc::clone(&exports));
    tokio::spawn(async move {
        tokio::select! {
            () = running.run(&edge, &node) => {}
            () = node.drained() => {}
        }
    });
    exports
}

/// The name of a replica: characters that it may not have become `-`.
fn instance_name(id: &str) -> Option<InstanceName> {
    InstanceName::new(id).ok().or_else(|| {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.-/:".contains(letter);
        let allowed = id.chars().take(120).map(|letter| if is_allowed(letter) { letter } else { '-' });
        let allowed: String = allowed.collect();
        InstanceName::new(allowed.trim_start_matches(|first: char| !first.is_ascii_alphanumeric())).ok()
    })
}

impl Exports {
    async fn run(&self, edge: &Edge, node: &Node) {
        let (mut often, mut seldom) = (ticks(TICK), ticks(LOOK_EVERY));
        let mut are_open = false;
        loop {
            tokio::select! {
                request = edge.next_metrics() => {
                    self.take(&request, edge, node);
                    are_open = true;
                }
                _ = often.tick(), if are_open => are_open = self.tick(node, node.clock().now()),
                _ = seldom.tick() => are_open = self.tick(node, node.clock().now()),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request.
    fn take(&self, request: &ForwardedMetrics, edge: &Edge, node: &Node) {
        let (mut points, now) = (self.settings.points, node.clock().now());
        edge.each_export(request, |export| {
            // A resource without points costs something, too.
            let looked_at = if points > 0 { self.take_export(&export, points, node, now).max(1) } else { 0 };
            points = points.saturating_sub(looked_at);
        });
    }

    /// Takes one resource of a request, of which at most `points` points are looked at. Returns how many were.
    fn take_export(&self, export: &MetricExport<'_>, points: usize, node: &Node, now: Nanos) -> usize {
        let mut state = self.state();
        let names = ServiceName::new(&export.service).ok().zip(instance_name(&export.instance));
        let [too_many, name] = &self.counts.refused;
        let Some((service, instance)) = names else {
            name.one_more();
            return 0;
        };
        let State { services, refused, left_out } = &mut *state;
        let (replicas, series) = shares(services, &self.settings);
        let is_known = services.get(&service).is_some_and(|all| all.contains_key(&instance));
        if !is_known && let Err(error) = replicas.check(export.holder.clone(), 1) {
            if refused.is_none() {
                tracing::warn!(%error, "OTLP metrics of further replicas are not watched");
            }
            *refused = Some((now, error.to_string()));
            too_many.one_more();
            return 0;
        }
        let all = services.entry(service.clone()).or_default();
        let model = Exporter::model(all, &instance);
        let new = || Exporter::new((service, instance.clone()), export.holder.clone(), &self.settings);
        let exporter = all.entry(instance.clone()).or_insert_with(new);
        let room = series.room(exporter.holder());
        let free = usize::try_from(room).unwrap_or(usize::MAX);
        let is_bounded_by_share = exporter.weight().saturating_add(free) < self.settings.series;
        // Without room for what another replica has decided, it learns by itself.
        let model = model.filter(|(target, _)| target.weight() <= free);
        let free = free - model.as_ref().map_or(0, |(target, _)| target.weight());
        let read = exporter.take(export.encoded, (points, free), model, node, now);
        if self.count(exporter).of(Discard::NoRoom) > 0
            && is_bounded_by_share
            && let Err(error) = series.check(exporter.holder().clone(), room.saturating_add(1))
        {
            if left_out.is_none() {
                tracing::warn!(%error, "further series of OTLP metrics are not watched");
            }
            *left_out = Some((now, error.to_string()));
        }
        self.counts.points.add(read as u64);
        read
    }

    /// Ends exports of which nothing more came for a while, and forgets replicas that are gone. Returns whether there
    /// are exports that have not ended.
    fn tick(&self, node: &Node, now: Nanos) -> bool {
        let services = &mut self.state().services;
        let mut are_open = false;
        for all in services.values_mut() {
            for (_, exporter) in all.extract_if(.., |_, exporter| exporter.is_gone(self.settings.expire, now)) {
                exporter.leave(node);
            }
            for exporter in all.values_mut() {
                exporter.end_if_due(node, now);
                are_open |= exporter.is_open();
                _ = self.count(exporter);
            }
        }
        services.retain(|_, all| !all.is_empty());
        are_open
    }

    /// Counts what became of exports since the last call. Returns which points were left out.
    fn count(&self, exporter: &mut Exporter) -> Discards {
        let (discards, exports) = exporter.take_counts();
        self.counts.exports.add(exports);
        if discards != Discards::new() {
            for (why, count) in Discard::ALL.into_iter().zip(&self.counts.discarded) {
                count.add(discards.of(why));
            }
        }
        discards
    }
}

/// Who has how many exporters, and for how many series they count.
fn shares(services: &Services, settings: &ExportSettings) -> (Shares<Holder>, Shares<Holder>) {
    let (exporters, all_series) = (settings.exporters as u64, settings.all_series as u64);
    let mut replicas = Shares::new("replicas with OTLP metrics", "otlp.metrics.max_replicas", exporters);
    let mut series = Shares::new("series of OTLP metrics", "otlp.metrics.max_all_series", all_series);
    for exporter in services.values().flat_map(BTreeMap::values) {
        replicas.add(exporter.holder().clone(), 1);
        series.add(exporter.holder().clone(), exporter.weight() as u64);
    }
    (replicas, series)
}

/// How many exporters there are, and how many series of them are known.
fn sizes(services: &Services) -> (usize, usize) {
    let all = services.values().flat_map(BTreeMap::values);
    all.fold((0, 0), |(exporters, series), exporter| (exporters + 1, series + exporter.known_series()))
}

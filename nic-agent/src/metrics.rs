//! The agent's own metrics and health over HTTP: `/metrics` (OpenMetrics), `/healthz` and `/readyz`.

use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::Count;
use agent_runtime::account::Account;
use agent_runtime::clock::Clock;
use agent_runtime::reload::ReloadState;
use agent_runtime::server::{ReplyShares, with_page_shares};
use agent_runtime::{page, server};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use transport::Loss;
use wire::proto::control as proto;
use wire::time::Nanos;

use crate::memory_rows::MemoryRows;
use crate::network::{InterfaceSnapshot, Interfaces};
use crate::worker::WorkerStatus;

/// A worker's thread that has not updated its status for so long hangs. It does so at least once a second.
const HANG_TIMEOUT: Nanos = Nanos::from_secs(5);
/// What glibc adds to what is kept, in percent, with 100 services of 1,000 counters that change their names
/// (docs/bounds.md).
const ALLOCATOR_PERCENT: u64 = 23;

/// The status of the worker's thread, for the metrics endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    clock: Clock,
    state: Arc<Mutex<State>>,
    interfaces: Interfaces,
    connections: Arc<server::Counts>,
    denied_calls: Arc<Count>,
    reloads: Arc<ReloadState>,
    memory: Arc<MemoryRows>,
}

#[derive(Debug, Default)]
struct State {
    status: WorkerStatus,
    at: Nanos,
    broken_connections: u64,
}

impl Board {
    /// Nothing has happened, except `denied_calls`, which packet measurement counts, too.
    pub(crate) fn new(clock: Clock, interfaces: Interfaces, denied_calls: Arc<Count>, memory: MemoryRows) -> Self {
        let at = clock.now();
        Self {
            clock,
            state: Arc::new(Mutex::new(State { at, ..State::default() })),
            interfaces,
            connections: Arc::default(),
            denied_calls,
            reloads: Arc::default(),
            memory: Arc::new(memory),
        }
    }

    /// The counters of connections to the agent's own pages.
    pub(crate) fn connections(&self) -> Arc<server::Counts> {
        Arc::clone(&self.connections)
    }

    /// What became of changed configuration.
    pub(crate) fn reloads(&self) -> Arc<ReloadState> {
        Arc::clone(&self.reloads)
    }

    /// Counts a call that the role of its sender does not allow.
    pub(crate) fn count_denied_call(&self) {
        self.denied_calls.one_more();
    }

    /// Counts an open connection to the host agent that failed.
    pub(crate) fn connection_broke(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken_connections += 1;
    }

    /// Updates the status of the worker's thread, which shows that the thread is alive.
    pub(crate) fn publish(&self, status: WorkerStatus) {
        let at = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.status, state.at) = (status, at);
    }

    /// What the agent may keep in memory, and keeps. It costs what a scrape does.
    pub(crate) fn account(&self) -> proto::MemoryAccount {
        self.memory.account(&page::values(&self.registry()))
    }

    fn age(&self) -> Nanos {
        let at = self.state.lock().unwrap_or_else(PoisonError::into_inner).at;
        self.clock.now().since(at).unwrap_or(Nanos::ZERO)
    }

    fn registry(&self) -> Registry {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, broken) = (state.status.clone(), state.broken_connections);
        drop(state);
        let mut registry = registry(&status);
        add_account(&mut registry, &status);
        let help = "Connections to the host agent that failed, or delivered an invalid message";
        registry.register("broken_connections", help, ConstCounter::new(broken));
        for (name, help, count) in [
            (
                "denied_calls",
                "Calls for models, and of and to other NIC agents, that the other end's role does not allow",
                &*self.denied_calls,
            ),
            (
                "refused_api_connections",
                "Connections to metrics and models refused: too many, of all or of one peer",
                &self.connections.refused,
            ),
            (
                "unaffordable_api_connections",
                "Connections to metrics and models refused: the descriptors left are for regions",
                &self.connections.reserved,
            ),
            (
                "failed_api_accepts",
                "Failed accepts on metrics and models, usually for lack of descriptors",
                &self.connections.accept_errors,
            ),
            (
                "unread_api_replies",
                "Connections to metrics and models closed because a reply was not read in time",
                &self.connections.unread,
            ),
            (
                "refused_pages",
                "Requests for metrics and models refused: their sender had its share of replies that were not read",
                &self.connections.refused_pages,
            ),
        ] {
            registry.register(name, help, ConstCounter::new(count.get()));
        }
        let reloads = &self.reloads;
        let help = "Changes of configuration files taken over without a restart";
        registry.register("reloads", help, ConstCounter::new(reloads.taken()));
        let help = "Changed configuration files that could not be used";
        registry.register("failed_reloads", help, ConstCounter::new(reloads.failed()));
        let help = "1 while the configuration files as they are cannot be used, and those before are in use";
        let is_rejected = i64::from(reloads.problem().is_some());
        registry.register("configuration_rejected", help, ConstGauge::new(is_rejected));
        let interfaces = self.interfaces.all();
        add_interfaces(&mut registry, interfaces.iter().map(|interface| (interface.name(), interface.snapshot())));
        registry
    }

    /// Why the agent is not ready; `None` if it is.
    fn missing(&self) -> Option<String> {
        let age = self.age();
        missing(&self.state.lock().unwrap_or_else(PoisonError::into_inner).status, age)
    }

    /// The routes of all pages. Metrics that are not read hold what `held` has room for.
    pub(crate) fn router(self, held: &Arc<ReplyShares>) -> Router {
        let (health, readiness) = (self.clone(), self.clone());
        let metrics = Router::new().route("/metrics", get(move || async move { page::response(&self.registry()) }));
        with_page_shares(metrics, held)
            .route("/healthz", get(move || async move { healthz(health.age()) }))
            .route("/readyz", get(move || async move { readyz(readiness.missing()) }))
    }
}

fn readyz(missing: Option<String>) -> Response {
    match missing {
        None => (StatusCode::OK, "ready\n").into_response(),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {missing}\n")).into_response(),
    }
}

/// Why a worker is not ready. It is ready when a host agent has welcomed it, and each region of its LMAPs is attached
/// or has been reported as a problem. Its status is at most a second old.
fn missing(status: &WorkerStatus, age: Nanos) -> Option<String> {
    if age >= HANG_TIMEOUT {
        return Some(format!("the worker's thread has not responded for {age}"));
    }
    if !status.welcomed {
        return Some("no session with the host agent".to_owned());
    }
    let WorkerStatus { pending_regions, regions, .. } = status;
    (*pending_regions > 0).then(|| format!("{pending_regions} of {regions} regions are not attached yet"))
}

fn healthz(age: Nanos) -> Response {
    if age < HANG_TIMEOUT {
        (StatusCode::OK, "the worker's thread is running\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("the worker's thread has not responded for {age}\n")).into_response()
    }
}

/// All metrics of `status`, under names that start with `uview_nic_`.
fn registry(status: &WorkerStatus) -> Registry {
    let mut registry = page::registry("uview_nic");
    let of = &status.counters;
    for (name, help, value) in [
        ("ticks", "Ticks of all intervals", of.ticks),
        ("late_ticks", "Intervals that were skipped because a tick was late", of.late_ticks),
        ("fetched_regions", "Region fetches that succeeded", of.fetched_regions),
        ("failed_regions", "Region fetches that failed", of.failed_regions),
        ("failed_batches", "Batches that failed as a whole", of.failed_batches),
        ("connected_queue_pairs", "Connections of the queue pair (RDMA)", of.connections),
        ("revoked_regions", "Regions whose key was found revoked (RDMA)", of.revoked_regions),
        (
            "punched_regions",
            "Regions that are not read any more: their services freed memory that had been read",
            status.punched_regions,
        ),
        (
            "evicted_detectors",
            "Detectors of services without a configuration, dropped before their time: too many bytes",
            status.evicted_detectors,
        ),
        (
            "evicted_models",
            "Models of services that are gone, dropped before their time: too many, or too many bytes",
            status.evicted_models,
        ),
        ("extra_regions", "Region fetches between rows of LMAPs, since something seemed wrong", status.extra_regions),
        (
            "refused_extra_fetches",
            "Rows after which an LMAP was not fetched faster: too many READs, or too many bytes",
            status.refused_extra,
        ),
        ("early_alarms", "Alarms that began between two rows", status.early_alarms[0]),
        ("early_ends", "Alarms that ended between two rows", status.early_alarms[1]),
        ("lost_rows", "Rows lost because the host agent was slow or gone", of.lost_rows),
        ("lost_verdicts", "Verdicts lost because the host agent was slow or gone", of.lost_verdicts),
        (
            "unexpected_messages",
            "Messages of the host agent that were rejected, in whole or in part",
            of.unexpected_messages,
        ),
        ("host_sessions", "Sessions with the host agent. All but the first are reconnections", status.welcomes),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
    let cpu = Nanos(of.cpu_ns).as_secs_f64();
    registry.register("cpu_seconds", "CPU time of this process", ConstCounter::new(cpu));
    add_gauges(&mut registry, status);
    if !status.transport.is_empty() {
        registry.register("transport", "Transport for regions", Info::new([("name", status.transport.clone())]));
    }
    let discarded = Family::<[(&str, &str); 1], Counter>::default();
    for (reason, count) in ["generation", "header", "unread"].into_iter().zip(status.discarded) {
        discarded.get_or_create(&[("reason", reason)]).inc_by(count);
    }
    registry.register("discarded_samples", "Region samples that were not used, by reason", discarded);
    let lost = Family::<[(&str, &str); 1], Counter>::default();
    for (loss, count) in Loss::ALL.into_iter().zip(status.lost_batches) {
        lost.get_or_create(&[("reason", loss.name())]).inc_by(count);
    }
    registry.register("lost_batches", "Batches that failed as a whole, by reason", lost);
    let lmaps = Family::<[(&str, &str); 1], Gauge>::default();
    for (state, lmap) in ["learning", "armed", "drifted", "silent"].into_iter().zip(status.lmaps) {
        lmaps.get_or_create(&[("state", state)]).set(count(lmap));
    }
    registry.register("lmaps", "LMAPs, by state", lmaps);
    registry
}

/// Adds what has a current number.
fn add_gauges(registry: &mut Registry, status: &WorkerStatus) {
    for (name, help, value) in [
        ("queue_pair_connected", "1 while the queue pair is connected (RDMA)", i64::from(status.connected)),
        ("host_connected", "1 while a session with the host agent is open", i64::from(status.welcomed)),
        ("epoch", "Configuration epoch in effect", status.epoch.cast_signed()),
        (
            "retained_detectors",
            "Services without a configuration whose detectors are retained",
            count(status.retained_detectors),
        ),
        (
            "retained_detector_bytes",
            "Bytes of detectors of services without a configuration",
            status.retained_detector_bytes.cast_signed(),
        ),
        ("lmap_bytes", "Bytes of the detectors and rows of all LMAPs", status.lmap_bytes.cast_signed()),
        (
            "column_bytes",
            "Bytes of the columns of all LMAPs: where each value is read, and what is kept of it until the next read",
            status.column_bytes.cast_signed(),
        ),
        ("buffer_bytes", "Bytes into which regions are fetched", status.buffer_bytes.cast_signed()),
        (
            "retained_models",
            "Services that are gone of which the learned model is retained",
            count(status.retained_models),
        ),
        (
            "retained_model_bytes",
            "Bytes of learned models of services that are gone",
            status.retained_model_bytes.cast_signed(),
        ),
        ("silent_replicas", "Replicas whose heartbeat has stopped", count(status.silent_replicas)),
        ("fast_lmaps", "LMAPs that are fetched between rows, since something seems wrong", count(status.fast_lmaps)),
        ("fast_bytes", "Bytes of their columns between rows", status.fast_bytes.cast_signed()),
        (
            "learning_intervals",
            "LMAPs that learn another interval than the one at which they judge",
            count(status.learning_intervals),
        ),
        ("attached_regions", "Regions that are attached", count(status.attached)),
        ("regions", "Regions that are configured", count(status.regions)),
    ] {
        registry.register(name, help, ConstGauge::new(value));
    }
}

/// Adds the resident set, and what is accounted for of it.
fn add_account(registry: &mut Registry, status: &WorkerStatus) {
    let account = Account::now(status.kept_bytes(), ALLOCATOR_PERCENT);
    for (name, help, bytes) in account.iter().flat_map(Account::gauges) {
        registry.register(name, help, ConstGauge::new(bytes.cast_signed()));
    }
}

/// Adds the counters of interfaces with streams; adds nothing if there are none.
fn add_interfaces<'a>(registry: &mut Registry, interfaces: impl Iterator<Item = (&'a str, InterfaceSnapshot)>) {
    type Number = fn(&InterfaceSnapshot) -> u64;

    let interfaces: Vec<_> = interfaces.collect();
    if interfaces.is_empty() {
        return;
    }
    let counters: [(_, _, Number); 4] = [
        ("frames", "Frames read from an interface", |of| of.frames),
        ("dropped_frames", "Frames that the kernel dropped because the ring was full", |of| of.dropped),
        ("oversized_frames", "Frames read that a card or the kernel had merged (TSO, GSO, GRO)", |of| of.oversized),
        ("unstamped_frames", "Frames ignored because the card had not timestamped them", |of| of.unstamped),
    ];
    for (name, help, value) in counters {
        let family = Family::<[(&str, String); 1], Counter>::default();
        for (interface, snapshot) in &interfaces {
            family.get_or_create(&[("interface", (*interface).to_owned())]).inc_by(value(snapshot));
        }
        registry.register(name, help, family);
    }
    let gauges: [(_, _, Number); 2] = [
        ("rings", "Rings that read an interface; 0 while it cannot be read", |of| of.rings),
        ("hardware_timestamps", "1 if frames have timestamps of the card, 0 if of the kernel", |of| of.hardware.into()),
    ];
    for (name, help, value) in gauges {
        let family = Family::<[(&str, String); 1], Gauge>::default();
        for (interface, snapshot) in &interfaces {
            family.get_or_create(&[("interface", (*interface).to_owned())]).set(value(snapshot).cast_signed());
        }
        registry.register(name, help, family);
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text;
    use wire::proto::control::WorkerCounters;

    #[test]
    fn the_page_has_every_counter_and_ends_as_openmetrics_wants() {
        let counters = WorkerCounters { ticks: 12, late_ticks: 3, cpu_ns: 1_500_000_000, ..WorkerCounters::default() };
        let status = WorkerStatus {
            counters,
            lmaps: [0, 5, 0, 1],
            silent_replicas: 2,
            discarded: [7, 0, 9],
            welcomes: 4,
            lost_batches: [6, 5, 0, 0, 0],
            welcomed: true,
            ..WorkerStatus::default()
        };
        let mut page = String::new();

        text::encode(&mut page, &registry(&status)).unwrap();

        for line in [
            "uview_nic_ticks_total 12",
            "uview_nic_late_ticks_total 3",
            "uview_nic_cpu_seconds_total 1.5",
            "uview_nic_host_connected 1",
            "uview_nic_host_sessions_total 4",
            "uview_nic_silent_replicas 2",
            "uview_nic_discarded_samples_total{reason=\"generation\"} 7",
            "uview_nic_discarded_samples_total{reason=\"header\"} 0",
            "uview_nic_discarded_samples_total{reason=\"unread\"} 9",
            "uview_nic_lost_batches_total{reason=\"unconnected\"} 6",
            "uview_nic_lost_batches_total{reason=\"unanswered\"} 5",
            "uview_nic_lost_batches_total{reason=\"device\"} 0",
            "uview_nic_lmaps{state=\"armed\"} 5",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn every_interface_is_on_the_page_and_nothing_of_them_where_there_are_none() {
        let page = |interfaces: &[(&str, InterfaceSnapshot)]| {
            let (mut page, mut registry) = (String::new(), page::registry("uview_nic"));
            add_interfaces(&mut registry, interfaces.iter().copied());
            text::encode(&mut page, &registry).unwrap();
            page
        };
        let eth0 = InterfaceSnapshot { rings: 2, hardware: true, frames: 7, dropped: 5, unstamped: 3, oversized: 1 };

        let found = page(&[("eth0", eth0), ("lo", InterfaceSnapshot::default())]);

        for line in [
            "uview_nic_frames_total{interface=\"eth0\"} 7",
            "uview_nic_dropped_frames_total{interface=\"eth0\"} 5",
            "uview_nic_oversized_frames_total{interface=\"eth0\"} 1",
            "uview_nic_unstamped_frames_total{interface=\"eth0\"} 3",
            "uview_nic_rings{interface=\"eth0\"} 2",
            "uview_nic_hardware_timestamps{interface=\"eth0\"} 1",
            "uview_nic_rings{interface=\"lo\"} 0",
        ] {
            assert!(found.lines().any(|found| found == line), "no {line} in\n{found}");
        }
        assert!(!page(&[]).contains("interface"));
    }

    #[test]
    fn a_worker_is_ready_with_a_session_and_all_regions_attached_or_reported() {
        let ready = WorkerStatus { welcomed: true, regions: 5, attached: 4, ..WorkerStatus::default() };
        let now = Nanos::ZERO;

        assert_eq!(missing(&ready, now), None, "one is reported");
        let pending = missing(&WorkerStatus { pending_regions: 2, ..ready.clone() }, now).unwrap();
        assert_eq!(pending, "2 of 5 regions are not attached yet");
        let alone = missing(&WorkerStatus { welcomed: false, ..ready.clone() }, now).unwrap();
        assert_eq!(alone, "no session with the host agent");
        assert!(missing(&ready, HANG_TIMEOUT).unwrap().contains("has not responded"));
        assert_eq!(readyz(None).status(), StatusCode::OK);
        assert_eq!(readyz(Some(alone)).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn a_worker_that_hangs_is_not_healthy() {
        assert_eq!(healthz(Nanos::from_secs(4)).status(), StatusCode::OK);
        assert_eq!(healthz(Nanos::from_secs(5)).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

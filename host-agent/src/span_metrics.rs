//! Writes span metrics (errors and durations per operation) into regions of the agent, so that LMAPs see them along
//! with the service's own metrics, or alone. Where they are to be no columns, they are counted only.
//!
//! Each service has a replica `spans` in this process. Its region has room for all operations that are counted
//! separately. Slots are not reused: when an operation expires, the replica is replaced by one without it.

mod durations;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_runtime::ticks::ticks;
use hooks::id::{OperationId, ServiceId};
use hooks::paths::Rate;
use otlp::span_metrics::ServiceSpanMetrics;
use otlp::{Edge, SpanMetrics, SpanMetricsSettings};
use region::OwnedRegion;
use wire::layout::{RegionSize, Slot};
use wire::metric::Declaration;
use wire::name::{InstanceName, MetricName, NameError, ServiceName};
use wire::registration::{PlacedSeries, Shards};
use wire::time::Nanos;

use crate::control_plane::ConnectionId;
use crate::node::Node;
use crate::span_columns::{self, DURATION, ERRORS, INSTANCE, SLOTS};

pub(crate) use durations::{ByService, read};

/// How often each metric changes if written every `interval`.
pub(crate) fn periods(interval: Nanos) -> impl Iterator<Item = (MetricName, Nanos)> {
    [DURATION, ERRORS].into_iter().filter_map(move |name| Some((MetricName::new(name).ok()?, interval)))
}

/// What becomes of span metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// They are columns of LMAPs.
    Columns,
    /// Figures of `/metrics` and of the map.
    Figures,
}

/// Counts the spans of `edge` that are due every `interval`, and writes them for LMAPs if they are to be columns, until
/// `node` drains. Does nothing if spans are not counted.
pub(crate) async fn run(
    edge: Arc<Edge>,
    node: Arc<Node>,
    settings: SpanMetricsSettings,
    (interval, destination): (Nanos, Destination),
) {
    let writer = Writer { services: BTreeMap::new(), operations: settings.operations, changes: 0 };
    let mut writer = (destination == Destination::Columns).then_some(writer);
    let mut ticks = ticks(interval.into());
    let mut drained = core::pin::pin!(node.drained());
    loop {
        tokio::select! {
            () = &mut drained => return,
            _ = ticks.tick() => {}
        }
        // Under the lock that spans wait for, so only a few stores per operation.
        _ = edge.with_span_metrics(|derived| {
            if let Some(writer) = &mut writer {
                writer.write(derived, &node);
            }
        });
    }
}

/// Slots of an operation, and the number of requests last written.
#[derive(Debug)]
struct OperationSlots {
    first: Slot,
    requests: u64,
}

/// A service's replica for span metrics.
#[derive(Debug)]
struct SpanReplica {
    connection: ConnectionId,
    region: OwnedRegion,
    places: BTreeMap<OperationId, OperationSlots>,
}

#[derive(Debug)]
struct Writer {
    services: BTreeMap<ServiceId, SpanReplica>,
    operations: usize,
    /// As of [`otlp::SpanMetrics::changes`].
    changes: u64,
}

impl Writer {
    fn write(&mut self, derived: &SpanMetrics, node: &Node) {
        if self.changes != derived.changes() {
            self.changes = derived.changes();
            self.register(derived, node);
        }
        let now = node.clock().now();
        for service in derived.services() {
            let Some(written) = self.services.get_mut(&service.id) else { continue };
            for (operation, _, rate) in service.operations() {
                if let Some(place) = written.places.get_mut(&operation) {
                    place.write(&written.region, rate);
                }
            }
            written.region.sampled(now);
        }
    }

    /// Adds, replaces and removes replicas to match the counted services.
    fn register(&mut self, derived: &SpanMetrics, node: &Node) {
        let here: BTreeMap<ServiceId, ServiceSpanMetrics<'_>> =
            derived.services().map(|service| (service.id, service)).collect();
        let gone: Vec<ServiceId> = self.services.keys().filter(|id| !here.contains_key(id)).copied().collect();
        for written in gone.into_iter().filter_map(|id| self.services.remove(&id)) {
            node.service_gone(written.connection);
        }
        for (id, service) in here {
            let lacks = |written: &SpanReplica| {
                let known = service.operations().filter(|(id, ..)| written.places.contains_key(id)).count();
                known < written.places.len()
            };
            match self.services.get_mut(&id) {
                Some(written) if !lacks(written) => {
                    let new = written.place(&service);
                    if !new.is_empty() {
                        node.agent_series(written.connection, new);
                    }
                }
                _ => self.replace(&service, node),
            }
        }
    }

    /// Replaces the replica of `service`. The old one ends after the new one exists, so that common series stay.
    fn replace(&mut self, service: &ServiceSpanMetrics<'_>, node: &Node) {
        match SpanReplica::new(service, self.operations, node) {
            Ok(written) => {
                if let Some(old) = self.services.insert(service.id, written) {
                    node.service_gone(old.connection);
                }
            }
            Err(error) => {
                // Retried with the next change.
                tracing::warn!(service = service.name(), error = &*error, "cannot create a region for span metrics");
            }
        }
    }
}

type Failure = Box<dyn core::error::Error>;

impl SpanReplica {
    fn new(service: &ServiceSpanMetrics<'_>, operations: usize, node: &Node) -> Result<Self, Failure> {
        let (name, instance) = (ServiceName::new(service.name())?, InstanceName::new(INSTANCE)?);
        // One more for `_other`.
        let size = RegionSize::for_slots(SLOTS * (operations as u32 + 1))?;
        let region = OwnedRegion::create("uview-spans", size)?;
        let mut written = Self { connection: ConnectionId(0), region, places: BTreeMap::new() };
        let series = written.place(service);
        written.region.sampled(node.clock().now());
        written.connection = node.agent_replica(name, instance, &written.region, series);
        Ok(written)
    }

    /// Gives slots to new operations and writes their values. Returns their series.
    fn place(&mut self, service: &ServiceSpanMetrics<'_>) -> Vec<PlacedSeries> {
        let mut series = Vec::new();
        for (operation, name, rate) in service.operations() {
            if self.places.contains_key(&operation) {
                continue;
            }
            let first = Slot(self.places.len() as u32 * SLOTS);
            let Ok(placed) = placed(name, first) else { continue };
            series.extend(placed);
            let mut place = OperationSlots { first, requests: 0 };
            place.write(&self.region, rate);
            self.places.insert(operation, place);
        }
        series
    }
}

impl OperationSlots {
    fn write(&mut self, region: &OwnedRegion, rate: &Rate) {
        if self.requests == rate.requests {
            return;
        }
        self.requests = rate.requests;
        for (slot, value) in (self.first.0..).zip(span_columns::values(rate)) {
            if let Some(slot) = region.slot(Slot(slot)) {
                // Relaxed: values are independent of each other.
                slot.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// The series of operation `name`, with slots from `first` on.
fn placed(name: &str, first: Slot) -> Result<[PlacedSeries; 2], NameError> {
    let place =
        |series, first| PlacedSeries { series, region: 0, first, shards: Shards::ONE, declared: Declaration::NONE };
    let [errors, durations] = span_columns::series(name)?;
    Ok([place(errors, first), place(durations, Slot(first.0 + 1))])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use otlp::Timestamp;
    use wire::id::Incarnation;
    use wire::layout::VERSION;
    use wire::metric::Series;
    use wire::name::Labels;
    use wire::proto::operators::LmapInfo;
    use wire::registration::{Hello, ServiceMessage};
    use wire::time::Interval;
    use wire::time::UnixNanos;

    use super::*;
    use crate::clock::Clock;
    use crate::control_plane::{Peer, Settings};
    use crate::span_columns::for_monitors;

    fn node() -> Node {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None)
    }

    fn at(seconds: u64) -> Timestamp {
        let monotonic = Nanos::from_secs(seconds);
        Timestamp { monotonic, wall: UnixNanos::from_secs(1_700_000_000).plus(monotonic) }
    }

    fn derived() -> SpanMetrics {
        let settings = SpanMetricsSettings { operations: 2, delay: Nanos::ZERO, ..SpanMetricsSettings::default() };
        SpanMetrics::new(settings, at(0))
    }

    /// A failed request of `service` that took 2 ms.
    fn request(derived: &mut SpanMetrics, service: &str, operation: &str, seconds: u64) {
        let now = at(seconds);
        let id = derived.service(service, now.monotonic).unwrap();
        derived.record_request(id, operation, Nanos::from_millis(2), true, now);
        derived.advance(now);
    }

    fn lmaps(node: &Node) -> Vec<LmapInfo> {
        node.inspect(|plane, _| plane.list()).lmaps
    }

    /// Titles and metric ids.
    fn metrics(lmap: &LmapInfo) -> Vec<(String, u32)> {
        lmap.metrics.iter().map(|metric| (format!("{}{}", metric.name, metric.labels), metric.metric)).collect()
    }

    fn up(node: &Node) -> Vec<Option<bool>> {
        node.inspect(|plane, _| plane.lmap_views().map(|(_, watched)| watched.up).collect())
    }

    #[test]
    fn for_monitors_rows_have_calls_where_the_histogram_has_a_count() {
        let named = |series: &Series| {
            let of = |statistic| {
                let (series, statistic) = for_monitors(series, statistic);
                remote_write::naming::metric(&series, statistic).name
            };
            series.kind.statistics().iter().map(|statistic| of(*statistic)).collect::<Vec<_>>()
        };
        let [errors, durations] = placed("POST /pay", Slot(0)).unwrap();

        assert_eq!(named(&errors.series), ["traces_span_metrics_errors_total"]);
        let duration = |suffix| format!("traces_span_metrics_duration_seconds_{suffix}");
        let expected = ["traces_span_metrics_calls_total".to_owned(), duration("mean"), duration("p99")];
        assert_eq!(named(&durations.series), expected);
    }

    fn writer() -> Writer {
        Writer { services: BTreeMap::new(), operations: 2, changes: 0 }
    }

    #[test]
    fn a_service_that_only_sends_spans_has_an_lmap_until_it_sends_none() {
        let (node, mut derived, mut writer) = (node(), derived(), writer());
        request(&mut derived, "payment", "POST /pay", 1);
        writer.write(&derived, &node);
        request(&mut derived, "payment", "POST /pay", 2);
        request(&mut derived, "payment", "GET /list", 2);
        writer.write(&derived, &node);

        let lmaps_then = lmaps(&node);
        let titles: Vec<_> = metrics(&lmaps_then[0]).into_iter().map(|(title, _)| title).collect();
        assert_eq!(lmaps_then[0].service, "payment");
        let expected = [
            r#"traces.span.metrics.duration{span.name="GET /list"}"#,
            r#"traces.span.metrics.duration{span.name="POST /pay"}"#,
            r#"traces.span.metrics.errors{span.name="GET /list"}"#,
            r#"traces.span.metrics.errors{span.name="POST /pay"}"#,
        ];
        assert_eq!(titles, expected);
        let written = writer.services.values().next().unwrap();
        // A service known by spans only has no `up`.
        assert_eq!(up(&node), [None]);
        let value = |slot: u32| written.region.slot(Slot(slot)).unwrap().load(Ordering::Relaxed);
        let sum = 1 + SpanMetrics::SCALE.sum_slot();
        assert_eq!((value(0), value(sum), value(SLOTS), value(SLOTS + sum)), (2, 4_000, 1, 2_000));

        derived.advance(at(700));
        writer.write(&derived, &node);
        assert!(lmaps(&node).is_empty());
    }

    #[test]
    fn spans_of_a_service_that_registered_itself_are_in_the_same_lmap() {
        let (node, mut derived, mut writer) = (node(), derived(), writer());
        let (id, _outbox) = node.service_connected(Peer { pid: 0, uid: 0, cgroup: String::new() });
        let (service, instance) = (ServiceName::new("payment").unwrap(), InstanceName::new("payment-1").unwrap());
        node.service_message(id, ServiceMessage::Hello(Hello::new(service, instance, Labels::default())), None);
        let own = OwnedRegion::create("test", RegionSize::ONE_PAGE).unwrap();
        let (size, memory) = (own.size(), own.as_fd().try_clone_to_owned().unwrap());
        let region = ServiceMessage::AddRegion { region: 0, size, layout_version: VERSION };
        node.service_message(id, region, Some(memory));
        let [errors, _] = placed("own", Slot(0)).unwrap();
        node.service_message(id, ServiceMessage::AddSeries(vec![Ok(errors)]), None);

        request(&mut derived, "payment", "POST /pay", 1);
        writer.write(&derived, &node);

        let lmaps = lmaps(&node);
        assert_eq!(lmaps.len(), 1);
        let instances: Vec<_> = lmaps[0].replicas.iter().map(|replica| replica.instance.as_str()).collect();
        assert_eq!((instances, lmaps[0].metrics.len()), (vec!["payment-1", INSTANCE], 3));
        // It is registered, but no worker measures it.
        assert_eq!(up(&node), [Some(false)]);
    }

    #[test]
    fn a_forgotten_operation_goes_and_the_others_keep_their_numbers() {
        let (node, mut derived, mut writer) = (node(), derived(), writer());
        request(&mut derived, "payment", "GET /old", 0);
        request(&mut derived, "payment", "POST /pay", 0);
        writer.write(&derived, &node);
        let before = metrics(&lmaps(&node)[0]);

        request(&mut derived, "payment", "POST /pay", 300);
        derived.advance(at(610));
        writer.write(&derived, &node);
        request(&mut derived, "payment", "PUT /new", 611);
        writer.write(&derived, &node);

        let lmaps = lmaps(&node);
        let after = metrics(&lmaps[0]);
        let stayed = |title: &String| title.contains("POST /pay");
        assert_eq!(lmaps[0].replicas.len(), 1);
        assert!(!after.iter().any(|(title, _)| title.contains("/old")), "{after:?}");
        assert!(after.iter().any(|(title, _)| title.contains("/new")), "{after:?}");
        let numbers =
            |all: &[(String, u32)]| all.iter().filter(|(title, _)| stayed(title)).cloned().collect::<Vec<_>>();
        assert_eq!(numbers(&before), numbers(&after));
    }

    #[test]
    fn agent_replicas_take_no_place_from_services() {
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let mut settings = Settings::new(Incarnation(1), interval);
        settings.limits.connections = 1;
        let (node, mut derived, mut writer) = (Node::new(settings, 4, Clock::start(), None), derived(), writer());
        for service in ["a", "b", "c"] {
            request(&mut derived, service, "x", 1);
        }
        writer.write(&derived, &node);

        let peer = || Peer { pid: 0, uid: 0, cgroup: String::new() };
        node.service_connected(peer());
        assert_eq!(node.inspect(|plane, _| plane.counters().refused_connections), 0);
        node.service_connected(peer());
        assert_eq!(node.inspect(|plane, _| plane.counters().refused_connections), 1);
        assert_eq!(lmaps(&node).len(), 3);
    }
}

//! Both agents in virtual time: the host agent's endpoint writes span metrics into regions, a worker of the NIC agent
//! reads and scores them, and its verdicts become findings. All of it is the agents' own code.

use core::num::NonZeroU32;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use hooks::tracing::ScoreBreakdown;
use host_agent::control_plane::{Event, NamedReason};
use host_agent::dispatch::Filter;
use host_agent::findings::findings;
use host_agent::span_columns::{SLOTS, series, values};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use otlp::codec::scan;
use otlp::{Finding, SpanMetrics, SpanMetricsSettings, Timestamp};
use transport::local::Region;
use transport::{Access, LocalReader, RegionReader as _};
use wire::control::{DetectorSpec, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec, Verdict};
use wire::id::{LmapId, MetricId, Owner, RegionId, ReplicaId, WorkerId};
use wire::layout::{RegionSize, Slot};
use wire::metric::Aggregation;
use wire::name::{InstanceName, ServiceName};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage, worker_message};
use wire::time::{Interval, Nanos, UnixNanos};

/// One service's LMAP with its region.
struct ServiceLmap {
    spec: LmapSpec,
    region: Region,
}

/// The agents of one node.
pub struct Agents {
    derived: SpanMetrics,
    interval: Nanos,
    worker: Worker,
    reader: LocalReader,
    watched: Vec<ServiceLmap>,
    /// Delay of the worker's ticks after those of the host agent.
    phase: Nanos,
}

impl Agents {
    pub fn new(seed: u64, interval: Nanos, phase: Nanos, now: Timestamp) -> Self {
        let worker = Worker::new(WorkerSettings::default(), seed);
        let (derived, reader) = (SpanMetrics::new(SpanMetricsSettings::default(), now), LocalReader::new());
        Self { derived, interval, worker, reader, watched: Vec::new(), phase }
    }

    /// Processes a request with spans.
    pub fn spans(&mut self, request: &[u8], now: Timestamp) -> Result<()> {
        let derived = &mut self.derived;
        scan(request, |group, span| {
            let service = group.service_name().and_then(|name| derived.service(name, now.monotonic));
            if let Ok(span) = span {
                derived.record_span(service, &span, now);
            }
        })?;
        Ok(())
    }

    /// Creates the LMAPs and starts the worker, after every service and operation has sent spans.
    pub fn begin(&mut self, now: Timestamp) -> Result<()> {
        self.derived.advance(now);
        let lmaps: Result<Vec<_>> = (1..)
            .zip(self.derived.services())
            .map(|(number, service)| watched(number, service, self.interval))
            .collect();
        self.watched = lmaps?;
        let at = now.monotonic.plus(self.phase);
        self.worker.connected(at);
        let welcome = proto::HostWelcome {
            host_incarnation: 1,
            lowest_share: 0.5,
            lease_ms: 60_000,
            transport: "shm".into(),
            ..proto::HostWelcome::default()
        };
        let mut tell = |epoch, message| self.worker.on_host(at, HostMessage { epoch, message: Some(message) });
        tell(0, Message::Welcome(welcome))?;
        for (epoch, watched) in (1..).zip(&self.watched) {
            tell(epoch, Message::SetLmap(proto::Lmap::from(&watched.spec)))?;
        }
        for effect in self.worker.take_effects() {
            if let Effect::Attach(request) = effect {
                let region = &self.watched.get(request.region.0 as usize - 1).context("no such region")?.region;
                self.reader.attach(request.region, request.size, Access::Memory(region.clone()))?;
                self.worker.attached(at, request.region, Ok(()));
            }
        }
        Ok(())
    }

    /// Writes the current span metrics; called every interval, like the host agent.
    pub fn write(&mut self, now: Timestamp) -> Result<()> {
        self.derived.advance(now);
        for (service, watched) in self.derived.services().zip(&self.watched) {
            ensure!(service.operations().count() * 2 == watched.spec.metrics.len(), "an operation came late");
            for (place, (_, _, rate)) in (0_u32..).zip(service.operations()) {
                for (slot, value) in (place * SLOTS..).zip(values(rate)) {
                    if let Some(word) = watched.region.slot(Slot(slot)) {
                        word.store(value, Ordering::Relaxed);
                    }
                }
            }
            watched.region.beat();
        }
        Ok(())
    }

    /// The worker's tick at `now`. Calls `tell` with the findings that the host agent passes to its endpoint.
    pub fn look(&mut self, now: Timestamp, mut tell: impl FnMut(Finding<'_>)) {
        if self.worker.poll(now.monotonic) == Step::Fetch {
            let fetched = self.reader.fetch(self.worker.batch());
            self.worker.fetched(now.monotonic, now.wall, &fetched);
        }
        while let Some((id, job)) = self.worker.take_job() {
            self.worker.job_done(id, job.run());
        }
        let messages: Vec<_> = self.worker.outbox().collect();
        for message in messages {
            if let Some(worker_message::Message::Verdicts(verdicts)) = message.message {
                for verdict in verdicts.verdicts.iter().filter_map(Verdict::decode) {
                    self.tell(verdict, UnixNanos(verdicts.at_unix_ns), &mut tell);
                }
            }
        }
    }

    /// Number of armed LMAPs.
    pub fn armed(&self) -> usize {
        self.worker.status().lmaps[1]
    }

    /// Passes a verdict on as the host agent does, to a hook with scores from γ on. No replica has a heartbeat, so that
    /// none becomes silent.
    fn tell(&self, verdict: Verdict, at: UnixNanos, tell: &mut impl FnMut(Finding<'_>)) {
        let Some(watched) = self.watched.iter().find(|watched| watched.spec.id == verdict.lmap) else { return };
        let series = |id| watched.spec.metrics.iter().find(|metric| metric.id == id).map(|metric| &metric.series);
        let named = verdict.reasons.iter().filter_map(|reason| {
            series(reason.metric).map(|series| NamedReason::new(series.clone(), reason, String::new(), String::new()))
        });
        let row = verdict.row.as_ref().zip(verdict.gamma);
        let event = Event {
            worker: WorkerId(0),
            service: watched.spec.service.clone(),
            at,
            reasons: named.collect(),
            breakdown: row.map(|(row, gamma)| ScoreBreakdown::of(row, gamma, series)),
            silent: Vec::new(),
            suspicion: None,
            columns: None,
            concerned: Vec::new(),
            verdict,
        };
        if (Filter { min_share: 1.0, ..Filter::default() }).matches_event(&event) {
            findings(&event, "", |at| Some(self.derived.covered_period(at, self.interval))).for_each(tell);
        }
    }
}

fn watched(number: u32, service: otlp::span_metrics::ServiceSpanMetrics<'_>, interval: Nanos) -> Result<ServiceLmap> {
    let operations: Vec<_> = service.operations().map(|(_, name, _)| name.to_owned()).collect();
    let size = RegionSize::for_slots(SLOTS * (SpanMetricsSettings::default().operations as u32 + 1))?;
    let region = RegionId(u64::from(number));
    let (mut metrics, mut places) = (Vec::new(), Vec::new());
    for (place, operation) in (0_u32..).zip(&operations) {
        for (which, series) in (0..).zip(series(operation)?) {
            let id = MetricId(2 * place + which + 1);
            let aggregation = Aggregation::default_for(series.kind);
            metrics.push(MetricSpec { id, series, aggregation, every: NonZeroU32::MIN });
            places.push(MetricPlace { metric: id, region, first: Slot(place * SLOTS + which) });
        }
    }
    let regions = vec![RegionSpec { id: region, size, heartbeat: false, address: 0, rkey: 0, sample_times: false }];
    let instance = InstanceName::new("spans")?;
    let spec = LmapSpec {
        id: LmapId(number),
        service: ServiceName::new(service.name())?,
        interval: Interval::new(interval)?,
        heartbeat: Nanos::from_millis(100),
        metrics,
        replicas: vec![ReplicaSpec { id: ReplicaId(number), instance, owner: Owner::Agent, regions, places }],
        model: Vec::new(),
        detector: DetectorSpec::default(),
        several_services: false,
        fastest: None,
    };
    Ok(ServiceLmap { spec, region: Region::new(size) })
}

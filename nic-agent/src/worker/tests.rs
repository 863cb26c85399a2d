//! A worker in virtual time, with regions in this process and a host agent that sends what a test wants.

mod connecting;
mod control;
mod detection;
mod models;
mod pace;
mod reading;
mod replicas;
mod sampled;
mod streams;
mod warm;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering::Relaxed;

use transport::local::Region;
use transport::{Access, LocalReader, RegionReader};
use wire::control::{
    DetectorSpec, Episode, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec, ScoreForm, State, Verdict,
};
use wire::histogram::Scale;
use wire::id::{Epoch, LmapId, MetricId, Owner, RegionId, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::{Aggregation, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{self as proto, HostMessage};
use wire::rdma::Endpoint;
use wire::time::{Interval, Nanos, UnixNanos};

use super::{Step, Worker};
use crate::attachments::Effect;
use crate::effect_error::EffectError;
use crate::error::UnexpectedMessage;
use crate::lmap_runtime::LmapRuntime;
use crate::queue_pair::QueuePairEffect;
use crate::settings::{Fetching, WorkerSettings};

/// The interval and the heartbeat period of all LMAPs here.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// The wall-clock time at the start of the monotonic clock.
const WALL_START: u64 = 1_700_000_000_000_000_000;

/// A worker and its surroundings.
struct Node {
    worker: Worker,
    reader: LocalReader,
    regions: BTreeMap<RegionId, Region>,
    now: Nanos,
    host: u64,
    epoch: u64,
    /// Messages of the worker.
    messages: Vec<ToHost>,
    /// Whether the worker has closed the connection.
    closed: bool,
    /// Transports that the worker has used.
    used: Vec<Fetching>,
    /// The worker's end of the queue pair, while there is a device.
    device: Option<Endpoint>,
    /// Whether jobs are run as soon as the worker returns them.
    runs_jobs: bool,
    /// How often the host agent wants models.
    models_every_s: u32,
    /// Whether the host agent wants to know what is retained.
    takes_retained: bool,
    /// Streams that it was asked for.
    streams: Vec<proto::SetStreams>,
}

impl Node {
    /// A worker with a session.
    fn new(settings: WorkerSettings) -> Self {
        let mut node = Self {
            worker: Worker::new(settings, 7),
            reader: LocalReader::new(),
            regions: BTreeMap::new(),
            now: Nanos::ZERO,
            host: 1,
            epoch: 0,
            messages: Vec::new(),
            closed: false,
            used: Vec::new(),
            device: None,
            runs_jobs: true,
            models_every_s: 0,
            takes_retained: false,
            streams: Vec::new(),
        };
        node.welcome(1);
        node
    }

    /// Connects to this run of the host agent, which welcomes the worker.
    fn welcome(&mut self, host: u64) {
        self.welcome_to(host, "").unwrap();
    }

    /// The same, with the transport `transport`.
    fn welcome_to(&mut self, host: u64, transport: &str) -> Result<(), UnexpectedMessage> {
        self.host = host;
        self.worker.connected(self.now);
        let welcome = proto::HostWelcome {
            host_incarnation: host,
            lowest_share: 0.5,
            lease_ms: 60_000,
            transport: transport.to_owned(),
            models_every_s: self.models_every_s,
            takes_retained: self.takes_retained,
            ..proto::HostWelcome::default()
        };
        self.receive(self.epoch, FromHost::Welcome(welcome))
    }

    fn receive(&mut self, epoch: u64, message: FromHost) -> Result<(), UnexpectedMessage> {
        let taken = self.worker.on_host(self.now, HostMessage { epoch, message: Some(message) });
        self.act();
        taken
    }

    /// Sends a change with the next epoch.
    fn change(&mut self, message: FromHost) -> Result<(), UnexpectedMessage> {
        self.epoch += 1;
        self.receive(self.epoch, message)
    }

    /// Creates the regions that `spec` names, if they do not exist, and configures it.
    fn set(&mut self, spec: &LmapSpec) {
        for region in spec.replicas.iter().flat_map(|replica| &replica.regions) {
            self.regions.entry(region.id).or_insert_with(|| Region::new(region.size));
        }
        self.change(FromHost::SetLmap(spec.into())).unwrap();
    }

    /// Carries out the worker's effects, and takes its messages.
    fn act(&mut self) {
        for effect in self.worker.take_effects() {
            match effect {
                Effect::Attach(request) => {
                    let outcome = match self.regions.get(&request.region) {
                        None => Err("no such region".into()),
                        Some(region) => {
                            let access = Access::Memory(region.clone());
                            self.reader.attach(request.region, request.size, access).map_err(|e| EffectError::of(&e))
                        }
                    };
                    self.worker.attached(self.now, request.region, outcome);
                }
                Effect::Detach(region) => self.reader.detach(region),
                Effect::Use(fetching) => self.used.push(fetching),
                Effect::QueuePair(QueuePairEffect::Reset(psn)) => {
                    let outcome = self.device.map(|end| Endpoint { psn, ..end }).ok_or_else(|| "no device".into());
                    self.worker.queue_pair_reset(self.now, outcome);
                }
                Effect::QueuePair(QueuePairEffect::Connect(_)) => self.worker.queue_pair_connected(self.now, Ok(())),
                Effect::SetStreams(streams) => self.streams.push(streams),
                Effect::Disconnect { .. } => self.closed = true,
            }
        }
        while self.runs_jobs
            && let Some((id, job)) = self.worker.take_job()
        {
            self.worker.job_done(id, job.run());
        }
        self.messages.extend(self.worker.outbox().filter_map(|message| message.message));
    }

    /// Runs until the end of the next tick, and returns its time.
    fn tick(&mut self) -> Nanos {
        loop {
            match self.worker.poll(self.now) {
                Step::SleepUntil(deadline) => {
                    assert!(deadline > self.now, "it would spin");
                    self.now = deadline;
                    self.act();
                }
                Step::Fetch => {
                    self.fetch();
                    return self.now;
                }
            }
        }
    }

    fn fetch(&mut self) {
        let fetched = self.reader.fetch(self.worker.batch());
        let refused = self.worker.fetched(self.now, UnixNanos(WALL_START).plus(self.now), &fetched);
        assert!(refused.is_empty(), "{refused:?}");
        self.act();
    }

    /// Raises the heartbeat of all regions, then ticks.
    fn alive(&mut self) -> Nanos {
        self.regions.values().for_each(Region::beat);
        self.tick()
    }

    fn store(&self, region: u64, slot: u32, value: u64) {
        self.regions[&RegionId(region)].slot(Slot(slot)).unwrap().store(value, Relaxed);
    }

    fn add(&self, region: u64, slot: u32, value: u64) {
        self.regions[&RegionId(region)].slot(Slot(slot)).unwrap().fetch_add(value, Relaxed);
    }

    /// The messages since the last call.
    fn take_messages(&mut self) -> Vec<ToHost> {
        std::mem::take(&mut self.messages)
    }

    /// The verdicts since the last call.
    fn verdicts(&mut self) -> Vec<Verdict> {
        let messages = self.take_messages();
        let verdicts = messages.into_iter().filter_map(|message| match message {
            ToHost::Verdicts(verdicts) => Some(verdicts.verdicts),
            _ => None,
        });
        verdicts.flatten().map(|verdict| Verdict::decode(&verdict).unwrap()).collect()
    }

    /// The rows of all LMAPs since the last call.
    fn rows(&mut self) -> Vec<Vec<f64>> {
        let messages = self.take_messages();
        let rows = messages.into_iter().filter_map(|message| match message {
            ToHost::Rows(rows) => Some(rows.rows),
            _ => None,
        });
        rows.flatten().map(|row| row.values).collect()
    }

    /// Subscribes to all rows of `lmap-1`.
    fn watch_rows(&mut self) {
        self.receive(
            0,
            FromHost::SubscribeRows(proto::SubscribeRows { lmap: 1, every: 1, features: false, columns: false }),
        )
        .unwrap();
        self.take_messages();
    }

    /// The summary of `lmap-1` after more than a second with heartbeats only.
    fn summary(&mut self) -> (proto::LmapSummary, proto::WorkerCounters) {
        self.take_messages();
        for _ in 0..11 {
            self.alive();
        }
        let mut summaries = self.take_messages().into_iter().filter_map(|message| match message {
            ToHost::Summary(summary) => Some((summary.lmaps[0].clone(), summary.counters.unwrap())),
            _ => None,
        });
        summaries.next_back().unwrap()
    }
}

fn metric(id: u32, name: &str, kind: Kind) -> MetricSpec {
    MetricSpec {
        id: MetricId(id),
        series: Series {
            name: MetricName::new(name).unwrap(),
            labels: Labels::default(),
            kind,
            unit: None,
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        },
        aggregation: Aggregation::default_for(kind),
        every: NonZeroU32::MIN,
    }
}

/// A replica with one region of the same number, in which metric n (from 1 on) is at slot n − 1.
fn replica(id: u32, metrics: &[MetricSpec]) -> ReplicaSpec {
    let region = RegionId(u64::from(id));
    let place = |metric: &MetricSpec| MetricPlace { metric: metric.id, region, first: Slot(metric.id.0 - 1) };
    ReplicaSpec {
        id: ReplicaId(id),
        instance: InstanceName::new(&format!("cart-{id}")).unwrap(),
        owner: Owner::User(1000),
        regions: vec![RegionSpec {
            id: region,
            size: RegionSize::ONE_PAGE,
            heartbeat: true,
            address: 0,
            rkey: 0,
            sample_times: false,
        }],
        places: metrics.iter().map(place).collect(),
    }
}

fn lmap(metrics: Vec<MetricSpec>, replicas: u32) -> LmapSpec {
    LmapSpec {
        id: LmapId(1),
        service: ServiceName::new("cart").unwrap(),
        interval: Interval::new(INTERVAL).unwrap(),
        heartbeat: INTERVAL,
        replicas: (1..=replicas).map(|id| replica(id, &metrics)).collect(),
        metrics,
        model: Vec::new(),
        detector: DetectorSpec::default(),
        several_services: false,
        fastest: None,
    }
}

/// Counters and gauges, alternating.
fn metrics(count: u32) -> Vec<MetricSpec> {
    let kind = |id: u32| if id % 2 == 1 { Kind::Counter } else { Kind::Gauge };
    (1..=count).map(|id| metric(id, &format!("metric.{id}"), kind(id))).collect()
}

/// Settings of detectors that are armed after 20 rows and are not fitted again.
fn quick() -> WorkerSettings {
    let detector = lmap::Settings {
        provisional_rows: None,
        warm_up_rows: 20,
        fit_again_rows: Vec::new(),
        ..lmap::Settings::default()
    };
    WorkerSettings { detector, ..WorkerSettings::default() }
}

/// Noise that is the same in every run: a number from 0 to 99.
fn noise(seed: u64) -> u64 {
    crate::seeds::Seeds::new(seed).draw() % 100
}

impl Node {
    /// A tick of healthy load on `count` metrics of each region: counters grow, gauges hover.
    fn healthy(&mut self, count: u32, tick: u64) {
        self.healthy_with(count, tick, |_| ());
    }

    /// The same, with `change` before the tick.
    fn healthy_with(&mut self, count: u32, tick: u64, change: impl Fn(&Self)) {
        for region in self.regions.keys().map(|region| region.0).collect::<Vec<_>>() {
            for id in 1..=count {
                let noise = noise(tick << 16 | region << 8 | u64::from(id));
                if id % 2 == 1 {
                    self.add(region, id - 1, 1000 + noise);
                } else {
                    self.store(region, id - 1, (50.0 + noise as f64 / 10.0).to_bits());
                }
            }
        }
        change(self);
        self.alive();
    }
}

#[test]
fn an_empty_worker_sleeps_and_says_that_it_lives() {
    let mut node = Node::new(WorkerSettings::default());

    for second in 0..3 {
        let Step::SleepUntil(deadline) = node.worker.poll(node.now) else { panic!("there is nothing to fetch") };
        assert_eq!(deadline, Nanos::from_secs(second + 1));
        node.act();
        node.now = deadline;
    }

    assert_eq!(node.messages.iter().filter(|message| matches!(message, ToHost::Summary(_))).count(), 3);
}

#[test]
fn lmaps_of_one_interval_are_fetched_in_one_batch() {
    let mut node = Node::new(WorkerSettings::default());
    let mut other = lmap(metrics(2), 1);
    other.id = LmapId(2);
    other.service = ServiceName::new("store").unwrap();
    other.replicas[0].regions[0].id = RegionId(9);
    other.replicas[0].places.iter_mut().for_each(|place| place.region = RegionId(9));
    node.set(&lmap(metrics(2), 2));
    node.set(&other);

    let Step::Fetch = node.worker.poll(Nanos::ZERO) else { panic!("the clock's start is a tick") };
    let regions: Vec<_> = node.worker.batch().iter().map(|buffer| buffer.region.0).collect();

    assert_eq!(regions, [1, 2, 9]);
}

#[test]
fn a_late_tick_is_counted_and_not_made_up_for() {
    let mut node = Node::new(WorkerSettings::default());
    node.set(&lmap(metrics(2), 1));
    node.tick();

    node.now = Nanos::from_millis(1070);
    node.tick();
    node.tick();

    assert_eq!(node.now, Nanos::from_millis(1100));
    let counters = node.worker.status().counters;
    assert_eq!((counters.ticks, counters.late_ticks), (3, 9));
}

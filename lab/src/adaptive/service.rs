//! A service in virtual time, with load, noise, a heartbeat and faults, that writes into a region as the client does.

use core::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, Result};
use transport::local::Region;
use wire::control::{DetectorSpec, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec};
use wire::histogram::Scale;
use wire::id::{LmapId, MetricId, Owner, RegionId, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::{Aggregation, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::time::{Interval, Nanos};

/// The step of virtual time.
pub const STEP: Nanos = Nanos::from_millis(10);
/// Steps between two heartbeats.
const HEARTBEAT_STEPS: u64 = 10;

/// The metrics: names, and whether they are gauges.
const METRICS: [(&str, bool); 9] = [
    ("requests", false),
    ("errors", false),
    ("bytes.received", false),
    ("bytes.sent", false),
    ("cpu.time", false),
    ("context.switches", false),
    ("queue.length", true),
    ("memory", true),
    ("connections", true),
];

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Requests take eight times as long.
    Slow,
    /// Requests take 1.6 times as long.
    Slower,
    /// A fifth of all requests fails.
    Errors,
    /// Each request takes three times the CPU.
    Cpu,
    /// The process stands still.
    Hang,
}

impl Fault {
    /// Every fault, with its name in the table.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Slow, "8 times slower"),
        (Self::Slower, "1.6 times slower"),
        (Self::Errors, "a fifth of requests fails"),
        (Self::Cpu, "3 times the CPU"),
        (Self::Hang, "hangs"),
    ];
}

/// Numbers of one seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in \[0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About standard normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A count with this mean (Poisson).
    fn count(&mut self, mean: f64) -> u64 {
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

/// One service, with its region.
pub struct Service {
    pub spec: LmapSpec,
    pub region: Region,
    dice: Dice,
    steps: u64,
    /// A slow drift of the load, and the memory in use.
    drift: f64,
    memory: f64,
}

impl Service {
    /// A service whose LMAP has a row every `interval`.
    ///
    /// # Errors
    ///
    /// A name or size is not valid.
    pub fn new(seed: u64, interval: Interval) -> Result<Self> {
        let size = RegionSize::for_slots(METRICS.len() as u32 + Scale::DEFAULT.slots())?;
        let (region, mut metrics, mut places) = (RegionId(1), Vec::new(), Vec::new());
        let kinds = METRICS.iter().map(|(name, gauge)| (*name, if *gauge { Kind::Gauge } else { Kind::Counter }));
        for ((name, kind), slot) in kinds.chain([("duration", Kind::Histogram(Scale::DEFAULT))]).zip(0..) {
            let series = Series {
                name: MetricName::new(name)?,
                labels: Labels::default(),
                kind,
                unit: None,
                group: Group::Service,
                parts_per_unit: NonZeroU64::MIN,
            };
            let (id, aggregation) = (MetricId(slot + 1), Aggregation::default_for(kind));
            metrics.push(MetricSpec { id, series, aggregation, every: NonZeroU32::MIN });
            places.push(MetricPlace { metric: id, region, first: Slot(slot) });
        }
        let regions = vec![RegionSpec { id: region, size, heartbeat: true, address: 0, rkey: 0, sample_times: false }];
        let instance = InstanceName::new("shop-1")?;
        let spec = LmapSpec {
            id: LmapId(1),
            service: ServiceName::new("shop")?,
            interval,
            heartbeat: Nanos(STEP.0 * HEARTBEAT_STEPS),
            metrics,
            replicas: vec![ReplicaSpec { id: ReplicaId(1), instance, owner: Owner::Agent, regions, places }],
            model: Vec::new(),
            detector: DetectorSpec::default(),
            several_services: false,
            fastest: None,
        };
        let (dice, region) = (Dice::new(seed), Region::new(size));
        Ok(Self { spec, region, dice, steps: 0, drift: 0.0, memory: 200.0 })
    }

    /// The next 10 ms.
    ///
    /// # Errors
    ///
    /// The region is too small.
    pub fn step(&mut self, fault: Option<Fault>) -> Result<()> {
        self.steps += 1;
        if fault == Some(Fault::Hang) {
            return Ok(());
        }
        if self.steps.is_multiple_of(HEARTBEAT_STEPS) {
            self.region.beat();
        }
        let seconds = self.steps as f64 * STEP.as_secs_f64();
        self.drift = 0.9995 * self.drift + 0.003 * self.dice.normal();
        let load = (1.0 + 0.3 * (seconds / 47.0).sin() + self.drift).max(0.2);
        let requests = self.dice.count(1.2 * load);
        let slow = match fault {
            Some(Fault::Slow) => 8.0,
            Some(Fault::Slower) => 1.6,
            _ => 1.0,
        };
        let share = if fault == Some(Fault::Errors) { 0.2 } else { 0.0002 };
        let (mut errors, mut sent) = (0, 0);
        for _ in 0..requests {
            let duration = 8_000.0 * slow * (0.4 * self.dice.normal()).exp();
            self.observe(duration as u64)?;
            errors += u64::from(self.dice.unit() < share);
            sent += (900.0 * (0.3 * self.dice.normal()).exp()) as u64;
        }
        let cpu = if fault == Some(Fault::Cpu) { 3.0 } else { 1.0 };
        let used = requests as f64 * 700.0 * cpu * (0.2 * self.dice.normal()).exp() + 20.0;
        let queue = 100.0 * load * 0.008 * slow + 0.3 * self.dice.normal();
        self.memory += 0.02 * self.dice.normal();
        let switches = 2 * requests + self.dice.count(0.5);
        for (slot, added) in (0..).zip([requests, errors, 300 * requests, sent, used as u64, switches]) {
            self.slot(slot)?.fetch_add(added, Relaxed);
        }
        let connections = (20.0 * load).round();
        for (slot, value) in (6..).zip([queue.max(0.0), self.memory, connections]) {
            self.slot(slot)?.store(value.to_bits(), Relaxed);
        }
        Ok(())
    }

    fn observe(&self, duration: u64) -> Result<()> {
        let first = METRICS.len() as u32;
        self.slot(first + Scale::DEFAULT.bucket(duration))?.fetch_add(1, Relaxed);
        self.slot(first + Scale::DEFAULT.sum_slot())?.fetch_add(duration, Relaxed);
        Ok(())
    }

    fn slot(&self, slot: u32) -> Result<&std::sync::atomic::AtomicU64> {
        self.region.slot(Slot(slot)).context("the region has no such slot")
    }
}

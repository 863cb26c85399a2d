//! A service whose metrics change their names: some with each start, some while it runs. It places its series itself,
//! and uses slots again once the agent has released them.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use prost::Message as _;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use transport::local::Region;
use wire::histogram::Scale;
use wire::id::Generation;
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Declaration, Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::registration as proto;
use wire::registration::{Hello, PlacedSeries, ServiceMessage, Shards, SlotRun};

/// One in so many metrics is a histogram, which is three columns.
const HISTOGRAMS: usize = 8;
/// One in so many metrics has another name after a restart.
const RENAMED: usize = 10;

/// Columns of a service with `metrics` metrics.
pub const fn columns(metrics: usize) -> usize {
    metrics + 2 * (metrics / HISTOGRAMS)
}

/// A message to the host agent, and whether the region's descriptor comes with it.
pub type OutgoingMessage = (Vec<u8>, bool);

/// A series that is registered.
#[derive(Debug)]
struct LiveSeries {
    at: usize,
    first: Slot,
}

/// One run of a service.
#[derive(Debug)]
pub struct Service {
    pub name: String,
    pub uid: u32,
    pub region: Region,
    /// Messages to send.
    pub outbox: Vec<OutgoingMessage>,
    /// Factor of its values: more than 1 while something is wrong.
    pub load: u64,
    /// It writes nothing, not even its heartbeat.
    pub is_stopped: bool,
    /// In the order in which they were registered.
    series: VecDeque<LiveSeries>,
    /// Free runs of slots, by their length.
    free: BTreeMap<u32, Vec<Slot>>,
    generation: u64,
}

fn kind_of(at: usize) -> Kind {
    match at % HISTOGRAMS {
        7 => Kind::Histogram(Scale::new(0, 8).expect("the scale is one")),
        odd if odd % 2 == 1 => Kind::Gauge,
        _ => Kind::Counter,
    }
}

fn encoded(message: &ServiceMessage) -> Vec<u8> {
    proto::ServiceMessage::from(message).encode_to_vec()
}

impl Service {
    /// Run `run` of the node's services, with `metrics` metrics.
    pub fn new(name: String, uid: u32, run: u64, metrics: usize) -> Self {
        let slots: u32 = (0..metrics).map(|at| kind_of(at).slots()).sum();
        // A quarter more, for series whose slots are not released yet.
        let bytes = (slots as usize + slots as usize / 4 + 64) * 8 + 64;
        let size = RegionSize::new(bytes.next_multiple_of(4096) as u64).expect("a few pages");
        let mut service = Self {
            uid,
            region: Region::new(size),
            outbox: Vec::new(),
            load: 1,
            is_stopped: false,
            series: VecDeque::new(),
            free: BTreeMap::new(),
            generation: 1,
            name,
        };
        service.hello(run);
        let mut next = 0;
        let placed: Vec<_> = (0..metrics)
            .map(|at| {
                let first = Slot(next);
                next += kind_of(at).slots();
                Ok(service.place(at, first, if at.is_multiple_of(RENAMED) { run } else { 0 }))
            })
            .collect();
        service.free.entry(1).or_default().extend((next..next + 32).map(Slot));
        service.send(&ServiceMessage::AddSeries(placed));
        service
    }

    fn hello(&mut self, run: u64) {
        let service = ServiceName::new(&self.name).expect("letters and digits are a name");
        let instance = InstanceName::new(&format!("run-{run}")).expect("letters and digits are a name");
        self.send(&ServiceMessage::Hello(Hello::new(service, instance, Labels::default())));
        let region = ServiceMessage::AddRegion { region: 0, size: self.region.size(), layout_version: VERSION };
        self.outbox.push((encoded(&region), true));
    }

    fn send(&mut self, message: &ServiceMessage) {
        self.outbox.push((encoded(message), false));
    }

    /// A series of the metric at `at`, with a name of `generation`.
    fn place(&mut self, at: usize, first: Slot, generation: u64) -> PlacedSeries {
        let name = if generation == 0 { format!("metric.{at}") } else { format!("metric.{at}.of.{generation}") };
        let kind = kind_of(at);
        for slot in first.0..first.0 + kind.slots() {
            self.slot(Slot(slot), |slot| slot.store(0, Relaxed));
        }
        self.series.push_back(LiveSeries { at, first });
        let series = Series {
            name: MetricName::new(&name).expect("letters and digits are a name"),
            labels: Labels::new([("route", "/pay")]).expect("two short words"),
            kind,
            unit: None,
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };
        PlacedSeries {
            shards: Shards::ONE,
            series,
            region: 0,
            first,
            // Without a frequency: the interval of LMAPs is that of the configuration.
            declared: Declaration::from_message("p99.9", 0),
        }
    }

    fn slot(&self, slot: Slot, write: impl FnOnce(&std::sync::atomic::AtomicU64)) {
        write(self.region.slot(slot).expect("slots in use lie inside"));
    }

    /// Retires its oldest counter or gauge, and registers one with a new name.
    pub fn rename_one(&mut self, generation: u64) {
        let place = self.series.iter().position(|series| kind_of(series.at).slots() == 1);
        let (Some(place), Some(free)) = (place, self.free.get_mut(&1)) else { return };
        let (Some(old), Some(first)) = (self.series.remove(place), free.pop()) else { return };
        let added = self.place(old.at, first, generation);
        self.generation += 1;
        self.region.set_generation(Generation(self.generation));
        self.send(&ServiceMessage::Retire(vec![SlotRun { region: 0, first: old.first, slots: 1 }]));
        self.send(&ServiceMessage::AddSeries(vec![Ok(added)]));
    }

    /// The agent gives slots back.
    pub fn released(&mut self, run: proto::SlotRun) {
        self.free.entry(run.slots).or_default().push(Slot(run.first_slot));
    }

    /// Writes all values, and the heartbeat.
    pub fn write(&self, random: &mut ChaCha8Rng) {
        if self.is_stopped {
            return;
        }
        for &LiveSeries { at, first } in &self.series {
            let value = self.load * random.random_range(90..110);
            match kind_of(at) {
                Kind::Histogram(scale) => {
                    let value = value.min(255);
                    self.slot(Slot(first.0 + scale.bucket(value)), |slot| _ = slot.fetch_add(1, Relaxed));
                    self.slot(Slot(first.0 + scale.sum_slot()), |slot| _ = slot.fetch_add(value, Relaxed));
                }
                Kind::Gauge => self.slot(first, |slot| slot.store((value as f64).to_bits(), Relaxed)),
                _ => self.slot(first, |slot| _ = slot.fetch_add(value, Relaxed)),
            }
        }
        self.region.beat();
    }
}

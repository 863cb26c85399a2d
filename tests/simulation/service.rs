//! A service as the client crate makes one, without its thread: regions of its own, series placed by itself, slots reused only when the
//! agent has released them. Every value that it writes says whose it is.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use transport::local::Region;
use wire::id::Generation;
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Group, Kind, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::proto::registration::{AgentMessage, agent_message};
use wire::registration::{Hello, PlacedSeries, ServiceMessage, SlotRun};
use wire::time::Nanos;

/// Values of series `uid` are `uid · SHARE` and up, below the next one's.
pub const SHARE: u64 = 1 << 20;
const HEARTBEAT: Nanos = Nanos::from_millis(100);
/// A region's slots are few here, so that they are reused often.
const SLOTS_USED: u32 = 24;

/// What a message of a service takes along.
pub type Sent = (ServiceMessage, Option<Region>);

/// One replica of a service.
#[derive(Debug)]
pub struct Service {
    pub name: ServiceName,
    pub instance: InstanceName,
    number: u64,
    region: Region,
    series: Vec<(u64, Slot)>,
    free: VecDeque<Slot>,
    retired: BTreeSet<Slot>,
    written: u64,
    generation: u64,
    next_beat: Nanos,
    /// Stopped until then: no value, no heartbeat.
    pub stopped_until: Nanos,
    /// What waits to be said.
    pub outbox: Vec<Sent>,
}

/// The metric `uid` of whatever service: its name carries the number, whose upper part is the service's.
pub fn metric(uid: u64) -> MetricName {
    MetricName::new(&format!("m{uid}")).expect("a letter and digits are a name")
}

/// The number that [`metric`] put into a column's title.
pub fn uid_of(title: &str) -> Option<u64> {
    title.strip_prefix('m')?.parse().ok()
}

/// Service `number` of the node.
pub fn name(number: u64) -> ServiceName {
    ServiceName::new(&format!("service-{number}")).expect("letters and digits are a name")
}

impl Service {
    /// Replica `replica` of service `number`, with `series` series to begin with.
    pub fn new(number: u64, replica: u64, series: u64) -> Self {
        let region = Region::new(RegionSize::ONE_PAGE);
        let instance =
            InstanceName::new(&format!("service-{number}-{replica}")).expect("letters and digits are a name");
        let mut service = Self {
            name: name(number),
            instance,
            number,
            region,
            series: Vec::new(),
            free: (0..SLOTS_USED).map(Slot).collect(),
            retired: BTreeSet::new(),
            written: 0,
            generation: 1,
            next_beat: Nanos::ZERO,
            stopped_until: Nanos::ZERO,
            outbox: Vec::new(),
        };
        for index in 0..series {
            service.add(index);
        }
        service.outbox.clear();
        service
    }

    fn placed(uid: u64, first: Slot) -> PlacedSeries {
        let series = Series {
            name: metric(uid),
            labels: Labels::default(),
            kind: Kind::Gauge,
            unit: None,
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };
        PlacedSeries { series, region: 0, first }
    }

    /// Registers series `index` of the service, if it is not there and a slot is free.
    fn add(&mut self, index: u64) {
        let uid = self.number * 1000 + index + 1;
        if self.series.iter().any(|(known, _)| *known == uid) {
            return;
        }
        let Some(slot) = self.free.pop_front() else { return };
        self.write(slot, uid * SHARE);
        self.series.push((uid, slot));
        self.changed();
        self.outbox.push((ServiceMessage::AddSeries(vec![Ok(Self::placed(uid, slot))]), None));
    }

    fn write(&self, slot: Slot, value: u64) {
        let word = self.region.slot(slot).expect("the slots in use lie inside");
        word.store((value as f64).to_bits(), Relaxed);
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.region.set_generation(Generation(self.generation));
    }

    fn retire(&mut self, at: usize) {
        let (_, first) = self.series.swap_remove(at);
        self.retired.insert(first);
        self.changed();
        self.outbox.push((ServiceMessage::Retire(vec![SlotRun { region: 0, first, slots: 1 }]), None));
    }

    /// Says everything again, on a new connection.
    pub fn connected(&mut self) {
        let hello = Hello { service: self.name.clone(), instance: self.instance.clone(), labels: Labels::default() };
        let region = ServiceMessage::AddRegion { region: 0, size: RegionSize::ONE_PAGE, layout_version: VERSION };
        let series = self.series.iter().map(|&(uid, slot)| Ok(Self::placed(uid, slot))).collect();
        let retired = self.retired.iter().map(|&first| SlotRun { region: 0, first, slots: 1 }).collect();
        self.outbox = vec![
            (ServiceMessage::Hello(hello), None),
            (region, Some(self.region.clone())),
            (ServiceMessage::AddSeries(series), None),
            (ServiceMessage::Retire(retired), None),
        ];
    }

    /// The agent said something.
    pub fn told(&mut self, message: AgentMessage) {
        let Some(agent_message::Message::Released(released)) = message.message else { return };
        for run in released.runs {
            for slot in (run.first_slot..run.first_slot + run.slots).map(Slot) {
                assert!(self.retired.remove(&slot), "{} got back slot {}, which it had not retired", self.name, slot.0);
                self.free.push_back(slot);
            }
        }
    }

    /// Writes values, beats, and now and then changes what it registers.
    pub fn step(&mut self, now: Nanos, random: &mut ChaCha8Rng) {
        if now < self.stopped_until {
            return;
        }
        self.written += 1;
        for &(uid, slot) in &self.series {
            self.write(slot, uid * SHARE + (self.written + uid) % 1000);
        }
        if self.next_beat <= now {
            self.next_beat = now.plus(HEARTBEAT);
            self.region.beat();
        }
        if random.random_bool(0.004) {
            self.add(random.random_range(0..12));
        }
        if self.series.len() > 1 && random.random_bool(0.004) {
            let at = random.random_range(0..self.series.len());
            self.retire(at);
        }
    }
}

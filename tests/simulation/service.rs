//! A service as the client crate makes one, without its thread: regions of its own, series placed by itself, slots reused only when the
//! agent has released them. Every value that it writes says whose it is (`values.rs`); its header may lie for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use transport::local::Region;
use wire::id::Generation;
use wire::layout::{HeaderWord, MAGIC, RegionSize, Slot, VERSION};
use wire::name::{InstanceName, Labels, ServiceName};
use wire::proto::registration::{AgentMessage, agent_message};
use wire::registration::{Hello, ServiceMessage, SlotRun};
use wire::time::Nanos;

use crate::values::{self, kind_of, placed, uid_of_service};

const HEARTBEAT: Nanos = Nanos::from_millis(100);
/// A region's slots are few here, so that they are reused often.
const SLOTS_USED: u32 = 32;
/// Series that a service may have.
pub const SERIES: u64 = 12;

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
    free: BTreeSet<u32>,
    /// First slot and number of slots of what was retired and not released.
    retired: BTreeMap<Slot, u32>,
    written: u64,
    generation: u64,
    next_beat: Nanos,
    /// Stopped until then: no value, no heartbeat.
    pub stopped_until: Nanos,
    /// Its header is none until then, if it lies.
    lies_until: Option<Nanos>,
    /// What waits to be said.
    pub outbox: Vec<Sent>,
}

/// Service `number` of the node.
pub fn name(number: u64) -> ServiceName {
    ServiceName::new(&format!("service-{number}")).expect("letters and digits are a name")
}

/// The number that [`name`] put into a service's name.
pub fn number_of(name: &ServiceName) -> u64 {
    let number = name.as_str().strip_prefix("service-").and_then(|number| number.parse().ok());
    number.expect("services are called by number")
}

impl Service {
    /// Replica `replica` of service `number`, with `series` series to begin with.
    pub fn new(number: u64, replica: u64, series: u64) -> Self {
        let instance =
            InstanceName::new(&format!("service-{number}-{replica}")).expect("letters and digits are a name");
        let mut service = Self {
            name: name(number),
            instance,
            number,
            region: Region::new(RegionSize::ONE_PAGE),
            series: Vec::new(),
            free: (0..SLOTS_USED).collect(),
            retired: BTreeMap::new(),
            written: 0,
            generation: 1,
            next_beat: Nanos::ZERO,
            stopped_until: Nanos::ZERO,
            lies_until: None,
            outbox: Vec::new(),
        };
        for index in 0..series {
            service.add(index);
        }
        service.outbox.clear();
        service
    }

    /// Registers series `index` of the service, if it is not there and slots are free.
    fn add(&mut self, index: u64) {
        let uid = uid_of_service(self.number, index);
        if self.series.iter().any(|(known, _)| *known == uid) {
            return;
        }
        let slots = kind_of(uid).slots();
        let is_free = |first: &u32| (*first..first + slots).all(|slot| self.free.contains(&slot));
        let Some(first) = self.free.iter().copied().find(is_free) else { return };
        (first..first + slots).for_each(|slot| _ = self.free.remove(&slot));
        values::begin(&self.region, uid, Slot(first));
        self.series.push((uid, Slot(first)));
        self.changed();
        self.outbox.push((ServiceMessage::AddSeries(vec![Ok(placed(uid, Slot(first)))]), None));
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.region.set_generation(Generation(self.generation));
    }

    fn retire(&mut self, at: usize) {
        let (uid, first) = self.series.swap_remove(at);
        let slots = kind_of(uid).slots();
        self.retired.insert(first, slots);
        self.changed();
        self.outbox.push((ServiceMessage::Retire(vec![SlotRun { region: 0, first, slots }]), None));
    }

    /// Says everything again, on a new connection.
    pub fn connected(&mut self) {
        let hello = Hello::new(self.name.clone(), self.instance.clone(), Labels::default());
        let region = ServiceMessage::AddRegion { region: 0, size: RegionSize::ONE_PAGE, layout_version: VERSION };
        let series = self.series.iter().map(|&(uid, slot)| Ok(placed(uid, slot))).collect();
        let retired = self.retired.iter().map(|(&first, &slots)| SlotRun { region: 0, first, slots }).collect();
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
            let retired = self.retired.remove(&Slot(run.first_slot));
            assert_eq!(retired, Some(run.slots), "{} got back {run:?}, which it had not retired", self.instance);
            self.free.extend(run.first_slot..run.first_slot + run.slots);
        }
    }

    /// Until then its header is that of no region.
    pub fn lie(&mut self, until: Nanos, version: bool) {
        self.lies_until = Some(until);
        let (word, lie) = if version { (HeaderWord::Version, VERSION + 1) } else { (HeaderWord::Magic, 0) };
        self.region.header(word).store(lie, Relaxed);
    }

    fn be_honest(&mut self) {
        self.lies_until = None;
        self.region.header(HeaderWord::Magic).store(MAGIC, Relaxed);
        self.region.header(HeaderWord::Version).store(VERSION, Relaxed);
    }

    /// Writes values, beats, and now and then changes what it registers.
    pub fn step(&mut self, now: Nanos, random: &mut ChaCha8Rng) {
        if now < self.stopped_until {
            return;
        }
        self.written += 1;
        for &(uid, first) in &self.series {
            values::write(&self.region, uid, first, self.written);
        }
        if self.next_beat <= now {
            self.next_beat = now.plus(HEARTBEAT);
            self.region.beat();
        }
        if self.lies_until.is_some_and(|until| until <= now) {
            self.be_honest();
        }
        if random.random_bool(0.004) {
            self.add(random.random_range(0..SERIES));
        }
        if self.series.len() > 1 && random.random_bool(0.004) {
            let at = random.random_range(0..self.series.len());
            self.retire(at);
        }
    }
}

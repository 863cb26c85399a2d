//! A service like one with the client crate, but without its thread: it owns its regions, places its series itself, and
//! reuses slots only after the agent has released them. Every value identifies its series (`values.rs`). Its header may
//! be invalid for a while.

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
/// Number of slots in use: few, so that they are reused often.
const SLOTS_USED: u32 = 32;
/// Maximal number of series of a service.
pub const SERIES: u64 = 12;

/// A message of a service, with the region whose descriptor it carries.
pub type OutgoingMessage = (ServiceMessage, Option<Region>);

/// One replica of a service.
#[derive(Debug)]
pub struct Service {
    pub name: ServiceName,
    pub instance: InstanceName,
    number: u64,
    region: Region,
    series: Vec<(u64, Slot)>,
    free: BTreeSet<u32>,
    /// Retired but not released slots: first slot and number of slots.
    retired: BTreeMap<Slot, u32>,
    written: u64,
    generation: u64,
    next_beat: Nanos,
    /// Until this time it is stopped: it writes no values and no heartbeat.
    pub stopped_until: Nanos,
    /// Until this time its header is invalid.
    invalid_until: Option<Nanos>,
    /// Messages to send.
    pub outbox: Vec<OutgoingMessage>,
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
            invalid_until: None,
            outbox: Vec::new(),
        };
        for index in 0..series {
            service.add(index);
        }
        service.outbox.clear();
        service
    }

    /// Registers series `index` of the service, if it is not registered and slots are free.
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

    /// Retires the series at `at`.
    pub fn retire(&mut self, at: usize) {
        let (uid, first) = self.series.swap_remove(at);
        let slots = kind_of(uid).slots();
        self.retired.insert(first, slots);
        self.changed();
        self.outbox.push((ServiceMessage::Retire(vec![SlotRun { region: 0, first, slots }]), None));
    }

    /// Queues all messages of a new connection.
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

    /// Handles a message of the agent.
    pub fn on_agent_message(&mut self, message: AgentMessage) {
        let Some(agent_message::Message::Release(released)) = message.message else { return };
        for run in released.runs {
            let retired = self.retired.remove(&Slot(run.first_slot));
            assert_eq!(retired, Some(run.slots), "{} got back {run:?}, which it had not retired", self.instance);
            self.free.extend(run.first_slot..run.first_slot + run.slots);
        }
    }

    /// Makes its header invalid until `until`: by a wrong version, or a wrong magic number.
    pub fn invalidate_header(&mut self, until: Nanos, version: bool) {
        self.invalid_until = Some(until);
        let (word, value) = if version { (HeaderWord::Version, VERSION + 1) } else { (HeaderWord::Magic, 0) };
        self.region.header(word).store(value, Relaxed);
    }

    fn restore_header(&mut self) {
        self.invalid_until = None;
        self.region.header(HeaderWord::Magic).store(MAGIC, Relaxed);
        self.region.header(HeaderWord::Version).store(VERSION, Relaxed);
    }

    /// Writes values and heartbeats, and sometimes adds or retires a series, unless it `keeps` them.
    pub fn step(&mut self, now: Nanos, random: &mut ChaCha8Rng, keeps: bool) {
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
        if self.invalid_until.is_some_and(|until| until <= now) {
            self.restore_header();
        }
        if keeps {
            return;
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

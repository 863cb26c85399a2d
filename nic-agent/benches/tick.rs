//! The cost of a tick beyond the READ (headers, columns, detectors), for each region. 64 LMAPs of one replica with one
//! region of 64 counters each.
//!
//! `whole` is a complete tick, `fetch_alone` the part of the reader. Their difference, divided by 64, is the cost for
//! each region and tick.

use std::sync::atomic::Ordering::Relaxed;

use divan::Bencher;
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use transport::local::Region;
use transport::{Access, LocalReader, RegionReader};
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage};
use wire::time::{Nanos, UnixNanos};

const REGIONS: u64 = 64;
const SLOTS: u32 = 64;
const INTERVAL: Nanos = Nanos::from_millis(10);

fn main() {
    divan::main();
}

fn lmap(id: u64, kind: proto::Kind) -> proto::Lmap {
    let metric = |metric| proto::Metric {
        metric,
        name: format!("metric.{metric}"),
        kind: kind.into(),
        aggregation: "sum".to_owned(),
        ..proto::Metric::default()
    };
    proto::Lmap {
        lmap: id as u32,
        service: format!("service-{id}"),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics: (1..=SLOTS).map(metric).collect(),
        replicas: vec![proto::Replica {
            replica: id as u32,
            instance: format!("replica-{id}"),
            regions: vec![proto::Region { region: id, bytes: 4096, heartbeat: true, ..proto::Region::default() }],
            places: (1..=SLOTS)
                .map(|metric| proto::MetricPlace { metric, region: id, first_slot: metric - 1 })
                .collect(),
            ..proto::Replica::default()
        }],
        model: Vec::new(),
        // That of longer rows: at 10 ms, one in fifty would be learnt.
        detector: Some(proto::Detector { stride: Some(5), ..proto::Detector::default() }),
        ..proto::Lmap::default()
    }
}

/// A worker with all its LMAPs, its reader and its regions.
struct Node {
    worker: Worker,
    reader: LocalReader,
    regions: Vec<Region>,
    noise: u64,
    now: Nanos,
}

impl Node {
    /// A node after `ticks` ticks of load.
    fn after(ticks: u64) -> Self {
        let detector = lmap::Settings { fit_again_rows: Vec::new(), ..lmap::Settings::default() };
        let mut worker = Worker::new(WorkerSettings { detector, ..WorkerSettings::default() }, 1);
        worker.connected(Nanos::ZERO);
        let welcome = proto::HostWelcome {
            host_incarnation: 1,
            lowest_share: 1e9,
            lease_ms: 60_000,
            transport: "shm".into(),
            ..proto::HostWelcome::default()
        };
        let mut tell = |epoch, message| {
            worker.on_host(Nanos::ZERO, HostMessage { epoch, message: Some(message) }).expect("the worker takes it");
        };
        tell(0, Message::Welcome(welcome));
        (1..=REGIONS).for_each(|id| tell(id, Message::SetLmap(lmap(id, proto::Kind::Counter))));
        let regions: Vec<Region> = (0..REGIONS).map(|_| Region::new(RegionSize::ONE_PAGE)).collect();
        let mut reader = LocalReader::new();
        for effect in worker.take_effects() {
            if let Effect::Attach(request) = effect {
                let region = regions[request.region.0 as usize - 1].clone();
                reader.attach(request.region, request.size, Access::Memory(region)).expect("it is new");
                worker.attached(Nanos::ZERO, request.region, Ok(()));
            }
        }
        let mut node = Self { worker, reader, regions, noise: 88_172_645_463_325_252, now: Nanos::ZERO };
        (0..ticks).for_each(|_| node.tick());
        node
    }

    /// Writes load to every slot. Not part of the measurement.
    fn write(&mut self) {
        for region in &self.regions {
            region.beat();
            for slot in 0..SLOTS {
                self.noise ^= self.noise << 13;
                self.noise ^= self.noise >> 7;
                self.noise ^= self.noise << 17;
                if let Some(word) = region.slot(Slot(slot)) {
                    word.fetch_add(1000 + self.noise % 100, Relaxed);
                }
            }
        }
        self.now = self.now.plus(INTERVAL);
    }

    fn read(&mut self) {
        if self.worker.poll(self.now) == Step::Fetch {
            let fetched = self.reader.fetch(self.worker.batch());
            divan::black_box(self.worker.fetched(self.now, UnixNanos(0), &fetched));
        }
    }

    fn settle(&mut self) {
        while let Some((id, job)) = self.worker.take_job() {
            self.worker.job_done(id, job.run());
        }
        self.worker.outbox().for_each(drop);
    }

    fn tick(&mut self) {
        self.write();
        self.read();
        self.settle();
    }
}

/// Fetching, headers, columns, scoring and learning of 64 armed LMAPs.
#[divan::bench(sample_count = 500)]
fn whole_armed(bencher: Bencher) {
    let node = std::cell::RefCell::new(Node::after(150));
    bencher
        .with_inputs(|| {
            node.borrow_mut().settle();
            node.borrow_mut().write();
        })
        .bench_local_values(|()| node.borrow_mut().read());
}

/// The same while the LMAPs learn: no scores yet.
#[divan::bench(sample_count = 50)]
fn whole_learning(bencher: Bencher) {
    let node = std::cell::RefCell::new(Node::after(2));
    bencher.with_inputs(|| node.borrow_mut().write()).bench_local_values(|()| node.borrow_mut().read());
}

/// The part of the reader alone.
#[divan::bench(sample_count = 500)]
fn fetch_alone(bencher: Bencher) {
    let node = std::cell::RefCell::new(Node::after(1));
    let batch = std::cell::RefCell::new({
        let mut node = node.borrow_mut();
        node.write();
        let now = node.now;
        assert_eq!(node.worker.poll(now), Step::Fetch);
        node.worker.batch().to_vec()
    });
    bencher
        .with_inputs(|| node.borrow_mut().write())
        .bench_local_values(|()| node.borrow_mut().reader.fetch(&mut batch.borrow_mut()).expect("it is there"));
}

//! The cost of reading regions by RDMA: compared with other programs in a guest with a soft device, and uview's own
//! part of it on this machine.

use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, Result, ensure};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use region::{AcceptedRegion, OwnedRegion};
use transport::verbs::stand_in::{self, Chain};
use transport::verbs::{Device, DeviceChoice, ReaderLimits, VerbsHost};
use transport::{Access, LocalReader, RegionBuffer, RegionReader as _, VerbsReader, local};
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage, Kind};
use wire::rdma::PacketSequence;
use wire::time::{Nanos, UnixNanos};

use super::figure::{Figure, Goal};
use super::pair::{Pair, measure};
use crate::rdma::{self, Peer};

/// READs per chain, and regions per batch.
const REGIONS: u64 = 64;
/// Bytes of a work request with its element.
const REQUEST_BYTES: usize = 144;
/// Allowed overhead of the agent per region, in addition to the READ.
const MAX_NS: f64 = 200.0;
const INTERVAL: Nanos = Nanos::from_millis(100);

/// One READ of a page through uview's stack, copied to the caller, against `ib_read_lat`.
pub fn one_read(name: &str) -> Result<Figure> {
    in_guest(name, Peer::ReadLat, "ib_read_lat of perftest: one READ of a page, in the same guest")
}

/// 64 regions of a page in one batch, against 64 linked READs of a C program.
pub fn linked(name: &str) -> Result<Figure> {
    in_guest(
        name,
        Peer::Loop,
        "a C program that posts a ready chain of 64 READs of a page and polls, in the same guest",
    )
}

fn in_guest(name: &str, peer: Peer, what: &str) -> Result<Figure> {
    let pairs = rdma::measure(peer)?;
    let measured = Pair::of(&pairs).context("there are no pairs")?;
    let mut figure = Figure::new(name, "µs", what, measured.in_units_of(1000.0), Goal::AtMost(1.25));
    let note =
        "soft-RoCE in a virtual machine whose processor is emulated: the ratio means something, the times do not";
    note.clone_into(&mut figure.note);
    Ok(figure)
}

/// Building, posting and polling a chain of 64 READs on a device that does nothing, per READ.
pub fn post(name: &str) -> Result<Figure> {
    stand_in::skip_reads();
    let mut chain = Chain::new(256)?;
    let mut failed = Ok(());
    let from = vec![[1_u8; REQUEST_BYTES]; REGIONS as usize];
    let mut to = from.clone();
    let measured = measure(
        20_000,
        |rounds| {
            for _ in 0..rounds {
                if failed.is_ok() {
                    failed = chain.run(black_box(REGIONS));
                }
            }
        },
        |rounds| {
            for _ in 0..rounds {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            }
        },
    );
    failed?;
    let peer = "copying as many bytes as 64 work requests have, 144 each";
    Ok(Figure::new(name, "ns per READ", peer, measured.in_units_of(REGIONS as f64), Goal::Stated))
}

/// A whole fetch of 64 regions on that device, against copying the same bytes.
pub fn fetch(name: &str) -> Result<Figure> {
    let (mut reader, mut batch) = hollow_reader()?;
    stand_in::skip_reads();
    let from = vec![1_u64; RegionSize::ONE_PAGE.words() * REGIONS as usize];
    let mut to = vec![vec![0_u64; RegionSize::ONE_PAGE.words()]; REGIONS as usize];
    let mut failed = Ok(());
    let measured = measure(
        2_000,
        |rounds| {
            for _ in 0..rounds {
                if failed.is_ok() {
                    failed = reader.fetch(black_box(&mut batch));
                }
            }
        },
        |rounds| {
            for _ in 0..rounds {
                for (to, from) in to.iter_mut().zip(black_box(&from).chunks(RegionSize::ONE_PAGE.words())) {
                    to.copy_from_slice(from);
                }
                black_box(&mut to);
            }
        },
    );
    failed?;
    let peer = "copying 64 pages, which the fetch does too";
    Ok(Figure::new(name, "ns per region", peer, measured.in_units_of(REGIONS as f64), Goal::Stated))
}

fn hollow_reader() -> Result<(VerbsReader, Vec<RegionBuffer>)> {
    let device = Device::open(&stand_in::library(), &DeviceChoice::default())?;
    let mut reader = VerbsReader::new(&device, ReaderLimits::default())?;
    let mut host = VerbsHost::new(&device)?;
    let start = PacketSequence::from_random(1);
    let worker = reader.reset(start)?;
    reader.connect(&host.answer(start, &worker)?)?;
    let mut batch = Vec::new();
    for id in (0..REGIONS).map(RegionId) {
        let region = OwnedRegion::create("figures", RegionSize::ONE_PAGE)?;
        let accepted = AcceptedRegion::accept(region.as_fd().try_clone_to_owned()?, RegionSize::ONE_PAGE)?;
        let exposed = host.register(id, &accepted)?;
        let bytes = RegionSize::ONE_PAGE.bytes() as u64;
        let access = Access::Remote { address: exposed.address, rkey: exposed.rkey, bytes };
        reader.attach(id, RegionSize::ONE_PAGE, access)?;
        batch.push(RegionBuffer::new(id, RegionSize::ONE_PAGE));
    }
    Ok((reader, batch))
}

/// A worker with one LMAP of one gauge in 64 replicas, each with a region of its own in this process.
struct WorkerFixture {
    worker: Worker,
    reader: LocalReader,
    services: Vec<local::Region>,
    now: Nanos,
    ticks: u64,
}

impl WorkerFixture {
    fn new() -> Result<Self> {
        // It keeps rows without scoring, which another figure measures.
        let defaults = WorkerSettings::default();
        let detector =
            lmap::Settings { warm_up_rows: 100_000, fit_again_rows: Vec::new(), ..defaults.detector.clone() };
        let mut worker = Worker::new(WorkerSettings { detector, ..defaults }, 1);
        worker.connected(Nanos::ZERO);
        let welcome = proto::HostWelcome { lowest_share: 1.0, lease_ms: 60_000, ..proto::HostWelcome::default() };
        for (epoch, message) in [(0, Message::Welcome(welcome)), (1, Message::SetLmap(lmap()))] {
            worker.on_host(Nanos::ZERO, HostMessage { epoch, message: Some(message) })?;
        }
        let (mut reader, mut services) = (LocalReader::new(), Vec::new());
        for effect in worker.take_effects() {
            if let Effect::Attach(request) = effect {
                let service = local::Region::new(request.size);
                reader.attach(request.region, request.size, Access::Memory(service.clone()))?;
                services.push(service);
                worker.attached(Nanos::ZERO, request.region, Ok(()));
            }
        }
        ensure!(services.len() as u64 == REGIONS, "{} regions are to be attached", services.len());
        Ok(Self { worker, reader, services, now: Nanos::ZERO, ticks: 0 })
    }

    fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.ticks += 1;
            self.now = self.now.plus(INTERVAL);
            if self.worker.poll(self.now) == Step::Fetch {
                let fetched = self.reader.fetch(self.worker.batch());
                black_box(self.worker.fetched(self.now, UnixNanos(self.now.0), &fetched));
            }
            self.worker.outbox().for_each(drop);
        }
    }
}

fn lmap() -> proto::Lmap {
    let bytes = RegionSize::ONE_PAGE.bytes() as u64;
    let replica = |n: u64| proto::Replica {
        replica: n as u32,
        instance: format!("shop-{n}"),
        regions: vec![proto::Region { region: n, bytes, heartbeat: true, ..proto::Region::default() }],
        places: vec![proto::MetricPlace { metric: 1, region: n, first_slot: 0 }],
        ..proto::Replica::default()
    };
    proto::Lmap {
        lmap: 1,
        service: "shop".to_owned(),
        interval_us: INTERVAL.0 / 1000,
        // These replicas have no heartbeat, and must not count as silent.
        heartbeat_ms: 3_600_000,
        metrics: vec![proto::Metric {
            metric: 1,
            name: "shop.queue.depth".to_owned(),
            kind: Kind::Gauge.into(),
            aggregation: "sum".to_owned(),
            ..proto::Metric::default()
        }],
        replicas: (1..=REGIONS).map(replica).collect(),
        model: Vec::new(),
        ..proto::Lmap::default()
    }
}

/// The agent's overhead per region: selecting it, checking its header and heartbeat, and adding its one metric to the
/// LMAP's row.
pub fn overhead(name: &str) -> Result<Figure> {
    let mut watched = WorkerFixture::new()?;
    for service in &watched.services {
        service.slot(Slot(0)).context("there is a first slot")?.store(1.0_f64.to_bits(), Relaxed);
    }
    let mut alone = LocalReader::new();
    let mut batch = Vec::new();
    for (id, service) in (1..).map(RegionId).zip(&watched.services) {
        alone.attach(id, service.size(), Access::Memory(service.clone()))?;
        batch.push(RegionBuffer::for_first(id, Slot(1).word())); // as far as the worker reads, too
    }
    let mut failed = Ok(());
    let measured = measure(
        2_000,
        |ticks| watched.run(ticks),
        |ticks| {
            for _ in 0..ticks {
                if failed.is_ok() {
                    failed = alone.fetch(black_box(&mut batch));
                }
            }
        },
    );
    failed?;
    let counters = watched.worker.status().counters;
    ensure!(counters.fetched_regions == watched.ticks * REGIONS, "regions were not fetched: {counters:?}");
    let all = measured.in_units_of(REGIONS as f64);
    let added = Pair { ours: all.ours - all.peer, ratio: all.ratio - 1.0, ..all };
    let what = "reading the same words alone, on the same backend (`local`)";
    let mut figure = Figure::new(name, "ns per region", what, added, Goal::Stated);
    figure.goal = format!("≤ {MAX_NS} ns");
    figure.met = Some(added.ours <= MAX_NS);
    Ok(figure)
}

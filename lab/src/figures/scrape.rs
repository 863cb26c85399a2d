//! The cost of one scrape of a service with a hundred metrics, including the work of all threads of this process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, Result, ensure};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use region::OwnedRegion;
use transport::{Access, RegionReader as _, ShmReader};
use wire::histogram::Scale;
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage, Kind};
use wire::time::{Nanos, UnixNanos};

use super::figure::{Figure, Goal};
use super::metric_set::{self, COUNTERS, GAUGES, HISTOGRAMS, Noise};
use super::pair::measure;
use super::prometheus::{Exposition, Scraper};
use super::rounds::every_fifth_row;

const INTERVAL: Nanos = Nanos::from_millis(100);
/// The size of a client's first region.
const SLOTS: u32 = 2000;
const SCRAPES: u64 = 200;
/// Required ratio to the peer.
const MAX_RATIO: f64 = 0.05;
const PEER: &str = "scrape of the same 100 metrics as Prometheus text: prometheus-client encodes, HTTP/1.1 over loopback (kept alive), \
                    reader parses and looks up each series";

/// A worker with one LMAP over the hundred metrics of one replica, in shared memory as the client lays it out.
struct WorkerFixture {
    worker: Worker,
    reader: ShmReader,
    region: OwnedRegion,
    noise: Noise,
    now: Nanos,
    scrapes: u64,
}

impl WorkerFixture {
    /// An LMAP that learns for `warm_up_rows` rows.
    fn new(warm_up_rows: usize) -> Result<Self> {
        let defaults = WorkerSettings::default();
        // Later fits would be in some turns only, and by a provisional one rows are scored that are to be kept only.
        let detector = lmap::Settings {
            provisional_rows: None,
            warm_up_rows,
            fit_again_rows: Vec::new(),
            ..defaults.detector.clone()
        };
        let mut worker = Worker::new(WorkerSettings { detector, ..defaults }, 1);
        worker.connected(Nanos::ZERO);
        let welcome = proto::HostWelcome { lowest_share: 1.0, lease_ms: 60_000, ..proto::HostWelcome::default() };
        let region = OwnedRegion::create("figures", RegionSize::for_slots(SLOTS)?)?;
        let lmap = lmap(region.size().bytes() as u64);
        for (epoch, message) in [(0, Message::Welcome(welcome)), (1, Message::SetLmap(lmap))] {
            worker.on_host(Nanos::ZERO, HostMessage { epoch, message: Some(message) })?;
        }
        let mut reader = ShmReader::new();
        for effect in worker.take_effects() {
            if let Effect::Attach(request) = effect {
                let memory = rustix::io::fcntl_dupfd_cloexec(&region, 0).map_err(io::Error::from)?;
                reader.attach(request.region, request.size, Access::Descriptor(memory))?;
                worker.attached(Nanos::ZERO, request.region, Ok(()));
            }
        }
        Ok(Self { worker, reader, region, noise: Noise(88_172_645_463_325_252), now: Nanos::ZERO, scrapes: 0 })
    }

    /// Writes every metric once, as the service does.
    fn write(&mut self) {
        let scale = Scale::DEFAULT;
        for at in 0..COUNTERS {
            let value = self.noise.draw();
            self.add(at, value);
        }
        for at in COUNTERS..COUNTERS + GAUGES {
            let value = self.noise.draw() as f64;
            if let Some(word) = self.region.slot(Slot(at as u32)) {
                word.store(value.to_bits(), Relaxed);
            }
        }
        for at in 0..HISTOGRAMS {
            let value = self.noise.draw();
            self.add(first_slot(at) + scale.bucket(value) as usize, 1);
            self.add(first_slot(at) + scale.sum_slot() as usize, value);
        }
        self.region.beat();
    }

    fn add(&self, slot: usize, count: u64) {
        if let Some(word) = self.region.slot(Slot(slot as u32)) {
            word.fetch_add(count, Relaxed);
        }
    }

    /// One tick as the agent runs it, decompositions included.
    fn scrape(&mut self) {
        self.now = self.now.plus(INTERVAL);
        if self.worker.poll(self.now) == Step::Fetch {
            let fetched = self.reader.fetch(self.worker.batch());
            std::hint::black_box(self.worker.fetched(self.now, UnixNanos(self.now.0), &fetched));
        }
        while let Some((id, job)) = self.worker.take_job() {
            self.worker.job_done(id, job.run());
        }
        self.worker.outbox().for_each(drop);
    }

    fn run(&mut self, scrapes: u64) {
        for _ in 0..scrapes {
            self.write();
            self.scrape();
            self.scrapes += 1;
        }
    }
}

/// The first slot of histogram `at`.
fn first_slot(at: usize) -> usize {
    COUNTERS + GAUGES + at * Scale::DEFAULT.slots() as usize
}

fn lmap(bytes: u64) -> proto::Lmap {
    let metric = |name: String, kind: Kind| proto::Metric {
        name,
        kind: kind.into(),
        aggregation: "sum".to_owned(),
        ..proto::Metric::default()
    };
    let mut metrics: Vec<proto::Metric> = (0..COUNTERS)
        .map(|at| {
            let (name, route) = metric_set::counter(at);
            let labels = vec![proto::Label { key: "route".to_owned(), value: route }];
            proto::Metric { labels, ..metric(name, Kind::Counter) }
        })
        .collect();
    metrics.extend((0..GAUGES).map(|at| metric(metric_set::gauge(at), Kind::Gauge)));
    metrics.extend((0..HISTOGRAMS).map(|at| {
        let (sub_bits, max_bits) = (Scale::DEFAULT.sub_bits(), Scale::DEFAULT.max_bits());
        proto::Metric { sub_bits, max_bits, parts_per_unit: 1000, ..metric(metric_set::histogram(at), Kind::Histogram) }
    }));
    let slots = (0..COUNTERS + GAUGES).chain((0..HISTOGRAMS).map(first_slot));
    let places = slots.zip(1..).map(|(slot, metric)| proto::MetricPlace { metric, region: 1, first_slot: slot as u32 });
    let places = places.collect();
    for (metric, id) in metrics.iter_mut().zip(1..) {
        metric.metric = id;
    }
    proto::Lmap {
        lmap: 1,
        service: "shop".to_owned(),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics,
        replicas: vec![proto::Replica {
            replica: 1,
            instance: "shop-1".to_owned(),
            regions: vec![proto::Region { region: 1, bytes, heartbeat: true, ..proto::Region::default() }],
            places,
            ..proto::Replica::default()
        }],
        model: Vec::new(),
        detector: Some(every_fifth_row()),
        ..proto::Lmap::default()
    }
}

/// Fetching and computing columns. The row is only kept for learning, not scored: the worker's minimal work.
pub fn unjudged(name: &str) -> Result<Figure> {
    against_prometheus(name, WorkerFixture::new(100_000)?)
}

/// The same with the LMAP armed: scored, and learnt by the default stride.
pub fn judged(name: &str) -> Result<Figure> {
    let mut watched = WorkerFixture::new(lmap::Settings::default().warm_up_rows)?;
    watched.run(200);
    ensure!(watched.worker.status().lmaps[1] == 1, "the LMAP is not armed: {:?}", watched.worker.status());
    against_prometheus(name, watched)
}

fn against_prometheus(name: &str, mut watched: WorkerFixture) -> Result<Figure> {
    let exposition = Arc::new(Exposition::new());
    let mut scraper = Scraper::connect(exposition.serve()?)?;
    let mut noise = Noise(88_172_645_463_325_252);
    let mut scrape = || {
        exposition.write(&mut noise);
        scraper.request()?;
        scraper.read_response()
    };
    let samples = scrape().context("the peer's first scrape")?;
    ensure!(samples >= COUNTERS + GAUGES + HISTOGRAMS, "the peer sent {samples} samples only");
    let mut failed = Ok(0);
    let measured = measure(
        SCRAPES,
        |scrapes| watched.run(scrapes),
        |scrapes| {
            for _ in 0..scrapes {
                failed = std::mem::replace(&mut failed, Ok(0)).and_then(|_| scrape());
            }
        },
    );
    failed.context("the peer's scrape")?;
    let counters = watched.worker.status().counters;
    ensure!(counters.fetched_regions == watched.scrapes, "regions were not fetched: {counters:?}");
    Ok(Figure::new(name, "µs of CPU", PEER, measured.in_units_of(1000.0), Goal::AtMost(MAX_RATIO)))
}

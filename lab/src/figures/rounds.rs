//! Whole rounds of a node with many LMAPs: fetching, scoring and learning by the default stride, on one core.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Result, ensure};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use transport::local::Region;
use transport::{Access, LocalReader, RegionBuffer, RegionReader as _};
use wire::id::RegionId;
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage, Kind};
use wire::time::{Nanos, UnixNanos};

use super::figure::{Figure, Goal};
use super::instructions;
use super::lmap::{Projection, RANK, SKETCH_ROWS};
use super::metric_set::Noise;
use super::pair::Pair;
use crate::clock::processor_time;

const INTERVAL: Nanos = Nanos::from_millis(10);
/// Rounds per turn: in so many every LMAP decomposes once, after learning l + 1 rows, every fifth one.
const ROUNDS: u64 = 26 * 5;
const TURNS: usize = 21;
/// Rounds until every LMAP is armed and decomposes regularly.
const BEFORE: u64 = 300;

/// A worker with several LMAPs, each of one replica with one region of counters, and these regions.
struct Node {
    worker: Worker,
    reader: LocalReader,
    regions: Vec<Region>,
    columns: usize,
    noise: Noise,
    now: Nanos,
}

impl Node {
    fn new(lmaps: usize, columns: usize) -> Result<Self> {
        let defaults = WorkerSettings::default();
        let detector = lmap::Settings {
            rank: Some(RANK),
            sketch_rows: Some(SKETCH_ROWS),
            fit_again_rows: Vec::new(),
            ..defaults.detector.clone()
        };
        let mut worker = Worker::new(WorkerSettings { detector, ..defaults }, 1);
        worker.connected(Nanos::ZERO);
        let welcome = proto::HostWelcome { lowest_share: 1.0, lease_ms: 60_000, ..proto::HostWelcome::default() };
        worker.on_host(Nanos::ZERO, HostMessage { epoch: 0, message: Some(Message::Welcome(welcome)) })?;
        let size = RegionSize::for_slots(columns as u32)?;
        for id in 1..=lmaps as u64 {
            let set = Message::SetLmap(lmap(id, columns, size));
            worker.on_host(Nanos::ZERO, HostMessage { epoch: id, message: Some(set) })?;
        }
        let regions: Vec<Region> = (0..lmaps).map(|_| Region::new(size)).collect();
        let mut reader = LocalReader::new();
        for effect in worker.take_effects() {
            if let Effect::Attach(request) = effect {
                let region = regions[request.region.0 as usize - 1].clone();
                reader.attach(request.region, request.size, Access::Memory(region))?;
                worker.attached(Nanos::ZERO, request.region, Ok(()));
            }
        }
        Ok(Self { worker, reader, regions, columns, noise: Noise(88_172_645_463_325_252), now: Nanos::ZERO })
    }

    /// Writes values: a load shared by all metrics of a service, plus noise. Not part of the measurement.
    fn write(&mut self) {
        for region in &self.regions {
            region.beat();
            let load = [self.noise.draw(), self.noise.draw(), self.noise.draw()];
            for slot in 0..self.columns {
                let value = 1000 + load[slot % 3] * (1 + slot as u64 % 7) + self.noise.draw() / 4;
                if let Some(word) = region.slot(Slot(slot as u32)) {
                    word.fetch_add(value, Relaxed);
                }
            }
        }
        self.now = self.now.plus(INTERVAL);
    }

    /// The agent's work in a round, including decompositions, which a real agent runs in another thread.
    fn round(&mut self) {
        if self.worker.poll(self.now) == Step::Fetch {
            let fetched = self.reader.fetch(self.worker.batch());
            black_box(self.worker.fetched(self.now, UnixNanos(self.now.0), &fetched));
        }
        while let Some((id, job)) = self.worker.take_job() {
            self.worker.job_done(id, job.run());
        }
        self.worker.outbox().for_each(drop);
    }
}

fn lmap(id: u64, columns: usize, size: RegionSize) -> proto::Lmap {
    let metric = |metric| proto::Metric {
        metric,
        name: format!("metric.{metric}"),
        kind: Kind::Counter.into(),
        aggregation: "sum".to_owned(),
        ..proto::Metric::default()
    };
    let (bytes, count) = (size.bytes() as u64, columns as u32);
    proto::Lmap {
        lmap: id as u32,
        service: format!("service-{id}"),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics: (1..=count).map(metric).collect(),
        replicas: vec![proto::Replica {
            replica: id as u32,
            instance: format!("replica-{id}"),
            regions: vec![proto::Region { region: id, bytes, heartbeat: true, ..proto::Region::default() }],
            places: (1..=count)
                .map(|metric| proto::MetricPlace { metric, region: id, first_slot: metric - 1 })
                .collect(),
            ..proto::Replica::default()
        }],
        model: Vec::new(),
        detector: Some(every_fifth_row()),
        ..proto::Lmap::default()
    }
}

/// The stride of longer rows, whatever the interval: at 10 ms an agent learns a row in fifty, unless it is asked to.
pub(super) fn every_fifth_row() -> proto::Detector {
    proto::Detector { stride: Some(lmap::Settings::default().stride), ..proto::Detector::default() }
}

/// The minimal round: fetching the regions, and one bare projection for each.
struct BaselineRound {
    reader: LocalReader,
    batch: Vec<RegionBuffer>,
    projections: Vec<Projection<f64>>,
    row: Vec<f64>,
}

impl BaselineRound {
    fn of(node: &Node) -> Result<Self> {
        let (mut reader, mut batch) = (LocalReader::new(), Vec::new());
        for (id, region) in (1..).map(RegionId).zip(&node.regions) {
            reader.attach(id, region.size(), Access::Memory(region.clone()))?;
            batch.push(RegionBuffer::new(id, region.size()));
        }
        let projections = node.regions.iter().map(|_| Projection::new(node.columns)).collect();
        Ok(Self { reader, batch, projections, row: vec![1.0; node.columns] })
    }

    fn round(&mut self) -> bool {
        let fetched = self.reader.fetch(black_box(&mut self.batch)).is_ok();
        for projection in &mut self.projections {
            black_box(projection.score(black_box(&self.row)));
        }
        fetched
    }
}

/// A round of `lmaps` LMAPs of `columns` columns each.
pub fn rounds(name: &str, lmaps: usize, columns: usize, least_per_second: f64) -> Result<Figure> {
    let mut node = Node::new(lmaps, columns)?;
    for _ in 0..BEFORE {
        node.write();
        node.round();
    }
    let armed = node.worker.status().lmaps[1];
    ensure!(armed == lmaps, "{armed} of {lmaps} LMAPs are armed");
    let mut bare = BaselineRound::of(&node)?;
    let mut pairs = Vec::new();
    for _ in 0..TURNS {
        let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..ROUNDS {
            node.write();
            ours += processor_time(&mut || node.round());
            let mut fetched = false;
            theirs += processor_time(&mut || fetched = bare.round());
            ensure!(fetched, "the regions were not fetched");
        }
        pairs.push((ours.as_nanos() as f64 / ROUNDS as f64, theirs.as_nanos() as f64 / ROUNDS as f64));
    }
    let fetched = node.worker.status().counters;
    ensure!(fetched.failed_regions == 0, "regions were not fetched: {fetched:?}");
    let measured = Pair::of(&pairs).map(|pair| pair.in_units_of(1000.0));
    let measured = measured.ok_or_else(|| anyhow::anyhow!("nothing was measured"))?;
    let peer = format!(
        "fetching the same regions (`local`), and nalgebra: x − V Vᵀx and its norm for each, k = {RANK}, nothing else"
    );
    let figure = Figure::new(name, "µs of CPU per round", &peer, measured, Goal::Stated);
    let per_second = 1e6 / figure.value;
    let note = format!(
        "{per_second:.0} rounds per second of CPU time of {lmaps} LMAPs with {columns} columns, l = {SKETCH_ROWS}; {}",
        instructions::against_build("f64")
    );
    let goal = format!("≥ {least_per_second} rounds/s");
    Ok(Figure { goal, met: Some(per_second >= least_per_second), note, ..figure })
}

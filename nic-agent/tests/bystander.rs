//! A service that corrupts its own region, or an operator that supplies a broken model, does not affect another service
//! on the same worker. Two services in shared memory and one worker, compared with the same run without the offence.

use std::os::fd::OwnedFd;

use lmap::{Column, ColumnKind, Detector};
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::pwrite;
use transport::{Access, RegionReader, ShmReader};
use wire::layout::{HEADER_BYTES, MAGIC, PAGE_BYTES, SLOT_BYTES, VERSION};
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{self as proto, HostMessage};
use wire::time::{Nanos, UnixNanos};

const OFFENDER: u32 = 1;
const BYSTANDER: u32 = 2;
const METRICS: u32 = 6;
const INTERVAL: Nanos = Nanos::from_millis(100);
const TICKS: u64 = 90;
/// The first tick with the offence. Everything is armed by then.
const OFFENCE: u64 = 40;
const BYTES: usize = 2 * PAGE_BYTES;

/// A service's memory, which the test writes anywhere, as its process could.
struct Memory(OwnedFd);

impl Memory {
    fn new(bytes: usize) -> Self {
        let memory = memfd_create("bystander", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, bytes as u64).expect("a size");
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("seals");
        let memory = Self(memory);
        memory.words(0, &[MAGIC, VERSION, 1, 0]);
        memory
    }

    fn words(&self, offset: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(pwrite(&self.0, &bytes, offset as u64).expect("it can be written"), bytes.len());
    }

    fn slots(&self, words: &[u64]) {
        self.words(HEADER_BYTES, words);
    }

    fn beat(&self, beats: u64) {
        self.words(3 * SLOT_BYTES, &[beats]);
    }

    fn punch(&self, offset: usize) {
        self.punch_pages(offset, 1);
    }

    fn punch_pages(&self, offset: usize, pages: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.0, flags, offset as u64, (pages * PAGE_BYTES) as u64).expect("a hole");
    }

    /// Pages that are no holes.
    fn allocated_pages(&self) -> u64 {
        fstat(&self.0).expect("its state").st_blocks as u64 / 8
    }
}

/// A pseudo-random number that is the same in every run.
fn noise(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Healthy values: gauges that hover.
fn healthy(service: u32, tick: u64) -> Vec<u64> {
    let value =
        |metric: u32| 50.0 + (noise(tick << 16 | u64::from(service) << 8 | u64::from(metric)) % 100) as f64 / 10.0;
    (0..METRICS).map(|metric| value(metric).to_bits()).collect()
}

fn spec(service: u32, model: Vec<u8>) -> proto::Lmap {
    let metric = |metric: u32| proto::Metric {
        metric,
        name: format!("metric.{metric}"),
        kind: proto::Kind::Gauge.into(),
        aggregation: "mean".to_owned(),
        ..proto::Metric::default()
    };
    let region = u64::from(service);
    let place = |metric: u32| proto::MetricPlace { metric, region, first_slot: metric - 1 };
    proto::Lmap {
        lmap: service,
        service: format!("service-{service}"),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics: (1..=METRICS).map(metric).collect(),
        replicas: vec![proto::Replica {
            replica: service,
            instance: format!("replica-{service}"),
            regions: vec![proto::Region { region, bytes: BYTES as u64, heartbeat: true, ..proto::Region::default() }],
            places: (1..=METRICS).map(place).collect(),
            ..proto::Replica::default()
        }],
        model,
        ..proto::Lmap::default()
    }
}

/// Everything that hooks, operators and watchers of a service get.
#[derive(Debug, Default, PartialEq)]
struct Account {
    rows: Vec<proto::Row>,
    verdicts: Vec<(u64, proto::Verdict)>,
    summary: proto::LmapSummary,
}

struct Run {
    bystander: Account,
    offender: Account,
    /// Errors for messages of the host agent.
    refused: Vec<String>,
}

/// A worker that learns `warm_up_rows`, with the LMAPs of both services, each with its memory; and errors for messages
/// of the host agent.
fn start(warm_up_rows: usize, lmaps: [proto::Lmap; 2], memories: &[Memory; 2]) -> (Worker, ShmReader, Vec<String>) {
    let detector = lmap::Settings {
        provisional_rows: None,
        warm_up_rows,
        fit_again_rows: Vec::new(),
        ..lmap::Settings::default()
    };
    let settings = WorkerSettings { detector, summary: Nanos::from_millis(500), ..WorkerSettings::default() };
    let (mut worker, mut reader) = (Worker::new(settings, 1), ShmReader::new());
    let mut refused = Vec::new();
    worker.connected(Nanos::ZERO);
    let welcome = proto::HostWelcome {
        host_incarnation: 1,
        lowest_share: 0.01,
        lease_ms: 600_000,
        transport: "shm".into(),
        ..proto::HostWelcome::default()
    };
    let watch =
        |lmap| FromHost::SubscribeRows(proto::SubscribeRows { lmap, every: 1, features: false, columns: false });
    let [offender, bystander] = lmaps;
    let messages = [
        (0, FromHost::Welcome(welcome)),
        (1, FromHost::SetLmap(offender)),
        (2, FromHost::SetLmap(bystander)),
        (2, watch(OFFENDER)),
        (2, watch(BYSTANDER)),
    ];
    for (epoch, message) in messages {
        let taken = worker.on_host(Nanos::ZERO, HostMessage { epoch, message: Some(message) });
        refused.extend(taken.err().map(|error| error.to_string()));
    }
    for effect in worker.take_effects() {
        let Effect::Attach(request) = effect else { continue };
        let memory = memories[request.region.0 as usize - 1].0.try_clone().expect("one more descriptor");
        reader.attach(request.region, request.size, Access::Descriptor(memory)).expect("good memory");
        worker.attached(Nanos::ZERO, request.region, Ok(()));
    }
    (worker, reader, refused)
}

/// Runs one worker with two services. `offend` is called in every tick from [`OFFENCE`] on, after the offender's
/// healthy values were written.
fn run(model: Vec<u8>, offend: impl Fn(&Memory, u64)) -> Run {
    let memories = [Memory::new(BYTES), Memory::new(BYTES)];
    let (mut worker, mut reader, mut refused) =
        start(20, [spec(OFFENDER, model), spec(BYSTANDER, Vec::new())], &memories);
    let mut accounts = [Account::default(), Account::default()];
    for tick in 0..TICKS {
        for (service, memory) in (1..).zip(&memories) {
            memory.slots(&healthy(service, tick));
            memory.beat(tick + 1);
        }
        if tick >= OFFENCE {
            offend(&memories[0], tick);
        }
        let now = Nanos(tick * INTERVAL.0);
        while let Step::SleepUntil(deadline) = worker.poll(now) {
            assert!(deadline <= now, "nothing is due at {now:?}, only at {deadline:?}");
        }
        let fetched = reader.fetch(worker.batch());
        refused.extend(worker.fetched(now, UnixNanos(now.0), &fetched).iter().map(ToString::to_string));
        while let Some((id, job)) = worker.take_job() {
            worker.job_done(id, job.run());
        }
        for message in worker.outbox().filter_map(|message| message.message) {
            note(&mut accounts, message);
        }
    }
    let [offender, bystander] = accounts;
    Run { bystander, offender, refused }
}

fn note(accounts: &mut [Account; 2], message: ToHost) {
    match message {
        ToHost::Rows(rows) => accounts[rows.lmap as usize - 1].rows.extend(rows.rows),
        ToHost::Verdicts(verdicts) => {
            for verdict in verdicts.verdicts {
                accounts[verdict.lmap as usize - 1].verdicts.push((verdicts.at_unix_ns, verdict));
            }
        }
        ToHost::Summary(summary) => {
            for lmap in summary.lmaps {
                let account = lmap.lmap as usize - 1;
                accounts[account].summary = lmap;
            }
        }
        _ => {}
    }
}

/// An offence: its description, its action, and a check of the offender's account by which it is recognised.
type Offence = (&'static str, fn(&Memory, u64), fn(&Account) -> bool);

fn offences() -> Vec<Offence> {
    vec![
        (
            "values that are no numbers",
            |memory, tick| {
                let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, f64::MIN_POSITIVE / 4.0];
                memory.slots(&[values[tick as usize % values.len()].to_bits(); METRICS as usize]);
            },
            |account| account.rows.last().is_some_and(|row| row.score.is_finite()),
        ),
        (
            "random words",
            |memory, tick| {
                let words: Vec<u64> = (0..METRICS).map(|slot| noise(tick * 64 + u64::from(slot))).collect();
                memory.slots(&words);
            },
            |account| account.verdicts.iter().any(|(_, verdict)| verdict.score > verdict.gamma),
        ),
        (
            "a foreign first word",
            |memory, _| memory.words(0, &[0xdead]),
            |account| account.summary.discarded_header > 10,
        ),
        (
            "another layout version",
            |memory, _| memory.words(SLOT_BYTES, &[VERSION + 1]),
            |account| account.summary.discarded_header > 10,
        ),
        (
            "a generation that never rests",
            |memory, tick| memory.words(2 * SLOT_BYTES, &[tick]),
            |account| account.summary.discarded_generation > 10,
        ),
        ("a hole in the first page", |memory, _| memory.punch(0), |account| account.summary.discarded_header > 10),
        (
            "a hole in the last page",
            |memory, _| memory.punch(BYTES - PAGE_BYTES),
            |account| account.rows.len() as u64 == TICKS - 1 || account.rows.len() as u64 == TICKS,
        ),
        (
            "a heart that stands still",
            |memory, _| memory.beat(OFFENCE),
            |account| account.verdicts.iter().any(|(_, verdict)| !verdict.silent_replicas.is_empty()),
        ),
    ]
}

#[test]
fn what_a_service_does_to_its_region_is_known_by_its_sign_and_touches_no_other_service() {
    let quiet = run(Vec::new(), |_, _| ());
    assert!(quiet.refused.is_empty(), "{:?}", quiet.refused);
    assert!(quiet.bystander.rows.len() as u64 >= TICKS - 1, "{} rows", quiet.bystander.rows.len());
    assert!(!quiet.bystander.verdicts.is_empty(), "verdicts are compared, so there must be some");

    for (what, offend, sign) in offences() {
        let run = run(Vec::new(), offend);

        assert!(sign(&run.offender), "{what} left no sign: {:?}", run.offender.summary);
        assert!(run.refused.is_empty(), "{what}: {:?}", run.refused);
        assert_eq!(run.bystander, quiet.bystander, "{what} was felt next door");
    }
}

/// Time between two rows while holes are punched.
const SHORT: Nanos = Nanos::from_millis(5);
/// Rows that wait at the end: those of 50 ms are sent together.
const UNSENT: u64 = 10;
/// What a load from a hole costs, for which the system allocates a page: several times as much as it takes.
const FAULT: Nanos = Nanos::from_micros(10);
/// Most pages that are loaded from between two looks at a region (`region/transport/src/pages.rs`).
const BETWEEN_LOOKS: u64 = 64;

/// The offender, with a metric in each of these pages behind the first.
fn spread(pages: u32) -> proto::Lmap {
    let mut lmap = spec(OFFENDER, Vec::new());
    let metric = |page| proto::Metric { metric: page, name: format!("metric.{page}"), ..lmap.metrics[0].clone() };
    lmap.metrics = (1..=pages).map(metric).collect();
    let place = |page| proto::MetricPlace { metric: page, region: u64::from(OFFENDER), first_slot: page * 512 };
    lmap.replicas[0].places = (1..=pages).map(place).collect();
    lmap.replicas[0].regions[0].bytes = u64::from(pages + 1) * PAGE_BYTES as u64;
    lmap
}

/// What a run was with holes before each fetch.
struct PunchedRun {
    /// Times of the bystander's rows.
    rows: Vec<u64>,
    late_ticks: u64,
    punched_regions: u64,
    /// Pages that loads have made the system allocate.
    faults: u64,
}

/// From [`OFFENCE`] on, all pages of the offender's region but the first are holes before each fetch. A fetch takes as
/// long as the pages cost that the system allocates for it.
fn run_punched(pages: u32) -> PunchedRun {
    let memories = [Memory::new((pages as usize + 1) * PAGE_BYTES), Memory::new(BYTES)];
    (1..=pages as usize).for_each(|page| memories[0].words(page * PAGE_BYTES + HEADER_BYTES, &[1]));
    let lmaps = [spread(pages), spec(BYSTANDER, Vec::new())];
    let lmaps = lmaps.map(|lmap| proto::Lmap { interval_us: SHORT.0 / 1000, ..lmap });
    // Nothing is learnt yet when it ends.
    let (mut worker, mut reader, refused) = start(1_000, lmaps, &memories);
    assert!(refused.is_empty(), "{refused:?}");
    let mut accounts = [Account::default(), Account::default()];
    let (mut now, mut tick, mut faults) = (Nanos::ZERO, 0, 0);
    while tick < TICKS {
        if let Step::SleepUntil(deadline) = worker.poll(now) {
            now = now.max(deadline);
            continue;
        }
        memories[1].slots(&healthy(BYSTANDER, tick));
        for memory in &memories {
            memory.beat(tick + 1);
        }
        if tick >= OFFENCE {
            memories[0].punch_pages(PAGE_BYTES, pages as usize);
        }
        let before = memories[0].allocated_pages();
        let fetched = reader.fetch(worker.batch());
        let allocated = memories[0].allocated_pages() - before;
        let began = UnixNanos(now.0);
        now = now.plus(Nanos(allocated * FAULT.0));
        assert!(worker.fetched(now, began, &fetched).is_empty());
        for effect in worker.take_effects() {
            if let Effect::Detach(region) = effect {
                reader.detach(region);
            }
        }
        for message in worker.outbox().filter_map(|message| message.message) {
            note(&mut accounts, message);
        }
        (tick, faults) = (tick + 1, faults + allocated);
    }
    let (rows, status) = (accounts[1].rows.iter().map(|row| row.at_unix_ns).collect(), worker.status());
    let (late_ticks, punched_regions) = (status.counters.late_ticks, status.punched_regions);
    PunchedRun { rows, late_ticks, punched_regions, faults }
}

#[test]
fn holes_that_are_punched_before_each_fetch_cost_another_service_no_row_and_no_tick() {
    // Small regions are looked at once in many fetches, large ones in each.
    for (pages, noticed_at_once) in [(1, false), (2, false), (20, false), (200, true), (1_023, true)] {
        let run = run_punched(pages);

        let times = (0..).map(|row| run.rows[0] + row * SHORT.0).take(run.rows.len());
        assert!(run.rows.iter().copied().eq(times), "one row for each interval: {pages} pages, {:?}", run.rows);
        assert!(run.rows.len() as u64 >= TICKS - UNSENT, "{pages} pages: {} rows", run.rows.len());
        assert_eq!((run.late_ticks, run.punched_regions), (0, 1), "{pages} pages");
        assert!(run.faults <= BETWEEN_LOOKS, "{pages} pages: {} were allocated for reading", run.faults);
        assert_eq!(run.faults == 0, noticed_at_once, "{pages} pages: {} were allocated for reading", run.faults);
    }
}

/// A model for columns that no service here has.
fn foreign_model() -> Vec<u8> {
    let columns = (0..METRICS).map(|column| Column::new(ColumnKind::Gauge, u64::from(column))).collect();
    let settings = lmap::Settings { provisional_rows: None, warm_up_rows: 20, ..lmap::Settings::default() };
    let mut detector = Detector::new(columns, settings, 1).expect("settings in range");
    for tick in 0..30 {
        let row: Vec<f64> = healthy(OFFENDER, tick).into_iter().map(f64::from_bits).collect();
        _ = detector.score(&row).expect("one value per column");
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector.model().expect("it is armed").encode()
}

#[test]
fn a_model_that_cannot_be_used_is_refused_and_its_service_and_all_others_are_judged_without_it() {
    let quiet = run(Vec::new(), |_, _| ());
    let model = foreign_model();
    let changed = |at: usize| {
        let mut model = model.clone();
        model[at] ^= 0x40;
        model
    };
    let middle = model.len() / 2;
    let models = [
        ("of other columns", model.clone()),
        ("truncated", model[..model.len() - 1].to_vec()),
        ("cut in the middle", model[..middle].to_vec()),
        ("with a flipped bit", changed(middle)),
        ("with another checksum", changed(model.len() - 1)),
        ("with another beginning", changed(0)),
        ("that is none", b"this is no model".to_vec()),
    ];

    for (what, model) in models {
        let run = run(model, |_, _| ());

        assert_eq!(run.refused.len(), 1, "a model {what}: {:?}", run.refused);
        assert_eq!(run.offender, quiet.offender, "with a model {what} the service learns by itself");
        assert_eq!(run.bystander, quiet.bystander, "a model {what} was felt next door");
    }
}

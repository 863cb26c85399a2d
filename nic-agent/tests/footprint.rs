//! What the agent says of an LMAP's memory (`uview_nic_lmap_bytes`, `uview_nic_column_bytes`), and what its budget has
//! for the description of a column, against what an allocator counts. A test binary of its own, since the allocator
//! counts for all.

use std::sync::atomic::Ordering::Relaxed;

use agent_runtime::budget::Load;
use nic_agent::config::Config;
use nic_agent::{Effect, Step, Worker, WorkerSettings};
use transport::local::Region;
use transport::{Access, LocalReader, RegionReader};
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage};
use wire::time::{Nanos, UnixNanos};

const INTERVAL: Nanos = Nanos::from_millis(100);
/// What an LMAP may have without a column: the budget has 4 KiB for each of two detectors, learning and fitted. LMAPs
/// are in nodes of eleven, at least half of which are in use; the first one has a node for itself.
const WITHOUT_COLUMNS: f64 = 16.0 * 1024.0 * 11.0 / 2.0;
/// Rows for subscribers, which are counted in `lmap_bytes`.
const ROWS: usize = 16;

/// An LMAP of one replica with `scalars` counters and gauges, and `histograms` histograms of the default scale.
fn lmap(scalars: u32, histograms: u32, region: &Region) -> proto::Lmap {
    let slots = wire::histogram::Scale::DEFAULT.slots();
    let metric = |number: u32| proto::Metric {
        metric: number + 1,
        name: format!("http.server.request.number.{number}"),
        labels: vec![proto::Label { key: "route".to_owned(), value: format!("/pay/{number}") }],
        kind: match number {
            number if number >= scalars => proto::Kind::Histogram,
            number if number % 2 == 0 => proto::Kind::Counter,
            _ => proto::Kind::Gauge,
        }
        .into(),
        sub_bits: 2,
        max_bits: 32,
        aggregation: "sum".to_owned(),
        ..proto::Metric::default()
    };
    let first = |number: u32| number.min(scalars) + number.saturating_sub(scalars) * slots;
    let place = |number: u32| proto::MetricPlace { metric: number + 1, region: 1, first_slot: first(number) };
    let region =
        proto::Region { region: 1, bytes: region.size().bytes() as u64, heartbeat: true, ..proto::Region::default() };
    let replica = proto::Replica {
        replica: 1,
        instance: "cart-1".to_owned(),
        regions: vec![region],
        places: (0..scalars + histograms).map(place).collect(),
        ..proto::Replica::default()
    };
    proto::Lmap {
        lmap: 1,
        service: "cart".to_owned(),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics: (0..scalars + histograms).map(metric).collect(),
        replicas: vec![replica],
        ..proto::Lmap::default()
    }
}

/// Bytes of the region's pages that are in use, of which the LMAP has a buffer.
fn buffer(scalars: u32, histograms: u32) -> usize {
    let words = Slot(0).word() + scalars as usize + (histograms * wire::histogram::Scale::DEFAULT.slots()) as usize;
    (8 * words).next_multiple_of(64)
}

/// Bytes of a worker's only LMAP once it is armed, without what `lmap_bytes` has, and without the buffer; and of these,
/// what `column_bytes` has.
fn besides(scalars: u32, histograms: u32) -> [f64; 2] {
    let size = RegionSize::new(1 << 20).expect("a megabyte is a size");
    let region = Region::new(size);
    let detector = lmap::Settings { fit_again_rows: Vec::new(), ..lmap::Settings::default() };
    let settings = WorkerSettings { detector, row_history: ROWS, ..WorkerSettings::default() };
    let mut worker = Worker::new(settings, 1);
    let mut reader = LocalReader::new();
    worker.connected(Nanos::ZERO);
    let welcome = proto::HostWelcome {
        host_incarnation: 1,
        lowest_share: 1e9,
        lease_ms: 600_000,
        transport: "shm".into(),
        ..proto::HostWelcome::default()
    };
    worker.on_host(Nanos::ZERO, HostMessage { epoch: 0, message: Some(Message::Welcome(welcome)) }).expect("a welcome");
    let before = allocations::live();
    let message = lmap(scalars, histograms, &region);
    worker.on_host(Nanos::ZERO, HostMessage { epoch: 1, message: Some(Message::SetLmap(message)) }).expect("an LMAP");
    for effect in worker.take_effects() {
        let Effect::Attach(request) = effect else { continue };
        reader.attach(request.region, request.size, Access::Memory(region.clone())).expect("a region of that size");
        worker.attached(Nanos::ZERO, request.region, Ok(()));
    }
    let mut noise = 88_172_645_463_325_252_u64;
    for tick in 0..400 {
        let now = Nanos(tick * INTERVAL.0);
        region.beat();
        for slot in 0..scalars {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            let word = region.slot(Slot(slot)).expect("the region is large enough");
            if slot % 2 == 0 {
                _ = word.fetch_add(noise % 64, Relaxed);
            } else {
                word.store(((noise % 64) as f64).to_bits(), Relaxed);
            }
        }
        while worker.poll(now) == Step::Fetch {
            let fetched = reader.fetch(worker.batch());
            let refused = worker.fetched(now, UnixNanos(now.0), &fetched);
            assert!(refused.is_empty(), "{refused:?}");
        }
        while let Some((id, job)) = worker.take_job() {
            worker.job_done(id, job.run());
        }
        while worker.next_message().is_some() {}
    }
    let status = worker.status();
    assert_eq!(status.lmaps, [0, 1, 0, 0], "it has armed itself");
    let live = usize::try_from(allocations::live() - before).expect("nothing of before is freed");
    assert_eq!(status.buffer_bytes.next_multiple_of(64), buffer(scalars, histograms) as u64);
    [(live - buffer(scalars, histograms)) as f64 - status.lmap_bytes as f64, status.column_bytes as f64]
}

/// What the budget has for the description of a column, with room for further replicas, each with a series of its own.
fn stated() -> f64 {
    let budget = nic_agent::budget(&Config::default(), Load { services: 1, columns: 1 });
    budget.bounds.iter().find(|bound| bound.what == "descriptions of columns").expect("it has such a row").bytes as f64
}

#[test]
fn what_the_metric_leaves_out_of_an_lmap_is_what_the_budget_has_for_descriptions_of_columns() {
    let [nothing, of_one] = besides(1, 0);
    println!("{nothing:.0} bytes for an LMAP of one column");
    assert!(nothing < WITHOUT_COLUMNS, "{nothing}");

    for columns in [74, 150, 300, 1_000] {
        let [all, counted] = besides(columns, 0);
        let [each, counted] = [all - nothing, counted - of_one].map(|bytes| bytes / f64::from(columns - 1));
        println!("{columns} columns: {each:.0} bytes for each, {counted:.0} by the agent's own count");
        assert!((stated() / 8.0..stated()).contains(&each), "{each} for each of {columns}, {} are stated", stated());
        // Besides, it has how often each is read.
        assert!((0.8..1.05).contains(&(counted / each)), "{counted} of {each} for each of {columns} are counted");
    }
}

#[test]
fn what_is_kept_of_histograms_is_part_of_the_claim_on_region_bytes() {
    let slots = wire::histogram::Scale::DEFAULT.slots();
    for histograms in [8, 25, 100] {
        let ([without, _], [with, _]) = (besides(50, 0), besides(50, histograms));
        let claimed = f64::from(16 * histograms * slots);
        let each = (with - without - claimed) / f64::from(3 * histograms);
        println!("{histograms} histograms: {each:.0} bytes for a column besides {claimed:.0} of buckets");
        assert!(each < stated(), "{each} for a column, {} are stated", stated());
        assert!(with - without > claimed, "the buckets are there");
    }
}

//! A tick without output does not allocate, measured by a counting allocator. A test binary of its own, with one test,
//! since the allocator counts for the whole process.

use std::sync::atomic::Ordering::Relaxed;

use nic_agent::{Effect, Step, Worker, WorkerSettings};
use transport::local::Region;
use transport::{Access, LocalReader, RegionReader};
use wire::layout::{RegionSize, Slot};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage};
use wire::time::{Nanos, UnixNanos};

const METRICS: u32 = 40;
const REPLICAS: u64 = 3;
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Counters, gauges, up-down counters and one histogram, in every replica.
fn lmap() -> proto::Lmap {
    let kinds = [proto::Kind::Counter, proto::Kind::Gauge, proto::Kind::UpDownCounter];
    let aggregations = ["sum", "mean", "p90", "max", "quantile(0.25)"];
    let metric = |metric: u32| proto::Metric {
        metric,
        name: format!("metric.{metric}"),
        kind: if metric == METRICS { proto::Kind::Histogram } else { kinds[metric as usize % 3] }.into(),
        sub_bits: 2,
        max_bits: 32,
        aggregation: aggregations[metric as usize % 5].to_owned(),
        formula: if metric.is_multiple_of(7) { "(max - min) / p50".to_owned() } else { String::new() },
        ..proto::Metric::default()
    };
    let derived = |metric: u32, formula: &str| proto::Metric {
        metric,
        name: format!("derived.{metric}"),
        kind: proto::Kind::Gauge.into(),
        derived: formula.to_owned(),
        ..proto::Metric::default()
    };
    let derived = [
        derived(METRICS + 1, "metric.3 / (metric.6 + 1)"),
        derived(METRICS + 2, "max(metric.1, `metric.40.count`) * sqrt(abs(metric.2))"),
    ];
    let replica = |region: u64| proto::Replica {
        replica: region as u32,
        instance: format!("cart-{region}"),
        regions: vec![proto::Region { region, bytes: 4096, heartbeat: true, ..proto::Region::default() }],
        places: (1..=METRICS).map(|metric| proto::MetricPlace { metric, region, first_slot: metric - 1 }).collect(),
        ..proto::Replica::default()
    };
    proto::Lmap {
        lmap: 1,
        service: "cart".to_owned(),
        interval_us: INTERVAL.0 / 1000,
        heartbeat_ms: 100,
        metrics: (1..=METRICS).map(metric).chain(derived).collect(),
        replicas: (1..=REPLICAS).map(replica).collect(),
        model: Vec::new(),
        ..proto::Lmap::default()
    }
}

/// Healthy load: noise of a xorshift generator on every slot.
fn write(regions: &[Region], noise: &mut u64) {
    for region in regions {
        region.beat();
        for metric in 1..=METRICS {
            *noise ^= *noise << 13;
            *noise ^= *noise >> 7;
            *noise ^= *noise << 17;
            let slot = region.slot(Slot(metric - 1)).expect("a page has 504 slots");
            match metric % 3 {
                1 => slot.store((50.0 + (*noise % 64) as f64).to_bits(), Relaxed),
                2 => slot.store(*noise % 64, Relaxed),
                _ => _ = slot.fetch_add(100 + *noise % 64, Relaxed),
            }
        }
    }
}

fn settings() -> WorkerSettings {
    // Fits after arming are jobs, which may allocate. Summaries, once a second, may allocate, too.
    let detector = lmap::Settings { fit_again_rows: Vec::new(), ..lmap::Settings::default() };
    WorkerSettings { detector, summary: Nanos::from_secs(1), ..WorkerSettings::default() }
}

#[test]
fn a_tick_with_nothing_to_say_does_not_allocate() {
    let mut worker = Worker::new(settings(), 1);
    let mut reader = LocalReader::new();
    let regions: Vec<Region> = (0..REPLICAS).map(|_| Region::new(RegionSize::ONE_PAGE)).collect();
    worker.connected(Nanos::ZERO);
    let welcome = proto::HostWelcome {
        host_incarnation: 1,
        lowest_share: 1e9,
        lease_ms: 60_000,
        transport: "shm".into(),
        ..proto::HostWelcome::default()
    };
    worker.on_host(Nanos::ZERO, HostMessage { epoch: 0, message: Some(Message::Welcome(welcome)) }).unwrap();
    worker.on_host(Nanos::ZERO, HostMessage { epoch: 1, message: Some(Message::SetLmap(lmap())) }).unwrap();
    for effect in worker.take_effects() {
        let Effect::Attach(request) = effect else { continue };
        let region = regions[request.region.0 as usize - 1].clone();
        reader.attach(request.region, request.size, Access::Memory(region)).unwrap();
        worker.attached(Nanos::ZERO, request.region, Ok(()));
    }

    let (mut noise, mut quiet, mut busy) = (88_172_645_463_325_252, 0_u64, 0_u64);
    for tick in 0..5000 {
        let now = Nanos(tick * INTERVAL.0);
        write(&regions, &mut noise);
        let before = allocations::of_process();
        assert_eq!(worker.poll(now), Step::Fetch);
        let fetched = reader.fetch(worker.batch());
        let refused = worker.fetched(now, UnixNanos(0), &fetched);
        let allocations = allocations::of_process() - before;

        assert!(refused.is_empty());
        let mut outputs = 0;
        while let Some((id, job)) = worker.take_job() {
            worker.job_done(id, job.run());
            outputs += 1;
        }
        outputs += worker.outbox().count();
        if outputs > 0 {
            busy += 1;
            continue;
        }
        quiet += u64::from(tick > 200);
        assert!(
            tick <= 200 || allocations == 0,
            "{allocations} allocations in tick {tick}, in which nothing was reported"
        );
    }

    assert_eq!(worker.status().lmaps, [0, 1, 0, 0], "it has armed itself on the way");
    assert!(quiet > 4000, "{quiet} quiet ticks, {busy} others");
}

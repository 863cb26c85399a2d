//! Adds of one counter by several threads: the client's sharded counter, and what else a Rust service counts with.

use std::hint::black_box;
use std::sync::Barrier;

use ::prometheus::IntCounter;
use anyhow::{Context as _, Result, ensure};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::figure::{Figure, Goal};
use super::pair::{Pair, median};
use crate::clock::thread_time;
use crate::unavailable::Unavailable;

/// Adds of each thread in a turn.
const OPERATIONS: u64 = 1_000_000;
const TURNS: usize = 21;
/// Required adds of each thread, in millions a second.
const MIN: f64 = 100.0;
/// Required share of what as many single threads would add.
const LINEAR: f64 = 0.95;
/// What counts: ours, the peer, and two more.
const NAMES: [&str; 4] = ["uview", "prometheus", "metrics-exporter-prometheus", "OpenTelemetry SDK"];

/// Adds so often, on the thread that calls it.
type Add<'a> = &'a (dyn Fn(u64) + Sync);

/// Millions of adds per second of processor time of each of `threads`, which add to one counter at once.
fn rate(threads: usize, add: Add<'_>) -> f64 {
    let start = Barrier::new(threads);
    let work = || {
        start.wait();
        let before = thread_time();
        add(OPERATIONS);
        thread_time().saturating_sub(before).as_secs_f64()
    };
    let seconds: f64 = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|thread| thread.join().expect("adding does not panic")).sum()
    });
    threads as f64 * OPERATIONS as f64 / seconds / 1e6
}

/// The rates of all, in the order of [`NAMES`]; measured from the last to the first if `reversed`.
fn rates(threads: usize, adds: &[Add<'_>; 4], reversed: bool) -> [f64; 4] {
    let mut rates = [0.0; 4];
    let mut order = [0, 1, 2, 3];
    if reversed {
        order.reverse();
    }
    for at in order {
        rates[at] = rate(threads, adds[at]);
    }
    rates
}

/// Turns of all: on one thread, and on `threads`.
fn turns(threads: usize) -> Result<Vec<[[f64; 4]; 2]>> {
    let client = client::connect(client::Service::new("figures").socket("/nonexistent/uview.sock"));
    let sharded = client.sharded_counter("requests").register();
    let prometheus = IntCounter::new("requests", "of the figure")?;
    let recorder = PrometheusBuilder::new().build_recorder();
    let facade = metrics::with_local_recorder(&recorder, || metrics::counter!("requests"));
    // The SDK's hot path does not depend on who reads it.
    let provider = SdkMeterProvider::builder().with_reader(client.metric_reader()).build();
    let counter = provider.meter("figures").u64_counter("requests").build();
    let adds: [Add<'_>; 4] = [
        &|count: u64| (0..count).for_each(|_| black_box(&sharded).add(black_box(1))),
        &|count: u64| (0..count).for_each(|_| black_box(&prometheus).inc_by(black_box(1))),
        &|count: u64| (0..count).for_each(|_| black_box(&facade).increment(black_box(1))),
        &|count: u64| (0..count).for_each(|_| black_box(&counter).add(black_box(1), &[])),
    ];
    rates(threads, &adds, false); // to warm up
    let turn = |turn: usize| {
        let one = rates(1, &adds, turn % 2 == 1);
        [one, if threads == 1 { one } else { rates(threads, &adds, turn % 2 == 1) }]
    };
    Ok((0..TURNS).map(turn).collect())
}

/// The sharded counter on `threads` threads against `prometheus`' counter.
///
/// # Errors
///
/// [`Unavailable`] with fewer cores than `threads`.
pub fn counter(name: &str, threads: usize) -> Result<Figure> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(
        cores >= threads,
        Unavailable(format!("{threads} threads at once take as many cores, and there is {cores}"))
    );
    let turns = turns(threads)?;
    let pairs: Vec<_> = turns.iter().map(|[_, all]| (all[0], all[1])).collect();
    let measured = Pair::of(&pairs).context("there are turns")?;
    let times = |at: usize| median(turns.iter().map(|[one, all]| threads as f64 * all[at] / one[at]));
    let mut notes: Vec<String> = Vec::new();
    for (at, called) in NAMES.iter().enumerate().skip(2) {
        notes.push(format!("{called} {:.1} M", median(turns.iter().map(|[_, all]| all[at]))));
    }
    let (mut goal, mut met) = (format!("≥ {MIN} M"), measured.ours >= MIN);
    if threads > 1 {
        let asked = LINEAR * threads as f64;
        goal = format!("≥ {MIN} M, together ≥ {asked} × one thread");
        met &= times(0) >= asked;
        let all = NAMES.iter().enumerate().map(|(at, called)| format!("{called} {:.2}", times(at)));
        notes.push(format!("{threads} threads together against one: {}", all.collect::<Vec<_>>().join(", ")));
    }
    let figure = Figure::new(name, "M adds/s a thread", "`IntCounter` of prometheus", measured, Goal::Stated);
    Ok(figure.judged(&goal, met, notes.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn each_thread_adds_as_often() {
        let sum = AtomicU64::new(0);

        let rate = rate(2, &|count: u64| _ = sum.fetch_add(count, Ordering::Relaxed));

        assert_eq!(sum.load(Ordering::Relaxed), 2 * OPERATIONS);
        assert!(rate > 0.0);
    }
}

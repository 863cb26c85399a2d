//! The cost of instrumentation in a service: the client's handles compared with bare atomics, and its spans with those
//! of `tracing` that nobody records.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use tracing::dispatcher::{Dispatch, with_default};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt as _;

use super::figure::{Figure, Goal};
use super::pair::{Pair, measure};

const OPERATIONS: u64 = 1_000_000;
/// Spans of a turn.
const SPANS: u64 = 100_000;
/// Allowed nanoseconds of a span, beyond what `tracing` takes by itself.
const MAX_SPAN_NS: f64 = 150.0;

fn client() -> client::Client {
    client::connect(client::Service::new("figures").instance("figures-1").socket("/nonexistent/uview.sock"))
}

/// `Counter::add` against one relaxed atomic add.
pub fn counter_add(name: &str) -> Figure {
    let client = client();
    let counter = client.counter("requests").register();
    let bare = AtomicU64::new(0);
    let measured = measure(
        OPERATIONS,
        |n| (0..n).for_each(|i| black_box(&counter).add(black_box(i & 1))),
        |n| {
            for i in 0..n {
                black_box(&bare).fetch_add(black_box(i & 1), Ordering::Relaxed);
            }
        },
    );
    Figure::new(name, "ns", "one relaxed AtomicU64::fetch_add", measured, Goal::AtMost(1.2))
}

/// `Gauge::set` against one relaxed atomic store.
pub fn gauge_set(name: &str) -> Figure {
    let client = client();
    let gauge = client.gauge("depth").register();
    let bare = AtomicU64::new(0);
    let measured = measure(
        OPERATIONS,
        |n| (0..n).for_each(|i| black_box(&gauge).set(black_box(i as f64))),
        |n| (0..n).for_each(|i| black_box(&bare).store(black_box(i as f64).to_bits(), Ordering::Relaxed)),
    );
    Figure::new(name, "ns", "one relaxed AtomicU64::store", measured, Goal::AtMost(1.2))
}

/// `Histogram::observe` against the two relaxed atomic adds that it needs at least.
pub fn histogram_observe(name: &str) -> Figure {
    let client = client();
    let histogram = client.histogram("duration").register();
    let bare: Vec<AtomicU64> = (0..128).map(|_| AtomicU64::new(0)).collect();
    let measured = measure(
        OPERATIONS,
        |n| (0..n).for_each(|i| black_box(&histogram).observe(black_box(i & 0xffff))),
        |n| {
            for i in 0..n {
                let value = black_box(i & 0xffff);
                black_box(&bare)[(value & 127) as usize].fetch_add(1, Ordering::Relaxed);
                black_box(&bare)[0].fetch_add(value, Ordering::Relaxed);
            }
        },
    );
    Figure::new(name, "ns", "two relaxed AtomicU64::fetch_add, no bucket search", measured, Goal::Stated)
}

/// A layer that does nothing.
struct NoopLayer;

impl<S: tracing::Subscriber> Layer<S> for NoopLayer {}

/// As many spans without fields, one after the other.
fn spans(count: u64) {
    for _ in 0..count {
        let _in = tracing::info_span!("charge").entered();
    }
}

/// What a span costs the thread that it is of, beyond `tracing` and its registry: its record in the client's ring,
/// which no agent reads.
pub fn span(name: &str) -> Result<Figure> {
    let client = client();
    let ours = Dispatch::new(tracing_subscriber::registry().with(client.span_layer()));
    let theirs = Dispatch::new(tracing_subscriber::registry().with(NoopLayer));
    let is_recorded = with_default(&ours, || client::spans::context(&tracing::info_span!("charge")).is_some());
    ensure!(is_recorded, "spans are not recorded: {}", client.status());
    let both =
        measure(SPANS, |count| with_default(&ours, || spans(count)), |count| with_default(&theirs, || spans(count)));
    let added = Pair { ours: both.ours - both.peer, ratio: both.ratio - 1.0, ..both };
    let peer = "the same span by `tracing` and its registry, with a layer that does nothing";
    let note =
        format!("a span with its record takes {:.0} ns in all, of which this is what is beyond the peer", both.ours);
    let figure = Figure::new(name, "ns", peer, added, Goal::Stated);
    Ok(figure.judged(&format!("≤ {MAX_SPAN_NS} ns"), added.ours <= MAX_SPAN_NS, note))
}

//! The cost of instrumentation in a service: the client's handles compared with bare atomics.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::figure::{Figure, Goal};
use super::pair::measure;

const OPERATIONS: u64 = 1_000_000;

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

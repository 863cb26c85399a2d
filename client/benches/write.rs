//! What writing costs against bare atomics in the same run: `cargo bench -p uview`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use uview::{Client, Service};

/// Operations of each thread in a row: enough for threads to get into each other's way.
const OPERATIONS: u64 = 200_000;

fn main() {
    divan::main();
}

fn client() -> Client {
    uview::connect(Service::new("bench").socket("/nonexistent/services.sock"))
}

mod add {
    use super::{AtomicU64, Bencher, Relaxed, black_box, client};

    /// The peer: one relaxed atomic add.
    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let word = AtomicU64::new(0);
        bencher.bench(|| {
            // As in the counter, the old value is not wanted: another, shorter instruction.
            black_box(&word).fetch_add(black_box(1), Relaxed);
        });
    }

    #[divan::bench]
    fn counter(bencher: Bencher<'_, '_>) {
        let client = client();
        let counter = client.counter("requests").register();
        bencher.bench(|| black_box(&counter).add(black_box(1)));
    }

    #[divan::bench]
    fn up_down_counter(bencher: Bencher<'_, '_>) {
        let client = client();
        let counter = client.up_down_counter("active").register();
        bencher.bench(|| black_box(&counter).add(black_box(-1)));
    }
}

mod set {
    use super::{AtomicU64, Bencher, Relaxed, black_box, client};

    /// The peer: one relaxed atomic store.
    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let word = AtomicU64::new(0);
        bencher.bench(|| black_box(&word).store(black_box(1.5_f64).to_bits(), Relaxed));
    }

    #[divan::bench]
    fn gauge(bencher: Bencher<'_, '_>) {
        let client = client();
        let gauge = client.gauge("depth").register();
        bencher.bench(|| black_box(&gauge).set(black_box(1.5)));
    }
}

mod observe {
    use super::{AtomicU64, Bencher, Relaxed, black_box, client};

    /// The peer: the two relaxed atomic adds that it cannot do without.
    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        bencher.bench(|| {
            let words = black_box(&words);
            words[0].fetch_add(1, Relaxed);
            words[1].fetch_add(black_box(1234), Relaxed);
        });
    }

    #[divan::bench]
    fn histogram(bencher: Bencher<'_, '_>) {
        let client = client();
        let histogram = client.histogram("duration").register();
        bencher.bench(|| black_box(&histogram).observe(black_box(1234)));
    }
}

/// Two threads that write to the same slot.
mod add_by_two_threads {
    use super::{AtomicU64, Bencher, ItemsCount, OPERATIONS, Relaxed, black_box, client};

    fn together(bencher: Bencher<'_, '_>, add: impl Fn() + Sync) {
        bencher.counter(ItemsCount::new(2 * OPERATIONS)).bench(|| {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..OPERATIONS).for_each(|_| add()));
                }
            });
        });
    }

    /// The peer: one relaxed atomic add.
    #[divan::bench]
    fn bare(bencher: Bencher<'_, '_>) {
        let word = AtomicU64::new(0);
        together(bencher, || {
            black_box(&word).fetch_add(black_box(1), Relaxed);
        });
    }

    #[divan::bench]
    fn counter(bencher: Bencher<'_, '_>) {
        let client = client();
        let counter = client.counter("requests").register();
        together(bencher, || black_box(&counter).add(black_box(1)));
    }
}

mod register {
    use super::{Bencher, client};

    /// A handle to a series that exists: what a service pays that does not keep its handles.
    #[divan::bench]
    fn known(bencher: Bencher<'_, '_>) {
        let client = client();
        let _first = client.counter("requests").label("route", "/pay").register();
        bencher.bench(|| client.counter("requests").label("route", "/pay").register());
    }
}

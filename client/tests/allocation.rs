//! Writing allocates nothing: asserted by an allocator that counts, alone in its process.

use std::hint::black_box;
use std::time::Duration;

use allocations::Calls;
use uview::Service;

#[test]
fn writing_allocates_nothing() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let counter = client.counter("requests").register();
    let sharded = client.sharded_counter("messages").register();
    let active = client.up_down_counter("active").register();
    let gauge = client.gauge("depth").register();
    let histogram = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
    let detached = client.counter("not allowed").register();

    let written = allocations::during(|| {
        for n in 0..10_000 {
            counter.add(n);
            sharded.add(n);
            active.add(-1);
            gauge.set(n as f64);
            histogram.observe(n * n * n);
            histogram.observe_duration(Duration::from_nanos(n * n));
            detached.add(1);
            drop(black_box(counter.clone()));
        }
    });

    assert_eq!(written, Calls::default());
    assert_eq!(histogram.count(), 20_000);
}

#[cfg(feature = "metrics")]
#[test]
fn counting_with_the_facade_allocates_nothing_once_a_metric_is_known() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let recorder = client.recorder();
    let count = || {
        metrics::counter!("requests", "route" => "/pay").increment(1);
        metrics::gauge!("depth").increment(1.0);
        metrics::histogram!("duration").record(0.018);
    };

    let written = metrics::with_local_recorder(&recorder, || {
        count();
        allocations::during(|| (0..1_000).for_each(|_| count()))
    });

    assert_eq!(written, Calls::default());
    assert_eq!(client.counter("requests").label("route", "/pay").register().get(), 1_001);
}

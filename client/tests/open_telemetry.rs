//! What a service counts with the SDK of OpenTelemetry, as an agent gets it.

#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;

use std::time::Duration;

use fake_agent::{FakeAgent, WAIT};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::{Aggregation, Instrument, PeriodicReader, SdkMeterProvider, Stream};
use uview::open_telemetry::Exporter;
use uview::{Client, Limits, Scale, Service};

fn client(limits: Limits) -> Client {
    uview::connect(Service::new("payment").socket("/nonexistent/services.sock").limits(limits))
}

/// A provider that exports when it is told to, and not between two values of a slow test.
fn provider(client: &Client) -> (SdkMeterProvider, Meter) {
    let provider = SdkMeterProvider::builder().with_reader(reader(client)).build();
    let meter = provider.meter("shop");
    (provider, meter)
}

fn reader(client: &Client) -> PeriodicReader<Exporter> {
    PeriodicReader::builder(client.metric_exporter()).with_interval(Duration::from_hours(1)).build()
}

/// A provider whose histograms are exponential, of as many buckets as the SDK has by default.
fn exponential(client: &Client) -> (SdkMeterProvider, Meter) {
    exponential_of(client, 160)
}

/// A provider whose histograms are exponential, of at most so many `buckets` on each side of 0.
fn exponential_of(client: &Client, buckets: u32) -> (SdkMeterProvider, Meter) {
    let aggregation = Aggregation::Base2ExponentialHistogram { max_size: buckets, max_scale: 20, record_min_max: true };
    let view = move |_: &Instrument| Stream::builder().with_aggregation(aggregation.clone()).build().ok();
    let provider = SdkMeterProvider::builder().with_reader(reader(client)).with_view(view).build();
    let meter = provider.meter("shop");
    (provider, meter)
}

#[test]
fn every_instrument_becomes_a_metric_with_labels_and_unit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    let provider = SdkMeterProvider::builder().with_reader(client.metric_reader()).build();
    let meter = provider.meter("shop");
    let route = [KeyValue::new("http.route", "/pay"), KeyValue::new("status code", 200)];

    let requests = meter.u64_counter("requests").with_unit("{request}").build();
    let cpu = meter.f64_counter("cpu.time").with_unit("s").build();
    let active = meter.i64_up_down_counter("active").build();
    let temperature = meter.f64_gauge("temperature").with_unit("Cel").build();
    let size = meter.u64_histogram("size").with_unit("By").build();
    let _depth = meter.i64_observable_gauge("depth").with_callback(|observer| observer.observe(7, &[])).build();
    for _ in 0..3 {
        requests.add(2, &route);
        cpu.add(0.25, &[]);
        active.add(-1, &[]);
        temperature.record(21.5, &[]);
        size.record(1_000, &[]);
        provider.force_flush().unwrap();
    }

    let has = |title: &str, word: u64| {
        WAIT.until(&format!("{title} is {word}"), || {
            (agent.look(|state| state.value(title)) == Some(word)).then_some(())
        });
    };
    has("requests{http.route=\"/pay\",status_code=\"200\"}", 6);
    has("cpu.time", 750_000);
    has("active", (-3_i64) as u64);
    has("temperature", 21.5_f64.to_bits());
    has("depth", 7.0_f64.to_bits());
    let unit = |title: &str| {
        agent.look(|state| {
            let placed = state.series().into_iter().find(|placed| placed.series.title() == title).unwrap();
            placed.series.unit.as_ref().map(ToString::to_string)
        })
    };
    assert_eq!(unit("cpu.time").as_deref(), Some("us"));
    assert_eq!(unit("size").as_deref(), Some("By"));
    assert_eq!(unit("active"), None);
    let size = client.histogram("size").unit("By").scale(Scale::new(2, 48).unwrap()).register();
    assert_eq!((size.count(), size.sum()), (3, 3_000));
    assert_eq!(client.status().problems, []);
    provider.shutdown().unwrap();
}

#[test]
fn a_histograms_count_and_sum_are_exact_and_its_tail_is_known_to_the_sdks_bucket() {
    for (is_exponential, tolerance) in [(false, 0.5), (true, 0.25)] {
        let client = client(Limits::default());
        let (provider, meter) = if is_exponential { exponential(&client) } else { provider(&client) };
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0].to_vec();
        let duration = meter.f64_histogram("duration").with_unit("s").with_boundaries(bounds).build();

        let mut sum = 0_u64;
        for n in 0..1_000_u64 {
            let micros = 1_000 + n * 97;
            sum += micros;
            duration.record(micros as f64 / 1e6, &[]);
            if n % 300 == 0 {
                provider.force_flush().unwrap();
            }
        }
        provider.force_flush().unwrap();

        let there = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
        assert_eq!(there.count(), 1_000);
        assert!(there.sum().abs_diff(sum) <= 4, "each collection is rounded: {} {sum}", there.sum());
        let (estimate, truth) = (there.quantile(0.99).unwrap(), 0.99 * 97_000.0 + 1_000.0);
        assert!((estimate / truth - 1.0).abs() < tolerance, "{estimate} {truth} {is_exponential}");
        assert_eq!(client.status().problems, []);
    }
}

#[test]
fn negative_values_and_none_at_all_do_no_harm() {
    // A sum that is no number counts as 0. For exponential buckets the SDK takes finite values only.
    for (is_exponential, below_zero) in [(false, 0), (true, 5_000_000)] {
        let client = client(Limits::default());
        let (provider, meter) = if is_exponential { exponential(&client) } else { provider(&client) };
        let balance = meter.f64_histogram("balance").with_unit("s").build();

        provider.force_flush().unwrap();
        for value in [-5.0, 0.0, f64::NAN, f64::INFINITY] {
            balance.record(value, &[]);
        }
        provider.force_flush().unwrap();

        let [above, below] = ["balance", "balance.below_zero"]
            .map(|name| client.histogram(name).unit("s").parts_per_unit(1_000_000).register());
        assert!(above.count() + below.count() >= 2 && below.count() >= 1, "{above:?} {below:?}");
        assert_eq!((above.sum(), below.sum()), (0, below_zero), "{is_exponential}");
    }
}

#[test]
fn values_below_zero_have_a_histogram_of_their_own_in_explicit_and_in_exponential_buckets() {
    for make in [provider, exponential] {
        let client = client(Limits::default());
        let (provider, meter) = make(&client);
        let bounds = [-1.0, -0.5, -0.25, -0.1, -0.05, 0.0, 0.05, 0.1, 0.25, 0.5, 1.0].to_vec();
        let drift = meter.f64_histogram("drift").with_unit("s").with_boundaries(bounds).build();

        drift.record(0.0, &[KeyValue::new("node", "a")]);
        provider.force_flush().unwrap();
        assert_eq!(client.status().series, 1, "nothing was below 0: {}", client.status());
        // From -0.7505 s to 0.2485 s: 751 values below 0, with a sum of 282.0005 s, and 249 above.
        for n in 0..1_000 {
            drift.record(f64::from(n) / 1_000.0 - 0.7505, &[KeyValue::new("node", "a")]);
        }
        provider.force_flush().unwrap();

        let [above, below] = ["drift", "drift.below_zero"]
            .map(|name| client.histogram(name).label("node", "a").unit("s").parts_per_unit(1_000_000).register());
        assert_eq!((above.count(), below.count()), (250, 751));
        let sums = [above.sum(), below.sum()].map(|sum| sum as f64 / 1e6);
        assert!((sums[0] - sums[1] + 251.0).abs() < 1e-5, "{sums:?}");
        assert!((sums[1] / 282.0005 - 1.0).abs() < 0.02, "{sums:?}");
        for (side, truth) in [(above, 0.246), (below, 0.743)] {
            let estimate = side.quantile(0.99).unwrap() / 1e6;
            assert!((estimate / truth - 1.0).abs() < 0.25, "{estimate} {truth}");
        }
        assert_eq!((client.status().series, client.status().problems), (2, vec![]));
    }
}

#[test]
fn of_exponential_buckets_quantiles_are_kept_to_their_width_whatever_scale_the_sdk_has_come_to() {
    // From 0.1 ms to 1 s: eight buckets per power of two, one, and one for two powers.
    for (buckets, tolerance) in [(160, 0.05), (20, 0.1), (8, 0.4)] {
        let client = client(Limits::default());
        let (provider, meter) = exponential_of(&client, buckets);
        let duration = meter.f64_histogram("duration").with_unit("s").build();
        let value = |n: u32| 1e-4 * 1e4_f64.powf(f64::from(n) / 2_000.0);

        (0..2_000).for_each(|n| duration.record(value(n), &[]));
        provider.force_flush().unwrap();

        let there = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
        assert_eq!(there.count(), 2_000);
        for (quantile, n) in [(0.1, 200), (0.5, 1_000), (0.9, 1_800), (0.99, 1_980)] {
            let ratio = there.quantile(quantile).unwrap() / 1e6 / value(n);
            assert!((ratio - 1.0).abs() < tolerance, "{quantile} with {buckets} buckets: {ratio} of what it is");
        }
    }
}

#[test]
fn a_histogram_without_bounds_has_all_its_values_between_the_least_and_the_largest() {
    let client = client(Limits::default());
    let (provider, meter) = provider(&client);
    let size = meter.u64_histogram("size").with_unit("By").with_boundaries(vec![]).build();

    (1_000..2_000).for_each(|value| size.record(value, &[]));
    provider.force_flush().unwrap();

    let there = client.histogram("size").unit("By").scale(Scale::new(2, 48).unwrap()).register();
    assert_eq!((there.count(), there.sum()), (1_000, 1_499_500));
    let median = there.quantile(0.5).unwrap();
    assert!((median / 1_500.0 - 1.0).abs() < 0.1, "{median}");
}

#[test]
fn attributes_without_end_take_no_memory_without_end() {
    let client = client(Limits { series: 40, label_sets_per_metric: 10, ..Limits::default() });
    let (provider, meter) = provider(&client);
    let logins = meter.u64_counter("logins").build();

    for user in 0..100 {
        logins.add(1, &[KeyValue::new("user", user)]);
    }
    provider.force_flush().unwrap();

    assert_eq!(client.status().series, 11, "{}", client.status());
    let overflow = client.counter("logins").label("otel.metric.overflow", "true").register();
    assert_eq!(overflow.get(), 90, "nothing is lost");
}

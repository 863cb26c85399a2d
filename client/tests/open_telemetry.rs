//! What a service counts with the SDK of OpenTelemetry, as an agent gets it.

#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;

use fake_agent::{FakeAgent, WAIT};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::{Aggregation, Instrument, SdkMeterProvider, Stream};
use uview::{Client, Limits, Scale, Service};

fn client(limits: Limits) -> Client {
    uview::connect(Service::new("payment").socket("/nonexistent/services.sock").limits(limits))
}

fn provider(client: &Client) -> (SdkMeterProvider, Meter) {
    let provider = SdkMeterProvider::builder().with_reader(client.metric_reader()).build();
    let meter = provider.meter("shop");
    (provider, meter)
}

/// A provider whose histograms are exponential.
fn exponential(client: &Client) -> (SdkMeterProvider, Meter) {
    let aggregation = Aggregation::Base2ExponentialHistogram { max_size: 160, max_scale: 20, record_min_max: true };
    let view = move |_: &Instrument| Stream::builder().with_aggregation(aggregation.clone()).build().ok();
    let provider = SdkMeterProvider::builder().with_reader(client.metric_reader()).with_view(view).build();
    let meter = provider.meter("shop");
    (provider, meter)
}

#[test]
fn every_instrument_becomes_a_metric_with_labels_and_unit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    let (provider, meter) = provider(&client);
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
    for make in [provider, exponential] {
        let client = client(Limits::default());
        let (provider, meter) = make(&client);
        let balance = meter.f64_histogram("balance").with_unit("s").build();

        provider.force_flush().unwrap();
        for value in [-5.0, 0.0, f64::NAN, f64::INFINITY] {
            balance.record(value, &[]);
        }
        provider.force_flush().unwrap();

        let there = client.histogram("balance").unit("s").parts_per_unit(1_000_000).register();
        assert!(there.count() >= 2, "{}", there.count());
        assert_eq!(there.sum(), 0, "a sum that is negative or no number counts as 0");
    }
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

//! What the layer for metrics counts of `tracing` spans, as an agent gets it.

use tracing::{Level, error, info_span, span, warn};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use uview::{Client, Limits, Service};

fn client(limits: Limits) -> Client {
    uview::connect(Service::new("payment").socket("/nonexistent/services.sock").limits(limits))
}

fn count_spans(client: &Client, work: impl FnOnce()) {
    tracing::subscriber::with_default(Registry::default().with(client.span_metrics()), work);
}

/// Spans, errors and durations of a name, or of all further names together.
fn counts(client: &Client, name: Option<&str>) -> (u64, u64, u64) {
    let (key, value) = name.map_or(("otel.metric.overflow", "true"), |name| ("span.name", name));
    let duration = client.histogram("tracing.span.duration").label(key, value).unit("s").parts_per_unit(1_000_000);
    (
        client.counter("tracing.spans").label(key, value).register().get(),
        client.counter("tracing.span.errors").label(key, value).register().get(),
        duration.register().count(),
    )
}

#[test]
fn spans_are_counted_by_name_with_their_errors_and_durations() {
    let client = client(Limits::default());

    count_spans(&client, || {
        for n in 0..5 {
            let pay = info_span!("pay");
            pay.in_scope(|| {
                info_span!("charge", n).in_scope(|| warn!("slow"));
                if n == 3 {
                    error!("refused");
                }
            });
        }
    });

    assert_eq!(counts(&client, Some("pay")), (5, 1, 5));
    assert_eq!(counts(&client, Some("charge")), (5, 0, 5), "an error of the parent is none of the child");
    assert_eq!(client.status().problems, []);
}

#[test]
fn a_duration_is_from_creation_to_close() {
    let client = client(Limits::default());
    let least = std::time::Duration::from_millis(3);

    count_spans(&client, || {
        let span = info_span!("wait");
        // The time itself is what is measured: nothing else is waited for.
        std::thread::sleep(least);
        drop(span);
    });

    let duration = client.histogram("tracing.span.duration").label("span.name", "wait").unit("s");
    let sum = duration.parts_per_unit(1_000_000).register().sum();
    assert!(sum >= 3_000, "{sum} µs");
}

#[test]
fn a_field_can_say_that_a_span_failed_and_what_its_name_is() {
    let client = client(Limits::default());
    let none = tracing::field::Empty;
    let bank = std::io::Error::other("the bank is closed");

    count_spans(&client, || {
        drop(info_span!("fields", error = "refused"));
        drop(info_span!("fields", error = true));
        drop(info_span!("fields", error = %bank));
        drop(info_span!("fields", otel.status_code = "ERROR"));
        let late = info_span!("fields", error = none);
        late.record("error", &bank as &dyn std::error::Error);
        drop(late);

        drop(info_span!("fine", error = false));
        drop(info_span!("fine", error = ""));
        drop(info_span!("fine", error = none));
        let forgiven = info_span!("fine", otel.status_code = none);
        forgiven.in_scope(|| error!("the cache does not answer"));
        forgiven.record("otel.status_code", "ok");
        drop(forgiven);

        let request = info_span!("HTTP request", otel.name = none);
        request.record("otel.name", format_args!("GET {}", "/pay"));
        drop(request);
        drop(info_span!("HTTP request", otel.name = "GET /list"));
    });

    assert_eq!(counts(&client, Some("fields")), (5, 5, 5));
    assert_eq!(counts(&client, Some("fine")), (4, 0, 4));
    assert_eq!(counts(&client, Some("GET /pay")), (1, 0, 1));
    assert_eq!(counts(&client, Some("GET /list")), (1, 0, 1));
    assert_eq!(counts(&client, Some("HTTP request")), (0, 0, 0));
}

#[test]
fn names_without_end_share_one_series() {
    for (limits, most) in [(Limits::default(), 64), (Limits { label_sets_per_metric: 5, ..Limits::default() }, 5)] {
        let client = client(limits);

        count_spans(&client, || {
            for n in 0..1_000 {
                drop(info_span!("request", otel.name = format!("GET /user/{n}")));
            }
        });

        assert_eq!(client.status().series, 3 * (most + 1), "{}", client.status());
        assert_eq!(counts(&client, None), (1_000 - most as u64, 0, 1_000 - most as u64), "nothing is lost");
        assert_eq!(counts(&client, Some("GET /user/4")), (1, 0, 1));
    }
}

#[test]
fn both_layers_and_a_filter_go_together() {
    let client = client(Limits::default());
    let subscriber =
        Registry::default().with(client.span_metrics().with_filter(LevelFilter::INFO)).with(client.span_layer());

    tracing::subscriber::with_default(subscriber, || {
        info_span!("pay").in_scope(|| {
            let detail = span!(Level::DEBUG, "detail");
            assert!(uview::spans::context(&detail).is_some(), "the other layer records it");
            detail.in_scope(|| error!("refused"));
        });
    });

    assert_eq!(counts(&client, Some("pay")), (1, 1, 1), "the nearest span that is counted fails");
    assert_eq!(counts(&client, Some("detail")), (0, 0, 0));
}

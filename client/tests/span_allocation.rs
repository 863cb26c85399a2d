//! Recording spans allocates nothing beyond what `tracing` does: asserted by an allocator that counts, alone in its
//! process.

use tracing_subscriber::layer::SubscriberExt as _;
use uview::{Service, TraceContext};

fn request(n: u64) {
    let headers =
        |name: &str| (name == "traceparent").then_some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let span =
        tracing::info_span!("POST /pay", otel.kind = "server", n, user = "someone", paid = tracing::field::Empty);
    uview::spans::set_parent(&span, &TraceContext::extract(headers).expect("it is valid"));
    let _in = span.enter();
    let inner = tracing::info_span!("charge", share = 0.5, card = %format_args!("visa {n}"));
    let mut sent = 0;
    uview::spans::context(&inner).expect("it is recorded").inject(|_, value| sent += value.len());
    assert_eq!(sent, 55);
    inner.in_scope(|| tracing::error!("refused"));
    tracing::info!(attempt = n, why = %format_args!("timeout {n}"), "retried");
    span.record("paid", false);
}

#[test]
fn recording_spans_allocates_nothing() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let subscriber = tracing_subscriber::registry().with(client.span_layer());

    let calls = tracing::subscriber::with_default(subscriber, || {
        // The registry's own memory, which it uses again.
        (0..1_000).for_each(request);
        let before = allocations::calls().allocations;
        (0..10_000).for_each(request);
        allocations::calls().allocations - before
    });

    assert_eq!(calls, 0);
    assert_eq!(client.status().problems, []);
}

#[test]
fn counting_spans_allocates_nothing_once_their_names_are_known() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let subscriber = tracing_subscriber::registry().with(client.span_metrics());
    let request = |n: u64| {
        let span = tracing::info_span!("POST /pay", n, otel.name = tracing::field::Empty);
        let _in = span.enter();
        span.record("otel.name", format_args!("POST /pay/{}", n % 100));
        tracing::info_span!("charge", error = n.is_multiple_of(2)).in_scope(|| tracing::error!("refused"));
    };

    let calls = tracing::subscriber::with_default(subscriber, || {
        // The registry's own memory, which it uses again, and more names than have series of their own.
        (0..1_000).for_each(request);
        let before = allocations::calls().allocations;
        (0..10_000).for_each(request);
        allocations::calls().allocations - before
    });

    assert_eq!(calls, 0);
    let charge = client.counter("tracing.spans").label("span.name", "charge").register();
    assert_eq!(charge.get(), 11_000);
}

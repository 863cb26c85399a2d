//! What a span and its events cost beyond `tracing`'s own work, and without `tracing`, in the same run:
//! `cargo bench -p uview --features tracing --bench spans`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use uview::{Client, Service};

/// Spans in a row: enough for a clock that is read around them.
const SPANS: u64 = 1_000;

fn main() {
    divan::main();
}

fn client() -> Client {
    uview::connect(Service::new("bench").socket("/nonexistent/services.sock"))
}

/// The peer: a layer that does nothing, on the same registry, which gives ids and knows which span is current.
struct NoopLayer;

impl<S: Subscriber> Layer<S> for NoopLayer {}

fn spans(bencher: Bencher<'_, '_>, layer: impl Layer<Registry> + Send + Sync, span: impl Fn(u64)) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        bencher.counter(ItemsCount::new(SPANS)).bench_local(|| (0..SPANS).for_each(|n| span(black_box(n))));
    });
}

/// A span without fields.
fn bare(_n: u64) {
    let _in = tracing::info_span!("charge").entered();
}

/// A span as an instrumented server has: kind and three attributes.
fn server(n: u64) {
    let _in =
        tracing::info_span!("POST /pay", otel.kind = "server", http.route = "/pay", amount = n, paid = true).entered();
}

/// An event with two fields.
fn event(n: u64) {
    tracing::info!(attempt = n, why = "timeout", "tried {n} times");
}

/// A span with an event.
fn eventful(n: u64) {
    let _in = tracing::info_span!("charge").entered();
    event(n);
}

/// Spans that the program begins and ends itself, without `tracing`.
fn own_spans(bencher: Bencher<'_, '_>, span: impl Fn(&Client, u64)) {
    let client = client();
    bencher.counter(ItemsCount::new(SPANS)).bench_local(|| (0..SPANS).for_each(|n| span(&client, black_box(n))));
}

#[divan::bench]
fn bare_by_nothing(bencher: Bencher<'_, '_>) {
    spans(bencher, NoopLayer, bare);
}

#[divan::bench]
fn bare_by_ring(bencher: Bencher<'_, '_>) {
    spans(bencher, client().span_layer(), bare);
}

#[divan::bench]
fn bare_by_client(bencher: Bencher<'_, '_>) {
    own_spans(bencher, |client, _n| drop(client.span("charge")));
}

#[divan::bench]
fn server_by_nothing(bencher: Bencher<'_, '_>) {
    spans(bencher, NoopLayer, server);
}

#[divan::bench]
fn server_by_ring(bencher: Bencher<'_, '_>) {
    spans(bencher, client().span_layer(), server);
}

#[divan::bench]
fn eventful_by_nothing(bencher: Bencher<'_, '_>) {
    spans(bencher, NoopLayer, eventful);
}

#[divan::bench]
fn eventful_by_ring(bencher: Bencher<'_, '_>) {
    spans(bencher, client().span_layer(), eventful);
}

#[divan::bench]
fn eventful_by_client(bencher: Bencher<'_, '_>) {
    own_spans(bencher, |client, n| {
        let mut span = client.span("charge");
        span.event("tried again").set_integer("attempt", n as i64).set_text("why", "timeout");
    });
}

/// Events of one span, which has room for the first of them.
#[divan::bench]
fn events_beyond_room_by_ring(bencher: Bencher<'_, '_>) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(client().span_layer()), || {
        let _in = tracing::info_span!("charge").entered();
        bencher.counter(ItemsCount::new(SPANS)).bench_local(|| (0..SPANS).for_each(|n| event(black_box(n))));
    });
}

/// Two threads that write to the same ring.
#[divan::bench]
fn server_by_ring_two_threads(bencher: Bencher<'_, '_>) {
    let client = client();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(client.span_layer()));
    bencher.counter(ItemsCount::new(2 * SPANS)).bench(|| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let dispatch = &dispatch;
                scope.spawn(move || tracing::dispatcher::with_default(dispatch, || (0..SPANS).for_each(server)));
            }
        });
    });
}

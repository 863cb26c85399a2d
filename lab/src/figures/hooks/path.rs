//! The whole path of a host: a service that records every span, and the agent's endpoint that receives and buffers
//! them; compared with head sampling. Beside both, the SDK that exports as many to a receiver which does nothing with
//! them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use opentelemetry::trace::{Span as _, SpanKind, TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use otlp::{EdgeHandle, SpanMetricsSettings};
use support::clock::Stopwatch;
use support::sink;
use tokio::runtime::Runtime;

use super::super::figure::{Figure, Goal};
use super::super::pair::{Pair, median};
use super::sockets::edge_settings;
use super::traffic::{SERVICES, decode, settings};
use crate::clients::receiver::{MessageLog, Receiver};
use crate::clock;

/// Requests per second, each a trace of eight spans.
const PER_SECOND: u32 = 250;
const LENGTH: Duration = Duration::from_secs(5);
const TURNS: usize = 3;
const HEAD: f64 = 0.01;
const MEMORY: usize = 256 << 20;
/// Required ratio to head sampling.
const MAX_RATIO: f64 = 1.5;

/// Share of a core of a process with a service of 2,000 spans per second, its SDK, and the agent's endpoint, buffer and
/// exporter.
pub fn whole(name: &str) -> Result<Figure> {
    let (mut pairs, mut exports, mut bare, mut arrived) = (Vec::new(), Vec::new(), f64::INFINITY, [1.0_f64; 2]);
    for _ in 0..TURNS {
        let (always, share) = to_edge(Sampler::AlwaysOn, true)?;
        let (head, _) = to_edge(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(HEAD))), false)?;
        let (export, taken) = to_sink(Sampler::AlwaysOn)?;
        bare = bare.min(to_edge(Sampler::AlwaysOff, false)?.0);
        arrived = [arrived[0].min(share), arrived[1].min(taken)];
        exports.push((export, head));
        pairs.push((always, head));
    }
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "the same service with head sampling at 1 %, passed on by the same endpoint";
    let spans = u64::from(PER_SECOND) * SERVICES;
    let each = |share: f64| (share - bare) * 1e4 / spans as f64;
    let export = median(exports.iter().map(|(export, _)| *export));
    let mut figure = Figure::new(name, "% of a core", peer, pair, Goal::AtMost(MAX_RATIO));
    figure.note = format!(
        "{spans} spans/s with three attributes each, in one process with the Rust SDK by gRPC; with a sampler that is off {bare:.2} %; {:.1} % of all spans \
         arrived and waited; {:.1} µs of a core per span recorded; the SDK and its export alone, to a receiver that decodes nothing, in place of the \
         endpoint: {export:.2} %, {:.2} times head sampling, {:.1} µs per span, of which {:.1} % arrived",
        100.0 * arrived[0],
        each(pair.ours),
        median(exports.iter().map(|(export, head)| export / head)),
        each(export),
        100.0 * arrived[1]
    );
    println!("{name}: {:.2} % against {:.2} %; {}", figure.value, figure.peer_value, figure.note);
    Ok(figure)
}

/// The share of a core, and the share of created spans that the endpoint received.
fn to_edge(sampler: Sampler, waits: bool) -> Result<(f64, f64)> {
    let runtime = runtime()?;
    let (running, address) = endpoint(&runtime, waits)?;
    let (share, created) = serve(&runtime, sampler, address)?;
    let seen = running.edge().with_tail(|tail, _| tail.account().seen.spans).unwrap_or_default();
    runtime.block_on(running.end(Duration::from_secs(1)));
    Ok((share, seen as f64 / created))
}

/// The same with a receiver in place of the endpoint: it answers each request, and does nothing with it.
fn to_sink(sampler: Sampler) -> Result<(f64, f64)> {
    let runtime = runtime()?;
    let received = MessageLog::default();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let receiver = runtime.block_on(Receiver::at(any, received.clone()))?;
    let (share, created) = serve(&runtime, sampler, receiver.address)?;
    let seen: usize = received.all().iter().map(|message| decode(&message.bytes)).sum();
    runtime.block_on(receiver.end());
    Ok((share, seen as f64 / created))
}

/// The runtime of the endpoint and of the exporter: one thread.
fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Runs the service, whose SDK exports to `address`. Returns the process's share of a core, and the number of spans
/// that the service created, recorded or not.
fn serve(runtime: &Runtime, sampler: Sampler, address: SocketAddr) -> Result<(f64, f64)> {
    let inside = runtime.enter();
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(format!("http://{address}")).build()?;
    drop(inside);
    let provider = SdkTracerProvider::builder().with_sampler(sampler).with_batch_exporter(exporter).build();
    let tracer = provider.tracer("figures");
    let (clock, mut traces) = (Stopwatch::start(), 0);
    let time = clock::processor_time(&mut || {
        while Duration::from_secs(1) / PER_SECOND * traces < LENGTH {
            trace(&tracer);
            traces += 1;
            std::thread::sleep((Duration::from_secs(1) / PER_SECOND * traces).saturating_sub(clock.elapsed()));
        }
        // Includes spans still in the SDK.
        _ = provider.force_flush();
    });
    let share = 100.0 * time.as_secs_f64() / clock.elapsed().as_secs_f64();
    provider.shutdown()?;
    Ok((share, f64::from(traces) * SERVICES as f64))
}

fn endpoint(runtime: &Runtime, waits: bool) -> Result<(EdgeHandle, SocketAddr)> {
    let mut all = edge_settings(sink::serve(|| |_: &[u8]| ())?);
    if waits {
        (all.tail, all.span_metrics) = (Some(settings(MEMORY)), Some(SpanMetricsSettings::default()));
    }
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok((otlp::start(&all, [listener])?, address))
    })
}

/// One request: a server span with seven children.
fn trace(tracer: &impl opentelemetry::trace::Tracer<Span: Send + Sync + 'static>) {
    let attributes = || {
        [
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", "/cart/{id}/items"),
            KeyValue::new("server.address", "cart.shop.svc"),
        ]
    };
    let root =
        tracer.span_builder("POST /cart").with_kind(SpanKind::Server).with_attributes(attributes()).start(tracer);
    let context = Context::new().with_span(root);
    for _ in 1..SERVICES {
        let span = tracer.span_builder("SELECT items").with_kind(SpanKind::Client).with_attributes(attributes());
        span.start_with_context(tracer, &context).end();
    }
    context.span().end();
}

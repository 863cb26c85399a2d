//! A Rust service with OpenTelemetry's SDK and exporter, which take the endpoint from the environment.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Result;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, MeterProvider as _};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Tracer as _, TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

/// Serves requests on `port` until it is killed.
///
/// # Errors
///
/// The port is in use, or the SDK refuses the environment's settings.
pub fn serve(port: u16) -> Result<()> {
    // The exporter's connection needs a runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let inside = runtime.enter();
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let tracers = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let exporter = MetricExporter::builder().with_tonic().build()?;
    let meters = SdkMeterProvider::builder().with_periodic_exporter(exporter).build();
    drop(inside);
    let tracer = tracers.tracer("shipping");
    let requests = meters.meter("shipping").u64_counter("shipped").build();
    for stream in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        let (tracer, requests) = (tracer.clone(), requests.clone());
        std::thread::spawn(move || {
            // Errors only mean that the caller has disconnected.
            _ = stream.map_err(anyhow::Error::from).and_then(|stream| answer(stream, &tracer, &requests));
        });
    }
    Ok(())
}

/// Serves the requests of one connection.
fn answer(stream: TcpStream, tracer: &SdkTracer, requests: &Counter<u64>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut headers, mut line) = (HashMap::new(), String::new());
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let name = line.rsplit_once(' ').map_or("GET", |(asked, _)| asked).to_owned();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some((key, value)) = line.split_once(':') {
                headers.insert(key.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let caller = TraceContextPropagator::new().extract(&headers);
        let mut span =
            tracer.span_builder(name.clone()).with_kind(SpanKind::Server).start_with_context(tracer, &caller);
        requests.add(1, &[KeyValue::new("route", name)]);
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ndone\n")?;
        span.end();
    }
}

//! The SDKs of the simulated services: each sends a batch of 512 spans, or after five seconds, so that spans of a
//! callee may arrive before or after its caller's, and root spans often last. Batches are encoded as OTLP.

use super::faults::{Fault, Kind};
use super::shop::{MILLI, Request, SECOND, Scene, Service, mix};

/// The SDKs' defaults (OTEL_BSP_SCHEDULE_DELAY, OTEL_BSP_MAX_EXPORT_BATCH_SIZE).
const DELAY: u64 = 5 * SECOND;
const MAX: usize = 512;
/// Network delay of a batch.
const WAY: u64 = 3 * MILLI;
/// Wall-clock time of the start in nanoseconds: noon of some day.
pub const NOON: u64 = 1_700_000_000 * SECOND;

/// One OTLP request to the endpoint.
#[derive(Debug)]
pub struct Batch {
    /// Arrival in nanoseconds since the beginning.
    pub at: u64,
    pub service: Service,
    /// Its spans, as request and node.
    spans: Vec<(usize, usize)>,
}

/// All batches in the order of their arrival. A stopped service sends none.
pub fn batches(scene: &Scene, seed: u64, requests: &[Request], faults: &[Fault]) -> Vec<Batch> {
    let mut all = Vec::new();
    for service in 0..scene.services.len() {
        let mut ends: Vec<(u64, usize, usize)> = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            let own = request.ended().filter(|(_, node, _)| node.service == service);
            ends.extend(own.map(|(place, _, span)| (span.end, number, place)));
        }
        ends.sort_unstable();
        let runs = |at: u64| {
            let hang = faults.iter().find(|fault| fault.kind == Kind::Hang && fault.is_on(service, "", at));
            hang.map_or(at, |hang| hang.end)
        };
        let mut next = mix(seed ^ 0x5D4B ^ service as u64) % DELAY;
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let mut send = |at: u64, waiting: &mut Vec<(usize, usize)>| {
            if !waiting.is_empty() {
                all.push(Batch { at: at + WAY, service, spans: core::mem::take(waiting) });
            }
            at + DELAY
        };
        for (end, request, place) in ends {
            while runs(next) < end {
                next = send(runs(next), &mut waiting);
            }
            waiting.push((request, place));
            if waiting.len() == MAX {
                next = send(end, &mut waiting);
            }
        }
        send(runs(next), &mut waiting);
    }
    all.sort_by_key(|batch| batch.at);
    all
}

/// The number of the request of a trace.
pub fn number_of(trace: [u8; 16]) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = trace;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) as usize - 1
}

/// The trace id of a request: its number, and 64 random bits as required by W3C Trace Context.
pub fn trace_of(seed: u64, number: usize) -> [u8; 16] {
    let random = mix(mix(seed ^ 0x7472_6163_6573) ^ number as u64).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
    id[8..].copy_from_slice(&random);
    id
}

fn varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Encodes a field of bytes. Field numbers are those of opentelemetry-proto.
fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn attribute(key: &str, value: &str) -> Vec<u8> {
    let (mut text, mut pair) = (Vec::new(), Vec::new());
    field(1, value.as_bytes(), &mut text);
    field(1, key.as_bytes(), &mut pair);
    field(2, &text, &mut pair);
    pair
}

impl Batch {
    /// Encodes it as an `ExportTraceServiceRequest`.
    pub fn encode(&self, scene: &Scene, seed: u64, requests: &[Request]) -> Vec<u8> {
        let (mut scope_spans, mut span_bytes) = (Vec::new(), Vec::new());
        for &(number, place) in &self.spans {
            span_bytes.clear();
            span(scene, trace_of(seed, number), &requests[number], place, &mut span_bytes);
            field(2, &span_bytes, &mut scope_spans);
        }
        let (mut resource, mut resource_spans, mut request) = (Vec::new(), Vec::new(), Vec::new());
        let name = scene.services[self.service];
        field(1, &attribute("service.name", name), &mut resource);
        field(1, &attribute("service.instance.id", &format!("{name}-1")), &mut resource);
        field(1, &resource, &mut resource_spans);
        field(2, &scope_spans, &mut resource_spans);
        field(1, &resource_spans, &mut request);
        request
    }
}

fn span(scene: &Scene, trace: [u8; 16], request: &Request, place: usize, out: &mut Vec<u8>) {
    let (node, span) = (request.nodes()[place], request.spans[place]);
    let id = |place: usize| (place as u64 + 1).to_be_bytes();
    field(1, &trace, out);
    field(2, &id(place), out);
    if place > 0 {
        field(4, &id(node.parent), out);
    }
    field(5, node.operation.as_bytes(), out);
    out.extend([6 << 3, 2]); // SERVER
    for (number, time) in [(7, span.start), (8, span.end)] {
        out.push(number << 3 | 1);
        out.extend((NOON + time).to_le_bytes());
    }
    let status = if span.error { "500" } else { "200" };
    for (key, value) in [
        ("http.route", node.operation),
        ("http.response.status_code", status),
        ("server.address", scene.services[node.service]),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "shop/1.0"),
    ] {
        field(9, &attribute(key, value), out);
    }
    if span.error {
        field(15, &[3 << 3, 2], out);
    }
}

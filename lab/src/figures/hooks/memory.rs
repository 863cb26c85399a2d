//! Memory of buffered spans.

use anyhow::{Result, ensure};
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::TailSampler;
use prost::Message as _;

use super::super::figure::{Figure, Goal};
use super::super::pair::Pair;
use super::traffic::{BATCH, at, request, settings, span, span_of};

/// Requests of a figure.
const REQUESTS: u64 = 600;
/// Requests at each of many sizes.
const FEW: u64 = 20;
/// The shortest span of a given size, in encoded bytes, and the longest that is looked at.
const SIZES: (usize, usize) = (75, 1_000);
/// A span that takes so many bytes more than one a byte shorter takes another block.
const STEP: f64 = 32.0;

/// Bytes per span of traces of `per_trace` spans, against 1.3 times the encoded bytes and 64.
pub fn memory(name: &str, per_trace: u64, attributes: bool) -> Result<Figure> {
    let (pair, peer) = measured(REQUESTS, per_trace, |trace, number| span(trace, number, at(0).wall, attributes))?;
    Ok(Figure::new(name, "bytes per span", &peer, pair, Goal::AtMost(1.0)))
}

/// The same of the shortest single spans that take `blocks` blocks of memory, 2 or more: the worst of those that do.
pub fn shortest(name: &str, blocks: usize) -> Result<Figure> {
    let few = |bytes: usize| anyhow::Ok(of_size(FEW, bytes)?.0);
    let (mut bytes, mut found) = (SIZES.0, 1);
    let mut before = few(bytes)?;
    while found < blocks {
        bytes += 1;
        ensure!(bytes <= SIZES.1, "no span of up to {} bytes takes {blocks} blocks", SIZES.1);
        let pair = few(bytes)?;
        found += usize::from(pair.ours > before.ours + STEP);
        before = pair;
    }
    let mut last = bytes;
    while few(last)?.ratio > 1.0 && last < SIZES.1 {
        last += 1;
    }
    let (pair, peer) = of_size(REQUESTS, bytes)?;
    let mut figure = Figure::new(name, "bytes per span", &peer, pair, Goal::AtMost(1.0));
    if last > bytes {
        figure.note = format!("single spans of {bytes} to {} bytes miss the bar", last - 1);
    }
    Ok(figure)
}

fn of_size(requests: u64, bytes: usize) -> Result<(Pair, String)> {
    measured(requests, 1, |trace, _| span_of(trace, bytes, at(0).wall))
}

/// Bytes per span and what is allowed, and that in words.
fn measured(requests: u64, per_trace: u64, span: impl Fn(u64, u64) -> Span) -> Result<(Pair, String)> {
    let mut tail = TailSampler::new(&settings(512 << 20), at(0))?;
    let (empty, mut encoded) = (tail.memory(), 0);
    for number in 0..requests {
        let all = (number * BATCH..(number + 1) * BATCH).map(|all| {
            let span = span(all / per_trace, all % per_trace);
            encoded += span.encoded_len();
            span
        });
        tail.ingest(&request("cart", all.collect()), at(1))?;
    }
    let waiting = tail.account().waiting.spans as f64;
    let (each, taken) = (encoded as f64 / waiting, (tail.memory() - empty) as f64 / waiting);
    let peer = format!("1.3 × {each:.0} encoded bytes and 64, {per_trace} spans a trace");
    Ok((Pair::once(taken, 1.3 * each + 64.0), peer))
}

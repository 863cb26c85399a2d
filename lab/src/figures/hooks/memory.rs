//! Memory of buffered spans.

use anyhow::Result;
use otlp::TailSampler;
use prost::Message as _;

use super::super::pair::Pair;
use super::super::{Figure, Goal};
use super::traffic::{BATCH, at, request, settings, span};

/// Bytes per span of traces of `per_trace` spans, against 1.3 times the encoded bytes and 64.
pub fn memory(name: &str, per_trace: u64, attributes: bool) -> Result<Figure> {
    let mut tail = TailSampler::new(&settings(512 << 20), at(0))?;
    let (empty, mut encoded) = (tail.memory(), 0);
    for number in 0..600 {
        let all = (number * BATCH..(number + 1) * BATCH).map(|all| {
            let span = span(all / per_trace, all % per_trace, at(0).wall, attributes);
            encoded += span.encoded_len();
            span
        });
        tail.ingest(&request("cart", all.collect()), at(1))?;
    }
    let waiting = tail.account().waiting.spans as f64;
    let (each, taken) = (encoded as f64 / waiting, (tail.memory() - empty) as f64 / waiting);
    let allowed = 1.3 * each + 64.0;
    let peer = format!("1.3 × {each:.0} encoded bytes and 64, {per_trace} spans a trace");
    let pair = Pair { ours: taken, peer: allowed, ratio: taken / allowed };
    Ok(Figure::new(name, "bytes per span", &peer, pair, Goal::AtMost(1.0)))
}

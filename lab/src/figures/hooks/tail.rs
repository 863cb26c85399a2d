//! Spans after framing, and the release of traces.

use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use hooks::tracing::{DropReason, LossReason, Metric};
use otlp::{Finding, TailSampler};
use prost::Message as _;

use super::super::figure::{Figure, Goal};
use super::super::pair::{Pair, per_second};
use super::traffic::{BATCH, SERVICES, at, block, decode, request, service, settings, span};
use crate::clock;

/// Memory budget in bytes: less than the traffic in the time for which traces are buffered, so that a third is evicted.
const MEMORY: usize = 32 << 20;
/// Milliseconds between two requests, by the virtual clock: 2,000 spans per second.
const EVERY: u64 = 256;
/// Number of blocks per turn.
const BLOCKS: u64 = 8;
const WARM: u64 = 5;
const TURNS: u64 = 15;
/// Required spans per second on one core.
const MIN: f64 = 500_000.0;
const RELEASED: u64 = 10_000;
const WITHIN_MS: f64 = 100.0;

/// Processor time per span from the body of a request on: scanning, decision, index, storing, eviction, expiry or
/// release.
pub fn after_framing(name: &str) -> Result<Figure> {
    let mut tail = TailSampler::new(&settings(MEMORY), at(0))?;
    let (mut pairs, mut millis, mut out) = (Vec::new(), 0, 0);
    for turn in 0..WARM + TURNS {
        let first = |number: u64| (turn * BLOCKS + number) * BATCH;
        let start = |number: u64| at(millis + number * SERVICES * EVERY).wall;
        let bodies: Vec<_> = (0..BLOCKS).flat_map(|number| block(first(number), start(number))).collect();
        let (mut failed, mut found) = (None, 0);
        let ours = clock::processor_time(&mut || {
            for body in &bodies {
                millis += EVERY;
                failed = tail.ingest(body, at(millis)).err().or(failed.take());
                tail.tick(at(millis));
                out += black_box(tail.take_batches()).iter().map(|batch| batch.spans).sum::<usize>();
            }
        });
        let peer = clock::processor_time(&mut || found = bodies.iter().map(|body| decode(black_box(body))).sum());
        failed.map_or(Ok(()), |error| Err(error).context("a request was not taken"))?;
        let spans = BLOCKS * SERVICES * BATCH;
        ensure!(found as u64 == spans, "the peer found {found} spans of {spans}");
        if turn >= WARM {
            let each = |time: core::time::Duration| time.as_nanos() as f64 / spans as f64;
            pairs.push((each(ours), each(peer)));
        }
    }
    let account = *tail.account();
    ensure!(account.balances() && account.kept.spans == out as u64, "the books do not balance: {account:?}");
    let share = |spans: u64| spans as f64 * 100.0 / account.seen.spans as f64;
    let gone = account.lost(LossReason::Evicted).spans
        + account.lost(LossReason::Late).spans
        + account.lost(LossReason::Refused).spans;
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "opentelemetry-proto reads the same requests, and drops them";
    let note = format!(
        "{:.0} spans/s per core; {:.1} % given out, {:.1} % gave way or were refused, {:.1} % aged",
        per_second(pair.ours),
        share(account.kept.spans),
        share(gone),
        share(account.dropped(DropReason::Aged).spans)
    );
    let met = per_second(pair.ours) >= MIN;
    Ok(Figure::new(name, "ns per span", peer, pair, Goal::Stated).judged("≥ 500000 spans/s per core", met, note))
}

/// Time from a verdict to the export requests of ten thousand traces with eight spans, against copying their bytes
/// once.
pub fn release(name: &str) -> Result<Figure> {
    let mut pairs = Vec::new();
    for _ in 0..7 {
        pairs.push(release_once()?);
    }
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "copying the encoded spans of all of them once";
    let met = pair.ours < WITHIN_MS;
    Ok(Figure::new(name, "ms of CPU", peer, pair, Goal::Stated).judged("< 100 ms", met, String::new()))
}

fn release_once() -> Result<(f64, f64)> {
    let mut tail = TailSampler::new(&settings(256 << 20), at(0))?;
    let give = |tail: &mut TailSampler, trace: u64, millis: u64| -> Result<()> {
        for number in (0..SERVICES).rev() {
            let spans = vec![span(trace, number, at(millis).wall, true)];
            tail.ingest(&request(&service(number), spans), at(millis))?;
        }
        Ok(())
    };
    // Paths of requests are learnt from buffered traces.
    (0..2_000).try_for_each(|trace| give(&mut tail, trace, trace / 2))?;
    tail.tick(at(62_000));
    (0..RELEASED).try_for_each(|trace| give(&mut tail, 10_000 + trace, 70_000 + trace / 11))?;
    let metrics = vec![Metric {
        title: "duration.p99".into(),
        unit: "s".into(),
        seen: 0.18,
        expected: 0.02,
        of_distribution: true,
        replica: "".into(),
    }];
    let (from, until, last) = (at(70_000).wall, at(71_000).wall, service(SERVICES - 1));
    let finding = Finding {
        service: &last,
        from,
        at: until,
        breakdown: None,
        score: 40.0,
        gamma: 4.0,
        metrics,
        incident: "".into(),
    };
    let (mut finding, mut batches) = (Some(finding), Vec::new());
    let ours = clock::processor_time(&mut || {
        finding.take().into_iter().for_each(|finding| tail.verdict(finding, at(77_000)));
        tail.tick(at(77_100));
        batches = tail.take_batches();
    });
    let spans: usize = batches.iter().map(|batch| batch.spans).sum();
    ensure!(spans as u64 >= RELEASED * SERVICES * 9 / 10, "only {spans} spans were given out");
    let one = |trace: u64| (0..SERVICES).map(move |number| span(trace, number, from, true).encode_to_vec());
    let encoded: Vec<_> = (0..spans as u64 / SERVICES).flat_map(one).collect();
    let peer = clock::processor_time(&mut || _ = black_box(encoded.concat()));
    Ok((ours.as_secs_f64() * 1e3, peer.as_secs_f64() * 1e3))
}

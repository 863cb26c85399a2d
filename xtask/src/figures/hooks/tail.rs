//! Spans after framing, and traces that are given out.

use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use hooks::tracing::{Dropped, Loss, Metric};
use otlp::{Finding, Tail};
use prost::Message as _;

use super::super::pair::Pair;
use super::super::{Figure, Goal};
use super::traffic::{BATCH, SERVICES, at, block, decode, request, service, settings, span};
use super::{judged, per_second};
use crate::clock;

/// Less than what comes in the time that traces wait: a third gives way.
const MEMORY: usize = 32 << 20;
/// Requests that come between two looks at the clock, in milliseconds: 2,000 spans a second, by that clock.
const EVERY: u64 = 256;
/// Blocks of one turn.
const BLOCKS: u64 = 8;
const WARM: u64 = 5;
const TURNS: u64 = 15;
/// The least that one core has to take.
const LEAST: f64 = 500_000.0;
const RELEASED: u64 = 10_000;
const WITHIN_MS: f64 = 100.0;

/// One core's time per span from the body of a request on: found, judged, indexed, written, evicted, aged or given out.
pub fn after_framing(name: &str) -> Result<Figure> {
    let mut tail = Tail::new(&settings(MEMORY), at(0))?;
    let (mut pairs, mut millis, mut out) = (Vec::new(), 0, 0);
    for turn in 0..WARM + TURNS {
        let first = |number: u64| (turn * BLOCKS + number) * BATCH;
        let start = |number: u64| at(millis + number * SERVICES * EVERY).day;
        let bodies: Vec<_> = (0..BLOCKS).flat_map(|number| block(first(number), start(number))).collect();
        let (mut failed, mut found) = (None, 0);
        let ours = clock::processor_time(&mut || {
            for body in &bodies {
                millis += EVERY;
                failed = tail.take(body, at(millis)).err().or(failed.take());
                tail.tick(at(millis));
                out += black_box(tail.kept()).iter().map(|batch| batch.spans).sum::<usize>();
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
    let gone = account.lost(Loss::Evicted).spans + account.lost(Loss::Late).spans + account.lost(Loss::Refused).spans;
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "opentelemetry-proto reads the same requests, and drops them";
    let note = format!(
        "{:.0} spans/s per core; {:.1} % given out, {:.1} % gave way or were refused, {:.1} % aged",
        per_second(pair.ours),
        share(account.kept.spans),
        share(gone),
        share(account.dropped(Dropped::Aged).spans)
    );
    let met = per_second(pair.ours) >= LEAST;
    Ok(judged(Figure::new(name, "ns per span", peer, pair, Goal::Stated), "≥ 500000 spans/s per core", met, note))
}

/// From a verdict to the requests in which ten thousand traces of eight spans go on, against copying their bytes once.
pub fn release(name: &str) -> Result<Figure> {
    let mut pairs = Vec::new();
    for _ in 0..7 {
        pairs.push(release_once()?);
    }
    let pair = Pair::of(&pairs).context("there are turns")?;
    let peer = "copying the encoded spans of all of them once";
    let met = pair.ours < WITHIN_MS;
    Ok(judged(Figure::new(name, "ms of CPU", peer, pair, Goal::Stated), "< 100 ms", met, String::new()))
}

fn release_once() -> Result<(f64, f64)> {
    let mut tail = Tail::new(&settings(256 << 20), at(0))?;
    let give = |tail: &mut Tail, trace: u64, millis: u64| -> Result<()> {
        for number in (0..SERVICES).rev() {
            let spans = vec![span(trace, number, at(millis).day, true)];
            tail.take(&request(&service(number), spans), at(millis))?;
        }
        Ok(())
    };
    // Where requests go is learnt from those that have waited.
    (0..2_000).try_for_each(|trace| give(&mut tail, trace, trace / 2))?;
    tail.tick(at(62_000));
    (0..RELEASED).try_for_each(|trace| give(&mut tail, 10_000 + trace, 70_000 + trace / 11))?;
    let metrics = vec![Metric { title: "duration.p99".into(), unit: "s".into(), seen: 0.18, expected: 0.02 }];
    let (from, until, last) = (at(70_000).day, at(71_000).day, service(SERVICES - 1));
    let finding = Finding { service: &last, from, at: until, parts: None, score: 40.0, gamma: 4.0, metrics };
    let (mut finding, mut batches) = (Some(finding), Vec::new());
    let ours = clock::processor_time(&mut || {
        finding.take().into_iter().for_each(|finding| tail.verdict(finding, at(77_000)));
        tail.tick(at(77_100));
        batches = tail.kept();
    });
    let spans: usize = batches.iter().map(|batch| batch.spans).sum();
    ensure!(spans as u64 >= RELEASED * SERVICES * 9 / 10, "only {spans} spans were given out");
    let one = |trace: u64| (0..SERVICES).map(move |number| span(trace, number, from, true).encode_to_vec());
    let encoded: Vec<_> = (0..spans as u64 / SERVICES).flat_map(one).collect();
    let peer = clock::processor_time(&mut || _ = black_box(encoded.concat()));
    Ok((ours.as_secs_f64() * 1e3, peer.as_secs_f64() * 1e3))
}

//! A fridge: the cost of a request or a response, beside the same table without an estimator.

use std::hint::black_box;

use anyhow::{Result, ensure};
use synopses::digest::{Digest, DigestKey};
use synopses::fridge::{Fridge, NaiveOverwrite, Settings, Tally};

use super::super::figure::{Figure, Goal};
use super::super::pair::measure_times;
use crate::clock::processor_time;

/// Requests of a turn; after each one a response.
const REQUESTS: u64 = 1 << 20;
/// How many requests later the response to a request comes.
const BEHIND: u64 = 30_000;
/// 768 KiB, which every second-level cache holds.
const SLOTS: usize = 1 << 16;
/// Required speed, as a multiple of the bare table's.
const MIN: f64 = 0.7;

/// Whether a request is answered: two of five are.
const fn is_answered(request: u64) -> bool {
    request % 5 < 2
}

/// Digests of requests, each with that of the response that follows it. Other responses match no request.
fn packets() -> Vec<(Digest, Digest)> {
    let key = DigestKey::new(1);
    let digest = |number: u64| key.digest(&number.to_le_bytes());
    let asked = |number: u64| number.checked_sub(BEHIND).filter(|request| is_answered(*request));
    (0..REQUESTS).map(|number| (digest(number), digest(asked(number).unwrap_or(number | (1 << 63))))).collect()
}

/// What a turn of the fridge has found.
#[derive(Clone, Copy, Debug, Default)]
struct TurnOutcome {
    tally: Tally,
    /// The sum of the weights of all samples.
    weights: f64,
}

/// A request or a response, against a table with the same slots, hash and stamps, which counts and weighs nothing.
pub fn events(name: &str) -> Result<Figure> {
    let packets = packets();
    let settings = Settings { slots: SLOTS, ..Settings::default() };
    let (empty, bare) = (Fridge::new(settings)?, NaiveOverwrite::new(SLOTS, settings.tick_shift, settings.seed)?);
    let (mut last, mut delays) = (TurnOutcome::default(), 0_u64);
    let measured = measure_times(
        2 * REQUESTS,
        |_| {
            let (mut fridge, mut weights) = (empty.clone(), 0.0);
            let time = processor_time(&mut || {
                for (now, (request, response)) in (0_u64..).zip(black_box(&packets)) {
                    fridge.insert(*request, now << settings.tick_shift);
                    let report = fridge.match_response(*response, now << settings.tick_shift);
                    weights += report.map_or(0.0, |report| report.weight());
                }
            });
            last = TurnOutcome { tally: fridge.tally(), weights };
            time
        },
        |_| {
            let mut table = bare.clone();
            processor_time(&mut || {
                for (now, (request, response)) in (0_u64..).zip(black_box(&packets)) {
                    table.insert(*request, now << settings.tick_shift);
                    delays += table.match_response(*response, now << settings.tick_shift).unwrap_or_default();
                }
            })
        },
    );
    let answered = (0..REQUESTS - BEHIND).filter(|request| is_answered(*request)).count();
    let TurnOutcome { tally, weights } = last;
    ensure!(tally.matched > 0 && delays > 0, "no delay was found: {tally:?}");
    let peer = "a table of as many slots with the same hash and stamps, in which the latest request stays \
                (`NaiveOverwrite`): no count, no weight";
    let note = format!(
        "{:.2} times as fast as the peer, {:.0} M events/s on one core; {SLOTS} slots in {} KiB, p = {}, {REQUESTS} requests and as many responses; \
         {} samples, whose weights add up to {weights:.0} of {answered} requests that were answered",
        1.0 / measured.ratio,
        1e3 / measured.ours,
        empty.memory_bytes() / 1024,
        settings.probability,
        tally.matched
    );
    let figure = Figure::new(name, "ns per event", peer, measured, Goal::Stated);
    Ok(figure.judged(&format!("≥ {MIN} times as fast"), measured.ratio * MIN <= 1.0, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_to_the_request_that_came_so_long_before_or_to_none() {
        let packets = packets();
        let matched = |at: u64| packets[at as usize].1 == packets[(at - BEHIND) as usize].0;

        assert!((BEHIND..BEHIND + 100).all(|at| matched(at) == is_answered(at - BEHIND)));
    }
}

//! Cost of a packet: a fridge, the same table without an estimator, and a hash table without eviction.
//! `cargo bench -p synopses`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashMap;
use synopses::digest::{Digest, DigestKey};
use synopses::fridge::{Fridge, FridgeSpec, Fridges, FridgesSettings, NaiveOverwrite, Settings, Stamp};

/// Requests; after each one the response to one that came some time before.
const REQUESTS: u64 = 1 << 20;
/// Slots of 768 KiB.
const SLOTS: usize = 1 << 16;

fn main() {
    divan::main();
}

/// Digests of requests and of responses, which come `behind` requests later; two of five are answered, the other
/// responses match no request.
fn packets(behind: u64) -> Vec<(Digest, Digest)> {
    let key = DigestKey::new(1);
    let digest = |number: u64| key.digest(&number.to_le_bytes());
    let answered = |number: u64| if number % 5 < 2 { number } else { number | 1 << 63 };
    (0..REQUESTS).map(|number| (digest(number), digest(answered(number.wrapping_sub(behind))))).collect()
}

fn settings(probability: f64) -> Settings {
    Settings { slots: SLOTS, probability, ..Settings::default() }
}

/// Per event, with as many responses as requests.
#[divan::bench(args = [1.0, 0.0625], sample_count = 20, sample_size = 1)]
fn fridge(bencher: Bencher<'_, '_>, probability: f64) {
    let packets = packets(30_000);
    bencher
        .counter(ItemsCount::new(2 * REQUESTS))
        .with_inputs(|| Fridge::new(settings(probability)).expect("possible"))
        .bench_local_refs(|fridge| {
            let mut weights = 0.0;
            for (now, (request, response)) in (0_u64..).zip(black_box(&packets)) {
                fridge.insert(*request, now << 10);
                weights += fridge.match_response(*response, now << 10).map_or(0.0, |report| report.weight());
            }
            weights
        });
}

/// The same slots, hash and stamps of time; nothing is counted and no sample weighed.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn bare_table(bencher: Bencher<'_, '_>) {
    let packets = packets(30_000);
    bencher
        .counter(ItemsCount::new(2 * REQUESTS))
        .with_inputs(|| NaiveOverwrite::new(SLOTS, 10, 0).expect("possible"))
        .bench_local_refs(|table| {
            let mut delays = 0;
            for (now, (request, response)) in (0_u64..).zip(black_box(&packets)) {
                table.insert(*request, now << 10);
                delays += table.match_response(*response, now << 10).unwrap_or_default();
            }
            delays
        });
}

#[divan::bench(args = [1, 2], sample_count = 20, sample_size = 1)]
fn two_fridges(bencher: Bencher<'_, '_>, stamp: u8) {
    let packets = packets(30_000);
    let stamp = if stamp == 1 { Stamp::Arrivals } else { Stamp::Accepted };
    let part = |probability| FridgeSpec { slots: SLOTS / 2, probability };
    let settings = FridgesSettings { fridges: vec![part(0.45), part(0.05)], stamp, ..FridgesSettings::default() };
    bencher
        .counter(ItemsCount::new(2 * REQUESTS))
        .with_inputs(|| Fridges::new(settings.clone()).expect("possible"))
        .bench_local_refs(|fridges| {
            let mut weights = 0.0;
            for (now, (request, response)) in (0_u64..).zip(black_box(&packets)) {
                fridges.insert(*request, now << 10);
                weights += fridges.match_response(*response, now << 10).map_or(0.0, |report| report.total_weight());
            }
            weights
        });
}

/// With a million requests waiting all the time: hashbrown with the hash it comes with, and a fridge of less than a
/// tenth of its memory.
mod a_million_outstanding {
    use super::{Bencher, Digest, DigestKey, Fridge, HashMap, ItemsCount, REQUESTS, Settings, black_box};

    const WAITING: u64 = 1_000_000;

    /// Digests of requests; each is answered a million requests later.
    fn digests() -> Vec<u64> {
        let key = DigestKey::new(1);
        (0..WAITING + REQUESTS).map(|number| key.digest(&number.to_le_bytes()).0).collect()
    }

    #[divan::bench(sample_count = 10, sample_size = 1)]
    fn hash_table(bencher: Bencher<'_, '_>) {
        let digests = digests();
        let full: HashMap<u64, u64> = digests.iter().copied().zip(0..).take(WAITING as usize).collect();
        bencher.counter(ItemsCount::new(2 * REQUESTS)).with_inputs(|| full.clone()).bench_local_refs(|table| {
            let mut delays = 0;
            let pairs = digests.iter().zip(&digests[WAITING as usize..]);
            for (now, (response, request)) in (WAITING..).zip(black_box(pairs)) {
                table.insert(*request, now);
                delays += table.remove(response).map_or(0, |asked| now - asked);
            }
            delays
        });
    }

    #[divan::bench(sample_count = 10, sample_size = 1)]
    fn fridge(bencher: Bencher<'_, '_>) {
        let digests = digests();
        let settings = Settings { slots: 1 << 17, probability: 0.125, ..Settings::default() };
        let full = || {
            let mut fridge = Fridge::new(settings).expect("possible");
            (0..WAITING).for_each(|number| fridge.insert(Digest(digests[number as usize]), number << 10));
            fridge
        };
        bencher.counter(ItemsCount::new(2 * REQUESTS)).with_inputs(full).bench_local_refs(|fridge| {
            let mut weights = 0.0;
            let pairs = digests.iter().zip(&digests[WAITING as usize..]);
            for (now, (response, request)) in (WAITING..).zip(black_box(pairs)) {
                fridge.insert(Digest(*request), now << 10);
                weights += fridge.match_response(Digest(*response), now << 10).map_or(0.0, |report| report.weight());
            }
            weights
        });
    }
}

/// The name of 96 bytes.
#[divan::bench]
fn digest_of_a_snapshot(bencher: Bencher<'_, '_>) {
    let key = DigestKey::new(1);
    let packet = [7_u8; 96];
    bencher.bench_local(|| key.digest(black_box(&packet)));
}

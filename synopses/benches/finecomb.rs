//! Cost of a packet at either end, compared with a bare array of sums and counts, and cost of an interval.
//! `cargo bench -p synopses`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{Deviation, FineComb, Interval, Receiver, Rule, Settings, Solver, Spread};

const PACKETS: u64 = 1 << 20;

fn main() {
    divan::main();
}

fn digests() -> Vec<Digest> {
    let key = DigestKey::new(1);
    (0..PACKETS).map(|number| key.digest(&number.to_le_bytes())).collect()
}

/// One bank that samples everything, or a sixteenth; four banks for loss of 10⁻⁴ to 10⁻².
fn settings(kind: &str) -> Settings {
    match kind {
        "all" => Settings::one_bank(1_000, 1.0, 50, 1),
        "sampled" => Settings::one_bank(1_000, 1.0 / 16.0, 50, 1),
        _ => Settings::four_banks(1_000, 5e6, Spread { loss: (1e-4, 1e-2), displaced: (4e-4, 4e-2) }, 1),
    }
}

#[divan::bench(args = ["all", "sampled", "four banks"], sample_count = 20, sample_size = 1)]
fn sender(bencher: Bencher<'_, '_>, kind: &str) {
    let digests = digests();
    let empty = || FineComb::new(&settings(kind)).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(empty).bench_local_refs(|comb| {
        for (now, digest) in (0..).zip(black_box(&digests)) {
            comb.insert(*digest, now);
        }
        comb.packets()
    });
}

#[divan::bench(args = ["all", "sampled", "four banks"], sample_count = 20, sample_size = 1)]
fn receiver(bencher: Bencher<'_, '_>, kind: &str) {
    let digests = digests();
    let empty = || Receiver::new(&settings(kind)).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(empty).bench_local_refs(|receiver| {
        for (now, digest) in (0..).zip(black_box(&digests)) {
            receiver.insert(*digest, now);
        }
        receiver.ready()
    });
}

/// No sampling, no digests: what adding up times costs in itself.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn bare_sums(bencher: Bencher<'_, '_>) {
    let digests = digests();
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(|| vec![(0_u64, 0_u64); 1_000]).bench_local_refs(|sums| {
        for (now, digest) in (0_u64..).zip(black_box(&digests)) {
            let sum = &mut sums[(((digest.0 >> 32) * 1_000) >> 32) as usize];
            sum.0 = sum.0.wrapping_add(now);
            sum.1 += 1;
        }
        sums[0]
    });
}

/// Delay, deviation and loss of an interval of a million packets of which 200 were lost, with 200 near each end.
#[divan::bench(args = [true, false])]
fn estimate(bencher: Bencher<'_, '_>, elimination: bool) {
    let digests = digests();
    let settings = Settings::one_bank(1_000, 1.0, 200, 1);
    let (mut sender, mut receiver) =
        (FineComb::new(&settings).expect("possible"), Receiver::new(&settings).expect("possible"));
    let mut interval: Option<Interval> = None;
    for (now, digest) in (0..).zip(&digests) {
        sender.insert(*digest, now);
        if now == PACKETS - 100 {
            interval = receiver.sync().or(interval);
        }
        if !now.is_multiple_of(5_000) {
            receiver.insert(*digest, now + 10);
        }
    }
    (0..400).for_each(|number| receiver.insert(Digest(number), PACKETS + number));
    let interval = receiver.take().or(interval).expect("an interval ended");
    let solver = if elimination { Solver::Elimination } else { Solver::Enumeration(20) };

    bencher.bench_local(|| interval.estimate(&sender, Rule::FineComb, solver, Deviation::PerBucket));
}

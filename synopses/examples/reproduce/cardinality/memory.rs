//! C16: entries of Sliding HLL beside the registers of ST-HLL.

use super::bench::Random;
use crate::claim::{Claim, judged, refuted};
use synopses::cardinality::{Cardinality, Hash, Settings, SlidingHll};
use synopses::digest::Digest;

const REGISTERS: usize = 256;
/// Items per register in a window.
const LOADS: [u64; 4] = [40, 200, 1_000, 4_000];
/// Bytes of a published entry: a time stamp of 32 bits, and the rank.
const ENTRY_BYTES: f64 = 5.0;

/// Mean entries per register of a window full of items.
fn entries(load: u64) -> f64 {
    let settings = Settings { registers: REGISTERS, window_ns: 1 << 30, start_ns: 0, hash: Hash::Seeded(load) };
    let mut sliding = SlidingHll::new(settings).expect("possible");
    let (items, mut random) = (load * REGISTERS as u64, Random::new(load));
    for item in 0..3 * items {
        sliding.insert(Digest(random.word()), item * settings.window_ns / items);
    }
    sliding.entries() as f64 / REGISTERS as f64
}

pub fn claims() -> Vec<Claim> {
    let found = LOADS.map(entries);
    let bytes = found.map(|entries| ENTRY_BYTES * entries);
    let each = |values: &[f64; 4]| {
        let each = values.iter().zip(LOADS).map(|(value, load)| format!("{value:.1} ({load})"));
        each.collect::<Vec<_>>().join(", ")
    };
    let load = 40.0_f64;
    let (printed, sound) = (load.log2() * load.ln() / load.log2().log2(), load.ln());
    vec![
        Claim {
            id: "C16",
            text: "memory of Sliding HLL by that of ST-HLL, equal registers: entries of 5 bytes, as in the published set-up, and registers of one byte \
                   (items per register)",
            published: "at least 8 above 40 items per register",
            ours: each(&bytes),
            tolerance: "at least 8 from 40 on",
            verdict: judged(bytes.iter().all(|ratio| *ratio >= 8.0)),
        },
        Claim {
            id: "C16-no-times",
            text: "the same at 40 items per register without any memory for time stamps (b = 0)",
            published: "at least 8, with entries of log₂(n/m) bits, and a printed ratio that lacks the factor ln(n/m)",
            ours: format!(
                "an entry holds a rank, which takes log₂ log₂(n/m) bits: the formula gives {sound:.1}, lists measured {:.1}; with log₂(n/m) it \
                 would be {printed:.1}",
                found[0]
            ),
            tolerance: "formula and measurement both below 8",
            verdict: refuted(sound < 8.0 && found[0] < 8.0),
        },
    ]
}

//! C1 to C3: standard errors of the baselines, and statistics of one register.

use std::f64::consts::LN_2;

use synopses::cardinality::{Cardinality, Hash, Hll, LogLog, Pcsa, Settings};
use synopses::digest::Digest;

use super::bench::mean;
use crate::claim::{Claim, judged};

/// Registers and items of C1: 64 items per register.
const REGISTERS: usize = 256;
const ITEMS: u64 = 64 * REGISTERS as u64;
const RUNS: u64 = 1_000;
/// γ′ = 1/2 + γ/ln 2.
const GAMMA: f64 = 1.332_746;

/// Root mean square of the relative error, times √m, over runs with seeds of their own.
fn standard_error<T: Cardinality>(new: impl Fn(Settings) -> T) -> f64 {
    let squares: Vec<f64> = (0..RUNS)
        .map(|seed| {
            let settings = Settings { registers: REGISTERS, window_ns: 1 << 40, start_ns: 0, hash: Hash::Seeded(seed) };
            let mut synopsis = new(settings);
            (0..ITEMS).for_each(|item| synopsis.insert(Digest(item), item));
            let found = synopsis.estimate(ITEMS, settings.window_ns).expect("the window").count;
            (found / ITEMS as f64 - 1.0).powi(2)
        })
        .collect();
    (mean(&squares) * REGISTERS as f64).sqrt()
}

/// E[R] of the largest of n geometric ranks: the sum over x of P(R > x).
fn mean_rank(items: f64) -> f64 {
    (0..200).map(|x| 1.0 - (1.0 - 0.5_f64.powi(x)).powf(items)).sum()
}

/// The same variance by summing over ranks, which is 1/12 above that of a continuous rank.
fn variance_of_ranks(items: f64) -> f64 {
    let below = |x: i32| (1.0 - 0.5_f64.powi(x)).powf(items);
    let chances: Vec<(f64, f64)> = (1..200).map(|x| (f64::from(x), below(x) - below(x - 1))).collect();
    let mean: f64 = chances.iter().map(|(x, chance)| x * chance).sum();
    chances.iter().map(|(x, chance)| (x - mean).powi(2) * chance).sum()
}

pub fn claims() -> Vec<Claim> {
    let found = [
        standard_error(|settings| Hll::new(settings).expect("possible")),
        standard_error(|settings| Pcsa::new(settings).expect("possible")),
        standard_error(|settings| LogLog::new(settings).expect("possible")),
    ];
    let fits = found
        .iter()
        .zip([1.04, 0.78, 1.30])
        .all(|(found, published): (&f64, f64)| (found / published - 1.0).abs() <= 0.08);
    let off = (5.0_f64.log2() + GAMMA) / mean_rank(5.0) - 1.0;
    let items = 100_000;
    let variance = (1..=items).map(|item| f64::from(item).powi(-2)).sum::<f64>() / (LN_2 * LN_2);
    vec![
        Claim {
            id: "C1",
            text: "standard errors of HLL, PCSA and LogLog, times √m: 256 registers, 16,384 items, 1,000 seeds",
            published: "1.04, 0.78, 1.30",
            ours: format!("{:.3}, {:.3}, {:.3}", found[0], found[1], found[2]),
            tolerance: "8 % of each",
            verdict: judged(fits),
        },
        Claim {
            id: "C2",
            text: "log₂ n + γ′ in place of the mean rank, 5 items (equation 2.4)",
            published: "relative error below 4 %",
            ours: format!("{:.2} %, from the exact sum", 100.0 * off),
            tolerance: "exact: 3.6 to 3.8 % below",
            verdict: judged((-0.038..=-0.036).contains(&off)),
        },
        Claim {
            id: "C3",
            text: "variance of a register's rank with many items, as a continuous one",
            published: "3.424",
            ours: format!(
                "{variance:.4} for 100,000 items; a whole-numbered rank has {:.4}, 1/12 more",
                variance_of_ranks(f64::from(items))
            ),
            tolerance: "0.001",
            verdict: judged((variance - 3.424).abs() <= 1e-3),
        },
    ]
}

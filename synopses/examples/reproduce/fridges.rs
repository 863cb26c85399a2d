//! The claims on fridges.

mod bursts;
mod isp;
mod log_uniform;

use synopses::fridge::{Fridge, Settings};

use crate::claim::{Claim, Reproduction, Verdict, judged, judged_by_own_bar};
use crate::scale::Scale;
use crate::workload;
use crate::{chain, combination, properties};

/// The probability 2 to the power of −`exponent`.
fn part(exponent: f64) -> f64 {
    (-exponent).exp2()
}

pub fn reproduction(scale: Scale) -> Reproduction {
    let (on_log_uniform, figure) = log_uniform::claims(scale);
    let mut claims = isp::claims(&workload::isp_like(), scale);
    claims.extend(on_log_uniform);
    claims.extend(bursts::claims(&workload::bursts()));
    claims.extend(by_arithmetic());
    claims.extend(properties::claims(scale));
    claims.extend(chain::claims(scale));
    claims.extend(combination::claims(scale));
    Reproduction {
        name: "fridges",
        title: "Fridges",
        about: "Synthetic traffic with fixed seeds: the published traces are not public. \
                Errors are |log₂ (estimated quantile / true quantile)|: *Emax* the largest over the 5th to the 95th percentile, *E99* that of the 99th. \
                *Combined* is of the weighted samples of ten runs together (in F5 to F7 the mean of four such), *single* the mean over the runs. What the publication prints as 168 % can only \
                be 1.68 of these units. *W1* stands for the published trace of an ISP: 6.1 million requests in 11.4 s, 13 % answered, log-normal delays of 58 ms in the mean, \
                512 ms at the 99th percentile. *W2* is the published synthetic trace: a million requests a second, 40 % answered, log-uniform delays from 1 ms to T, 1.25 million requests \
                and all of their half a million responses. *W3* is ours: 200 requests per ms, 2,000 in the first tenth of each second, whose delays are six times as long. F13 depends on the \
                machine. Properties (A) are theorems of the publication, or what a sound implementation has to have.",
        claims,
        figures: vec![figure],
    }
}

fn by_arithmetic() -> Vec<Claim> {
    let bytes =
        |slots| Fridge::new(Settings { slots, ..Settings::default() }).map_or(0, |fridge| fridge.memory_bytes());
    let entries = (29.0_f64.exp2() * 0.05).log2();
    vec![
        Claim {
            id: "F11",
            text: "register memory with 2¹⁶ and 2¹² slots on a Tofino",
            published: "6.4 %, 1.7 %",
            ours: format!("{} KiB, {} KiB (no switch here)", bytes(1 << 16) >> 10, bytes(1 << 12) >> 10),
            tolerance: "ours: 12 bytes per slot, 768 KiB and 48 KiB",
            verdict: judged_by_own_bar(bytes(1 << 16) == 768 << 10 && bytes(1 << 12) == 48 << 10),
        },
        Claim {
            id: "F12",
            text: "other resources of the switch",
            published: "hash units 23.6 %, TCAM 7.3 %",
            ours: "it needs a Tofino and its compiler".to_owned(),
            tolerance: "none",
            verdict: Verdict::NotComputable,
        },
        Claim {
            id: "F16",
            text: "400 Gb/s, 2²⁹ packets a second, 50 ms: entries of a table of everything",
            published: "2²⁵",
            ours: format!("2^{entries:.1}"),
            tolerance: "arithmetic",
            verdict: judged((entries - 25.0).abs() < 0.5),
        },
    ]
}

//! The claims on FineComb, and the runs that its table shares with LDA's.

use synopses::finecomb::{Deviation, Rule, Settings, Solver};

use crate::banks::Banks;
use crate::claim::{Claim, Reproduction, Verdict, judged};
use crate::microscopic::Microscopic;
use crate::scale::Scale;
use crate::streams::{Loss, Reading, SPACING_NS, Stream, play};
use crate::sweep::{Sweeps, weibull};
use crate::timing::least_ms;
use crate::trace::TraceResults;
use crate::{delay, formula, lda, loss, samples};

const ABOUT: &str = "Five million packets in an interval of a second, mean of the relative errors over ten runs or more (forty at β = 10⁻⁴ and of the trace). \
    β is the share of lost packets, ρ that of displaced ones, which arrive on the other side of an interval's end; W = pR entries of a stash \
    are made for R = ρT of them, and 1,000 buckets and stash entries at the receiver (S = M + W), as printed, with sampling p by the paper's \
    formula. FineComb− has no stash.\n\n\
    *Readings.* A tuple ⟨pre-start, post-start, pre-end, post-end⟩ says how many packets are displaced, of x = ρT/4: *forward* is ⟨0, x, 0, 0⟩ and \
    *backward* ⟨x, 0, 0, 0⟩, the paper's two main types; *chained* is ⟨0, x, 0, x⟩, forward in this interval and in the next one; *all sides* is \
    ⟨x, x, x, x⟩. A row is judged on the reading of its figure's caption: forward for figures 4, 5a and 7 (F1–F12, F15–F17). Figure 6 does \
    not say (F13, F14): these have to hold forward and backward. Rows named after a reading are judged on that one. F1, F3 and F7 have one row, \
    since the reading changes nothing there that can be measured, and F18 to F21 do not depend on it.\n\n\
    Delays are of Weibull's law of shape 0.6, 10 µs in the mean. The trace is not public: twelve intervals of 200,000 packets with its \
    published losses, and delays of a queue, stand for it. What is proved in the paper, such as the number of useless buckets, recovery of \
    displaced packets and exactness without loss, are tests of the library (`synopses/tests/finecomb.rs` and `synopses/src/finecomb`). Rows \
    about LDA are in [lda.md](lda.md), made by the same command from the same runs. F18 depends on the machine.";

/// Both tables, made of the same runs.
pub fn reproductions(scale: Scale) -> [Reproduction; 2] {
    let (sweeps, few) = (Sweeps::new(scale), Microscopic::new(scale));
    let (banks, trace) = (Banks::new(scale), TraceResults::new(scale));
    let mut claims = samples::claims(&sweeps);
    claims.extend(formula::claims(scale, &sweeps));
    claims.extend(delay::claims(scale, &sweeps));
    let (losses, figure) = loss::claims(&sweeps);
    claims.extend(losses);
    claims.extend(few.claims());
    claims.extend(banks.claims());
    claims.extend(trace.claims());
    claims.push(recovery(scale));
    claims.extend(arithmetic());
    let fine = Reproduction { name: "finecomb", title: "FineComb", about: ABOUT, claims, figures: vec![figure] };
    [fine, lda::reproduction(scale, &sweeps, &few, &banks, &trace)]
}

fn recovery(scale: Scale) -> Claim {
    let (packets, delays) = (100_000, weibull());
    let mut times = Vec::new();
    for (buckets, entries) in scale.of(&[(990, 20), (940, 120), (900, 200), (769, 462), (648, 703), (581, 838)]) {
        let settings = Settings::one_bank(buckets, 1.0, entries / 4, 1);
        let draw = |_, random| delays.draw(random);
        let displaced = Reading::All.of(entries as u64 / 4);
        let stream =
            Stream { packets, spacing_ns: SPACING_NS, loss: Loss::Share(1e-4), displaced, delays: &draw, seed: 1 };
        let (ends, _) = play(&stream, &[settings]);
        let time = |solver| {
            let mut recovered = 0;
            let took = least_ms(5, || {
                let found = ends[0].interval.estimate(&ends[0].sender, Rule::FineComb, solver, Deviation::PerBucket);
                recovered = found.map_or(0, |found| found.health.recovered);
            });
            (took, recovered)
        };
        let (by_elimination, by_enumeration) = (time(Solver::Elimination), time(Solver::Enumeration(20)));
        times.push((entries, by_elimination.0, by_enumeration.0, by_elimination.1 == by_enumeration.1));
    }
    let each = times.iter().map(|(entries, one, other, _)| format!("{entries}: {one:.2} and {other:.2} ms"));
    Claim {
        id: "F18",
        text: "evaluation with so many stash entries, of 2,000 in all",
        published: "20, 120, 200, 462, 703, 838 entries: 1, 4, 6, 10, 10, 14 ms",
        ours: format!("elimination and enumeration: {}", each.collect::<Vec<_>>().join(", ")),
        tolerance: "less than published, both find the same",
        verdict: judged(
            times
                .iter()
                .zip([1.0, 4.0, 6.0, 10.0, 10.0, 14.0].into_iter().step_by(scale.step))
                .all(|((_, one, other, same), published)| *same && *one < published && *other < published),
        ),
    }
}

fn arithmetic() -> Vec<Claim> {
    let probes = (500_000.0_f64 / (16_000.0 / 64.0)).sqrt();
    let stored = (500_000.0_f64 / 2_000.0).sqrt();
    vec![
        Claim {
            id: "F19",
            text: "250 probes of the same bandwidth instead of 500,000 samples: standard error",
            published: "44 times",
            ours: format!("{probes:.1} times"),
            tolerance: "arithmetic",
            verdict: judged((probes / 44.0 - 1.0).abs() < 0.03),
        },
        Claim {
            id: "F20",
            text: "2,000 stored times instead of 500,000 samples: error",
            published: "about 15 times",
            ours: format!("{stored:.1} times"),
            tolerance: "arithmetic",
            verdict: judged((stored / 15.0 - 1.0).abs() < 0.1),
        },
        Claim {
            id: "F21",
            text: "1,000 buckets and 1,000 stash entries in hardware",
            published: "a small part of 10 mm × 10 mm, 65 nm, 400 MHz",
            ours: "no hardware".to_owned(),
            tolerance: "none",
            verdict: Verdict::NotComputable,
        },
    ]
}

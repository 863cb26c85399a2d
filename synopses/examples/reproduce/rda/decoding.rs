//! RDA's decoder: how many packets it identifies, and how fast it is.

use std::collections::HashSet;

use plotters::chart::SeriesLabelPosition;
use synopses::digest::Digest;
use synopses::finecomb::{Deviation, Rule, Settings as CombSettings, Solver};
use synopses::rda::{Difference, Ids, Layout, Peeling, Rda, Settings};

use super::{Delays, WEIBULL};
use crate::claim::{Claim, judged_by_own_bar, judged_on_stand_in};
use crate::interval::Case;
use crate::plot::{Axis, Figure, Line};
use crate::scale::Scale;
use crate::streams::{Ends, Loss, Reading, SPACING_NS, Stream, play, random};
use crate::sweep::{each, estimate};
use crate::timing::least_ms;

/// Ids of the receiver's packets come after those of the sender's.
const RECEIVER: u64 = 1 << 40;
/// Cells in all, as published.
const CELLS: usize = 1_000;

/// A decoder as published, or ours.
#[derive(Clone, Copy)]
pub struct Decoder {
    pub ids: Ids,
    pub peeling: Peeling,
}

impl Decoder {
    /// As printed: plain ids, and cells that look like those of one packet are taken for such.
    pub const PRINTED: Self = Self { ids: Ids::Plain, peeling: Peeling::Printed };
    /// Plain ids, with phantoms put back and banned.
    const BANNING: Self = Self { ids: Ids::Plain, peeling: Peeling::UndoAndBan };
    /// Ids that are checked, so that next to no cell of several packets looks like that of one.
    pub const CHECKED: Self = Self { ids: Ids::Checked16, peeling: Peeling::UndoAndBan };
}

/// Means over some runs of the decoder.
#[derive(Clone, Copy, Default)]
pub struct Decoded {
    /// Share of the packets that is named, and by the right end.
    pub share: f64,
    /// Share of runs that leave no cell.
    pub whole: f64,
    /// Packets of a run that are not named.
    pub unnamed: f64,
    /// Cells of a run that are left.
    pub residual: f64,
}

/// Decodes `differences`, half at each end, in `cells` of all banks. Common packets cancel out and are left out.
pub fn decoded(banks: usize, cells: usize, decoder: Decoder, differences: u64, trials: u64) -> Decoded {
    let runs = each(trials, |seed| {
        let settings = Settings { banks, cells: cells / banks, layout: Layout::Banks, ids: decoder.ids, seed };
        let packet = |number: u64| Digest(random(random(seed) ^ number));
        let end = |from: u64| {
            let mut rda = Rda::new(&settings).expect("possible");
            (from..from + differences / 2).for_each(|number| rda.insert(packet(number), number));
            rda
        };
        let found = Difference::between(&end(0), &end(RECEIVER), decoder.peeling).expect("one kind");
        // An id that never was is none of them.
        let named = |from: u64, ids: &[u64]| {
            let there: HashSet<u64> =
                (from..from + differences / 2).map(|number| decoder.ids.id(packet(number))).collect();
            ids.iter().copied().collect::<HashSet<u64>>().intersection(&there).count() as u64
        };
        (named(0, &found.lost) + named(RECEIVER, &found.reordered), found.residual)
    });
    let mut all = Decoded::default();
    for (named, residual) in runs {
        all.share += named as f64 / differences as f64 / trials as f64;
        all.unnamed += (differences - named) as f64 / trials as f64;
        all.whole += f64::from(u8::from(residual == 0)) / trials as f64;
        all.residual += residual as f64 / trials as f64;
    }
    all
}

/// What an independent calculation gives with a sound test for single packets, in percent.
const CLEAN: [(u64, f64); 7] =
    [(250, 99.9), (400, 99.7), (500, 98.6), (600, 89.7), (700, 74.0), (800, 58.0), (900, 47.0)];

fn percentages(curve: &[(f64, f64)]) -> String {
    let each = curve.iter().map(|(d, share)| format!("{:.1} % ({d})", 100.0 * share));
    each.collect::<Vec<_>>().join(", ")
}

/// The claims R1 to R3, and their figure.
pub fn claims(scale: Scale) -> (Vec<Claim>, Figure) {
    let at = |d: u64, decoder| decoded(2, CELLS, decoder, d, scale.trials).share;
    let curve = |decoder| -> Vec<(f64, f64)> { CLEAN.iter().map(|(d, _)| (*d as f64, at(*d, decoder))).collect() };
    let (clean, banning, printed) = (curve(Decoder::CHECKED), curve(Decoder::BANNING), curve(Decoder::PRINTED));
    let off = clean.iter().zip(CLEAN).map(|((_, share), (_, said))| (100.0 * share - said).abs());
    let off = off.fold(0.0, f64::max);
    let almost = printed.iter().filter(|(d, _)| *d <= 500.0).all(|(_, share)| *share >= 0.95);
    let fewer = printed.windows(2).all(|pair| pair[1].0 <= 500.0 || pair[1].1 < pair[0].1);
    let two = (at(500, Decoder::PRINTED), at(500, Decoder::CHECKED));
    let mut claims = vec![
        Claim {
            id: "R1",
            text: "packets decoded of d, 1,000 cells, two banks",
            published: "almost all up to d = 500, then ever fewer (no figure in the text)",
            ours: format!(
                "as printed: {}; an independent calculation gives 96.7 (500), 80 (600), 67 (700), 57 % (800)",
                percentages(&printed)
            ),
            tolerance: "ours: at least 95 % up to 500, then falling from point to point",
            verdict: judged_by_own_bar(almost && fewer),
        },
        Claim {
            id: "R1-checked",
            text: "the same with checked ids",
            published: "as R1",
            ours: format!(
                "{}; an independent calculation gives 99.9, 99.7, 98.6, 89.7, 74, 58, 47 %",
                percentages(&clean)
            ),
            tolerance: "ours: within 3 points of that calculation",
            verdict: judged_by_own_bar(off <= 3.0),
        },
        Claim {
            id: "R3",
            text: "packets decoded with two cells for each",
            published: "still above 90 %",
            ours: format!("as printed {:.1} %; with checked ids {:.1} %", 100.0 * two.0, 100.0 * two.1),
            tolerance: "above 90 %, as printed",
            verdict: judged_on_stand_in(two.0 > 0.9),
        },
    ];
    claims.extend(banks(scale));
    let figure = Figure {
        file: "rda-decoded.svg",
        caption: "Share of packets decoded, 1,000 cells in two banks",
        x: Axis { title: "d, packets that only one end has", logarithmic: false, least: 250.0, most: 900.0 },
        y: Axis { title: "decoded", logarithmic: false, least: 0.0, most: 1.0 },
        legend: SeriesLabelPosition::LowerLeft,
        lines: vec![
            Line { name: "checked ids", points: clean },
            Line { name: "plain ids, undo and ban", points: banning },
            Line { name: "as printed", points: printed },
        ],
    };
    (claims, figure)
}

/// Shares decoded with one to eight banks, at one d.
fn by_banks(decoder: Decoder, differences: u64, trials: u64) -> [Decoded; 8] {
    [1, 2, 3, 4, 5, 6, 7, 8].map(|banks| decoded(banks, CELLS, decoder, differences, trials))
}

/// Below the bound of two banks, at it, and above it.
const LOADS: [u64; 5] = [250, 500, 600, 700, 900];

/// Shares decoded with two to eight banks, each at its own bound, which is a packet for every two cells of a bank.
fn at_bounds(decoder: Decoder, trials: u64) -> [f64; 7] {
    [2, 3, 4, 5, 6, 7, 8].map(|banks| {
        let differences = CELLS as u64 / (4 * banks as u64) * 2;
        decoded(banks, CELLS, decoder, differences, trials).share
    })
}

/// R2: the number of banks, with the printed decoder and with checked ids.
fn banks(scale: Scale) -> [Claim; 2] {
    // Two and three banks are close to each other at 700.
    let trials = 10 * scale.trials;
    let of = |decoder| LOADS.map(|d| (d, by_banks(decoder, d, trials)));
    let list = |found: &[(u64, [Decoded; 8])]| {
        let each = found.iter().map(|(d, shares)| {
            let shares = shares.iter().map(|at| format!("{:.0}", 100.0 * at.share)).collect::<Vec<_>>();
            format!("{} (d = {d})", shares.join(" "))
        });
        each.collect::<Vec<_>>().join(", ")
    };
    // Whether two are the best above.
    let best = |found: &[(u64, [Decoded; 8])]| {
        let two = |shares: &[Decoded; 8]| shares.iter().all(|at| at.share <= shares[1].share);
        found.iter().filter(|(d, _)| *d > 500).all(|(_, shares)| two(shares))
    };
    let claim = |id, text, decoder| {
        let (found, bounds) = (of(decoder), at_bounds(decoder, trials));
        let below = bounds.iter().all(|share| *share >= 0.95);
        let bounds = bounds.iter().map(|share| format!("{:.1}", 100.0 * share)).collect::<Vec<_>>();
        Claim {
            id,
            text,
            published: "with more than one bank nearly all below the bound (2 k d cells), above it two banks are the best",
            ours: format!(
                "percent by 1 2 3 … 8 banks: {}; by 2 3 … 8 banks, each at its own bound, d = 250 to 62: {}. Nearly all below: {}; two the best above: {}",
                list(&found),
                bounds.join(" "),
                if below { "yes" } else { "no" },
                if best(&found) { "yes" } else { "no" }
            ),
            tolerance: "at least 95 % with two to eight banks, each at its bound; none above two banks at 600, 700 and 900",
            verdict: judged_on_stand_in(below && best(&found)),
        }
    };
    [
        claim("R2", "one to eight banks, 1,000 cells, decoder as printed", Decoder::PRINTED),
        claim("R2-checked", "the same with checked ids", Decoder::CHECKED),
    ]
}

/// The time of decoding `differences` in `cells` of two banks, in milliseconds.
pub fn decode_ms(cells: usize, packets: u64, differences: u64) -> f64 {
    let case = Case::new(packets, differences / 2, differences / 2, &Delays::weibull(WEIBULL.0, WEIBULL.1), 1);
    let settings = Settings::paper(cells / 2, 1);
    let (sender, receiver) = case.caches(settings.ids);
    let theirs = receiver.aggregate(&settings).expect("possible");
    let ours = sender.aggregate(&settings).expect("possible");
    least_ms(21, || drop(std::hint::black_box(Difference::between(&ours, &theirs, Peeling::UndoAndBan))))
}

/// The time of looking at all subsets of a stash of `entries` for one bucket that none of them repairs.
fn subsets_ms(entries: u32) -> f64 {
    let ids: Vec<u64> = (0..u64::from(entries)).map(random).collect();
    least_ms(3, || {
        let (mut sum, mut hits) = (0_u64, 0_u32);
        // Each subset differs from the one before by one packet.
        for subset in 1_u64..1 << entries {
            sum ^= ids[subset.trailing_zeros() as usize];
            hits += u32::from(sum == u64::MAX);
        }
        std::hint::black_box(hits);
    })
}

/// FineComb with 4,000 buckets and 1,000 differences.
fn comb_of_a_thousand() -> Ends {
    let delays = Delays::weibull(WEIBULL.0, WEIBULL.1);
    let draw = |_, random| delays.draw(random);
    let stream = Stream {
        packets: 20_000,
        spacing_ns: SPACING_NS,
        loss: Loss::Share(0.025),
        // Four times as many, and as many lost ones.
        displaced: Reading::All.of(125),
        delays: &draw,
        seed: 1,
    };
    let (mut ends, _) = play(&stream, &[CombSettings::one_bank(4_000, 1.0, 1_000, 1)]);
    ends.remove(0)
}

/// Entries of the stash whose subsets are all looked at, and those of the publication.
const STASH: (u32, u32) = (24, 40);

/// R4: the time of decoding beside FineComb's, by enumeration of the whole stash and with the stash sorted into
/// buckets.
pub fn times(scale: Scale) -> [Claim; 2] {
    let rda = decode_ms(4_000, 20_000, 1_000);
    let ends = comb_of_a_thousand();
    // FineComb's recovery needs the buckets that are impaired before it.
    let impaired = estimate(&ends, Rule::FineCombMinus, Deviation::PerBucket).health.useless;
    let subsets = subsets_ms(STASH.0) * impaired as f64;
    let hours = subsets * f64::from(1_u32 << (STASH.1 - STASH.0)) / 3.6e6;
    let of = |solver| {
        let run = || {
            drop(std::hint::black_box(ends.interval.estimate(
                &ends.sender,
                Rule::FineComb,
                solver,
                Deviation::PerBucket,
            )));
        };
        least_ms(if scale.full { 5 } else { 2 }, run)
    };
    let (elimination, sorted) = (of(Solver::Elimination), of(Solver::Enumeration(20)));
    let recovered = estimate(&ends, Rule::FineComb, Deviation::PerBucket).health.recovered;
    [
        Claim {
            id: "R4",
            text: "decoding 4,000 cells, 1,000 differences, beside FineComb's, which looks at all subsets of the stash for each impaired bucket",
            published: "orders of magnitude faster; FineComb of no use from 40 entries on",
            ours: format!(
                "{rda:.2} ms; FineComb {:.0} s with {} entries (the time of one bucket, {impaired} times), twice as long for each more: {hours:.0} hours with {}",
                subsets / 1e3,
                STASH.0,
                STASH.1
            ),
            tolerance: "below 5 ms, and at least a hundred times faster than with those entries",
            verdict: judged_on_stand_in(rda < 5.0 && subsets >= 100.0 * rda),
        },
        Claim {
            id: "R4-sorted",
            text: "the same beside FineComb with 4,000 entries that are first sorted into the buckets",
            published: "as R4",
            ours: format!(
                "{rda:.2} ms; FineComb {elimination:.2} ms by elimination, {sorted:.2} ms by enumeration of a bucket's own entries ({recovered} recovered)"
            ),
            tolerance: "at least a hundred times faster",
            verdict: judged_on_stand_in(elimination.min(sorted) >= 100.0 * rda),
        },
    ]
}

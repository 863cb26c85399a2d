//! Recall of the most frequent keys of Zipf's law.

use std::collections::HashMap;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use plotters::prelude::SeriesLabelPosition;
use synopses::digest::Digest;
use synopses::rap::{Admission, DWayRap, HeavyHitters, Precision, WaySettings};

use super::streams::zipf;
use super::{filled, mean, rap, space_saving};
use crate::claim::{Claim, judged_by_own_bar, judged_on_stand_in};
use crate::plot::{Axis, Figure, Line};

/// How many of the most frequent keys are looked for.
const TOP: usize = 32;
const SEEDS: u64 = 3;
const MORE_SEEDS: u64 = 30;
const SKEWS: [f64; 3] = [0.8, 1.0, 1.2];
/// Numbers of entries, m.
const ENTRIES: [u64; 7] = [32, 64, 128, 256, 512, 1_024, 2_048];

/// A stream and its most frequent keys.
struct Truth {
    keys: Vec<Digest>,
    top: HashMap<Digest, u64>,
}

impl Truth {
    fn new(skew: f64, seed: u64) -> Self {
        Self::of(skew, seed, TOP)
    }

    fn of(skew: f64, seed: u64, top: usize) -> Self {
        let keys = zipf(100_000, skew, 400_000, seed);
        let mut counts: HashMap<Digest, u64> = HashMap::new();
        for key in &keys {
            *counts.entry(*key).or_default() += 1;
        }
        let mut sorted: Vec<_> = counts.into_iter().collect();
        sorted.sort_unstable_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
        sorted.truncate(top);
        Self { keys, top: sorted.into_iter().collect() }
    }

    /// Recall, and the mean relative error of the counts of the keys found.
    fn judge<T: HeavyHitters>(&self, table: T) -> (f64, f64) {
        let found = filled(table, &self.keys).top(self.top.len());
        let errors: Vec<f64> = found
            .iter()
            .filter_map(|entry| {
                self.top.get(&entry.digest).map(|truth| (entry.count as f64 / *truth as f64 - 1.0).abs())
            })
            .collect();
        (errors.len() as f64 / self.top.len() as f64, mean(&errors))
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Rap(Admission),
    SpaceSaving,
    Precision,
    EightWays,
}

/// Mean recall and mean error over the seeds.
fn recall(truths: &[Truth], entries: u64, kind: Kind) -> (f64, f64) {
    let judged = truths.iter().zip(1..).map(|(truth, seed)| {
        let ways = |ways: usize| {
            let rows = entries as usize / ways;
            WaySettings { ways, rows, admission: Admission::InverseOfNext, seed }
        };
        match kind {
            Kind::Rap(law) => truth.judge(rap(entries, law, seed)),
            Kind::SpaceSaving => truth.judge(space_saving(entries)),
            Kind::Precision => truth.judge(Precision::new(ways(2)).expect("possible")),
            Kind::EightWays => truth.judge(DWayRap::new(ways(8)).expect("possible")),
        }
    });
    let (recalls, errors): (Vec<_>, Vec<_>) = judged.unzip();
    (mean(&recalls), mean(&errors))
}

/// The claims A6, A7 and A8 on Zipf's law, and their figure.
pub fn claims() -> (Vec<Claim>, Figure) {
    let truths = SKEWS.map(|skew| (0..SEEDS).map(|seed| Truth::new(skew, seed)).collect::<Vec<_>>());
    let original = Kind::Rap(Admission::InverseOfNext);
    let row = |entries, kind| [0, 1, 2].map(|skew| recall(&truths[skew], entries, kind));
    let few = (row(64, original), row(64, Kind::SpaceSaving));
    let many = (row(256, original), row(256, Kind::SpaceSaving));
    let numbers = |row: &[(f64, f64); 3]| row.map(|(recall, _)| format!("{recall:.2}")).join(", ");
    let errors = |row: &[(f64, f64); 3]| row.map(|(_, error)| format!("{:.1} %", 100.0 * error)).join(", ");
    let ours = |(of_rap, of_saving): &([_; 3], [_; 3])| {
        format!("RAP {} (counts off by {}), Space-Saving {}", numbers(of_rap), errors(of_rap), numbers(of_saving))
    };
    let above = few.0.iter().zip(&few.1).all(|(of_rap, of_saving)| of_rap.0 >= 0.95 && of_saving.0 <= of_rap.0 - 0.2);
    let mut claims = vec![
        Claim {
            id: "A6",
            text: "recall of the top 32 with 64 entries, skew 0.8, 1 and 1.2",
            published: "no figure",
            ours: ours(&few),
            tolerance: "ours: at least 0.95, Space-Saving at least 0.2 below",
            verdict: judged_by_own_bar(above),
        },
        Claim {
            id: "A7",
            text: "the same with 256 entries",
            published: "no figure",
            ours: ours(&many),
            tolerance: "ours: at least 0.97",
            verdict: judged_by_own_bar(many.0.iter().all(|(recall, _)| *recall >= 0.97)),
        },
    ];
    claims.push(Claim {
        id: "A8-zipf",
        text: "admission with 1/c in place of 1/(c + 1): difference of the recalls of A6 and A7",
        published: "no figure",
        ours: format!("at most {:.3}; a key more or less in one of the three streams is 0.010", laws_apart(&truths)),
        tolerance: "ours: at most 0.02",
        verdict: judged_by_own_bar(laws_apart(&truths) <= 0.02),
    });
    let more = SKEWS.map(|skew| (0..MORE_SEEDS).map(|seed| Truth::new(skew, 100 + seed)).collect::<Vec<_>>());
    claims.push(Claim {
        id: "A8-zipf-many",
        text: "the same with 30 other seeds",
        published: "no figure",
        ours: format!("at most {:.3}", laws_apart(&more)),
        tolerance: "ours: at most 0.02",
        verdict: judged_by_own_bar(laws_apart(&more) <= 0.02),
    });
    claims.push(memory(&truths));
    claims.push(peer());
    (claims, figure(&truths[1]))
}

/// The largest difference of mean recalls with the two laws of admission, over skews and both sizes.
fn laws_apart(truths: &[Vec<Truth>; 3]) -> f64 {
    let of = |entries, truths: &Vec<Truth>, law| recall(truths, entries, Kind::Rap(law)).0;
    let apart = [64, 256].into_iter().flat_map(|entries| {
        truths.iter().map(move |truths| {
            (of(entries, truths, Admission::InverseOfNext) - of(entries, truths, Admission::Inverse)).abs()
        })
    });
    apart.fold(0.0, f64::max)
}

/// The claim of RAP's own publication, in entries: those that each needs for the same recall.
fn memory(truths: &[Vec<Truth>; 3]) -> Claim {
    let needed = |truths: &[Truth], kind| {
        let sizes = (5..14).map(|power| 1_u64 << power);
        sizes.into_iter().find(|entries| recall(truths, *entries, kind).0 >= 0.95)
    };
    let each = truths.iter().zip(SKEWS).map(|(truths, skew)| {
        let pair = (needed(truths, Kind::Rap(Admission::InverseOfNext)), needed(truths, Kind::SpaceSaving));
        (skew, pair.0.unwrap_or(u64::MAX), pair.1.unwrap_or(1 << 14))
    });
    let each: Vec<_> = each.collect();
    let least = each.iter().map(|(_, rap, saving)| *saving as f64 / *rap as f64).fold(f64::MAX, f64::min);
    let text = each.iter().map(|(skew, rap, saving)| format!("{rap} and {saving} (skew {skew})"));
    Claim {
        id: "A9",
        text: "entries that RAP and Space-Saving need for a recall of 0.95 of the top 32, powers of two. Claim of RAP's own publication, on traces",
        published: "top-k with 4 to 64 times less memory than alternatives",
        ours: format!("{}; at least {least:.0} times fewer", text.collect::<Vec<_>>().join(", ")),
        tolerance: "at least 4 times fewer at each skew; an entry of either takes the same memory here",
        verdict: judged_on_stand_in(least >= 4.0),
    }
}

/// Recall of the 512 most frequent keys with no more memory than the frequent-items sketch of Apache DataSketches.
fn peer() -> Claim {
    const MANY: usize = 512;
    let (mut ours, mut theirs, mut bytes) = (Vec::new(), Vec::new(), (0, 0));
    for seed in 0..SEEDS {
        let truth = Truth::of(1.0, seed, MANY);
        let mut sketch = FrequentItemsSketch::<u64>::new(2_048).expect("a power of two");
        for key in &truth.keys {
            sketch.update(key.0);
        }
        let found = sketch.frequent_items_with_threshold(ErrorType::NoFalseNegatives, 0);
        let mut found: Vec<_> = found.iter().map(|row| (std::cmp::Reverse(row.estimate()), *row.item())).collect();
        found.sort_unstable();
        let hits = found.iter().take(MANY).filter(|(_, key)| truth.top.contains_key(&Digest(*key))).count();
        theirs.push(hits as f64 / MANY as f64);
        let tables = (1..=2_048).rev().map(|entries| rap(entries, Admission::InverseOfNext, seed));
        let table = tables.into_iter().find(|table| table.memory_bytes() <= sketch.estimated_size());
        let table = table.expect("one entry takes less");
        bytes = (table.memory_bytes(), sketch.estimated_size());
        ours.push(truth.judge(table).0);
    }
    let (ours, theirs) = (mean(&ours), mean(&theirs));
    Claim {
        id: "A10",
        text: "recall of the top 512, skew 1, beside the frequent-items sketch of Apache DataSketches (Misra and Gries) with a map of 2,048 words",
        published: "no figure",
        ours: format!("RAP {ours:.3} with {} bytes, the sketch {theirs:.3} with {}", bytes.0, bytes.1),
        tolerance: "ours: above it with no more memory",
        verdict: judged_by_own_bar(ours > theirs && bytes.0 <= bytes.1),
    }
}

fn figure(truths: &[Truth]) -> Figure {
    let line = |name, kind| Line {
        name,
        points: ENTRIES.iter().map(|entries| (*entries as f64, recall(truths, *entries, kind).0)).collect(),
    };
    let (least, most) = (ENTRIES[0] as f64, ENTRIES[ENTRIES.len() - 1] as f64);
    Figure {
        file: "rap-recall.svg",
        caption: "Recall of the 32 most frequent keys of Zipf's law with skew 1",
        x: Axis { title: "entries", logarithmic: true, least, most },
        y: Axis { title: "recall", logarithmic: false, least: 0.0, most: 1.0 },
        legend: SeriesLabelPosition::LowerRight,
        lines: vec![
            line("RAP", Kind::Rap(Admission::InverseOfNext)),
            line("8-way RAP", Kind::EightWays),
            line("PRECISION, 2 stages", Kind::Precision),
            line("Space-Saving", Kind::SpaceSaving),
        ],
    }
}

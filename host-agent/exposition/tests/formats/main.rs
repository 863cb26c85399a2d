//! The formats as they are specified, and as others write them: what is read becomes values of a region.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod below_zero;
mod hostile;
mod otlp;
mod protobuf;
mod text;

use std::collections::BTreeMap;

use exposition::choice::ChoiceSettings;
use exposition::{Format, Target, TargetSettings};
use wire::metric::Kind;

/// A target that learns for two scrapes and watches everything that moved.
fn target() -> Target {
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 1_000, label_sets: 8 };
    Target::new(TargetSettings { choice, labels: vec![], window: 2, samples: 1_000, hold: 0 })
}

/// What a series of a region holds.
#[derive(Clone, Debug, PartialEq)]
enum SlotValue {
    Counter(u64),
    Gauge(f64),
    /// Count, sum in parts, 99th percentile in the unit.
    Histogram(u64, u64, f64),
}

/// The values that `target` writes, by title.
fn held(target: &Target) -> BTreeMap<String, SlotValue> {
    let mut slots = vec![0_u64; target.slots() as usize];
    target.store(|slot, value| slots[slot.0 as usize] = value);
    let value = |first: usize, kind: Kind, parts: u64| match kind {
        Kind::Counter | Kind::UpDownCounter => SlotValue::Counter(slots[first]),
        Kind::Gauge => SlotValue::Gauge(f64::from_bits(slots[first])),
        Kind::Histogram(scale) => {
            let buckets = &slots[first..=first + scale.buckets() as usize];
            let p99 = scale.quantile(buckets, 0.99).unwrap_or(f64::NAN) / parts as f64;
            SlotValue::Histogram(buckets.iter().sum(), slots[first + scale.sum_slot() as usize], p99)
        }
    };
    let placed = target.placed().into_iter();
    placed
        .map(|placed| {
            let series = placed.series;
            (series.title(), value(placed.first.0 as usize, series.kind, series.parts_per_unit.get()))
        })
        .collect()
}

/// Takes `pages`, the first two of which are learnt. Returns what is held after the last one.
fn after<B: AsRef<[u8]>>(pages: &[B], format: Format) -> BTreeMap<String, SlotValue> {
    let mut target = target();
    for page in pages {
        if target.take(page.as_ref(), format).unwrap() {
            target.choose();
        }
    }
    held(&target)
}

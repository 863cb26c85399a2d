//! What is watched of a target, and why the rest is not: for `uview sources`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::choice::LeftOut;
use crate::exclusion::{ExcludedSeries, Exclusion};
use crate::format::FamilyKind;
use crate::series::{AllSeries, Destination, Series};

/// What is watched of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyReport {
    /// The family's name.
    pub name: String,
    /// The family's type.
    pub kind: &'static str,
    /// Series that the target exposes now.
    pub exposed: usize,
    /// Those with columns of their own.
    pub watched: usize,
    /// Why some are not.
    pub why: String,
}

/// What is watched of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReport {
    /// Samples of the last scrape.
    pub samples: usize,
    /// Series that are known.
    pub exposed: usize,
    /// Series with columns of their own.
    pub watched: usize,
    /// Series that are summed up with others of their name.
    pub summed: usize,
    /// Columns of the LMAP.
    pub columns: usize,
    /// Samples of the last scrape that were not looked at: too many, or their keys too long.
    pub refused: usize,
    /// Scrapes of the window that are done, and that are needed, until series are chosen. Equal: they are chosen.
    pub learned: (u32, u32),
    /// Series without a column, by reason.
    pub excluded: ExcludedSeries,
    /// In the order of their names.
    pub families: Vec<FamilyReport>,
}

/// Why a series is not watched. `same` is the one that says the same.
pub fn exclusion(left: LeftOut, same: Option<&Series>) -> Exclusion {
    match left {
        LeftOut::NotAllowed => Exclusion::NotAllowed,
        LeftOut::Denied => Exclusion::Denied,
        LeftOut::Constant => Exclusion::Constant,
        LeftOut::TimeOfDay => Exclusion::TimeOfDay,
        LeftOut::Exporter => Exclusion::Exporter,
        LeftOut::Redundant(_) => {
            Exclusion::Redundant(same.map_or_else(|| Arc::from("another"), |same| Arc::clone(&same.name)))
        }
        LeftOut::NoRoom => Exclusion::NoRoom,
    }
}

/// Those of `all` that are not watched, by reason.
pub fn excluded(all: &AllSeries) -> ExcludedSeries {
    let mut excluded = ExcludedSeries::default();
    for (_, series) in all.iter() {
        if let Destination::Nowhere(why) = &series.place {
            excluded.add(why);
        }
    }
    excluded.add_ignored(all.families.iter().map(|family| family.ignored as usize).sum());
    excluded
}

/// The families of `all`; `watched` says whether an output is of one series, `is_cut` whether it leaves out what is
/// below 0.
pub fn families(all: &AllSeries, watched: impl Fn(u32) -> bool, is_cut: impl Fn(u32) -> bool) -> Vec<FamilyReport> {
    let mut counts: BTreeMap<usize, (usize, BTreeMap<String, usize>)> = BTreeMap::new();
    let mut cut: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, series) in all.iter() {
        if matches!(&series.place, Destination::Output(output) if is_cut(*output)) {
            *cut.entry(series.family).or_default() += 1;
        }
        let (exposed, by_fate) = counts.entry(series.family).or_default();
        *exposed += 1;
        let fate = match &series.place {
            Destination::Output(output) if watched(*output) => "watched".to_owned(),
            Destination::Output(_) => "summed up".to_owned(),
            Destination::Nowhere(why) => why.to_string(),
            Destination::Undecided => "new".to_owned(),
        };
        *by_fate.entry(fate).or_default() += 1;
    }
    let mut found: Vec<FamilyReport> = (0..)
        .zip(&all.families)
        .map(|(number, family)| {
            let (exposed, by_fate) = counts.remove(&number).unwrap_or_default();
            let watched = by_fate.get("watched").copied().unwrap_or(0);
            let exposed = if exposed == 0 { family.ignored as usize } else { exposed };
            let mut why = why(family.kind, &by_fate);
            if let Some(count) = cut.get(&number) {
                _ = write!(why, "; {count} without values below 0: the name is too long");
            }
            FamilyReport { name: family.name.to_string(), kind: family.kind.name(), exposed, watched, why }
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn why(kind: FamilyKind, by_fate: &BTreeMap<String, usize>) -> String {
    if by_fate.is_empty() {
        return match kind {
            FamilyKind::Info => "facts, no numbers",
            FamilyKind::StateSet => "states, no numbers",
            FamilyKind::GaugeHistogram => "gauge histograms are not watched",
            _ => "times of creation",
        }
        .to_owned();
    }
    let mut text = String::new();
    for (fate, count) in by_fate {
        let separator = if text.is_empty() { "" } else { ", " };
        // One for all needs no number.
        _ = if by_fate.len() == 1 { write!(text, "{fate}") } else { write!(text, "{separator}{count} {fate}") };
    }
    text
}

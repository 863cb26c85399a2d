//! The control plane's tally of reports by prefix, with a fixed number of prefixes.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::report::Report;
use super::segment::Prefix;
use super::settings::{MAX_BUCKETS, SettingsError};
use crate::digest::Digest;
use crate::rap::{Admission, Arrival, HeavyHitters as _, Rap, Settings as RapSettings};

/// Quantile of the normal distribution for intervals of 95 %.
const NORMAL: f64 = 1.96;

/// Sums of a prefix's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) prefix: u64,
    pub(super) packets: u64,
    pub(super) out_of_order: u64,
    pub(super) reports: u64,
}

/// Sums of reports by prefix, over one interval. If there are more prefixes than entries, those with few packets give
/// way at random ([`Rap`]), so that forged sources cannot fill it.
#[derive(Clone, Debug)]
pub struct PrefixTally {
    pub(super) prefixes: Rap,
    pub(super) sums: Box<[Sums]>,
    pub(super) dropped: u64,
}

/// When a prefix is flagged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// α, the least number of checked packets, by default 16. What was checked may be far less than the prefix's
    /// packets.
    pub least_packets: u64,
    /// What else is asked.
    pub threshold: Threshold,
}

/// The share of packets out of order that is asked of a prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// None: that a record was reported is enough.
    Any,
    /// A share above this, c ε: for [`super::Reports::Always`]. The source leaves c open; 0.5 was tried here.
    Share(f64),
}

impl Default for Decision {
    fn default() -> Self {
        Self { least_packets: 16, threshold: Threshold::Any }
    }
}

/// What is known of a prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixEstimate {
    /// The source prefix.
    pub prefix: Prefix,
    /// Number of packets checked.
    pub packets: u64,
    /// Packets out of order among them.
    pub out_of_order: u64,
    /// Number of reports.
    pub reports: u64,
    /// Their ratio, `None` if no packet was checked. Biased high unless all records are reported.
    pub share: Option<f64>,
    /// Wilson's interval of 95 % for the share, as if packets were independent.
    pub interval: (f64, f64),
}

impl PrefixTally {
    /// An empty tally of at most `prefixes` prefixes. Keep the seed secret.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Prefixes`] if that number is invalid.
    pub fn new(prefixes: usize, seed: u64) -> Result<Self, SettingsError> {
        let settings = RapSettings { entries: prefixes, admission: Admission::InverseOfNext, seed };
        if prefixes > MAX_BUCKETS {
            return Err(SettingsError::Prefixes(prefixes));
        }
        let table = Rap::new(settings).map_err(|_| SettingsError::Prefixes(prefixes))?;
        Ok(Self { prefixes: table, sums: vec![Sums::default(); prefixes].into_boxed_slice(), dropped: 0 })
    }

    /// Adds a report. Allocates nothing.
    pub fn insert(&mut self, report: Report) {
        self.add(&Sums {
            prefix: report.prefix.0,
            packets: report.packets.into(),
            out_of_order: report.out_of_order.into(),
            reports: 1,
        });
    }

    fn add(&mut self, more: &Sums) {
        let Some((entry, arrival)) = self.prefixes.place(Digest(more.prefix), more.packets.max(1)) else {
            self.dropped = self.dropped.saturating_add(more.reports);
            return;
        };
        let sums = &mut self.sums[entry];
        match arrival {
            Arrival::Present => {
                sums.packets = sums.packets.saturating_add(more.packets);
                sums.out_of_order = sums.out_of_order.saturating_add(more.out_of_order);
                sums.reports = sums.reports.saturating_add(more.reports);
            }
            Arrival::Free => *sums = *more,
            Arrival::Replaced => {
                self.dropped = self.dropped.saturating_add(sums.reports);
                *sums = *more;
            }
        }
    }

    /// Reports that were dropped for lack of entries. With any, the tally was too small, or somebody forges sources.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is known of a prefix; `None` if nothing is, or no longer.
    #[must_use]
    pub fn estimate(&self, prefix: Prefix) -> Option<PrefixEstimate> {
        self.sums_of(prefix).map(estimated)
    }

    pub(super) fn sums_of(&self, prefix: Prefix) -> Option<&Sums> {
        self.prefixes.find(Digest(prefix.0)).map(|entry| &self.sums[entry])
    }

    /// All prefixes with reports, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = PrefixEstimate> {
        self.sums.iter().filter(|sums| sums.reports > 0).map(estimated)
    }

    /// The prefixes that are flagged, in ascending order.
    #[must_use]
    pub fn flagged(&self, decision: &Decision) -> Vec<PrefixEstimate> {
        let wanted = |estimate: &PrefixEstimate| {
            estimate.packets >= decision.least_packets
                && match decision.threshold {
                    Threshold::Any => true,
                    Threshold::Share(least) => estimate.share.is_some_and(|share| share > least),
                }
        };
        let mut flagged: Vec<_> = self.iter().filter(wanted).collect();
        flagged.sort_unstable_by_key(|estimate| estimate.prefix);
        flagged
    }

    /// Adds the sums of another tally of the same interval, such as another card's. Decide once, after merging.
    pub fn merge(&mut self, other: &Self) {
        other.sums.iter().filter(|sums| sums.reports > 0).for_each(|sums| self.add(sums));
        self.dropped = self.dropped.saturating_add(other.dropped);
    }

    /// Empties it for the next interval.
    pub fn reset(&mut self) {
        self.prefixes.reset();
        self.sums.fill(Sums::default());
        self.dropped = 0;
    }

    /// Empties it for the next interval, which has another seed: that of the records, where these have a new one
    /// ([`super::Boundary::Reseed`]). Allocates nothing.
    pub fn reseed(&mut self, seed: u64) {
        self.prefixes.reseed(seed);
        self.sums.fill(Sums::default());
        self.dropped = 0;
    }

    /// The seed in use.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.prefixes.settings().seed
    }

    /// Allocated bytes, whatever was reported.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.prefixes.memory_bytes() + size_of_val(&*self.sums)
    }
}

fn estimated(sums: &Sums) -> PrefixEstimate {
    let Sums { prefix, packets, out_of_order, reports } = *sums;
    let (n, events) = (packets as f64, out_of_order as f64);
    let share = (packets > 0).then(|| events / n);
    let interval = share.map_or((0.0, 1.0), |share| {
        let square = NORMAL * NORMAL / n;
        let middle = (share + square / 2.0) / (1.0 + square);
        let half = NORMAL * libm::sqrt(share * (1.0 - share) / n + square / (4.0 * n)) / (1.0 + square);
        ((middle - half).max(0.0), (middle + half).min(1.0))
    });
    PrefixEstimate { prefix: Prefix(prefix), packets, out_of_order, reports, share, interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(prefix: u64, packets: u32, out_of_order: u32) -> Report {
        Report { prefix: Prefix(prefix), packets, out_of_order }
    }

    #[test]
    fn prefixes_are_flagged_by_packets_and_share() {
        let mut tally = PrefixTally::new(8, 1).expect("possible");
        for (prefix, packets, events) in [(9, 10, 1), (9, 6, 0), (3, 15, 15), (4, 1_000, 4), (5, 0, 0)] {
            tally.insert(report(prefix, packets, events));
        }
        let flagged = |threshold| {
            let found = tally.flagged(&Decision { threshold, ..Decision::default() });
            found.iter().map(|estimate| estimate.prefix.0).collect::<Vec<_>>()
        };

        assert_eq!(flagged(Threshold::Any), [4, 9]);
        assert_eq!(flagged(Threshold::Share(0.005)), [9]);
        let nine = tally.estimate(Prefix(9)).expect("reported");
        assert_eq!((nine.packets, nine.out_of_order, nine.reports, nine.share), (16, 1, 2, Some(1.0 / 16.0)));
        // Wilson's interval of one in sixteen, from a table.
        assert!((nine.interval.0 - 0.0111).abs() < 1e-4 && (nine.interval.1 - 0.2833).abs() < 1e-4, "{nine:?}");
        assert_eq!(tally.estimate(Prefix(5)).map(|five| five.share), Some(None));
        assert!(tally.estimate(Prefix(6)).is_none());
    }

    #[test]
    fn forged_sources_neither_grow_it_nor_push_out_prefixes_with_many_packets() {
        let mut tally = PrefixTally::new(64, 7).expect("possible");
        let bytes = tally.memory_bytes();
        (0..40).for_each(|_| (0..8).for_each(|prefix| tally.insert(report(prefix, 17, 1))));
        (0..5_000).for_each(|forged| tally.insert(report(1_000 + forged, 1, 1)));

        assert_eq!(tally.memory_bytes(), bytes);
        assert!((0..8).all(|prefix| tally.estimate(Prefix(prefix)).is_some_and(|sums| sums.packets == 680)));
        let there: u64 = tally.iter().map(|sums| sums.reports).sum();
        assert_eq!(there + tally.dropped(), 40 * 8 + 5_000);
    }

    #[test]
    fn a_tally_with_another_seed_is_empty_and_places_and_draws_by_that_seed() {
        let mut tally = PrefixTally::new(16, 3).expect("possible");
        // More prefixes than entries, so that coins are drawn.
        let insert = |tally: &mut PrefixTally| (0..400).for_each(|prefix| tally.insert(report(prefix % 90, 3, 1)));
        insert(&mut tally);
        let bytes = tally.memory_bytes();
        assert!(tally.dropped() > 0);

        tally.reseed(9);
        assert_eq!((tally.seed(), tally.iter().count(), tally.dropped()), (9, 0, 0));
        assert_eq!(tally.memory_bytes(), bytes);
        // What is decoded has places and coins of the seed that was written.
        let mut decoded = PrefixTally::decode(&tally.encode(), 16).expect("what was encoded");
        [&mut tally, &mut decoded].into_iter().for_each(insert);
        assert!(tally.dropped() > 0 && tally.encode() == decoded.encode());
    }

    #[test]
    fn tallies_merged_are_those_of_all_reports() {
        let mut parts = [1, 2].map(|seed| PrefixTally::new(32, seed).expect("possible"));
        let mut whole = PrefixTally::new(32, 3).expect("possible");
        for number in 0..300_u32 {
            let report = report(u64::from(number * number % 29), number % 40, number % 3);
            parts[(number % 2) as usize].insert(report);
            whole.insert(report);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        let all = Decision { least_packets: 0, threshold: Threshold::Any };

        assert_eq!(merged.flagged(&all), whole.flagged(&all));
        merged.reset();
        assert!(merged.iter().next().is_none());
        assert!(PrefixTally::new(0, 1).is_err() && PrefixTally::new(usize::MAX, 1).is_err());
    }
}

//! Which series of a service an LMAP watches, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::metric::{Aggregation, Kind, TickDivider};
use wire::name::MetricName;
use wire::time::Nanos;

use super::catalogue::Catalogue;
use super::replica::SeriesKey;

/// How a metric is watched (`MetricConfig` of μView, Table 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// All series of this name.
    pub metric: MetricName,
    /// Aggregation over replicas; `None`: the default of its kind.
    pub aggregation: Option<Aggregation>,
    /// Read every so many intervals.
    pub every: TickDivider,
}

/// Memory of a choice or an exclusion besides its texts.
const ENTRY_BYTES: usize = 96;

impl Choice {
    /// Memory of the choice.
    pub fn bytes(&self) -> usize {
        // Its name is stored again while it is pending.
        2 * (ENTRY_BYTES + self.metric.as_str().len())
    }
}

/// All series, or the chosen ones; without the excluded ones.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    only_chosen: bool,
    chosen: BTreeMap<MetricName, (Option<Aggregation>, TickDivider)>,
    without: BTreeSet<Arc<SeriesKey>>,
    /// Chosen names that no replica has registered, and since when.
    pending: BTreeMap<MetricName, Nanos>,
}

impl Selection {
    /// Only `choices`; everything if there are none.
    pub fn of(choices: Vec<Choice>) -> Self {
        let chosen: BTreeMap<_, _> = choices.into_iter().map(|c| (c.metric, (c.aggregation, c.every))).collect();
        Self { only_chosen: !chosen.is_empty(), chosen, ..Self::default() }
    }

    pub fn watches(&self, key: &SeriesKey) -> bool {
        (!self.only_chosen || self.chosen.contains_key(&key.name)) && !self.without.contains(key)
    }

    /// How a series of `name` and `kind` is watched.
    pub fn watch_settings(&self, name: &MetricName, kind: Kind) -> (Aggregation, TickDivider) {
        let (aggregation, every) = self.chosen.get(name).cloned().unwrap_or((None, TickDivider::MIN));
        (aggregation.unwrap_or_else(|| Aggregation::default_for(kind)), every)
    }

    /// Also watches all series of one name.
    pub fn add(&mut self, choice: Choice) {
        self.without.retain(|key| key.name != choice.metric);
        self.chosen.insert(choice.metric, (choice.aggregation, choice.every));
    }

    /// Excludes one series.
    pub fn remove(&mut self, key: Arc<SeriesKey>) {
        self.without.insert(key);
    }

    /// Chosen names of which `catalogue` has no series are pending from `now` on, unless they are already. O(choices).
    pub fn find_pending(&mut self, catalogue: &Catalogue, now: Nanos) {
        let Self { chosen, pending, .. } = self;
        let is_missing = |name: &MetricName| catalogue.named(name).next().is_none();
        pending.retain(|name, _| chosen.contains_key(name) && is_missing(name));
        for name in chosen.keys().filter(|name| is_missing(name)) {
            pending.entry(name.clone()).or_insert(now);
        }
    }

    /// A series of `name` was registered.
    pub fn registered(&mut self, name: &MetricName) {
        self.pending.remove(name);
    }

    /// Chosen names that no replica has registered, and since when.
    pub fn pending(&self) -> &BTreeMap<MetricName, Nanos> {
        &self.pending
    }

    /// Memory of choices and exclusions.
    pub fn bytes(&self) -> usize {
        let chosen = self.chosen.keys().map(|name| 2 * (ENTRY_BYTES + name.as_str().len()));
        // A series may be gone, and is known here only then.
        let without = self.without.iter().map(|key| ENTRY_BYTES + key.text_bytes());
        chosen.chain(without).sum()
    }

    /// Number of choices and exclusions.
    pub fn len(&self) -> usize {
        self.chosen.len() + self.without.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counter, gauge, labelled};
    use super::*;

    fn key(series: &wire::metric::Series) -> SeriesKey {
        SeriesKey::of(series)
    }

    fn choice(name: &str) -> Choice {
        Choice {
            metric: MetricName::new(name).unwrap(),
            aggregation: Some(Aggregation::Max),
            every: TickDivider::new(5).unwrap(),
        }
    }

    #[test]
    fn everything_is_watched_until_someone_chooses() {
        let selection = Selection::of(vec![]);

        assert!(selection.watches(&key(&counter("a"))));
        assert_eq!(
            selection.watch_settings(&MetricName::new("a").unwrap(), Kind::Gauge),
            (Aggregation::Mean, TickDivider::MIN)
        );
    }

    #[test]
    fn a_choice_excludes_what_is_not_chosen() {
        let mut selection = Selection::of(vec![choice("a")]);

        assert!(selection.watches(&key(&labelled(gauge("a"), "route", "/"))));
        assert!(!selection.watches(&key(&counter("b"))));
        assert_eq!(selection.watch_settings(&MetricName::new("a").unwrap(), Kind::Gauge).0, Aggregation::Max);

        selection.add(choice("b"));
        assert!(selection.watches(&key(&counter("b"))));
    }

    #[test]
    fn a_series_taken_out_comes_back_with_its_name() {
        let mut selection = Selection::default();
        let series = Arc::new(key(&counter("a")));

        selection.remove(Arc::clone(&series));
        assert!(!selection.watches(&series));
        assert_eq!(selection.len(), 1);

        selection.add(choice("a"));
        assert!(selection.watches(&series));
    }
}

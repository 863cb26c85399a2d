//! Which of a service's series an LMAP watches, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::metric::{Aggregation, Every, Kind};
use wire::name::MetricName;

use super::replica::SeriesKey;

/// How a metric is watched, as an operator asked for it (`MetricConfig` of μView, Table 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// All series of this name.
    pub metric: MetricName,
    /// How replicas are put together; by kind if `None`.
    pub aggregation: Option<Aggregation>,
    /// Looked at every so many intervals.
    pub every: Every,
}

/// Everything that is registered, or what operators chose, without what they took out.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    only_chosen: bool,
    chosen: BTreeMap<MetricName, (Option<Aggregation>, Every)>,
    without: BTreeSet<Arc<SeriesKey>>,
}

impl Selection {
    /// These only; all if there are none.
    pub fn of(choices: Vec<Choice>) -> Self {
        let chosen: BTreeMap<_, _> = choices.into_iter().map(|c| (c.metric, (c.aggregation, c.every))).collect();
        Self { only_chosen: !chosen.is_empty(), chosen, without: BTreeSet::new() }
    }

    pub fn watches(&self, key: &SeriesKey) -> bool {
        (!self.only_chosen || self.chosen.contains_key(&key.name)) && !self.without.contains(key)
    }

    /// How a series of `name` and `kind` is watched.
    pub fn how(&self, name: &MetricName, kind: Kind) -> (Aggregation, Every) {
        let (aggregation, every) = self.chosen.get(name).cloned().unwrap_or((None, Every::MIN));
        (aggregation.unwrap_or_else(|| Aggregation::default_for(kind)), every)
    }

    /// Watches all series of one more name.
    pub fn add(&mut self, choice: Choice) {
        self.without.retain(|key| key.name != choice.metric);
        self.chosen.insert(choice.metric, (choice.aggregation, choice.every));
    }

    /// Watches one series less.
    pub fn remove(&mut self, key: Arc<SeriesKey>) {
        self.without.insert(key);
    }

    /// How many entries operators made.
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
            every: Every::new(5).unwrap(),
        }
    }

    #[test]
    fn everything_is_watched_until_someone_chooses() {
        let selection = Selection::of(vec![]);

        assert!(selection.watches(&key(&counter("a"))));
        assert_eq!(selection.how(&MetricName::new("a").unwrap(), Kind::Gauge), (Aggregation::Mean, Every::MIN));
    }

    #[test]
    fn a_choice_excludes_what_is_not_chosen() {
        let mut selection = Selection::of(vec![choice("a")]);

        assert!(selection.watches(&key(&labelled(gauge("a"), "route", "/"))));
        assert!(!selection.watches(&key(&counter("b"))));
        assert_eq!(selection.how(&MetricName::new("a").unwrap(), Kind::Gauge).0, Aggregation::Max);

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

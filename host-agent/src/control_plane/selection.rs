//! Which series of a service an LMAP watches, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use ::lmap::Expression;
use wire::metric::{Aggregation, Group, Kind, Series, TickDivider};
use wire::name::{Labels, MetricName, Unit};
use wire::time::Nanos;

use super::catalogue::Catalogue;
use super::replica::SeriesKey;

/// How a metric is watched (`MetricConfig` of μView, Table 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// All series of this name; or the name of a column that is derived from others.
    pub metric: MetricName,
    /// Aggregation over replicas; `None`: as the configuration, the service, or the kind says.
    pub aggregation: Option<Aggregation>,
    /// Read every so many intervals; `None`: as the service declares.
    pub every: Option<TickDivider>,
    /// Unit of a derived column.
    pub unit: Option<Unit>,
}

/// The rule by which a series is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRule {
    pub aggregation: Aggregation,
    /// It is read every so many rows.
    pub every: TickDivider,
    /// Who decided the aggregation: `operator`, `configuration`, `service` or `kind`.
    pub decided_by: &'static str,
}

/// Memory of a choice or an exclusion besides its texts.
const ENTRY_BYTES: usize = 160;

impl Choice {
    /// Memory of the choice.
    pub fn bytes(&self) -> usize {
        let formula = match &self.aggregation {
            Some(Aggregation::Formula(formula) | Aggregation::Derived(formula)) => formula.as_str().len(),
            _ => 0,
        };
        // The names in it are kept, too; its own name is stored again while it is pending.
        2 * (ENTRY_BYTES + self.metric.as_str().len() + formula)
    }

    /// Whether it has an expression, over replicas or over columns.
    pub fn has_expression(&self) -> bool {
        matches!(self.aggregation, Some(Aggregation::Formula(_) | Aggregation::Derived(_)))
    }

    /// The expression over other columns, if it is one.
    pub fn derived(&self) -> Option<Expression> {
        let Some(Aggregation::Derived(formula)) = &self.aggregation else { return None };
        Expression::parse(formula.as_str()).ok()
    }

    /// The series of a derived column, as workers see it: a gauge that no replica has.
    pub fn derived_series(&self) -> Option<Series> {
        matches!(self.aggregation, Some(Aggregation::Derived(_))).then(|| Series {
            name: self.metric.clone(),
            labels: Labels::default(),
            kind: Kind::Gauge,
            unit: self.unit.clone(),
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        })
    }
}

/// Whether `name` in an expression stands for columns of `series`.
pub fn stands_for(name: &str, series: &Series) -> bool {
    series.kind.statistics().iter().any(|statistic| series.column_is_named(*statistic, name))
}

/// All series, or the chosen ones; without the excluded ones.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    only_chosen: bool,
    chosen: BTreeMap<MetricName, Choice>,
    /// Names in the expressions of derived columns.
    needed: BTreeSet<String>,
    without: BTreeSet<Arc<SeriesKey>>,
    /// Chosen names that no replica has registered, and since when.
    pending: BTreeMap<MetricName, Nanos>,
}

impl Selection {
    /// Only `choices`; everything if there are none.
    pub fn of(choices: Vec<Choice>) -> Self {
        let chosen: BTreeMap<_, _> = choices.into_iter().map(|choice| (choice.metric.clone(), choice)).collect();
        let mut selection = Self { only_chosen: !chosen.is_empty(), chosen, ..Self::default() };
        selection.derived_changed();
        selection
    }

    /// Only `choices`, also if there are none: what else is watched of several services is another matter.
    pub fn only(choices: Vec<Choice>) -> Self {
        Self { only_chosen: true, ..Self::of(choices) }
    }

    fn derived_changed(&mut self) {
        let expressions = self.chosen.values().filter_map(Choice::derived);
        self.needed = expressions.flat_map(|expression| expression.names().to_vec()).map(|name| name.text).collect();
    }

    /// Whether `series` is watched: it is chosen, or a derived column needs it. A derived column takes the place of
    /// series of its name.
    pub fn watches(&self, series: &Series) -> bool {
        let is_chosen = || self.chosen.contains_key(&series.name);
        self.allows(series) && (!self.only_chosen || is_chosen() || self.is_needed(series))
    }

    /// Whether `series` may be watched: it is not excluded, and no derived column takes its place.
    pub fn allows(&self, series: &Series) -> bool {
        let is_excluded = !self.without.is_empty() && self.without.contains(&SeriesKey::of(series));
        !is_excluded && self.chosen.get(&series.name).is_none_or(|choice| choice.derived_series().is_none())
    }

    /// The chosen names, also those of derived columns.
    pub fn chosen(&self) -> impl Iterator<Item = &MetricName> {
        self.chosen.keys()
    }

    /// Names in the expressions of derived columns.
    pub fn needed(&self) -> impl Iterator<Item = &str> {
        self.needed.iter().map(String::as_str)
    }

    fn is_needed(&self, series: &Series) -> bool {
        self.needed.iter().any(|name| stands_for(name, series))
    }

    /// How the series of `name` are watched, if an operator chose them.
    pub fn choice(&self, name: &MetricName) -> Option<&Choice> {
        self.chosen.get(name)
    }

    /// Columns that are derived from others.
    pub fn derived(&self) -> impl Iterator<Item = (&Choice, Series)> {
        self.chosen.values().filter_map(|choice| Some((choice, choice.derived_series()?)))
    }

    /// Number of choices with an expression.
    pub fn expressions(&self) -> usize {
        self.chosen.values().filter(|choice| choice.has_expression()).count()
    }

    /// Also watches all series of one name.
    pub fn add(&mut self, choice: Choice) {
        self.without.retain(|key| key.name != choice.metric);
        self.chosen.insert(choice.metric.clone(), choice);
        self.derived_changed();
    }

    /// Excludes one series, or takes back a derived column.
    pub fn remove(&mut self, key: Arc<SeriesKey>) {
        if self.chosen.get(&key.name).is_some_and(|choice| choice.derived_series().is_some()) {
            self.chosen.remove(&key.name);
            self.derived_changed();
        } else {
            self.without.insert(key);
        }
    }

    /// Chosen names of which `catalogue` has no series are pending from `now` on, unless they are already. Names of
    /// derived columns never are: nobody registers them. O(choices).
    pub fn find_pending(&mut self, catalogue: &Catalogue, now: Nanos) {
        self.find_pending_in(|name| catalogue.named(name).next().is_some(), now);
    }

    /// The same, of which names some are registered.
    pub fn find_pending_in(&mut self, is_registered: impl Fn(&MetricName) -> bool, now: Nanos) {
        let Self { chosen, pending, .. } = self;
        let awaited = |choice: &Choice| choice.derived_series().is_none();
        let is_missing = |name: &MetricName| chosen.get(name).is_some_and(awaited) && !is_registered(name);
        pending.retain(|name, _| is_missing(name));
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
        let chosen = self.chosen.values().map(Choice::bytes);
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
    use super::super::testing::{counter, gauge, histogram, labelled};
    use super::*;

    fn choice(name: &str, aggregation: Aggregation) -> Choice {
        Choice { metric: MetricName::new(name).unwrap(), aggregation: Some(aggregation), every: None, unit: None }
    }

    fn derived(name: &str, formula: &str) -> Choice {
        choice(name, Aggregation::Derived(wire::name::Formula::new(formula).unwrap()))
    }

    #[test]
    fn everything_is_watched_until_someone_chooses() {
        let selection = Selection::of(vec![]);

        assert!(selection.watches(&counter("a")));
        assert_eq!(selection.choice(&MetricName::new("a").unwrap()), None);
    }

    #[test]
    fn a_choice_excludes_what_is_not_chosen() {
        let mut selection = Selection::of(vec![choice("a", Aggregation::Max)]);

        assert!(selection.watches(&labelled(gauge("a"), "route", "/")));
        assert!(!selection.watches(&counter("b")));
        let chosen = selection.choice(&MetricName::new("a").unwrap()).unwrap();
        assert_eq!(chosen.aggregation, Some(Aggregation::Max));

        selection.add(choice("b", Aggregation::Max));
        assert!(selection.watches(&counter("b")));
    }

    #[test]
    fn a_derived_column_brings_what_it_is_derived_from_and_takes_the_place_of_its_name() {
        let mut selection = Selection::of(vec![derived("ratio", "errors / duration.count")]);

        assert!(selection.watches(&labelled(counter("errors"), "route", "/")));
        assert!(selection.watches(&histogram("duration")));
        assert!(!selection.watches(&gauge("ratio")));
        assert!(!selection.watches(&gauge("other")));

        let series = selection.derived().next().unwrap().1;
        selection.remove(Arc::new(SeriesKey::of(&series)));
        assert_eq!(selection.derived().count(), 0);
        assert!(!selection.watches(&counter("errors")));
    }

    #[test]
    fn names_of_derived_columns_wait_for_nobody() {
        let mut selection = Selection::of(vec![derived("ratio", "a / b"), choice("a", Aggregation::Max)]);

        selection.find_pending(&Catalogue::default(), Nanos::from_secs(1));

        assert_eq!(selection.pending().keys().map(MetricName::as_str).collect::<Vec<_>>(), ["a"]);
        selection.add(derived("a", "c"));
        selection.find_pending(&Catalogue::default(), Nanos::from_secs(2));
        assert!(selection.pending().is_empty());
    }

    #[test]
    fn a_series_taken_out_comes_back_with_its_name() {
        let mut selection = Selection::default();
        let series = counter("a");

        selection.remove(Arc::new(SeriesKey::of(&series)));
        assert!(!selection.watches(&series));
        assert_eq!(selection.len(), 1);

        selection.add(choice("a", Aggregation::Max));
        assert!(selection.watches(&series));
    }
}

//! The services of an LMAP over several, and their series as its columns.
//!
//! A column is named `service/metric`, so that all that goes by names (titles, expressions, models, choices of
//! operators) needs no more. Members are told apart by these names: none is another one's with a `/` after it.
//!
//! Columns of a service that is missing stay, without values: what was learnt of them holds when it is back. Those that
//! it does not register again then are forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lmap::Expression;
use wire::metric::{Aggregation, Series};
use wire::name::{MetricName, NameError, ServiceName};
use wire::time::Nanos;

use super::catalogue::Catalogue;
use super::lmap_options::MemberChoices;
use super::operator_error::OperatorError;
use super::replica::{Replica, SeriesKey};
use super::selection::{Choice, Selection, WatchRule, stands_for};

/// Services of one LMAP.
pub const MAX_MEMBERS: usize = 16;
/// Series of one LMAP over several services.
pub const MAX_MEMBER_SERIES: usize = 1_024;
/// Bytes of their names and labels.
pub const MAX_MEMBER_TEXT: usize = 256 << 10;

/// A service of an LMAP over several.
#[derive(Debug)]
struct Member {
    /// All of its series are watched, not only the chosen ones.
    is_whole: bool,
    /// Since when none of its watched series is registered.
    missing_since: Option<Nanos>,
}

/// A series of a member.
#[derive(Debug)]
pub struct MemberSeries {
    pub service: ServiceName,
    /// Its key in the catalogue of its service.
    pub key: Arc<SeriesKey>,
    /// As a column of the LMAP.
    pub series: Series,
    /// How it is watched, also while its service is missing.
    pub watch: WatchRule,
}

/// What an operator sees of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Name of the service.
    pub service: ServiceName,
    /// Series that are watched.
    pub series: usize,
    /// Since when none of its watched series is registered.
    pub missing_since: Option<Nanos>,
}

/// The services of an LMAP over several.
#[derive(Debug)]
pub struct Members {
    services: BTreeMap<ServiceName, Member>,
    series: BTreeMap<Arc<SeriesKey>, MemberSeries>,
    /// Series that are not watched, since there are too many, or their names are too long.
    left_out: usize,
}

/// The name of a column: `service/metric`.
pub fn column_name(service: &ServiceName, metric: &MetricName) -> Result<MetricName, NameError> {
    MetricName::new(&format!("{service}/{metric}"))
}

/// Whether names of columns of `other` may be taken for those of `service`.
fn is_nested(service: &ServiceName, other: &ServiceName) -> bool {
    other.as_str().strip_prefix(service.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

/// The one of `services` of which a column has this name, and the rest of the name.
fn split<'s, 'n>(
    mut services: impl Iterator<Item = &'s ServiceName>,
    name: &'n str,
) -> Option<(&'s ServiceName, &'n str)> {
    services.find_map(|service| Some((service, name.strip_prefix(service.as_str())?.strip_prefix('/')?)))
}

/// Those of `services` that a column is about: the one that its name begins with, or those in its expression.
pub fn concerned_by(services: &[ServiceName], name: &str, aggregation: &Aggregation) -> BTreeSet<ServiceName> {
    let named = |name: &str| split(services.iter(), name).map(|(service, _)| service.clone());
    match aggregation {
        Aggregation::Derived(formula) => {
            let expression = Expression::parse(formula.as_str()).ok();
            let names = expression.iter().flat_map(Expression::names);
            names.filter_map(|name| named(&name.text)).collect()
        }
        _ => named(name).into_iter().collect(),
    }
}

impl Members {
    /// The members that an operator names, and the choice of their columns.
    ///
    /// # Errors
    ///
    /// [`OperatorError::TooMany`], [`OperatorError::Nested`], [`OperatorError::Column`].
    pub fn new(members: Vec<MemberChoices>, now: Nanos) -> Result<(Self, Selection), OperatorError> {
        let (found, limit) = (members.len(), MAX_MEMBERS);
        if found > limit {
            return Err(OperatorError::TooMany { what: "services of one LMAP", found, limit });
        }
        let (mut services, mut choices) = (BTreeMap::new(), Vec::new());
        for MemberChoices { service, choices: of } in members {
            let is_whole = of.iter().all(|choice| choice.derived_series().is_some());
            for mut choice in of {
                if choice.derived_series().is_none() {
                    let column = column_name(&service, &choice.metric);
                    choice.metric =
                        column.map_err(|error| OperatorError::Column { service: service.clone(), error })?;
                }
                choices.push(choice);
            }
            if is_whole {
                // A service's name may begin with a digit, and a metric's may not.
                let column = MetricName::new(&format!("{service}/x"));
                column.map_err(|error| OperatorError::Column { service: service.clone(), error })?;
            }
            let member: &mut Member =
                services.entry(service).or_insert(Member { is_whole: false, missing_since: Some(now) });
            member.is_whole |= is_whole;
        }
        for service in services.keys() {
            if let Some(other) = services.keys().find(|other| is_nested(service, other)) {
                return Err(OperatorError::Nested { service: service.clone(), other: other.clone() });
            }
        }
        Ok((Self { services, series: BTreeMap::new(), left_out: 0 }, Selection::only(choices)))
    }

    /// Goes on with the columns of `old` of services that are members still.
    #[must_use]
    pub fn instead_of(mut self, old: Option<Self>) -> Self {
        let Some(old) = old else { return self };
        for (name, member) in &mut self.services {
            if let Some(before) = old.services.get(name) {
                member.missing_since = before.missing_since;
            }
        }
        self.series = old.series;
        self
    }

    /// Whether `service` is a member.
    pub fn has(&self, service: &ServiceName) -> bool {
        self.services.contains_key(service)
    }

    /// The names of the members, in order.
    pub fn names(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys()
    }

    /// All members, in order.
    pub fn states(&self) -> impl Iterator<Item = MemberState> {
        self.services.iter().map(|(service, member)| {
            let series = self.series.values().filter(|series| series.service == *service).count();
            MemberState { service: service.clone(), series, missing_since: member.missing_since }
        })
    }

    /// The series that are watched, by their names as columns.
    pub fn series(&self) -> &BTreeMap<Arc<SeriesKey>, MemberSeries> {
        &self.series
    }

    /// Number of series that are not watched, since there are too many, or their names are too long.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The member of which a column has this name, and the rest of the name.
    pub fn find<'a>(&self, name: &'a str) -> Option<(&ServiceName, &'a str)> {
        split(self.services.keys(), name)
    }

    /// Finds the series of all members anew: `registered` has the catalogue and the replicas of each, and `watch` says
    /// how a series of a member is watched. O(series of the members).
    pub fn join<'a>(
        &mut self,
        selection: &Selection,
        registered: impl Fn(&ServiceName) -> (Option<&'a Catalogue>, Vec<&'a Replica>),
        watch: impl Fn((&ServiceName, Option<&Choice>), (&SeriesKey, &Series), &Catalogue, &[&Replica]) -> WatchRule,
        now: Nanos,
    ) {
        let (mut found, mut text, mut left_out) = (BTreeMap::new(), 0, 0);
        for (service, member) in &mut self.services {
            let before = found.len();
            let (Some(catalogue), replicas) = registered(service) else {
                member.missing_since.get_or_insert(now);
                continue;
            };
            let wanted = MemberSelection::new(service, member.is_whole, selection);
            for (key, series) in catalogue.iter().filter(|(_, series)| wanted.may_have(series)) {
                let Some(column) = wanted.column(series) else {
                    left_out += usize::from(column_name(service, &series.name).is_err());
                    continue;
                };
                let column_key = SeriesKey::of(&column);
                text += column_key.text_bytes();
                if found.len() >= MAX_MEMBER_SERIES || text > MAX_MEMBER_TEXT {
                    left_out += 1;
                    continue;
                }
                let chosen = selection.choice(&column.name);
                let watch = watch((service, chosen), (key, series), catalogue, &replicas);
                let (service, key) = (service.clone(), Arc::clone(key));
                found.insert(Arc::new(column_key), MemberSeries { service, key, series: column, watch });
            }
            if found.len() > before {
                member.missing_since = None;
            } else {
                member.missing_since.get_or_insert(now);
            }
        }
        for (key, series) in core::mem::take(&mut self.series) {
            let member = self.services.get(&series.service).filter(|member| member.missing_since.is_some());
            let is_wanted = member.is_some_and(|member| selects(selection, member.is_whole, &series.series));
            if is_wanted && found.len() < MAX_MEMBER_SERIES {
                found.entry(key).or_insert(series);
            }
        }
        (self.series, self.left_out) = (found, left_out);
    }
}

/// Whether the column `series` of a member is watched; all of its series are if it `is_whole`.
fn selects(selection: &Selection, is_whole: bool, series: &Series) -> bool {
    selection.watches(series) || is_whole && selection.allows(series)
}

/// Which series of one member are watched.
struct MemberSelection<'a> {
    service: &'a ServiceName,
    is_whole: bool,
    selection: &'a Selection,
    /// Names of its metrics that are chosen.
    chosen: BTreeSet<&'a str>,
    /// Names of its columns in expressions.
    needed: Vec<&'a str>,
}

impl<'a> MemberSelection<'a> {
    fn new(service: &'a ServiceName, is_whole: bool, selection: &'a Selection) -> Self {
        let own = |name: &'a str| name.strip_prefix(service.as_str())?.strip_prefix('/');
        let chosen = selection.chosen().filter_map(|name| own(name.as_str())).collect();
        Self { service, is_whole, selection, chosen, needed: selection.needed().filter_map(own).collect() }
    }

    /// Whether a series may be watched. Allocates nothing, unlike [`Self::column`].
    fn may_have(&self, series: &Series) -> bool {
        self.is_whole
            || self.chosen.contains(series.name.as_str())
            || self.needed.iter().any(|name| stands_for(name, series))
    }

    /// The series as a column; `None` if it is not watched, or its name is too long for a column.
    fn column(&self, series: &Series) -> Option<Series> {
        let column = Series { name: column_name(self.service, &series.name).ok()?, ..series.clone() };
        selects(self.selection, self.is_whole, &column).then_some(column)
    }
}

#[cfg(test)]
mod tests {
    use super::super::selection::Choice;
    use super::*;

    fn member(name: &str, metrics: &[&str]) -> MemberChoices {
        let choice =
            |name: &&str| Choice { metric: MetricName::new(name).unwrap(), aggregation: None, every: None, unit: None };
        MemberChoices { service: ServiceName::new(name).unwrap(), choices: metrics.iter().map(choice).collect() }
    }

    #[test]
    fn members_whose_columns_could_be_taken_for_each_others_are_refused() {
        let nested =
            Members::new(vec![member("shop", &["cart/errors"]), member("shop/cart", &["errors"])], Nanos::ZERO);
        assert_eq!(
            nested.unwrap_err().to_string(),
            "columns of shop and shop/cart cannot be told apart: leave one of them out"
        );
        assert!(Members::new(vec![member("shop", &[]), member("shop-cart", &[])], Nanos::ZERO).is_ok());
    }

    #[test]
    fn a_member_of_which_columns_could_have_no_name_is_refused() {
        let digit = Members::new(vec![member("3scale", &[])], Nanos::ZERO).unwrap_err().to_string();
        assert!(digit.starts_with("columns of 3scale: "), "{digit}");
        let long = Members::new(vec![member(&"a".repeat(128), &[&"b".repeat(200)])], Nanos::ZERO).unwrap_err();
        assert!(long.to_string().contains("of 329 bytes is longer than 255"), "{long}");
    }

    #[test]
    fn a_column_is_about_the_member_in_its_name_or_those_in_its_expression() {
        let services = ["cart", "payment"].map(|name| ServiceName::new(name).unwrap());
        let concerned = |name: &str, aggregation: &str| {
            let aggregation = match aggregation {
                "" => Aggregation::Sum,
                text => Aggregation::Derived(wire::name::Formula::new(text).unwrap()),
            };
            let concerned = concerned_by(&services, name, &aggregation);
            concerned.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };

        assert_eq!(concerned("payment/requests", ""), "payment");
        assert_eq!(concerned("ratio", "`payment/requests` / `cart/requests`"), "cart payment");
        assert_eq!(concerned("payments/requests", ""), "");
    }
}
